//! `minfer serve`: models over HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use minfer::engine::{Engine, EngineOptions, Model};
use minfer::graph::{KvType, PAGE};
use minfer_server::{
    GuardOptions, Limits, Loader, ModelName, Residency, Room, Server, ServerError, ServerOptions,
    TlsFiles,
};

use crate::args::{AccessArgs, EngineArgs, LimitArgs, ServeArgs};
use crate::output::{Failure, Outcome, note};
use crate::{files, models};

/// Positions a conversation has when the user says nothing; at most the model's own limit.
const N_CTX: usize = 8192;

/// Serves until it is told to end.
pub fn serve(a: ServeArgs) -> Outcome {
    refuse_idle(&a)?;
    let options = ServerOptions {
        address: SocketAddr::new(a.host, a.port),
        models: a.models.iter().map(|m| name(m)).collect::<Result<_, _>>()?,
        residency: Residency {
            memory: a.models_memory,
            max: a.models_max,
            keep_alive: (a.keep_alive != Duration::MAX).then_some(a.keep_alive),
        },
        limits: limits(&a.limits),
        guard: GuardOptions {
            keys: keys(&a.access)?,
            allowed_hosts: a.access.allowed_host.clone(),
            cors_origins: a.access.cors_origin.clone(),
        },
        tls: tls(&a.access),
    };
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|e| Failure::Error(format!("no threads for the server: {e}")))?;
    let ended = runtime.block_on(listen(&a, options));
    // What still loads or computes is for nobody.
    runtime.shutdown_background();
    ended
}

/// What is said of models that there are not would be lost.
fn refuse_idle(a: &ServeArgs) -> Outcome {
    match a.models.len() == 1 && a.keep_alive != Duration::MAX {
        true => Err(Failure::Usage(
            "--keep-alive does nothing: it is of models other than the first, and there is one; leave it out (requests to \
             Ollama's addresses may bring a keep_alive of their own)"
                .into(),
        )),
        false => Ok(()),
    }
}

async fn listen(a: &ServeArgs, options: ServerOptions) -> Outcome {
    let failed = |e: ServerError| match e {
        ServerError::Guard(_) | ServerError::NoName(_) | ServerError::SameName(_) => {
            Failure::Usage(e.to_string())
        }
        _ => Failure::Error(e.to_string()),
    };
    let scheme = if options.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let open = options.guard.keys.is_empty();
    let specs: Vec<String> = options.models.iter().map(|m| m.spec.clone()).collect();
    let signals = Signals::new()?;
    let server = Server::bind(options, loader(a)).await.map_err(failed)?;
    let address = server.address()?;
    note(format_args!(
        "listening on {scheme}://{address}, loading the model"
    ));
    if open && !address.ip().is_loopback() {
        note(format_args!(
            "note: whoever reaches {address} can use the server: --api-key asks for a key"
        ));
    }
    // The first is looked for at once.
    for spec in specs.iter().skip(1) {
        if let Err(Failure::Error(e) | Failure::Usage(e)) = models::known(spec) {
            note(format_args!(
                "note: {e}; it is looked for again when it is asked for"
            ));
        }
    }
    let ready = || note("ready");
    server.run(ready, signals.end()).await.map_err(failed)
}

fn limits(a: &LimitArgs) -> Limits {
    Limits {
        connections: a.max_connections,
        body: usize::try_from(a.max_body).unwrap_or(usize::MAX),
        idle: a.idle_timeout,
        request: (!a.request_timeout.is_zero()).then_some(a.request_timeout),
        drain: a.drain_timeout,
        ..Limits::default()
    }
}

fn tls(a: &AccessArgs) -> Option<TlsFiles> {
    let files = a.tls_cert.clone().zip(a.tls_key.clone());
    files.map(|(certificate, key)| TlsFiles { certificate, key })
}

/// The keys of the flags, the file and the environment. A place for keys that holds none is an error: it was meant to
/// lock something.
fn keys(a: &AccessArgs) -> Result<Vec<String>, Failure> {
    const VARIABLE: &str = "MINFER_API_KEY";
    let mut keys = a.api_key.clone();
    if let Some(file) = &a.api_key_file {
        let text = files::read_text(file)?;
        let lines = text.lines().map(str::trim);
        let found: Vec<&str> = lines
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
            .collect();
        if found.is_empty() {
            let message = format!("{}: holds no key, one a line", file.display());
            return Err(Failure::Error(message));
        }
        keys.extend(found.into_iter().map(str::to_owned));
    }
    match std::env::var(VARIABLE) {
        Ok(key) if key.is_empty() => {
            let message = format!("{VARIABLE} is empty: set it to a key, or not at all");
            return Err(Failure::Usage(message));
        }
        Ok(key) => keys.push(key),
        Err(std::env::VarError::NotPresent) => {}
        Err(e) => return Err(Failure::Usage(format!("{VARIABLE}: {e}"))),
    }
    Ok(keys)
}

