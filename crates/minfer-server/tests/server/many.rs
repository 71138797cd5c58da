//! Several models: loaded when they are asked for, unloaded when others need the room.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use minfer::engine::{Engine, EngineOptions, Model};
use minfer_server::Loader;
use serde_json::{Value, json};

use crate::harness::{Reply, Running, Setup};
use crate::models::endless;
use crate::raw::{Raw, wait_for};

const CHAT: &str = "/v1/chat/completions";

/// What happened to a loader, by the model's file name.
#[derive(Clone, Default)]
struct Loads(Arc<Mutex<HashMap<String, usize>>>);

impl Loads {
    fn of(&self, id: &str) -> usize {
        *self.0.lock().unwrap().get(id).unwrap_or(&0)
    }

    /// A loader that counts, asks for `bytes` and calls `before` with the id and how often it was loaded before.
    fn loader(
        &self,
        bytes: u64,
        before: impl Fn(&str, usize) -> Result<(), String> + Send + Sync + 'static,
    ) -> Loader {
        let loads = self.clone();
        Loader::new(move |spec, room| {
            let id = Path::new(spec)
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let n = {
                let mut loads = loads.0.lock().unwrap();
                let n = loads.entry(id.clone()).or_default();
                *n += 1;
                *n - 1
            };
            before(&id, n)?;
            room(bytes)?;
            let model = Model::open(Path::new(spec)).map_err(|e| e.to_string())?;
            let options = EngineOptions {
                n_ctx: 256,
                n_threads: Some(1),
                ..EngineOptions::default()
            };
            Engine::new(model, options, &mut |_, _| {}).map_err(|e| e.to_string())
        })
    }
}

fn body(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "a"}], "max_tokens": 2})
}

fn ask(server: &Running, model: &str) -> Reply {
    server.post(CHAT, &body(model))
}

fn fine(server: &Running, model: &str) {
    let reply = ask(server, model);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.json()["model"], model);
}

fn loaded(server: &Running) -> Vec<String> {
    server
        .handle
        .loaded()
        .iter()
        .map(|l| l.id.clone())
        .collect()
}

#[test]
fn requests_for_a_model_that_loads_wait_for_one_load() {
    let loads = Loads::default();
    let slow = loads.loader(0, |_, _| {
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    });
    let server = Setup::of(&["llama", "qwen3"]).start_with(slow);
    assert_eq!(loaded(&server), ["llama"], "the first, and no other");
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| fine(&server, "qwen3"));
        }
    });
    assert_eq!((loads.of("llama"), loads.of("qwen3")), (1, 1));
    assert_eq!(loaded(&server), ["llama", "qwen3"]);
}

#[test]
fn a_client_that_leaves_does_not_stop_a_load() {
    let loads = Loads::default();
    let slow = loads.loader(0, |_, _| {
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    });
    let server = Setup::of(&["llama", "qwen3"]).start_with(slow);
    let mut client = Raw::connect(&server);
    client.post(CHAT, "", &body("qwen3").to_string());
    wait_for("a load", || loads.of("qwen3") == 1);
    drop(client);
    wait_for("its end", || loaded(&server).len() == 2);
    fine(&server, "qwen3");
    assert_eq!(loads.of("qwen3"), 1);
}

#[test]
fn a_failed_load_is_reported_and_tried_again() {
    let loads = Loads::default();
    let failing = loads.loader(0, |id, n| match (id, n) {
        ("qwen3", 0) => Err("the disk is on fire".to_owned()),
        ("qwen3", 1) => panic!("a bug"),
        _ => Ok(()),
    });
    let server = Setup::of(&["llama", "qwen3"]).start_with(failing);
    let reply = ask(&server, "qwen3");
    assert_eq!(reply.status, 500);
    let said = reply.json()["error"]["message"].to_string();
    assert!(
        said.contains("'qwen3'") && said.contains("the disk is on fire"),
        "{said}"
    );
    assert_eq!(ask(&server, "qwen3").status, 500, "a panic is no end");
    fine(&server, "qwen3");
    fine(&server, "llama");
}

#[test]
fn the_model_that_was_used_least_recently_makes_room() {
    let loads = Loads::default();
    let mut setup = Setup::of(&["llama", "qwen3", "llama3", "qwen2"]);
    setup.server.residency.memory = Some(250);
    let loader = loads.loader(100, |_, _| Ok(()));
    let server = setup.start_with(loader);
    fine(&server, "qwen3");
    fine(&server, "llama");
    fine(&server, "llama3");
    assert_eq!(loaded(&server), ["llama", "llama3"], "qwen3 was the oldest");
    fine(&server, "llama3");
    fine(&server, "qwen2");
    assert_eq!(
        loaded(&server),
        ["llama3", "qwen2"],
        "the first one, too, makes room"
    );
    assert_eq!(
        server.get("/health").status,
        200,
        "it is loaded again when it is asked for"
    );
    fine(&server, "llama");
    assert_eq!(loads.of("llama"), 2);
}

#[test]
fn a_model_larger_than_the_memory_is_refused_by_number() {
    let mut setup = Setup::of(&["llama", "qwen3"]);
    setup.server.residency.memory = Some(1000);
    let loads = Loads::default();
    let normal = loads.loader(600, |_, _| Ok(()));
    let large = loads.loader(1001, |_, _| Ok(()));
    let loader = Loader::new(move |spec, room| match spec.contains("qwen3") {
        true => large.load(spec, room),
        false => normal.load(spec, room),
    });
    let server = setup.start_with(loader);
    let reply = ask(&server, "qwen3");
    assert_eq!(reply.status, 500);
    assert!(
        reply.text.contains("1001 bytes") && reply.text.contains("1000 (--models-memory)"),
        "{}",
        reply.text
    );
    assert_eq!(loaded(&server), ["llama"], "nobody made room for nothing");
}

