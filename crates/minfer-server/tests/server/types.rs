//! Fields of another type than the official clients' (openai 2.54, anthropic 2.14, ollama 0.6.3: their `…CreateParams` and requests) are refused in words,
//! those that change nothing here, too.

use serde_json::{Value, json};

use crate::harness::{Running, Setup, with};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// A request that is fine on this path.
fn fine(path: &str) -> Value {
    let mut body = json!({
        "model": "llama",
        "messages": [{"role": "user", "content": "Hi"}],
        "prompt": "Hi",
        "input": "Hi",
        "content": "Hi",
        "tokens": [1],
        "max_tokens": 1,
        "max_output_tokens": 1,
        "input_prefix": "a",
        "input_suffix": "b",
    });
    if path == RESPONSES {
        body["prompt"].take(); // a kept one, there
    }
    body
}

fn refused(server: &Running, path: &str, field: &str, value: Value, says: &str) {
    let body = with(fine(path), &[(field, value.clone())]);
    let reply = server.post(path, &body);
    let at = format!("{path} {field} {value}");
    assert_eq!(reply.status, 400, "{at}: {}", reply.text);
    let error = &reply.json()["error"];
    let said = error.as_str().or(error["message"].as_str());
    assert_eq!(said, Some(says), "{at}");
    if let Some(param) = error.get("param") {
        let named = says.split(": ").next();
        assert_eq!(param.as_str(), named, "{at}");
    }
}

