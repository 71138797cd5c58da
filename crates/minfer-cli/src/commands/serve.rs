//! `minfer serve`: models over HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use minfer::engine::{Engine, EngineOptions};
use minfer_server::{Loader, ModelName, Server, ServerOptions};

use crate::args::{EngineArgs, ServeArgs};
use crate::models;
use crate::output::{Failure, Outcome, note};

/// Positions a conversation has when the user says nothing; at most the model's own limit.
const N_CTX: usize = 8192;

/// Serves until it is interrupted.
pub fn serve(a: ServeArgs) -> Outcome {
    let options = ServerOptions {
        address: SocketAddr::new(a.host, a.port),
        models: a.models.iter().map(|m| name(m)).collect(),
    };
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|e| Failure::Error(format!("no threads for the server: {e}")))?;
    let failed = |e: minfer_server::ServerError| Failure::Error(e.to_string());
    runtime.block_on(async {
        let server = Server::bind(options, loader(&a)).await.map_err(failed)?;
        let address = server
            .address()
            .map_err(|e| Failure::Error(e.to_string()))?;
        note(format_args!(
            "listening on http://{address}, loading the model"
        ));
        let ready = || note("ready");
        server.run(ready, interrupted()).await.map_err(failed)
    })
}

async fn interrupted() {
    if let Err(e) = tokio::signal::ctrl_c().await {
        tracing::warn!("interrupts are not handled: {e}");
        std::future::pending::<()>().await;
    }
}

/// `NAME=MODEL`, or a MODEL, called by its file's name without the ending.
fn name(text: &str) -> ModelName {
    if let Some((id, spec)) = text
        .split_once('=')
        .filter(|(id, _)| !id.contains(['/', ':']))
    {
        return ModelName {
            id: id.to_owned(),
            spec: spec.to_owned(),
        };
    }
    let stem = Path::new(text).file_name().map(|n| n.to_string_lossy());
    let stem = stem.as_deref().unwrap_or(text);
    ModelName {
        id: stem.strip_suffix(".gguf").unwrap_or(stem).to_owned(),
        spec: text.to_owned(),
    }
}

fn loader(a: &ServeArgs) -> Loader {
    let (args, n_seqs, queue) = (a.engine.clone(), a.parallel, a.queue);
    Arc::new(move |spec| {
        let engine = load(spec, &args, n_seqs, queue);
        engine.map_err(|e| match e {
            Failure::Error(message) | Failure::Usage(message) => message,
            Failure::ClosedPipe => "nobody reads what it says".to_owned(),
        })
    })
}

fn load(spec: &str, a: &EngineArgs, n_seqs: usize, queue: usize) -> Result<Engine, Failure> {
    let model = models::open(spec)?;
    let limit = model.hparams().n_ctx_train;
    let options = EngineOptions {
        n_seqs,
        queue,
        ..models::options(a, a.n_ctx.unwrap_or(N_CTX.min(limit)))
    };
    models::start(model, options)
}
