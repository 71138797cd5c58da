//! Anthropic's surface. Shapes as the official Python SDK (anthropic 2.14) has them in its types.

use serde_json::{Value, json};

use crate::harness::{Setup, named_events, with};
use crate::models::saying;

fn ask() -> Value {
    json!({"model": "llama", "max_tokens": 16, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}]})
}

#[test]
fn a_known_answer_whole_and_in_events() {
    let model = saying(&[b"Hello", b",", b" you"]).write();
    let server = Setup::of(&[model.path()]).start();
    let name = server.get("/v1/models").json()["data"][0]["id"].clone();
    let ask = with(ask(), &[("model", name.clone())]);
    let whole = server.post("/v1/messages", &ask).json();
    let usage = &whole["usage"];
    assert_eq!(
        whole["content"],
        json!([{"type": "text", "text": "Hello, you", "citations": null}])
    );
    for (key, value) in [
        ("type", json!("message")),
        ("role", json!("assistant")),
        ("model", name),
        ("stop_reason", json!("end_turn")),
        ("stop_sequence", json!(null)),
    ] {
        assert_eq!(whole[key], value, "{key}");
    }
    // Three words and the end.
    assert_eq!(usage["output_tokens"], 4);
    let counted = server.post("/v1/messages/count_tokens", &ask).json();
    assert_eq!(usage["input_tokens"], counted["input_tokens"]);

    let events = named_events(&server.post("/v1/messages", &with(ask, &[("stream", json!(true))])));
    let names: Vec<&str> = events.iter().map(|e| e.0.as_str()).collect();
    let (text, delta) = ("content_block_start", "content_block_delta");
    let end = ["content_block_stop", "message_delta", "message_stop"];
    let want = [
        &["message_start", "ping", text, delta, delta, delta][..],
        &end,
    ]
    .concat();
    assert_eq!(names, want);
    let start = &events[0].1["message"];
    assert_eq!(start["content"], json!([]));
    assert_eq!(start["stop_reason"], json!(null));
    assert_eq!(start["usage"]["input_tokens"], counted["input_tokens"]);
    let said = events.iter().filter_map(|e| e.1["delta"]["text"].as_str());
    assert_eq!(said.collect::<String>(), "Hello, you");
    let last = &events[events.len() - 2].1;
    assert_eq!(
        last["delta"],
        json!({"stop_reason": "end_turn", "stop_sequence": null})
    );
    assert_eq!(last["usage"]["output_tokens"], 4);
}

#[test]
fn every_end_has_its_name() {
    let model = saying(&[b"Hello", b",", b" you"]).write();
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_ctx = 32;
    let server = setup.start();
    let name = server.get("/v1/models").json()["data"][0]["id"].clone();
    let end = |more: &[(&str, Value)]| {
        let ask = with(with(ask(), &[("model", name.clone())]), more);
        let whole = server.post("/v1/messages", &ask).json();
        (
            whole["stop_reason"].as_str().map(str::to_owned),
            whole["stop_sequence"].clone(),
            whole["content"].clone(),
        )
    };
    let text = |text: &str| json!([{"type": "text", "text": text, "citations": null}]);
    let reason = |name: &str| Some(name.to_owned());
    assert_eq!(
        end(&[("max_tokens", json!(2))]),
        (reason("max_tokens"), json!(null), text("Hello,"))
    );
    assert_eq!(
        end(&[("stop_sequences", json!(["never", ", y"]))]),
        (reason("stop_sequence"), json!(", y"), text("Hello"))
    );
    // A prompt of nearly the whole context leaves no room for all of the answer.
    let count = |n: usize| {
        let messages = json!([{"role": "user", "content": "a".repeat(n)}]);
        let ask = with(ask(), &[("model", name.clone()), ("messages", messages)]);
        let counted = server.post("/v1/messages/count_tokens", &ask).json();
        counted["input_tokens"].as_u64().expect("a count") as usize
    };
    let letters = 31 - count(0);
    assert_eq!(count(letters), 31);
    let messages = json!([{"role": "user", "content": "a".repeat(letters)}]);
    let (reason, _, _) = end(&[("messages", messages)]);
    assert_eq!(reason.as_deref(), Some("model_context_window_exceeded"));
}

