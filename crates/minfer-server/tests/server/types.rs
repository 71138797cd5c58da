//! Fields of another type than the official clients' (openai 2.54, anthropic 2.14, ollama 0.6.3: their `…CreateParams` and requests) are refused in words,
//! those that change nothing here, too.

use serde_json::{Value, json};

use crate::harness::{Running, Setup, refused, taken};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// Each of these is refused so.
fn all_refused(server: &Running, path: &str, rows: &[(Value, &str)]) {
    for (more, says) in rows {
        refused(server, path, more, says);
    }
}

#[test]
fn chat_tells_a_wrong_type_in_words() {
    let server = Setup::of(&["llama"]).start();
    all_refused(
        &server,
        CHAT,
        &[
            (
                json!({"temperature": "a"}),
                "temperature: must be a number, not a string",
            ),
            (
                json!({"max_tokens": "9"}),
                "max_tokens: must be a whole number, not a string",
            ),
            (
                json!({"max_tokens": 1.5}),
                "max_tokens: must be a whole number, is 1.5",
            ),
            (
                json!({"stream": "yes"}),
                "stream: must be true or false, not a string",
            ),
            (json!({"model": 7}), "model: must be a string, not a number"),
            (
                json!({"n": -1}),
                "n: must be a whole number of 0 or more, is -1",
            ),
            (
                json!({"stop": ["a", 1]}),
                "stop[1]: must be a string, not a number",
            ),
            (
                json!({"chat_template_kwargs": []}),
                "chat_template_kwargs: must be an object, not a list",
            ),
            (
                json!({"samplers": ["top_k", 1]}),
                "samplers[1]: must be a string, not a number",
            ),
            (
                json!({"response_format": "json"}),
                "response_format: must be an object, not a string",
            ),
            (
                json!({"response_format": {"type": 1}}),
                "response_format.type: must be text, json_object or json_schema, not a number",
            ),
        ],
    );
}

#[test]
fn openai_s_other_paths_tell_a_wrong_type_in_words() {
    let server = Setup::of(&["llama"]).start();
    all_refused(
        &server,
        TEXT,
        &[
            (
                json!({"logprobs": true}),
                "logprobs: must be a whole number of 0 or more, not a boolean",
            ),
            (
                json!({"echo": 1}),
                "echo: must be true or false, not a number",
            ),
        ],
    );
    all_refused(
        &server,
        "/v1/embeddings",
        &[(
            json!({"dimensions": "4"}),
            "dimensions: must be a whole number of 0 or more, not a string",
        )],
    );
}

#[test]
fn responses_tell_a_wrong_type_in_words() {
    let server = Setup::of(&["llama"]).start();
    all_refused(
        &server,
        RESPONSES,
        &[
            (
                json!({"include": "a"}),
                "include: must be a list, not a string",
            ),
            (
                json!({"reasoning": {"effort": 1}}),
                "reasoning.effort: must be a string, not a number",
            ),
            (
                json!({"context_management": "auto"}),
                "context_management: must be a list, not a string",
            ),
        ],
    );
}

#[test]
fn messages_tell_a_wrong_type_in_words() {
    let server = Setup::of(&["llama"]).start();
    all_refused(
        &server,
        MESSAGES,
        &[
            (
                json!({"max_tokens": -1}),
                "max_tokens: must be a whole number of 0 or more, is -1",
            ),
            (
                json!({"stop_sequences": "a"}),
                "stop_sequences: must be a list, not a string",
            ),
            (
                json!({"thinking": true}),
                "thinking: must be an object, not a boolean",
            ),
            (json!({"top_p": []}), "top_p: must be a number, not a list"),
            (
                json!({"tools": [{"name": "f", "type": 1, "input_schema": {"type": "object"}}]}),
                "tools[0].type: 1 is a tool that a server runs: this one runs none",
            ),
        ],
    );
}

#[test]
fn ollama_s_paths_tell_a_wrong_type_in_words() {
    let server = Setup::of(&["llama"]).start();
    all_refused(
        &server,
        "/api/chat",
        &[
            (
                json!({"options": "hot"}),
                "options: must be an object, not a string",
            ),
            (
                json!({"options": {"num_predict": "3"}}),
                "num_predict: must be a whole number, not a string",
            ),
        ],
    );
    all_refused(
        &server,
        "/api/generate",
        &[
            (
                json!({"raw": 0}),
                "raw: must be true or false, not a number",
            ),
            (
                json!({"think": 1}),
                "think: must be true, false or an effort, not a number",
            ),
            (
                json!({"format": 1}),
                "format: must be \"json\" or a JSON Schema, not a number",
            ),
        ],
    );
    all_refused(
        &server,
        "/api/embed",
        &[(
            json!({"truncate": "no"}),
            "truncate: must be true or false, not a string",
        )],
    );
}

