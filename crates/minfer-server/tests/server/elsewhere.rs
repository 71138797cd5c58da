//! What changes an answer, under the name that another surface has for it, in another place, or misspelled: it is refused by name, not ignored.

use serde_json::{Value, json};

use crate::harness::{Setup, refused, said, taken};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const NONE: &str = "is another surface's, and there is nothing like it here: leave it out, or use an endpoint that has it";

fn here(field: &str, place: &str) -> String {
    format!("{field}: is another surface's name: here it is {place}")
}

#[test]
fn a_length_or_a_stop_under_another_surface_s_name_is_refused() {
    let server = Setup::of(&["llama"]).start();
    for (path, field, place) in [
        (CHAT, "max_output_tokens", "max_tokens"),
        (TEXT, "max_output_tokens", "max_tokens"),
        (RESPONSES, "num_predict", "max_output_tokens"),
        (RESPONSES, "max_tokens", "max_output_tokens"),
        (RESPONSES, "max_completion_tokens", "max_output_tokens"),
        (MESSAGES, "max_output_tokens", "max_tokens"),
        (
            "/v1/messages/count_tokens",
            "max_output_tokens",
            "max_tokens",
        ),
        ("/api/chat", "max_tokens", "options.num_predict"),
        ("/api/generate", "n_predict", "options.num_predict"),
    ] {
        refused(&server, path, &json!({field: 7}), &here(field, place));
        // No limit is what there is without one.
        taken(&server, path, &json!({field: null}));
        taken(&server, path, &json!({field: -1}));
    }
    // SillyTavern sends all three, and Open WebUI's tasks Ollama's option beside the options.
    for path in [CHAT, TEXT, "/completion", "/api/chat", "/api/generate"] {
        taken(&server, path, &json!({"num_predict": 1}));
    }
    let three = json!({"max_tokens": 1, "n_predict": 1, "num_predict": 1});
    taken(&server, "/completion", &three);
    let two = json!({"num_predict": 1, "options": {"num_predict": 2}});
    let differ = "num_predict: is 1, and options.num_predict 2: give one of them";
    refused(&server, "/api/chat", &two, differ);
    let twice = json!({"think": false, "options": {"think": false, "num_predict": 1}});
    taken(&server, "/api/chat", &twice);
    let stop = json!(["a"]);
    for (path, field, place) in [
        (CHAT, "stop_sequences", "stop"),
        (TEXT, "stop_sequences", "stop"),
        (MESSAGES, "stop", "stop_sequences"),
        ("/api/chat", "stop", "options.stop"),
        ("/api/generate", "stop_sequences", "options.stop"),
    ] {
        refused(&server, path, &json!({field: stop}), &here(field, place));
        taken(&server, path, &json!({field: []}));
    }
    refused(
        &server,
        RESPONSES,
        &json!({"stop": stop}),
        &format!("stop: {NONE}"),
    );
}

#[test]
fn ollama_s_options_are_not_fields_nor_the_other_way_round() {
    let server = Setup::of(&["llama"]).start();
    for path in ["/api/chat", "/api/generate"] {
        for (field, value) in [
            ("temperature", json!(0.5)),
            ("top_k", json!(3)),
            ("seed", json!(3)),
            ("num_ctx", json!(64)),
        ] {
            let says = here(field, &format!("options.{field}"));
            refused(&server, path, &json!({field: value}), &says);
            taken(
                &server,
                path,
                &json!({"options": {field: value, "num_predict": 1}}),
            );
        }
        for (field, value, says) in [
            ("max_tokens", json!(3), here("max_tokens", "num_predict")),
            (
                "stop_sequences",
                json!(["a"]),
                here("stop_sequences", "stop"),
            ),
            ("think", json!(true), here("think", "think, beside options")),
            (
                "format",
                json!("json"),
                here("format", "format, beside options"),
            ),
            (
                "temprature",
                json!(1),
                "temprature: there is no such field: did you mean temperature?".to_owned(),
            ),
        ] {
            refused(&server, path, &json!({"options": {field: value}}), &says);
        }
        // What other servers' clients have in there is theirs.
        taken(
            &server,
            path,
            &json!({"options": {"rope_frequency_base": 1e4, "num_predict": 1}}),
        );
    }
    // Elsewhere a context's length is how the server was started, and asked for by nobody's client but Ollama's.
    taken(&server, CHAT, &json!({"num_ctx": 64}));
    // Where nothing is generated, how to is of no use.
    taken(
        &server,
        "/api/embed",
        &json!({"options": {"temperature": 0, "max_tokens": 3}}),
    );
}