/// Under its name, and under that of its beta (SDK 0.75).
#[test]
fn an_answer_follows_a_schema() {
    let server = Setup::of(&["llama"]).start();
    let schema = json!({"enum": ["yes", "no"]});
    let format = json!({"type": "json_schema", "schema": schema});
    for more in [
        ("output_config", json!({"format": format})),
        ("output_format", format.clone()),
    ] {
        let ask = with(ask(), &[more, ("temperature", json!(1))]);
        let whole = server.post("/v1/messages", &ask).json();
        let text = whole["content"][0]["text"].as_str().expect("a text");
        assert!(text == "\"yes\"" || text == "\"no\"", "{whole}");
    }
    let both = [
        ("output_config", json!({"format": format})),
        ("output_format", format.clone()),
    ];
    let reply = server.post("/v1/messages", &with(ask(), &both));
    assert!(reply.status == 400, "{}", reply.text);
    for (key, value, says) in [
        (
            "output_format",
            json!({"type": "json_schema"}),
            "output_format.schema: is required",
        ),
        (
            "output_format",
            json!({"type": "text"}),
            "output_format.type: must be json_schema",
        ),
        (
            "output_format",
            json!("json"),
            "output_format: must be an object, not a string",
        ),
        (
            "output_format",
            json!({"type": "json_schema", "schema": {"not": {}}}),
            "output_format.schema: the JSON schema can't be used",
        ),
        (
            "output_config",
            json!({"effort": 1}),
            "output_config.effort: must be a string",
        ),
        (
            "response_format",
            json!({"type": "json_object"}),
            "response_format: is another surface's name",
        ),
    ] {
        let reply = server.post("/v1/messages", &with(ask(), &[(key, value)]));
        assert!(
            reply.status == 400 && reply.text.contains(says),
            "{says}: {}",
            reply.text
        );
    }
}

#[test]
fn failures_have_anthropic_s_shape_and_name_the_field() {
    let server = Setup::of(&["llama"]).start();
    for (key, value, status, kind) in [
        ("model", json!("claude"), 404, "not_found_error"),
        ("model", json!(null), 400, "invalid_request_error"),
        ("max_tokens", json!(null), 400, "invalid_request_error"),
        ("max_tokens", json!(0), 400, "invalid_request_error"),
        ("messages", json!([]), 400, "invalid_request_error"),
        ("temperature", json!(-1), 400, "invalid_request_error"),
        ("stop_sequences", json!([""]), 400, "invalid_request_error"),
        ("system", json!(3), 400, "invalid_request_error"),
        ("container", json!("c"), 400, "invalid_request_error"),
        (
            "output_config",
            json!({"format": {"type": "xml"}}),
            400,
            "invalid_request_error",
        ),
        (
            "messages[0].content[0].text",
            json!(null),
            400,
            "invalid_request_error",
        ),
        (
            "thinking",
            json!({"type": "enabled", "budget_tokens": "many"}),
            400,
            "invalid_request_error",
        ),
    ] {
        let more = match key {
            "messages[0].content[0].text" => (
                "messages",
                json!([{"role": "user", "content": [{"type": "text", "text": 1}]}]),
            ),
            key => (key, value.clone()),
        };
        let reply = server.post("/v1/messages", &with(ask(), &[more]));
        assert_eq!(reply.status, status, "{key} {value}: {}", reply.text);
        let body = reply.json();
        assert_eq!(
            (&body["type"], &body["error"]["type"]),
            (&json!("error"), &json!(kind))
        );
        let message = body["error"]["message"].as_str().expect("a message");
        assert!(message.contains(key), "{key}: {message}");
    }
}

/// A client that counts before it asks hears what is wrong then, but not that a prompt is too long: that is what it wants to know.
#[test]
fn counting_refuses_what_an_answer_refuses() {
    let mut setup = Setup::of(&["llama"]);
    setup.engine.n_ctx = 512;
    let server = setup.start();
    let fine = json!({"model": server.id(), "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]});
    let tool = json!([{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"not": {}}}}}]);
    let format = |schema: Value| json!({"format": {"type": "json_schema", "schema": schema}});
    let begun = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]);
    let object = format(json!({"type": "object"}));
    for more in [
        vec![("messages", json!([{"role": "king", "content": "Hi"}]))],
        vec![("temperature", json!("warm"))],
        vec![("max_tokens", json!(0))],
        vec![("stop_sequences", json!([""]))],
        vec![("metadata", json!(7))],
        vec![("container", json!("c"))],
        vec![("tools", tool), ("tool_choice", json!({"type": "any"}))],
        vec![(
            "output_config",
            format(json!({"type": "object", "uniqueItems": true})),
        )],
        vec![("output_config", object), ("messages", begun)],
    ] {
        let body = with(fine.clone(), &more);
        let answer = server.post("/v1/messages", &body);
        let count = server.post("/v1/messages/count_tokens", &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text);
        assert_eq!((count.status, count.text), (400, answer.text), "{body}");
    }
    let long = json!([{"role": "user", "content": "a ".repeat(3000)}]);
    let body = with(fine, &[("messages", long)]);
    assert_eq!(server.post("/v1/messages", &body).status, 400);
    let count = server.post("/v1/messages/count_tokens", &body).json();
    assert!(count["input_tokens"].as_u64() > Some(512), "{count}");
}
