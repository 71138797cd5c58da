//! Ollama's `keep_alive`, as its FAQ ("How do I keep a model loaded in memory or make it unload immediately?") and its
//! API's documentation ("Unload a model") describe it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use minfer::chat::DateTime;
use serde_json::{Value, json};

use crate::harness::{Reply, Running, Setup, with};
use crate::models::endless;
use crate::raw::{Raw, wait_for};

const NEVER: &str = "9999-12-31T23:59:59Z";

fn loaded(server: &Running) -> Vec<String> {
    let models = server.handle.loaded();
    models.iter().map(|l| l.id.clone()).collect()
}

/// The entry of `/api/ps`.
fn running(server: &Running, name: &str) -> Option<Value> {
    let all = server.get("/api/ps").json();
    let all = all["models"].as_array().expect("a list");
    all.iter().find(|m| m["name"] == name).cloned()
}

fn ask(server: &Running, path: &str, more: &[(&str, Value)]) -> Reply {
    let body = json!({
        "model": "qwen3",
        "messages": [{"role": "user", "content": "Hi"}],
        "prompt": "Hi",
        "input": "Hi",
        "stream": false,
        "options": {"num_predict": 2},
    });
    server.post(path, &with(body, more))
}

fn fine(server: &Running, path: &str, keep: Value) -> Value {
    let reply = ask(server, path, &[("keep_alive", keep)]);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    reply.json()
}

#[test]
fn zero_unloads_after_the_answer() {
    let server = Setup::of(&["llama", "qwen3"]).start();
    for path in [
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/embeddings",
    ] {
        for zero in [json!(0), json!("0s")] {
            fine(&server, path, json!("10m"));
            assert!(running(&server, "qwen3").is_some(), "{path}");
            let said = fine(&server, path, zero);
            if path == "/api/chat" {
                assert_eq!(said["done_reason"], "length");
            }
            wait_for(path, || loaded(&server) == ["llama"]);
        }
    }
    let lines = ask(
        &server,
        "/api/chat",
        &[("keep_alive", json!(0)), ("stream", json!(true))],
    );
    let last = lines.text.lines().last().expect("a line");
    assert!(last.contains("\"done\":true"), "{last}");
    wait_for("a stream's end", || loaded(&server) == ["llama"]);
    // It is loaded again for who asks without a time, and stays.
    assert_eq!(ask(&server, "/api/generate", &[]).status, 200);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(loaded(&server), ["llama", "qwen3"]);
}

#[test]
fn the_first_model_goes_too_and_comes_back() {
    let server = Setup::of(&["llama"]).start();
    let more = [("model", json!("llama")), ("keep_alive", json!(0))];
    assert_eq!(ask(&server, "/api/chat", &more).status, 200);
    wait_for("its end", || loaded(&server).is_empty());
    assert_eq!(server.get("/health").status, 200);
    let again = ask(
        &server,
        "/v1/chat/completions",
        &[("model", json!("llama"))],
    );
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(loaded(&server), ["llama"]);
}

#[test]
fn a_time_of_the_request_s_own_begins_at_its_end() {
    let server = Setup::of(&["llama", "qwen3"]).start();
    fine(&server, "/api/generate", json!("100ms"));
    wait_for("its end", || loaded(&server) == ["llama"]);
    let seconds = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        i64::try_from(since.expect("after 1970").as_secs()).expect("before the end of time")
    };
    let written = |t: i64| {
        let time = DateTime::from_unix(t).strftime("%Y-%m-%dT%H:%M:%SZ");
        time.expect("a time")
    };
    for (keep, length) in [(json!(3600), 3600), (json!("1h30m"), 5400)] {
        let before = seconds();
        fine(&server, "/api/chat", keep);
        let entry = running(&server, "qwen3").expect("loaded");
        let ends = entry["expires_at"].as_str().expect("a time");
        // The rest of a second is cut off on both sides.
        let (first, last) = (
            written(before + length - 1),
            written(seconds() + length + 1),
        );
        let (first, last) = (first.as_str(), last.as_str());
        assert!(first <= ends && ends <= last, "{first} {ends} {last}");
    }
    let first = running(&server, "llama").expect("loaded");
    assert_eq!(first["expires_at"], NEVER);
}

#[test]
fn a_negative_time_outlives_the_server_s_own() {
    let mut setup = Setup::of(&["llama", "qwen3"]);
    setup.server.residency.keep_alive = Some(Duration::from_millis(100));
    let server = setup.start();
    for keep in [json!(-1), json!("-1m")] {
        fine(&server, "/api/generate", keep);
        let entry = running(&server, "qwen3").expect("loaded");
        assert_eq!(entry["expires_at"], NEVER);
        // As in Ollama, who says nothing changes nothing.
        assert_eq!(ask(&server, "/api/generate", &[]).status, 200);
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(loaded(&server), ["llama", "qwen3"]);
        fine(&server, "/api/generate", json!(0));
        wait_for("its end", || loaded(&server) == ["llama"]);
    }
    // Loaded anew, it has the server's time.
    assert_eq!(ask(&server, "/api/generate", &[]).status, 200);
    wait_for("its end", || loaded(&server) == ["llama"]);
}

