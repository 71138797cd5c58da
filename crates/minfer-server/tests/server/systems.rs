//! Systems whose words a model's template does not show.

use serde_json::{Value, json};

use crate::harness::{Reply, Running, Setup, with};
use crate::models::saying;

/// Shows users and assistants alone.
const DROPS: &str = "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}";
/// Refuses systems, as Gemma 2's does.
const RAISES: &str = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
    {{ m.role }}: {{ m.content }}\n{% endfor %}";

/// Shows a system that stands first, and refuses others, as Qwen3.5's does.
const LATER_RAISES: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}\
    {{ m.role }}: {{ m.content }}\n{% endfor %}";

fn server(template: &str) -> Running {
    let model = saying(&[b"Yes!"]).text("tokenizer.chat_template", template);
    Setup::of(&[model.write().path()]).start()
}

fn names(reply: &Reply, says: &str) {
    assert_eq!(reply.status, 400, "{}", reply.text);
    let error = &reply.json()["error"];
    let text = error.as_str().or(error["message"].as_str());
    let why = "this model's chat template shows no system message there";
    let begins = format!("{says}: {why}");
    assert!(
        text.is_some_and(|t| t.starts_with(&begins)),
        "{begins} / {error}"
    );
    if let Some(param) = error.get("param") {
        assert_eq!(param, says);
    }
}

/// As llama.cpp has it, and the templates of Gemma.
#[test]
fn what_a_system_says_begins_the_user_s_turn() {
    for template in [DROPS, RAISES] {
        let server = server(template);
        let talk = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Ho"},
            {"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]},
            {"role": "user", "content": "So?"},
        ]);
        let shown = server
            .post("/apply-template", &json!({"messages": talk}))
            .json();
        let said = "user: Be brief.\n\nHi\nassistant: Ho\nuser: Be kind.\n\nSo?\n";
        assert_eq!(shown["prompt"], said, "{template}");
        // What is shown is what is answered.
        let tokens = server.post("/tokenize", &json!({"content": said})).json();
        let ask = json!({"messages": talk, "max_tokens": 1});
        let answer = server.post("/v1/chat/completions", &ask).json();
        assert_eq!(
            answer["usage"]["prompt_tokens"], tokens["count"],
            "{answer}"
        );
    }
}

#[test]
fn a_later_system_that_the_template_refuses_begins_the_user_s_turn() {
    let server = server(LATER_RAISES);
    let talk = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "So?"},
    ]);
    let shown = server
        .post("/apply-template", &json!({"messages": talk}))
        .json();
    let said = "system: Be brief.\nuser: Hi\nassistant: Ho\nuser: Be kind.\n\nSo?\n";
    assert_eq!(shown["prompt"], said, "{shown}");
}

#[test]
fn every_surface_s_system_is_read() {
    let server = server(DROPS);
    let model = json!(server.id());
    let user = json!([{"role": "user", "content": "Hi"}]);
    let both =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let short = json!({"num_predict": 1});
    let cases = [
        (
            "/v1/messages",
            json!({"model": model, "max_tokens": 1, "messages": user}),
            ("system", json!("Be brief.")),
            "/usage/input_tokens",
        ),
        (
            "/v1/responses",
            json!({"model": model, "max_output_tokens": 1, "input": "Hi"}),
            ("instructions", json!("Be brief.")),
            "/usage/input_tokens",
        ),
        (
            "/api/generate",
            json!({"model": model, "prompt": "Hi", "stream": false, "options": short}),
            ("system", json!("Be brief.")),
            "/prompt_eval_count",
        ),
        (
            "/api/chat",
            json!({"model": model, "messages": user, "stream": false, "options": short}),
            ("messages", both),
            "/prompt_eval_count",
        ),
    ];
    let count = |path: &str, body: &Value, at: &str| {
        let reply = server.post(path, body).json();
        let cached = reply["usage"]["cache_read_input_tokens"].as_u64();
        reply.pointer(at).and_then(Value::as_u64).expect("a count") + cached.unwrap_or(0)
    };
    for (path, body, system, at) in cases {
        let bare = count(path, &body, at);
        let more = count(path, &with(body, &[system]), at);
        // A byte is a token.
        assert_eq!(more - bare, "Be brief.\n\n".len() as u64, "{path}");
    }
}

/// By the name that its client has for the place.
#[test]
fn a_system_that_nobody_could_say_is_refused_by_its_place() {
    let server = server(DROPS);
    let model = json!(server.id());
    let system = json!({"role": "system", "content": "Be brief."});
    let user = json!({"role": "user", "content": "Hi"});
    let last = json!([user, {"role": "assistant", "content": "Ho"}, system]);
    let alone = json!([system]);
    let ask = |path: &str, more: &[(&str, Value)]| {
        server.post(path, &with(json!({"model": model}), more))
    };
    for path in ["/v1/chat/completions", "/api/chat", "/apply-template"] {
        names(&ask(path, &[("messages", last.clone())]), "messages[2]");
        names(&ask(path, &[("messages", alone.clone())]), "messages[0]");
    }
    let called = json!([{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}]);
    let reply = ask(
        "/v1/responses",
        &[("input", called), ("instructions", json!("Be brief."))],
    );
    names(&reply, "instructions");
    names(
        &ask("/v1/responses", &[("input", last.clone())]),
        "input[2]",
    );
    let most = ("max_tokens", json!(1));
    names(
        &ask("/v1/messages", &[("messages", last), most.clone()]),
        "messages[2]",
    );
    let assistant = json!([{"role": "assistant", "content": "Ho"}]);
    let reply = ask(
        "/v1/messages",
        &[
            ("messages", assistant),
            ("system", json!("Be brief.")),
            most,
        ],
    );
    names(&reply, "system");
}