#[test]
fn a_model_at_work_is_never_unloaded() {
    let model = endless();
    let path = model.path().to_owned();
    let mut setup = Setup::of(&[&path, "qwen3"]);
    setup.server.residency.max = Some(1);
    setup.engine.n_ctx = 1 << 14;
    let server = setup.start();
    let talk = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 16000, "ignore_eos": true, "stream": true});
    let mut running = Raw::connect(&server);
    running.post(CHAT, "", &talk.to_string());
    running.until("data: ");
    std::thread::scope(|s| {
        let other = s.spawn(|| ask(&server, "qwen3"));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!other.is_finished(), "there is no room yet");
        assert_ne!(loaded(&server), ["qwen3"]);
        drop(running);
        assert_eq!(other.join().unwrap().status, 200);
    });
    assert_eq!(loaded(&server), ["qwen3"]);
}

#[test]
fn an_idle_model_is_unloaded_but_never_the_first() {
    let loads = Loads::default();
    let mut setup = Setup::of(&["llama", "qwen3"]);
    setup.server.residency.keep_alive = Some(Duration::from_millis(50));
    let server = setup.start_with(loads.loader(0, |_, _| Ok(())));
    fine(&server, "qwen3");
    wait_for("the second's end", || loaded(&server) == ["llama"]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(loaded(&server), ["llama"]);
    fine(&server, "qwen3");
    assert_eq!((loads.of("llama"), loads.of("qwen3")), (1, 2));
}

#[test]
fn who_only_looks_loads_no_model() {
    let loads = Loads::default();
    let server = Setup::of(&["llama", "qwen3"]).start_with(loads.loader(0, |_, _| Ok(())));
    for path in ["/props", "/slots", "/tokenizer_info"] {
        assert_eq!(server.get(path).status, 200, "{path}");
        let reply = server.get(&format!("{path}?model=qwen3"));
        assert_eq!(reply.status, 503, "{path}: {}", reply.text);
        let said = reply.json()["error"]["message"].to_string();
        assert!(said.contains("'qwen3' is not loaded"), "{said}");
        assert_eq!(server.get(&format!("{path}?model=none")).status, 404);
    }
    let show = server.post("/api/show", &json!({"model": "qwen3:latest"}));
    assert_eq!(show.status, 200, "{}", show.text);
    assert_eq!(show.json()["details"]["family"], "qwen3");
    let none = server.post("/api/show", &json!({"model": "none"}));
    assert_eq!(none.status, 404, "{}", none.text);
    assert_eq!(loads.of("qwen3"), 0);
    fine(&server, "qwen3");
    let slots = server.get("/slots?model=qwen3").json();
    assert_eq!(slots[0]["model"], "qwen3");
}

/// The second is asked for while the first still loads, and keeps working.
#[test]
fn the_first_model_waits_behind_none_that_came_later() {
    let model = endless();
    let path = model.path().to_owned();
    let mut setup = Setup::of(&["llama", &path]);
    setup.server.residency.max = Some(1);
    let second = setup.server.models[1].id.clone();
    let loads = Loads::default();
    // Whoever connects as soon as the port is there comes before the first model has its room.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let loader = loads.loader(0, move |id, n| {
        if (id, n) == ("llama", 0) {
            let _ = held.lock().unwrap().recv_timeout(Duration::from_secs(60));
        }
        Ok(())
    });
    let server = setup.start_early(loader);
    let body = body(&second);
    std::thread::scope(|s| {
        let other = s.spawn(|| server.post(CHAT, &body));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!other.is_finished(), "it waits for the first");
        assert_eq!(loads.of(&second), 0);
        drop(hold);
        let reply = other.join().unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text);
    });
    assert_eq!(loads.of("llama"), 1, "it was loaded, and made room");
    assert_eq!(server.get("/health").status, 200, "and the server lives");
}

/// Prometheus takes a counter that falls for a new beginning.
#[test]
fn counters_outlive_the_models_they_count() {
    let loads = Loads::default();
    let mut setup = Setup::of(&["llama", "qwen3"]);
    setup.server.residency.max = Some(1);
    let server = setup.start_with(loads.loader(0, |_, _| Ok(())));
    let count = |series: &str| {
        let text = server.get("/metrics").text;
        let value = text
            .lines()
            .find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {series} in\n{text}"));
        value.parse::<f64>().unwrap()
    };
    let finished = |model: &str, n: f64| {
        let series = format!("minfer_finished_total{{model=\"{model}\"}}");
        wait_for(&series, || count(&series) == n);
    };
    fine(&server, "llama");
    finished("llama", 1.0);
    let tokens = "minfer_prompt_tokens_total{model=\"llama\"}";
    let once = count(tokens);
    assert!(once > 0.0);
    fine(&server, "qwen3");
    assert_eq!(loaded(&server), ["qwen3"]);
    assert_eq!(count(tokens), once);
    finished("llama", 1.0);
    fine(&server, "llama");
    finished("llama", 2.0);
    assert_eq!(count(tokens), 2.0 * once);
    finished("qwen3", 1.0);
    let times = "minfer_time_to_first_token_seconds_count{model=\"qwen3\"}";
    assert_eq!(count(times), 1.0);
}
