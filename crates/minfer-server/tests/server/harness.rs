//! A server in this process, and requests to it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

use minfer::engine::{Engine, EngineOptions, Model};
use minfer_server::{Handle, Loader, ModelName, Server, ServerOptions, TlsFiles};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::models::tiny;

/// A running server; it ends when this is dropped.
pub struct Running {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// For looks into it.
    pub handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<Result<(), String>>>,
}

/// An answer to a request.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub text: String,
    /// Header names and values.
    pub headers: Vec<(String, String)>,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The data of each event of a stream of JSON; the last one must be `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|l| l.strip_prefix("data: "));
        let mut data: Vec<&str> = data.collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.text);
        data.iter()
            .map(|d| serde_json::from_str(d).expect("JSON"))
            .collect()
    }
}

/// Name and data of each event of a stream whose events say their name in `type`, too.
pub fn named_events(reply: &Reply) -> Vec<(String, Value)> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let blocks = reply.text.split("\n\n").filter(|b| !b.is_empty());
    let event = |block: &str| {
        let (name, data) = block.split_once('\n').expect("two lines");
        let name = name.strip_prefix("event: ").expect("a name");
        let data = data.strip_prefix("data: ").expect("data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data["type"], name);
        (name.to_owned(), data)
    };
    blocks.map(event).collect()
}

/// How a test's server differs from the default one.
pub struct Setup {
    /// The server's options; the address is always a free port.
    pub server: ServerOptions,
    /// The engines'.
    pub engine: EngineOptions,
}

impl Setup {
    /// With the tiny models of these names, or files at these paths.
    pub fn of(models: &[&str]) -> Setup {
        let name = |m: &&str| {
            let spec = if m.contains('/') {
                (*m).to_owned()
            } else {
                tiny(m)
            };
            let stem = Path::new(&spec)
                .file_stem()
                .expect("a file")
                .to_string_lossy();
            let id = stem.into_owned();
            ModelName { id, spec }
        };
        Setup {
            server: ServerOptions {
                address: ([127, 0, 0, 1], 0).into(),
                models: models.iter().map(name).collect(),
                ..ServerOptions::default()
            },
            engine: EngineOptions {
                n_ctx: 256,
                n_seqs: 4,
                n_threads: Some(1),
                ..EngineOptions::default()
            },
        }
    }

    /// Starts it and waits until its first model is loaded.
    pub fn start(self) -> Running {
        let engine = self.engine.clone();
        let loader = Loader::new(move |spec, _| {
            let model = Model::open(Path::new(spec)).map_err(|e| e.to_string())?;
            let n_ctx = engine.n_ctx.min(model.hparams().n_ctx_train);
            let options = EngineOptions {
                n_ctx,
                ..engine.clone()
            };
            Engine::new(model, options, &mut |_, _| {}).map_err(|e| e.to_string())
        });
        self.start_with(loader)
    }

    /// The same with a loader of the test's own.
    pub fn start_with(self, loader: Loader) -> Running {
        let (running, ready) = self.begin(loader);
        ready.recv().expect("a loaded model");
        running
    }

    /// The same, without waiting for the first model.
    pub fn start_early(self, loader: Loader) -> Running {
        self.begin(loader).0
    }

    /// A server that listens, and the news that its first model is loaded.
    fn begin(self, loader: Loader) -> (Running, Receiver<()>) {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell_ready, ready) = channel();
        let (tell, told) = channel();
        let server = self.server;
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let server = Server::bind(server, loader).await.expect("a port");
                let mut address = server.address().expect("an address");
                if address.ip().is_unspecified() {
                    address.set_ip([127, 0, 0, 1].into());
                }
                drop(tell.send((address, server.handle())));
                let ready = move || {
                    let _ = tell_ready.send(());
                };
                let stop = async { drop(stopped.await) };
                server.run(ready, stop).await.map_err(|e| e.to_string())
            })
        });
        let (address, handle) = told.recv().expect("a port");
        let running = Running {
            handle,
            url: format!("http://{address}"),
            stop: Some(stop),
            thread: Some(thread),
        };
        (running, ready)
    }
}

impl Running {
    /// A GET.
    pub fn get(&self, path: &str) -> Reply {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent: ureq::Agent = config.build().into();
        reply(agent.get(format!("{}{path}", self.url)).call())
    }

    /// A POST of a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent: ureq::Agent = config.build().into();
        let post = agent.post(format!("{}{path}", self.url));
        let post = post.header("content-type", "application/json");
        reply(post.send(body.to_string()))
    }
}

impl Running {
    /// What its first model is called.
    pub fn id(&self) -> String {
        self.handle.loaded()[0].id.clone()
    }

    /// Tells it to end.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// How it ended, once it has been told to.
    pub fn end(&mut self) -> Result<(), String> {
        let thread = self.thread.take().expect("once");
        thread.join().expect("no panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if self.thread.is_some() && !std::thread::panicking() {
            self.end().expect("a server that ends well");
        }
    }
}

/// A body with these fields, too.
pub fn with(mut body: Value, more: &[(&str, Value)]) -> Value {
    for (key, value) in more {
        body[*key] = value.clone();
    }
    body
}

/// A request as this path's surface has it: Ollama's says in its options how to generate.
pub fn on(path: &str, mut ask: Value) -> Value {
    if path.starts_with("/api/") {
        for (theirs, ours) in [
            ("temperature", "temperature"),
            ("max_tokens", "num_predict"),
        ] {
            let moved = ask.as_object_mut().and_then(|map| map.remove(theirs));
            if let Some(value) = moved {
                ask["options"][ours] = value;
            }
        }
    }
    ask
}

/// A short request that is fine on this path.
pub fn fine(path: &str) -> Value {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let few = json!({"num_predict": 1});
    let more = match path {
        "/v1/completions" => json!({"prompt": "Hi", "max_tokens": 1}),
        "/v1/chat/completions" | "/v1/messages" | "/v1/messages/count_tokens" => {
            json!({"messages": messages, "max_tokens": 1})
        }
        "/v1/responses" => json!({"input": "Hi", "max_output_tokens": 1}),
        "/v1/embeddings" | "/api/embed" => json!({"input": "Hi"}),
        "/completion" => json!({"prompt": "Hi", "n_predict": 1}),
        "/embedding" | "/tokenize" => json!({"content": "Hi"}),
        "/detokenize" => json!({"tokens": [1]}),
        "/api/chat" => json!({"messages": messages, "options": few}),
        "/api/generate" => json!({"prompt": "Hi", "options": few}),
        other => panic!("{other}"),
    };
    fields(json!({"model": "llama"}), &more)
}

/// A body with the fields of another, too.
fn fields(body: Value, more: &Value) -> Value {
    let more = more.as_object().expect("an object").iter();
    let more: Vec<(&str, Value)> = more.map(|(k, v)| (k.as_str(), v.clone())).collect();
    with(body, &more)
}

/// What is said to [`fine`] with these fields, too.
pub fn said(server: &Running, path: &str, more: &Value) -> Reply {
    server.post(path, &fields(fine(path), more))
}

/// It is refused in these words, which begin with the field that the error names, if it names one.
pub fn refused(server: &Running, path: &str, more: &Value, says: &str) {
    let reply = said(server, path, more);
    let at = format!("{path} {more}");
    assert_eq!(reply.status, 400, "{at}: {}", reply.text);
    let error = &reply.json()["error"];
    let text = error.as_str().or(error["message"].as_str());
    assert_eq!(text, Some(says), "{at}");
    if let Some(param) = error.get("param") {
        assert_eq!(param.as_str(), says.split(": ").next(), "{at}");
    }
}

/// It is answered.
pub fn taken(server: &Running, path: &str, more: &Value) {
    let reply = said(server, path, more);
    assert_eq!(reply.status, 200, "{path} {more}: {}", reply.text);
}

fn reply(result: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Reply {
    let mut response = result.expect("a response");
    let headers = response.headers().iter();
    let headers = headers.map(|(k, v)| (k.to_string(), v.to_str().expect("text").to_owned()));
    Reply {
        status: response.status().as_u16(),
        headers: headers.collect(),
        text: response.body_mut().read_to_string().expect("a body"),
    }
}

/// A file of the tests' own.
pub fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(file)
}

/// The certificate is localhost's own (openssl req -x509 -newkey ec -days 36500 …): no other vouches for it.
pub fn localhost() -> TlsFiles {
    TlsFiles {
        certificate: data("localhost.pem"),
        key: data("localhost.key"),
    }
}
