//! `POST /v1/chat/completions`.

use serde_json::{Value, json};

use crate::harness::{Setup, with};

fn greedy() -> Value {
    json!({"model": "llama", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 8})
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let server = Setup::of(&["llama"]).start();
    let whole = server.post("/v1/chat/completions", &greedy());
    assert_eq!(whole.status, 200, "{}", whole.text);
    let whole = whole.json();
    assert_eq!(whole["object"], "chat.completion");
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty());
    let more = [
        ("stream", json!(true)),
        ("stream_options", json!({"include_usage": true})),
    ];
    let chunks = server
        .post("/chat/completions", &with(greedy(), &more))
        .chunks();
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let said = chunks
        .iter()
        .filter_map(|c| c["choices"][0]["delta"]["content"].as_str());
    assert_eq!(said.collect::<String>(), text);
    let usage = &chunks.last().unwrap()["usage"];
    assert_eq!(
        usage["completion_tokens"],
        whole["usage"]["completion_tokens"]
    );
    assert_eq!(usage["prompt_tokens"], whole["usage"]["prompt_tokens"]);
    let ends: Vec<&Value> = chunks
        .iter()
        .map(|c| &c["choices"][0]["finish_reason"])
        .collect();
    assert_eq!(ends.iter().filter(|e| !e.is_null()).count(), 1);
}

#[test]
fn what_can_t_be_honoured_is_refused_by_name() {
    let server = Setup::of(&["llama"]).start();
    for (key, value, status) in [
        ("model", json!("gpt-5"), 404),
        ("messages", json!("Hi"), 400),
        ("temperature", json!("hot"), 400),
        ("temperature", json!(-1), 400),
        ("top_p", json!(1.5), 400),
        ("n", json!(0), 400),
        ("top_logprobs", json!(3), 400),
        ("stream_options", json!({"include_usage": true}), 400),
        ("max_tokens", json!(-7), 400),
        ("stop", json!([""]), 400),
        ("logit_bias", json!({"99999": 1}), 400),
        ("logit_bias", json!(vec![json!([5, 1]); 5000]), 400),
        ("stop", json!("x".repeat(2000)), 400),
        ("response_format", json!({"type": "xml"}), 400),
        ("modalities", json!(["text", "audio"]), 400),
        ("tool_choice", json!("required"), 400),
        ("guided_json", json!({}), 400),
        ("web_search_options", json!({}), 400),
        ("n_probs", json!(2), 400),
        ("continue_final_message", json!(true), 400),
        ("mirostat_tau", json!(-1), 400),
        ("dry_sequence_breakers", json!([""]), 400),
    ] {
        let reply = server.post(
            "/v1/chat/completions",
            &with(greedy(), &[(key, value.clone())]),
        );
        assert_eq!(reply.status, status, "{key} {value}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], key, "{}", reply.text);
    }
    let fine = server.post(
        "/v1/chat/completions",
        &with(greedy(), &[("unheard_of", json!(1))]),
    );
    assert_eq!(fine.status, 200);
}

#[test]
fn health_models_and_unknown_paths() {
    let server = Setup::of(&["llama", "qwen3"]).start();
    assert_eq!(server.get("/health").json(), json!({"status": "ok"}));
    let models = server.get("/v1/models").json();
    let ids: Vec<&Value> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["llama", "qwen3"]);
    assert_eq!(server.get("/v1/models/qwen3").json()["id"], "qwen3");
    assert_eq!(server.get("/v1/models/none").status, 404);
    assert_eq!(server.get("/v1/nowhere").status, 404);
    assert_eq!(server.get("/v1/chat/completions").status, 405);
}

#[test]
fn progress_and_times_are_told_where_they_are_asked_for() {
    let server = Setup::of(&["llama"]).start();
    let plain = [("stream", json!(true))];
    let chunks = server
        .post("/v1/chat/completions", &with(greedy(), &plain))
        .chunks();
    let times = |chunks: &[Value]| chunks.iter().filter(|c| !c["timings"].is_null()).count();
    assert_eq!(times(&chunks), 1, "the last one has them in any case");
    assert!(chunks.iter().all(|c| c["prompt_progress"].is_null()));
    let more = [
        ("stream", json!(true)),
        ("timings_per_token", json!(true)),
        ("return_progress", json!(true)),
        ("logprobs", json!(true)), // so that each token has a chunk
        ("ignore_eos", json!(true)),
    ];
    let chunks = server
        .post("/v1/chat/completions", &with(greedy(), &more))
        .chunks();
    let counts = chunks.iter().map(|c| &c["timings"]["predicted_n"]);
    let mut counts: Vec<u64> = counts.filter_map(Value::as_u64).collect();
    counts.dedup();
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8]);
    let mut progress = chunks.iter().map(|c| &c["prompt_progress"]);
    let last = progress.rfind(|p| !p.is_null()).unwrap();
    assert_eq!(last["processed"], last["total"]);
}
