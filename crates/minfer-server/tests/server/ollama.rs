//! Ollama's surface. Shapes as the official Python SDK (ollama 0.6) has them in its types.

use serde_json::{Value, json};

use crate::harness::{Reply, Setup, with};
use crate::models::{Variant, saying, tiny};

fn ask() -> Value {
    json!({"model": "llama", "messages": [{"role": "user", "content": "Hi"}], "options": {"temperature": 0, "num_predict": 8}})
}

fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let kind = reply.headers.iter().find(|h| h.0 == "content-type");
    assert_eq!(kind.map(|h| h.1.as_str()), Some("application/x-ndjson"));
    let lines = reply.text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

#[test]
fn a_known_answer_in_lines_and_whole() {
    let model = saying(&[b"Hello", b",", b" you"]).write();
    let server = Setup::of(&[model.path()]).start();
    let name = server.get("/api/tags").json()["models"][0]["name"].clone();
    let ask = with(ask(), &[("model", name.clone())]);
    let said = lines(&server.post("/api/chat", &ask));
    let words: Vec<&str> = said
        .iter()
        .map(|l| l["message"]["content"].as_str().expect("text"))
        .collect();
    assert_eq!(words, ["Hello", ",", " you", ""]);
    let done: Vec<bool> = said
        .iter()
        .map(|l| l["done"].as_bool().expect("a flag"))
        .collect();
    assert_eq!(done, [false, false, false, true]);
    assert_eq!(said[0]["message"]["role"], "assistant");
    let last = &said[3];
    assert_eq!(last["done_reason"], "stop");
    assert_eq!(last["model"], name);
    // Three words and the end.
    assert_eq!(last["eval_count"], 4);
    let nanos = |key: &str| {
        last[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {last}"))
    };
    let parts = nanos("load_duration") + nanos("prompt_eval_duration") + nanos("eval_duration");
    assert!(nanos("total_duration") >= parts && nanos("eval_duration") > 0);

    let whole = server
        .post("/api/chat", &with(ask.clone(), &[("stream", json!(false))]))
        .json();
    assert_eq!(whole["message"]["content"], "Hello, you");
    assert_eq!(
        (&whole["done"], &whole["eval_count"]),
        (&json!(true), &json!(4))
    );
    let cut = [
        ("stream", json!(false)),
        ("options", json!({"num_predict": 2})),
    ];
    let cut = server.post("/api/chat", &with(ask, &cut)).json();
    assert_eq!(
        (&cut["done_reason"], &cut["message"]["content"]),
        (&json!("length"), &json!("Hello,"))
    );
}

#[test]
fn generate_takes_prompts_with_a_template_and_raw() {
    let model = saying(&[b"Hello", b",", b" you"]).write();
    let server = Setup::of(&[model.path()]).start();
    let name = server.get("/api/tags").json()["models"][0]["name"].clone();
    let ask = json!({"model": name, "prompt": "Hi", "stream": false});
    let with_template = server.post("/api/generate", &ask).json();
    assert_eq!(with_template["response"], "Hello, you");
    let raw = server
        .post("/api/generate", &with(ask.clone(), &[("raw", json!(true))]))
        .json();
    assert_eq!(raw["response"], "Hello, you");
    // Two bytes, and at most a beginning-of-text token.
    let count = |v: &Value| v["prompt_eval_count"].as_u64().expect("a count");
    assert!(count(&raw) <= 3 && count(&raw) < count(&with_template));
    let system = [("system", json!("Be very brief."))];
    let system = server
        .post("/api/generate", &with(ask.clone(), &system))
        .json();
    assert!(count(&system) > count(&with_template));
    let load = server
        .post("/api/generate", &json!({"model": name, "keep_alive": "5m"}))
        .json();
    assert_eq!(
        (&load["response"], &load["done_reason"]),
        (&json!(""), &json!("load"))
    );
    let said = lines(&server.post("/api/generate", &json!({"model": name, "prompt": "Hi"})));
    let said = said.iter().map(|l| l["response"].as_str().expect("text"));
    assert_eq!(said.collect::<String>(), "Hello, you");
}

#[test]
fn answers_follow_a_schema_and_have_log_probabilities() {
    let server = Setup::of(&["llama"]).start();
    let more = [
        ("format", json!({"enum": ["yes", "no"]})),
        ("stream", json!(false)),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(3)),
    ];
    let whole = server.post("/api/chat", &with(ask(), &more)).json();
    let text = whole["message"]["content"].as_str().expect("a text");
    assert!(text == "\"yes\"" || text == "\"no\"", "{whole}");
    assert_eq!(
        whole["logprobs"][0]["top_logprobs"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}

#[test]
fn what_can_t_be_honoured_is_refused_by_name() {
    let server = Setup::of(&["llama"]).start();
    for (path, key, value, status) in [
        ("chat", "model", json!("gemma3"), 404),
        ("chat", "model", json!(null), 400),
        ("chat", "num_ctx", json!({"num_ctx": 257}), 400),
        ("chat", "tfs_z", json!({"tfs_z": 0.5}), 400),
        ("chat", "num_predict", json!({"num_predict": -3}), 400),
        ("chat", "temperature", json!({"temperature": -1}), 400),
        ("chat", "format", json!("xml"), 400),
        (
            "chat",
            "images",
            json!([{"role": "user", "content": "a", "images": ["aGk="]}]),
            400,
        ),
        ("generate", "images", json!(["aGk="]), 400),
        ("generate", "template", json!("{{ .Prompt }}"), 400),
        ("generate", "context", json!([1, 2]), 400),
        ("generate", "suffix", json!("b"), 400),
    ] {
        let field = match (path, key) {
            (_, "num_ctx" | "tfs_z" | "num_predict" | "temperature") => "options",
            ("chat", "images") => "messages",
            (_, key) => key,
        };
        let body = with(ask(), &[("prompt", json!("a")), (field, value.clone())]);
        let reply = server.post(&format!("/api/{path}"), &body);
        assert_eq!(reply.status, status, "{key} {value}: {}", reply.text);
        let message = reply.json()["error"].as_str().map(str::to_owned);
        assert!(
            message.is_some_and(|m| m.contains(key)),
            "{key}: {}",
            reply.text
        );
    }
    let fits = json!({"num_ctx": 256, "num_thread": 1, "num_predict": 1});
    assert_eq!(
        server
            .post("/api/chat", &with(ask(), &[("options", fits)]))
            .status,
        200
    );
    let pull = server.post("/api/pull", &json!({"model": "llama"}));
    assert_eq!(pull.status, 501);
    assert!(
        pull.json()["error"]
            .as_str()
            .is_some_and(|e| e.contains("/api/pull"))
    );
}

#[test]
fn models_and_what_is_known_of_them() {
    let named = Variant::of("llama").text("general.license", "mit").write();
    let server = Setup::of(&[named.path(), "qwen3"]).start();
    let tags = server.get("/api/tags").json();
    let first = &tags["models"][0];
    let size = std::fs::metadata(named.path()).expect("a file").len();
    assert_eq!(first["size"], size);
    assert_eq!(first["details"]["family"], "llama");
    let second = tags["models"][1].clone();
    assert_eq!(second["name"], "qwen3");
    let size = std::fs::metadata(tiny("qwen3")).expect("a file").len();
    assert_eq!(second["size"], size);
    assert_eq!(second["details"]["family"], "qwen3");
    // It is not loaded for that.
    let running = server.get("/api/ps").json();
    assert_eq!(running["models"].as_array().map(Vec::len), Some(1));
    assert_eq!(running["models"][0]["name"], first["name"]);
    assert_eq!(running["models"][0]["context_length"], 256);
    let load = json!({"model": "qwen3", "prompt": "Hi", "raw": true, "stream": false, "options": {"num_predict": 1}});
    assert_eq!(server.post("/api/generate", &load).status, 200);
    let listed = server.get("/api/tags").json()["models"][1].clone();
    assert_eq!(listed, second, "of the loaded model and of its file");
    let unload = json!({"model": "qwen3", "keep_alive": 0});
    assert_eq!(server.post("/api/generate", &unload).status, 200);
    assert_eq!(server.get("/api/tags").json()["models"][1], second);
    for name in ["qwen3", "qwen3:latest"] {
        let show = server.post("/api/show", &json!({"model": name})).json();
        assert_eq!(show["details"]["family"], "qwen3");
        assert_eq!(show["model_info"]["general.architecture"], "qwen3");
        assert_eq!(show["capabilities"][0], "completion");
    }
    let show = server
        .post("/api/show", &json!({"model": first["name"]}))
        .json();
    assert_eq!(show["license"], "mit");
    assert_eq!(
        server
            .post("/api/show", &json!({"model": "qwen3:8b"}))
            .status,
        404
    );
    assert!(server.get("/api/version").json()["version"].is_string());
}

/// Also where only `/api/ps` told of the new one.
#[test]
fn a_replaced_file_is_told_of_as_it_was_last_loaded() {
    for looks in ["/api/tags", "/api/ps"] {
        let file = Variant::of("qwen3").write();
        let server = Setup::of(&["llama", file.path()]).start();
        let told = |path: &str| {
            let models = server.get(path).json();
            let one = &models["models"][1];
            [one["digest"].clone(), one["details"]["family"].clone()]
        };
        let old = told("/api/tags");
        assert_eq!(old[1], "qwen3");
        let id = server.get("/api/tags").json()["models"][1]["name"].clone();
        let beside = format!("{}.new", file.path());
        std::fs::copy(tiny("llama"), &beside).expect("a copy");
        std::fs::rename(&beside, file.path()).expect("a new file");
        let ask = |more: (&str, Value)| {
            let reply = server.post("/api/generate", &with(json!({"model": id}), &[more]));
            assert_eq!(reply.status, 200, "{}", reply.text);
        };
        ask(("stream", json!(false)));
        let new = told(looks);
        assert!(new[0] != old[0] && new[1] == "llama", "{new:?}");
        ask(("keep_alive", json!(0)));
        assert_eq!(server.handle.loaded().len(), 1);
        assert_eq!(told("/api/tags"), new, "{looks}");
    }
}

#[test]
fn vectors_are_openai_s_and_can_be_shortened() {
    let server = Setup::of(&["qwen3"]).start();
    let openai = json!({"model": "qwen3", "input": ["one", "two"]});
    let openai = server.post("/v1/embeddings", &openai).json();
    let ask = json!({"model": "qwen3", "input": ["one", "two"]});
    let ollama = server.post("/api/embed", &ask).json();
    for i in 0..2 {
        assert_eq!(ollama["embeddings"][i], openai["data"][i]["embedding"]);
    }
    assert_eq!(
        ollama["prompt_eval_count"],
        openai["usage"]["prompt_tokens"]
    );
    let short = server
        .post("/api/embed", &with(ask, &[("dimensions", json!(8))]))
        .json();
    let short: Vec<f64> = serde_json::from_value(short["embeddings"][1].clone()).expect("numbers");
    let length: f64 = short.iter().map(|x| x * x).sum();
    assert!(short.len() == 8 && (length - 1.0).abs() < 1e-5);
    // As it was before: one vector, not scaled. Its direction is the same.
    let legacy = server
        .post(
            "/api/embeddings",
            &json!({"model": "qwen3", "prompt": "one"}),
        )
        .json();
    let numbers = |v: &Value| -> Vec<f64> { serde_json::from_value(v.clone()).expect("numbers") };
    let (a, b) = (
        numbers(&legacy["embedding"]),
        numbers(&ollama["embeddings"][0]),
    );
    let length = a.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((length - 1.0).abs() > 1e-3, "{length}");
    assert!(a.iter().zip(&b).all(|(a, b)| (a / length - b).abs() < 1e-5));
}