#[test]
fn llama_server_s_paths_tell_a_wrong_type_in_words() {
    let server = Setup::of(&["llama"]).start();
    all_refused(
        &server,
        "/completion",
        &[
            (
                json!({"n_probs": 1.5}),
                "n_probs: must be a whole number of 0 or more, is 1.5",
            ),
            (
                json!({"top_k": "all"}),
                "top_k: must be a whole number, not a string",
            ),
            (
                json!({"dry_allowed_length": 4_294_967_296_u64}),
                "dry_allowed_length: must be a whole number from 0 to 4294967295, is 4294967296",
            ),
        ],
    );
    all_refused(
        &server,
        "/embedding",
        &[
            (
                json!({"embd_normalize": "max"}),
                "embd_normalize: must be a whole number, not a string",
            ),
            (
                json!({"encoding_format": "base64"}),
                "encoding_format: base64 is not supported here: use /v1/embeddings",
            ),
        ],
    );
}

#[test]
fn the_tokenizer_s_paths_tell_a_wrong_type_in_words() {
    let server = Setup::of(&["llama"]).start();
    all_refused(
        &server,
        "/tokenize",
        &[(
            json!({"add_special": "yes"}),
            "add_special: must be true or false, not a string",
        )],
    );
    all_refused(
        &server,
        "/detokenize",
        &[
            (
                json!({"tokens": [1, -1]}),
                "tokens[1]: must be a whole number of 0 or more, is -1",
            ),
            (
                json!({"tokens": [1, 4_294_967_296_u64]}),
                "tokens[1]: must be a whole number from 0 to 4294967295, is 4294967296",
            ),
        ],
    );
}

/// No number is of the wanted type; the right value is taken.
fn idle(server: &Running, rows: &[(&str, &str, &str, Value)]) {
    for (path, field, wanted, right) in rows {
        let says = format!("{field}: must be {wanted}, not a number");
        refused(server, path, &json!({*field: 7}), &says);
        taken(server, path, &json!({*field: right}));
    }
}

#[test]
fn what_changes_nothing_on_openai_s_paths_must_be_of_its_type() {
    let server = Setup::of(&["llama"]).start();
    let (text, flag, object) = ("a string", "true or false", "an object");
    idle(
        &server,
        &[
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
        ],
    );
    all_refused(
        &server,
        CHAT,
        &[(
            json!({"metadata": {"a": 1}}),
            "metadata.a: must be a string, not a number",
        )],
    );
    all_refused(
        &server,
        RESPONSES,
        &[(
            json!({"reasoning": {"summary": 1}}),
            "reasoning.summary: must be a string, not a number",
        )],
    );
}

#[test]
fn what_changes_nothing_in_messages_must_be_of_its_type() {
    let server = Setup::of(&["llama"]).start();
    let (text, object) = ("a string", "an object");
    idle(
        &server,
        &[
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
        ],
    );
}

#[test]
fn what_changes_nothing_on_ollama_s_and_llama_server_s_paths_must_be_of_its_type() {
    let server = Setup::of(&["llama"]).start();
    let (text, flag) = ("a string", "true or false");
    idle(
        &server,
        &[
            ("/api/chat", "truncate", flag, json!(true)),
            ("/api/generate", "shift", flag, json!(false)),
            ("/embedding", "encoding_format", text, json!("float")),
        ],
    );
    all_refused(
        &server,
        "/api/chat",
        &[
            (
                json!({"options": {"num_thread": "all"}}),
                "num_thread: must be a whole number, not a string",
            ),
            (
                json!({"options": {"draft_num_predict": "4"}}),
                "draft_num_predict: must be a whole number, not a string",
            ),
        ],
    );
    all_refused(
        &server,
        "/api/generate",
        &[(
            json!({"options": {"use_mmap": 1}}),
            "use_mmap: must be true or false, not a number",
        )],
    );
    all_refused(
        &server,
        "/completion",
        &[(
            json!({"n_keep": "all"}),
            "n_keep: must be a whole number, not a string",
        )],
    );
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
        refused(&server, path, &json!({field: value}), &says);
    }
    taken(&server, CHAT, &json!({"max_tokens": 1.0}));
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
        refused(&server, path, &json!({"tool_choice": choice}), &says);
    }
    for (path, choice) in [
        (MESSAGES, json!({"type": "none"})),
        ("/api/chat", json!("auto")),
    ] {
        taken(&server, path, &json!({"tool_choice": choice}));
    }
}
