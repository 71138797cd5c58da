//! A schema for the answer beside tools: an answer is calls, or JSON of the schema, and streams as it is made.

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::cuts::both;
use crate::harness::{Running, with};
use crate::models::{Variant, saying};
use crate::tools::{ARGUMENTS, HERMES, THINK, start, thinking, tools};

/// Shows no tools: they are told in words, and calls have no marker.
const PLAIN: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

fn format() -> (&'static str, Value) {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["n", "name"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    ("response_format", format)
}

fn says(pieces: &[&[u8]], template: &str) -> (Running, Value) {
    let model = saying(pieces)
        .text("tokenizer.chat_template", template)
        .set("llama.context_length", Gguf::U32(1024))
        .write();
    let (server, ask) = start(&model);
    (server, with(ask, &[("tools", tools()), format()]))
}

#[test]
fn json_beside_tools_streams_as_it_is_made() {
    for template in [HERMES, PLAIN] {
        let pieces: [&[u8]; 4] = [br#"{"n": "#, br#"12, "#, br#""name": "#, br#""weather"}"#];
        let (server, ask) = says(&pieces, template);
        let (message, reason) = both(&server, &ask);
        let want = json!({"content": r#"{"n": 12, "name": "weather"}"#});
        assert_eq!((message, reason), (want, json!("stop")), "{template}");
        let stream = with(ask, &[("stream", json!(true))]);
        let chunks = server.post("/v1/chat/completions", &stream).chunks();
        let said = chunks
            .iter()
            .filter_map(|c| c["choices"][0]["delta"]["content"].as_str());
        let said: Vec<&str> = said.filter(|s| !s.is_empty()).collect();
        let pieces = pieces.map(|p| std::str::from_utf8(p).unwrap());
        assert_eq!(said, pieces, "{template}");
    }
}

/// What is asked for is compiled once, the first time it comes: not its schemas alone as well. Who asks for the same at once waits for that.
#[test]
fn what_is_asked_for_is_compiled_once() {
    let compiled = |server: &Running| server.handle.loaded()[0].engine.constraints_compiled();
    let (server, ask) = says(&[br#"{"n": 12, "name": "x"}"#], HERMES);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| assert_eq!(server.post("/v1/chat/completions", &ask).status, 200));
        }
    });
    assert_eq!(compiled(&server), 1, "a schema beside tools");
    let mut strict = tools();
    strict[0]["function"]["strict"] = json!(true);
    let required = [("tools", strict), ("tool_choice", json!("required"))];
    let required = with(ask.clone(), &required);
    let required = with(required, &[("response_format", json!({"type": "text"}))]);
    assert_eq!(server.post("/v1/chat/completions", &required).status, 200);
    assert_eq!(compiled(&server), 2, "tools that are held");
    let (server, ask) = start(&thinking(THINK));
    let ask = with(ask, &[format()]);
    assert_eq!(server.post("/v1/chat/completions", &ask).status, 200);
    assert_eq!(compiled(&server), 1, "a schema after reasoning");
}

#[test]
fn a_call_without_a_marker_may_stand_beside_a_schema() {
    let head = br#"{"name": "weather", "arguments": "#;
    let (server, ask) = says(&[head, br#"{"city": "#, br#""Rome"}"#, b"}"], PLAIN);
    let (message, reason) = both(&server, &ask);
    let call = json!([{"name": "weather", "arguments": ARGUMENTS}]);
    let want = json!({"content": "", "tool_calls": call});
    assert_eq!((message, reason), (want, json!("tool_calls")));
}

/// A random model writes one or the other, and nothing else.
#[test]
fn an_answer_is_calls_or_json_of_the_schema() {
    for template in [HERMES, PLAIN] {
        let model = Variant::of("llama3")
            .text("tokenizer.chat_template", template)
            .set("llama.context_length", Gguf::U32(1024))
            .write();
        let (server, ask) = start(&model);
        let more = [
            ("temperature", json!(1.5)),
            ("top_k", json!(0)),
            ("top_p", json!(1)),
            ("max_tokens", json!(300)),
        ];
        let flags = json!({"n": {"type": "boolean"}, "name": {"type": "boolean"}});
        let schema = json!({"type": "object", "properties": flags, "required": ["n", "name"], "additionalProperties": false});
        let format = json!({"type": "json_object", "schema": schema});
        let ask = with(ask, &more);
        let ask = with(ask, &[("tools", tools()), ("response_format", format)]);
        let mut ended = 0;
        for seed in 0..12 {
            let whole = server.post(
                "/v1/chat/completions",
                &with(ask.clone(), &[("seed", json!(seed))]),
            );
            let whole = whole.json();
            let choice = &whole["choices"][0];
            let content = choice["message"]["content"].as_str().unwrap_or_default();
            match choice["finish_reason"].as_str() {
                Some("length") => continue,
                Some("tool_calls") => assert_eq!(content, "", "{whole}"),
                _ => {
                    let json: Value =
                        serde_json::from_str(content).unwrap_or_else(|e| panic!("{e}: {whole}"));
                    assert!(
                        json["n"].is_boolean() && json["name"].is_boolean(),
                        "{whole}"
                    );
                }
            }
            ended += 1;
        }
        assert!(ended > 0, "{template}");
    }
}

/// The schema stands in the answer's field, and there it can be mended.
#[test]
fn a_schema_that_allows_a_call_s_keys_is_refused_by_its_own_field() {
    let (server, ask) = says(&[b"{}"], PLAIN);
    let mut strict = tools();
    strict[0]["function"]["strict"] = json!(true);
    let format = json!({"type": "json_object"});
    let ask = with(ask, &[("tools", strict), ("response_format", format)]);
    let reply = server.post("/v1/chat/completions", &ask);
    let error = &reply.json()["error"];
    assert_eq!(
        (reply.status, &error["param"]),
        (400, &json!("response_format")),
        "{error}"
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("give a schema") && message.contains("require a call"),
        "{message}"
    );
    let required = with(
        ask,
        &[("tool_choice", json!("required")), ("max_tokens", json!(1))],
    );
    assert_eq!(server.post("/v1/chat/completions", &required).status, 200);
}