#[test]
fn a_field_of_another_type_is_refused_in_words() {
    let server = Setup::of(&["llama"]).start();
    let whole = "must be a whole number of 0 or more";
    let of_32_bits = "must be a whole number from 0 to 4294967295";
    for (path, field, value, says) in [
        (
            CHAT,
            "temperature",
            json!("a"),
            "temperature: must be a number, not a string".to_owned(),
        ),
        (
            CHAT,
            "max_tokens",
            json!("9"),
            "max_tokens: must be a whole number, not a string".to_owned(),
        ),
        (
            CHAT,
            "max_tokens",
            json!(1.5),
            "max_tokens: must be a whole number, is 1.5".to_owned(),
        ),
        (
            CHAT,
            "stream",
            json!("yes"),
            "stream: must be true or false, not a string".to_owned(),
        ),
        (
            CHAT,
            "model",
            json!(7),
            "model: must be a string, not a number".to_owned(),
        ),
        (CHAT, "n", json!(-1), format!("n: {whole}, is -1")),
        (
            CHAT,
            "stop",
            json!(["a", 1]),
            "stop[1]: must be a string, not a number".to_owned(),
        ),
        (
            CHAT,
            "chat_template_kwargs",
            json!([]),
            "chat_template_kwargs: must be an object, not a list".to_owned(),
        ),
        (
            CHAT,
            "samplers",
            json!(["top_k", 1]),
            "samplers[1]: must be a string, not a number".to_owned(),
        ),
        (
            CHAT,
            "response_format",
            json!("json"),
            "response_format: must be an object, not a string".to_owned(),
        ),
        (
            CHAT,
            "response_format",
            json!({"type": 1}),
            "response_format.type: must be text, json_object or json_schema, not a number"
                .to_owned(),
        ),
        (
            MESSAGES,
            "tools",
            json!([{"name": "f", "type": 1, "input_schema": {"type": "object"}}]),
            "tools[0].type: 1 is a tool that a server runs: this one runs none".to_owned(),
        ),
        (
            TEXT,
            "logprobs",
            json!(true),
            format!("logprobs: {whole}, not a boolean"),
        ),
        (
            TEXT,
            "echo",
            json!(1),
            "echo: must be true or false, not a number".to_owned(),
        ),
        (
            "/v1/embeddings",
            "dimensions",
            json!("4"),
            format!("dimensions: {whole}, not a string"),
        ),
        (
            RESPONSES,
            "include",
            json!("a"),
            "include: must be a list, not a string".to_owned(),
        ),
        (
            RESPONSES,
            "reasoning",
            json!({"effort": 1}),
            "reasoning.effort: must be a string, not a number".to_owned(),
        ),
        (
            MESSAGES,
            "max_tokens",
            json!(-1),
            format!("max_tokens: {whole}, is -1"),
        ),
        (
            MESSAGES,
            "stop_sequences",
            json!("a"),
            "stop_sequences: must be a list, not a string".to_owned(),
        ),
        (
            MESSAGES,
            "thinking",
            json!(true),
            "thinking: must be an object, not a boolean".to_owned(),
        ),
        (
            MESSAGES,
            "top_p",
            json!([]),
            "top_p: must be a number, not a list".to_owned(),
        ),
        (
            "/api/chat",
            "options",
            json!("hot"),
            "options: must be an object, not a string".to_owned(),
        ),
        (
            "/api/chat",
            "options",
            json!({"num_predict": "3"}),
            "num_predict: must be a whole number, not a string".to_owned(),
        ),
        (
            "/api/generate",
            "raw",
            json!(0),
            "raw: must be true or false, not a number".to_owned(),
        ),
        (
            "/api/generate",
            "think",
            json!(1),
            "think: must be true, false or an effort, not a number".to_owned(),
        ),
        (
            "/api/generate",
            "format",
            json!(1),
            "format: must be \"json\" or a JSON Schema, not a number".to_owned(),
        ),
        (
            "/api/embed",
            "truncate",
            json!("no"),
            "truncate: must be true or false, not a string".to_owned(),
        ),
        (
            "/completion",
            "n_probs",
            json!(1.5),
            format!("n_probs: {whole}, is 1.5"),
        ),
        (
            "/completion",
            "top_k",
            json!("all"),
            "top_k: must be a whole number, not a string".to_owned(),
        ),
        (
            "/tokenize",
            "add_special",
            json!("yes"),
            "add_special: must be true or false, not a string".to_owned(),
        ),
        (
            "/detokenize",
            "tokens",
            json!([1, -1]),
            format!("tokens[1]: {whole}, is -1"),
        ),
        (
            "/detokenize",
            "tokens",
            json!([1, 4_294_967_296_u64]),
            format!("tokens[1]: {of_32_bits}, is 4294967296"),
        ),
        (
            "/completion",
            "dry_allowed_length",
            json!(4_294_967_296_u64),
            format!("dry_allowed_length: {of_32_bits}, is 4294967296"),
        ),
        (
            "/embedding",
            "embd_normalize",
            json!("max"),
            "embd_normalize: must be a whole number, not a string".to_owned(),
        ),
        (
            "/embedding",
            "encoding_format",
            json!("base64"),
            "encoding_format: base64 is not supported here: use /v1/embeddings".to_owned(),
        ),
        (
            RESPONSES,
            "context_management",
            json!("auto"),
            "context_management: must be a list, not a string".to_owned(),
        ),
    ] {
        refused(&server, path, field, value, &says);
    }
}