#[test]
fn a_form_a_system_and_reasoning_are_told_their_places() {
    let server = Setup::of(&["llama"]).start();
    let role = "a message of the role system";
    let think = "reasoning_effort or chat_template_kwargs.enable_thinking";
    for (path, field, value, place) in [
        (CHAT, "format", json!("json"), "response_format"),
        (CHAT, "system", json!("Be brief."), role),
        (CHAT, "instructions", json!("Be brief."), role),
        (CHAT, "enable_thinking", json!(false), think),
        (CHAT, "think", json!(false), think),
        (
            CHAT,
            "reasoning",
            json!({"effort": "low"}),
            "reasoning_effort",
        ),
        (RESPONSES, "format", json!("json"), "text.format"),
        (
            RESPONSES,
            "guided_json",
            json!({"type": "object"}),
            "text.format",
        ),
        (RESPONSES, "system", json!("Be brief."), "instructions"),
        (
            RESPONSES,
            "reasoning_effort",
            json!("low"),
            "reasoning.effort",
        ),
        (MESSAGES, "format", json!("json"), "output_config.format"),
        (MESSAGES, "instructions", json!("Be brief."), "system"),
        (
            MESSAGES,
            "reasoning_effort",
            json!("low"),
            "output_config.effort",
        ),
        (MESSAGES, "think", json!(true), "thinking"),
        (
            MESSAGES,
            "reasoning_budget",
            json!(9),
            "thinking.budget_tokens",
        ),
        (
            "/api/chat",
            "response_format",
            json!({"type": "json_object"}),
            "format",
        ),
        ("/api/chat", "system", json!("Be brief."), role),
        ("/api/chat", "reasoning_effort", json!("low"), "think"),
        (
            "/api/generate",
            "instructions",
            json!("Be brief."),
            "system",
        ),
        ("/api/generate", "enable_thinking", json!(true), "think"),
    ] {
        refused(&server, path, &json!({field: value}), &here(field, place));
    }
    for (path, field, value) in [
        (MESSAGES, "presence_penalty", json!(0.5)),
        (MESSAGES, "min_p", json!(0.1)),
        (MESSAGES, "n", json!(2)),
        (RESPONSES, "n", json!(2)),
        ("/api/chat", "n", json!(2)),
        (TEXT, "tools", json!([{"type": "function"}])),
        ("/api/generate", "tools", json!([{"type": "function"}])),
        (CHAT, "suffix", json!("b")),
    ] {
        let says = format!("{field}: {NONE}");
        refused(&server, path, &json!({field: value}), &says);
    }
}

/// Values that leave everything as it is, and fields of which nothing is known.
#[test]
fn what_asks_for_nothing_under_another_s_name_is_taken() {
    let server = Setup::of(&["llama"]).start();
    for (path, fields) in [
        (
            MESSAGES,
            json!({"presence_penalty": 0, "frequency_penalty": 0.0, "min_p": 0, "n": 1, "logit_bias": {}, "stop": [], "repeat_penalty": 1}),
        ),
        (
            RESPONSES,
            json!({"n": 1, "stop": [], "ignore_eos": false, "format": "", "system": ""}),
        ),
        (
            "/api/generate",
            json!({"top_p": 1, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}}),
        ),
        (TEXT, json!({"tools": [], "tool_choice": {"type": "none"}})),
        (
            CHAT,
            json!({"top_a": 0.2, "tfs": 1, "stream_mode": "a", "x": {"y": 1}, "min_length": 3, "skip_special_tokens": true}),
        ),
    ] {
        for (field, value) in fields.as_object().expect("an object") {
            taken(&server, path, &json!({field: value}));
        }
    }
}

#[test]
fn a_misspelled_field_is_told_the_right_one() {
    let server = Setup::of(&["llama"]).start();
    for (path, field, meant) in [
        (CHAT, "temprature", "temperature"),
        (CHAT, "max_token", "max_tokens"),
        (CHAT, "maxTokens", "max_tokens"),
        (CHAT, "max_output_token", "max_tokens"),
        (CHAT, "topP", "top_p"),
        (CHAT, "presense_penalty", "presence_penalty"),
        (CHAT, "repsonse_format", "response_format"),
        (TEXT, "max-tokens", "max_tokens"),
        (RESPONSES, "maxOutputTokens", "max_output_tokens"),
        (RESPONSES, "maxTokens", "max_output_tokens"),
        (MESSAGES, "stop_sequence", "stop_sequences"),
        (MESSAGES, "topK", "top_k"),
        ("/completion", "n_predct", "n_predict"),
        ("/api/chat", "tempature_", ""),
        ("/api/chat", "temperatur", "options.temperature"),
        ("/api/chat", "numPredict", "options.num_predict"),
    ] {
        let more = json!({field: 1});
        match meant {
            "" => taken(&server, path, &more),
            meant => {
                let says = format!("{field}: there is no such field: did you mean {meant}?");
                refused(&server, path, &more, &says);
            }
        }
    }
    // Who looks at a prompt sends all of a conversation's fields, whose they are.
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_output_tokens": 3, "temprature": 1});
    let shown = server.post("/apply-template", &body);
    assert_eq!(shown.status, 200, "{}", shown.text);
    // Of so many unknown fields the first hundred are looked at.
    let many: serde_json::Map<String, Value> = (0..1000)
        .map(|i| (format!("a{i}"), json!(1)))
        .chain([("temprature".to_owned(), json!(1))])
        .collect();
    assert_eq!(said(&server, CHAT, &Value::Object(many)).status, 200);
}
