//! The limits of a request's fields, as docs/USAGE.md lists them.

use serde_json::{Value, json};

use crate::harness::{Setup, with};
use crate::raw::Raw;

const CHAT: &str = "/v1/chat/completions";

/// A request at each limit is answered, one past it is 400 and names the field.
#[test]
fn fields_have_the_limits_that_are_documented() {
    let mut setup = Setup::of(&["llama"]);
    setup.engine.queue = 256;
    let server = setup.start();
    let chat = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
    let prompt = json!({"prompt": "a", "max_tokens": 1});
    let stops = |n: usize, bytes: usize| json!(vec!["x".repeat(bytes); n]);
    let bias = |n: usize| Value::Array(vec![json!([1, 0.5]); n]);
    const TEXT: &str = "/v1/completions";
    const LLAMA: &str = "/completion";
    for (path, body, field, most, more) in [
        (CHAT, &chat, "stop", stops(64, 1024), stops(65, 1)),
        (CHAT, &chat, "stop", stops(1, 1024), stops(1, 1025)),
        (CHAT, &chat, "logit_bias", bias(4096), bias(4097)),
        (CHAT, &chat, "n", json!(128), json!(129)),
        (LLAMA, &prompt, "n_cmpl", json!(128), json!(129)),
        (LLAMA, &prompt, "n_probs", json!(20), json!(21)),
        (TEXT, &prompt, "logprobs", json!(5), json!(6)),
        (
            TEXT,
            &prompt,
            "prompt",
            json!(vec!["a"; 2048]),
            json!(vec!["a"; 2049]),
        ),
        (
            CHAT,
            &with(chat.clone(), &[("logprobs", json!(true))]),
            "top_logprobs",
            json!(20),
            json!(21),
        ),
    ] {
        let reply = server.post(path, &with(body.clone(), &[(field, most)]));
        assert_eq!(reply.status, 200, "{path} {field}: {:.500}", reply.text);
        let reply = server.post(path, &with(body.clone(), &[(field, more)]));
        assert_eq!(reply.status, 400, "{path} {field}: {:.500}", reply.text);
        assert_eq!(reply.json()["error"]["param"], field, "{:.500}", reply.text);
    }
}

#[test]
fn a_conversation_has_at_most_4096_messages() {
    let server = Setup::of(&["llama"]).start();
    let messages = |n: usize| {
        let all = vec![json!({"role": "user", "content": ""}); n];
        server.post(CHAT, &json!({"messages": all}))
    };
    assert_eq!(
        messages(4096).json()["error"]["code"],
        "context_length_exceeded"
    );
    assert_eq!(messages(4097).json()["error"]["param"], "messages");
}

#[test]
fn a_body_has_at_most_127_levels() {
    let server = Setup::of(&["llama"]).start();
    // The body itself is one level.
    let deep = |levels: usize| {
        let inner = format!("{}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        let mut raw = Raw::connect(&server);
        raw.post(
            CHAT,
            "connection: close\r\n",
            &format!("{{\"user\": {inner}}}"),
        );
        raw.rest()
    };
    let fine = deep(127);
    assert!(fine.contains("messages: is required"), "{fine}");
    let past = deep(128);
    assert!(
        past.starts_with("HTTP/1.1 400 ") && past.contains("recursion limit"),
        "{past}"
    );
}