#[test]
fn nothing_said_and_zero_unload_at_once() {
    let server = Setup::of(&["llama", "qwen3"]).start();
    for (path, empty, says) in [
        (
            "/api/chat",
            ("messages", json!([])),
            ("message", json!({"role": "assistant", "content": ""})),
        ),
        (
            "/api/generate",
            ("prompt", json!("")),
            ("response", json!("")),
        ),
    ] {
        fine(&server, path, json!("10m"));
        let more = [empty.clone(), ("keep_alive", json!(0))];
        let mut said = ask(&server, path, &more).json();
        assert!(running(&server, "qwen3").is_none(), "{path}: at once");
        assert!(said["created_at"].take().is_string());
        let mut want =
            json!({"model": "qwen3", "created_at": null, "done": true, "done_reason": "unload"});
        want[says.0] = says.1;
        assert_eq!(said, want);
        // What is not loaded is not loaded for it.
        assert_eq!(ask(&server, path, &more).json()["done_reason"], "unload");
        assert_eq!(loaded(&server), ["llama"]);
        let unknown = [more[0].clone(), more[1].clone(), ("model", json!("none"))];
        assert_eq!(ask(&server, path, &unknown).status, 404);
        // With another time it is loaded, and stays so long.
        let load = ask(&server, path, &[empty, ("keep_alive", json!("5m"))]).json();
        assert_eq!(load["done_reason"], "load", "{load}");
        let entry = running(&server, "qwen3").expect("loaded");
        assert_ne!(entry["expires_at"], NEVER);
    }
}

#[test]
fn a_model_at_work_is_unloaded_when_its_answers_have_ended() {
    let model = endless();
    let mut setup = Setup::of(&["llama", model.path()]);
    setup.engine.n_ctx = 1 << 14;
    let name = setup.server.models[1].id.clone();
    let server = setup.start();
    let talk = json!({"model": name, "messages": [{"role": "user", "content": "a"}], "max_tokens": 16000, "ignore_eos": true, "stream": true});
    let mut busy = Raw::connect(&server);
    busy.post("/v1/chat/completions", "", &talk.to_string());
    busy.until("data: ");
    let unload = json!({"model": name, "keep_alive": 0});
    let said = server.post("/api/generate", &unload).json();
    assert_eq!(said["done_reason"], "unload");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(loaded(&server), ["llama", name.as_str()]);
    assert!(busy.until("data: ").contains("data: "), "it goes on");
    drop(busy);
    wait_for("its end", || loaded(&server) == ["llama"]);
}

#[test]
fn what_is_no_time_is_refused_and_loads_nothing() {
    let server = Setup::of(&["llama", "qwen3"]).start();
    for path in ["/api/chat", "/api/generate", "/api/embed"] {
        for wrong in [json!("5"), json!("soon"), json!(""), json!(true)] {
            let reply = ask(&server, path, &[("keep_alive", wrong.clone())]);
            assert_eq!(reply.status, 400, "{path} {wrong}");
            let said = reply.json()["error"].to_string();
            assert!(said.contains("keep_alive: must be seconds"), "{said}");
        }
    }
    assert_eq!(loaded(&server), ["llama"]);
}

/// What is refused changes nothing, however late it is noticed.
#[test]
fn a_refused_request_changes_no_time() {
    let server = Setup::of(&["llama", "qwen3"]).start();
    let long = "a ".repeat(2000);
    let talk = json!([{"role": "user", "content": long}]);
    for (path, wrong) in [
        ("/api/chat", ("options", json!({"temperature": "warm"}))),
        ("/api/chat", ("messages", talk)),
        ("/api/chat", ("tools", json!([{"type": "weapon"}]))),
        ("/api/generate", ("options", json!({"num_ctx": 1 << 20}))),
        ("/api/generate", ("prompt", json!(long))),
        ("/api/embed", ("dimensions", json!(0))),
        ("/api/embed", ("input", json!(long))),
        ("/api/embeddings", ("prompt", json!(long))),
    ] {
        fine(&server, path, json!("10m"));
        let before = running(&server, "qwen3").expect("loaded");
        let more = [("keep_alive", json!(0)), wrong];
        let reply = ask(&server, path, &more);
        assert_eq!(reply.status, 400, "{path}: {}", reply.text);
        std::thread::sleep(Duration::from_millis(50));
        let after = running(&server, "qwen3").expect("still loaded");
        assert!(before["expires_at"].as_str() <= after["expires_at"].as_str());
    }
}
