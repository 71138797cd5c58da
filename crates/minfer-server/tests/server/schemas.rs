//! JSON schemas as programs write them: what asks for nothing is taken, what can't be held is refused in words that say what would do.

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::harness::{Running, Setup, refused, said, taken};
use crate::models::{Model, Variant};

const CHAT: &str = "/v1/chat/completions";

fn format(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}}})
}

/// White space may be long where a model says anything, and so is a tool that is shown to it.
fn long() -> Model {
    let model = Variant::of("llama").set("llama.context_length", Gguf::U32(4096));
    model.write()
}

fn start(model: &Model) -> Running {
    let mut setup = Setup::of(&[model.path()]);
    setup.server.models[0].id = "llama".to_owned();
    setup.engine.n_ctx = 4096;
    setup.start()
}

/// As pydantic writes a model with a path, bytes, a secret, a date, a dictionary and a list, and zod a record.
fn written() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Entry",
        "type": "object",
        "properties": {
            "day": {"format": "date", "title": "Day", "type": "string"},
            "file": {"format": "path", "title": "File", "type": "string", "maxLength": 2},
            "data": {"format": "binary", "type": "string", "maxLength": 2},
            "key": {"format": "password", "type": "string", "writeOnly": true, "maxLength": 2},
            "n": {"format": "int32", "type": "integer", "minimum": 0, "maximum": 9},
            "tags": {"type": "array", "uniqueItems": false, "minItems": 0, "maxItems": 1, "items": {"enum": ["a"]}},
            "notes": {"type": "object", "propertyNames": {"type": "string"}, "properties": {}, "additionalProperties": false},
        },
        "required": ["day", "file", "data", "key", "n", "tags", "notes"],
        "additionalProperties": false,
    })
}

#[test]
fn a_schema_with_notes_and_keywords_that_ask_for_nothing_is_followed() {
    let model = long();
    let server = start(&model);
    let ask = |seed: u32| {
        let mut more = format(&written());
        more["max_tokens"] = json!(3000);
        more["seed"] = json!(seed);
        said(&server, CHAT, &more)
    };
    for seed in 0..3 {
        let reply = ask(seed);
        assert_eq!(reply.status, 200, "{}", reply.text);
        let choice = &reply.json()["choices"][0];
        assert_eq!(choice["finish_reason"], "stop", "{choice}");
        let text = choice["message"]["content"].as_str().expect("a text");
        let entry: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let day = entry["day"].as_str().expect("a text").as_bytes();
        // The known format holds, the notes do not change what holds beside them.
        let date = day.iter().enumerate().all(|(i, b)| match i {
            4 | 7 => *b == b'-',
            _ => b.is_ascii_digit(),
        });
        assert!(date && day.len() == 10, "{text}");
        for key in ["file", "data", "key"] {
            let length = entry[key].as_str().map(|text| text.chars().count());
            assert!(length.is_some_and(|n| n <= 2), "{text}");
        }
        assert!(entry["n"].as_u64().is_some_and(|n| n <= 9), "{text}");
    }
}

#[test]
fn every_surface_and_strict_tools_take_it() {
    let model = long();
    let server = start(&model);
    let schema = written();
    for (path, more) in [
        (CHAT, format(&schema)),
        (CHAT, json!({"json_schema": schema})),
        ("/completion", json!({"json_schema": schema})),
        (
            "/v1/responses",
            json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}),
        ),
        (
            "/v1/messages",
            json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
        ),
        ("/api/chat", json!({"format": schema})),
        (
            CHAT,
            json!({"tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": schema}}]}),
        ),
    ] {
        taken(&server, path, &more);
    }
}

#[test]
fn what_asks_for_something_is_refused_with_the_way_out() {
    let server = Setup::of(&["llama"]).start();
    let field = "response_format: the JSON schema can't be used: ";
    for (schema, says) in [
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}),
            "the keyword uniqueItems at #/properties/a is not supported",
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^a"}}),
            "the keyword propertyNames at # is not supported",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
            "at #/properties/a: strin is no type: use null, boolean, number, integer, string, array or object",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": "1"}}}),
            "at #/properties/a: minimum must be a number, is \"1\"",
        ),
        (
            json!({"$ref": "https://example.com/a.json"}),
            "the reference https://example.com/a.json leads out of the schema: put what it means under $defs, and refer to it as #/$defs/NAME",
        ),
    ] {
        refused(&server, CHAT, &format(&schema), &format!("{field}{says}"));
    }
}

/// Where an answer came to it, the row of the parser that would hold all of it was made on the engine's thread, for seconds, while every other answer waited.
#[test]
fn alternatives_that_are_too_much_together_are_refused_before_anything_is_said() {
    let server = Setup::of(&["llama"]).start();
    let alternative = |of: usize| {
        let names = (0..400).map(|i| (format!("p{of}x{i}"), json!({"type": "integer"})));
        let properties: serde_json::Map<String, Value> = names.collect();
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    };
    let all: Vec<Value> = (0..20).map(alternative).collect();
    let within = json!({"type": "object", "properties": {"a": {"anyOf": all}}, "required": ["a"], "additionalProperties": false});
    let reply = said(&server, CHAT, &format(&within));
    assert_eq!(reply.status, 400, "{}", reply.text);
    let message = reply.json()["error"]["message"].to_string();
    assert!(
        message.contains("too much can come next") && message.contains("fewer optional parts"),
        "{message}"
    );
    taken(&server, CHAT, &format(&alternative(0)));
}