/// The signals that end a server, listened to from now on.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the first; the second ends the process, with the code shells know the signal by.
    async fn end(mut self) {
        self.next().await;
        note("ending once the running requests have ended; a second signal ends at once");
        tokio::spawn(async move { std::process::exit(self.next().await) });
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    async fn end(self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        note("ending once the running requests have ended; a second Ctrl-C ends at once");
        tokio::spawn(async {
            drop(tokio::signal::ctrl_c().await);
            std::process::exit(130)
        });
    }
}

/// `NAME=MODEL`, or a MODEL, called by its file's name without the ending.
fn name(text: &str) -> Result<ModelName, Failure> {
    let named = text.split_once('=');
    if let Some((id, spec)) = named.filter(|(id, _)| !id.contains(['/', ':'])) {
        let missing = match (id.trim(), spec.trim()) {
            ("", _) => "the name in front of = is empty",
            (_, "") => "there is no model behind =",
            _ => {
                return Ok(ModelName {
                    id: id.to_owned(),
                    spec: spec.to_owned(),
                });
            }
        };
        let message = format!("'{text}': {missing}: give it as NAME=MODEL, or as MODEL alone");
        return Err(Failure::Usage(message));
    }
    let stem = Path::new(text).file_name().map(|n| n.to_string_lossy());
    let stem = stem.as_deref().unwrap_or(text);
    Ok(ModelName {
        id: stem.strip_suffix(".gguf").unwrap_or(stem).to_owned(),
        spec: text.to_owned(),
    })
}

fn loader(a: &ServeArgs) -> Loader {
    let (args, n_seqs, queue) = (a.engine.clone(), a.parallel, a.queue);
    let load =
        Loader::new(move |spec, room| load(spec, &args, (n_seqs, queue), room).map_err(message));
    load.reading(|spec| match models::cached(spec).map_err(message)? {
        Some(path) => Model::open(&path).map_err(|e| e.to_string()),
        None => Err("its file is not here yet: the first request to use it fetches it".to_owned()),
    })
}

fn message(e: Failure) -> String {
    match e {
        Failure::Error(message) | Failure::Usage(message) => message,
        Failure::ClosedPipe => "nobody reads what it says".to_owned(),
    }
}

fn load(
    spec: &str,
    a: &EngineArgs,
    (n_seqs, queue): (usize, usize),
    room: Room<'_>,
) -> Result<Engine, Failure> {
    let model = models::open(spec)?;
    let limit = model.hparams().n_ctx_train;
    let options = EngineOptions {
        n_seqs,
        queue,
        constraints_ahead: true,
        ..models::options(a, a.n_ctx.unwrap_or(N_CTX.min(limit)))
    };
    room(memory(&model, &options)).map_err(Failure::Error)?;
    let engine = models::start(model.clone(), options)?;
    // Requests say what is wrong with a template that can't be used.
    if let Some(notice) = model.chat_template().ok().and_then(|t| t.notice()) {
        note(format_args!("note: {spec}: {notice}"));
    }
    Ok(engine)
}

/// Bytes of a model's weights, and of its KV cache when it is full. Windowed layers need less.
fn memory(model: &Model, options: &EngineOptions) -> u64 {
    let weights = model.weights().iter().map(|(_, w)| w.data.bytes().len());
    let weights = weights.sum::<usize>() as u64;
    let h = model.hparams();
    let head = |ty: KvType| match h.head_dim % ty.block() {
        0 => ty.head_bytes(h.head_dim),
        _ => 0, // refused when it is loaded
    };
    let (k, v) = (head(options.type_k), head(options.type_v));
    // Nobody has looked at the numbers yet: a flag and a file say them.
    let pages = [options.n_ctx.div_ceil(PAGE), options.n_seqs];
    let page = [h.n_layer, h.n_head_kv, k.saturating_add(v)];
    let numbers = pages.iter().chain(&page).map(|n| *n as u64);
    let kv = numbers.fold(1, u64::saturating_mul);
    weights.saturating_add(options.kv_memory.map_or(kv, |most| most.min(kv)))
}