#[test]
fn a_field_that_changes_nothing_must_be_what_clients_say() {
    let server = Setup::of(&["llama"]).start();
    let (text, flag, object) = ("a string", "true or false", "an object");
    let cases = [
        (CHAT, "user", text, json!("u")),
        (CHAT, "safety_identifier", text, json!("u")),
        (CHAT, "metadata", object, json!({"a": "b"})),
        (CHAT, "store", flag, json!(true)),
        (CHAT, "service_tier", text, json!("auto")),
        (CHAT, "prompt_cache_key", text, json!("k")),
        (CHAT, "prompt_cache_retention", text, json!("24h")),
        (
            CHAT,
            "prediction",
            object,
            json!({"type": "content", "content": "a"}),
        ),
        (TEXT, "user", text, json!("u")),
        ("/v1/embeddings", "user", text, json!("u")),
        (RESPONSES, "store", flag, json!(false)),
        (RESPONSES, "metadata", object, json!({"a": "b"})),
        (RESPONSES, "service_tier", text, json!("flex")),
        (RESPONSES, "safety_identifier", text, json!("u")),
        (MESSAGES, "metadata", object, json!({"user_id": "u"})),
        (MESSAGES, "service_tier", text, json!("auto")),
        (
            MESSAGES,
            "cache_control",
            object,
            json!({"type": "ephemeral"}),
        ),
        (MESSAGES, "inference_geo", text, json!("eu")),
        (MESSAGES, "context_management", object, json!({"edits": []})),
        ("/api/chat", "truncate", flag, json!(true)),
        ("/api/generate", "shift", flag, json!(false)),
        ("/embedding", "encoding_format", text, json!("float")),
    ];
    for (path, field, wanted, right) in cases {
        let says = format!("{field}: must be {wanted}, not a number");
        refused(&server, path, field, json!(7), &says);
        let reply = server.post(path, &with(fine(path), &[(field, right)]));
        assert_eq!(reply.status, 200, "{path} {field}: {}", reply.text);
    }
    for (path, field, value, says) in [
        (
            CHAT,
            "metadata",
            json!({"a": 1}),
            "metadata.a: must be a string, not a number",
        ),
        (
            RESPONSES,
            "reasoning",
            json!({"summary": 1}),
            "reasoning.summary: must be a string, not a number",
        ),
        (
            "/api/chat",
            "options",
            json!({"num_thread": "all"}),
            "num_thread: must be a whole number, not a string",
        ),
        (
            "/api/generate",
            "options",
            json!({"use_mmap": 1}),
            "use_mmap: must be true or false, not a number",
        ),
        (
            "/api/chat",
            "options",
            json!({"draft_num_predict": "4"}),
            "draft_num_predict: must be a whole number, not a string",
        ),
        (
            "/completion",
            "n_keep",
            json!("all"),
            "n_keep: must be a whole number, not a string",
        ),
    ] {
        refused(&server, path, field, value, says);
    }
}

/// A number is told the range that it is past, not a rule that it obeys.
#[test]
fn a_number_past_what_is_held_is_told_the_range() {
    let server = Setup::of(&["llama"]).start();
    let floats = "must be a number from -3.4028235e38 to 3.4028235e38";
    for (path, field, value, says) in [
        (
            CHAT,
            "top_k",
            json!(1_000_000_000_000_u64),
            "top_k: must be a whole number from -1 to 4294967295, is 1000000000000".to_owned(),
        ),
        (
            CHAT,
            "top_k",
            json!(-2),
            "top_k: must be a whole number from -1 to 4294967295, is -2".to_owned(),
        ),
        (
            TEXT,
            "temperature",
            json!(1e39),
            format!("temperature: {floats}, is {}", json!(1e39)),
        ),
        (
            CHAT,
            "logit_bias",
            json!({"1": 1e39}),
            format!("logit_bias: {floats}, is {}", json!(1e39)),
        ),
    ] {
        refused(&server, path, field, value, &says);
    }
    let pointed = with(fine(CHAT), &[("max_tokens", json!(1.0))]);
    assert_eq!(server.post(CHAT, &pointed).status, 200);
}

/// With or without tools to choose from.
#[test]
fn a_choice_of_no_known_kind_is_told_the_kinds() {
    let server = Setup::of(&["llama"]).start();
    let of_messages = "auto, any, tool or none";
    let of_chat = "tool_choice: must be none, auto, required or a tool";
    for (path, choice, says) in [
        (
            MESSAGES,
            json!({"type": "often"}),
            format!("tool_choice.type: must be {of_messages}, is \"often\""),
        ),
        (
            MESSAGES,
            json!({}),
            format!("tool_choice.type: is required: {of_messages}"),
        ),
        (
            "/api/chat",
            json!("often"),
            format!("{of_chat}, is \"often\""),
        ),
        (CHAT, json!(1), format!("{of_chat}, is 1")),
        (
            RESPONSES,
            json!({"type": "often"}),
            "tool_choice.type: must be function or allowed_tools, is \"often\"".to_owned(),
        ),
    ] {
        refused(&server, path, "tool_choice", choice, &says);
    }
    for (path, choice) in [
        (MESSAGES, json!({"type": "none"})),
        ("/api/chat", json!("auto")),
    ] {
        let reply = server.post(path, &with(fine(path), &[("tool_choice", choice)]));
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    }
}
