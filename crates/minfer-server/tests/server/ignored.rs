//! What is asked for and can't be given is refused by name, not ignored; nor does one of two names of a thing win in silence.

use minfer::gguf::Value as Meta;
use serde_json::{Value, json};

use crate::harness::{Setup, refused, said, taken, with};
use crate::models::{FIRST_FREE, IM_START, Variant};
use crate::raw::Raw;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";

#[test]
fn completions_refuse_other_servers_fields_as_chat_does() {
    let server = Setup::of(&["llama"]).start();
    for (field, value, nothing) in [
        ("regex", json!("a+"), json!([""])),
        ("guided_json", json!({"type": "object"}), json!([])),
        ("guided_regex", json!("a+"), json!([""])),
        ("guided_choice", json!(["a", "b"]), json!([[]])),
        ("guided_grammar", json!("root ::= \"a\""), json!([""])),
        ("structured_outputs", json!({"regex": "a+"}), json!([])),
        ("min_tokens", json!(4), json!([0, 0.0])),
        ("stop_token_ids", json!([2]), json!([[]])),
        ("bad_words", json!(["a"]), json!([[]])),
        ("allowed_token_ids", json!([2]), json!([[]])),
        ("include_stop_str_in_output", json!(true), json!([false])),
        ("use_beam_search", json!(true), json!([false])),
        ("length_penalty", json!(0.5), json!([1.0, 1])),
        ("truncate_prompt_tokens", json!(1), json!([-1, -1.0])),
        ("prompt_logprobs", json!(1), json!([])),
        ("lora", json!([{"id": 0, "scale": 1.0}]), json!([[]])),
        ("id_slot", json!(1), json!([-1, -1.0])),
        ("n_probs", json!(2), json!([0, 0.0])),
        ("post_sampling_probs", json!(true), json!([false])),
        ("t_max_predict_ms", json!(5), json!([0, -1, -1.0])),
    ] {
        for path in [TEXT, CHAT] {
            let reply = said(&server, path, &json!({field: value}));
            let named = reply.text.contains(&format!("\"param\":\"{field}\""));
            assert!(
                reply.status == 400 && named,
                "{path} {field}: {}",
                reply.text
            );
            taken(&server, path, &json!({field: null}));
            for nothing in nothing.as_array().expect("a list") {
                taken(&server, path, &json!({field: nothing}));
            }
        }
    }
    // The way out is one that this endpoint has.
    for (more, says) in [
        (
            json!({"n_probs": 2}),
            "n_probs: is for /completion: use logprobs",
        ),
        (
            json!({"prompt_logprobs": 1}),
            "prompt_logprobs: is another server's name: use echo and logprobs",
        ),
        (
            json!({"truncate_prompt_tokens": 1}),
            "truncate_prompt_tokens: a prompt is never cut: shorten it",
        ),
        (
            json!({"add_special_tokens": false}),
            "add_special_tokens: a text gets the control tokens that its model expects: give token ids for others",
        ),
    ] {
        refused(&server, TEXT, &more, says);
    }
    taken(&server, TEXT, &json!({"add_special_tokens": true}));
}

/// Whatever a surface's clients write for what they leave as it is, in any language.
#[test]
fn what_asks_for_nothing_is_taken() {
    let server = Setup::of(&["llama"]).start();
    let text_form = json!({"type": "text"});
    for (path, field, nothing) in [
        (CHAT, "modalities", json!([["text"]])),
        (CHAT, "verbosity", json!(["medium"])),
        (CHAT, "chat_template", json!([""])),
        (CHAT, "functions", json!([[]])),
        (CHAT, "function_call", json!(["none", "auto"])),
        (TEXT, "best_of", json!([1, 1.0])),
        (RESPONSES, "previous_response_id", json!([""])),
        (RESPONSES, "conversation", json!([""])),
        (RESPONSES, "background", json!([false])),
        (RESPONSES, "truncation", json!(["disabled"])),
        (RESPONSES, "response_format", json!([text_form])),
        ("/v1/messages", "container", json!([""])),
        ("/v1/messages", "mcp_servers", json!([[]])),
        ("/v1/messages", "response_format", json!([text_form])),
        ("/completion", "t_max_predict_ms", json!([0, -1, -1.0])),
        ("/completion", "id_slot", json!([-1, -1.0])),
        ("/completion", "n_indent", json!([0, 0.0])),
        ("/completion", "min_keep", json!([0, 1, 1.0])),
        ("/completion", "lora", json!([[]])),
        ("/completion", "response_fields", json!([[]])),
        ("/completion", "post_sampling_probs", json!([false])),
        (
            "/api/generate",
            "options",
            json!([{"tfs_z": 1, "num_predict": 1}, {"tfs_z": 1.0, "penalize_newline": true, "num_predict": 1}]),
        ),
        ("/api/generate", "images", json!([[]])),
        ("/api/generate", "template", json!([""])),
        ("/api/generate", "context", json!([[]])),
        (
            "/v1/embeddings",
            "truncate_prompt_tokens",
            json!([-1, -1.0]),
        ),
        ("/v1/embeddings", "embd_normalize", json!([2, 2.0])),
    ] {
        for nothing in nothing.as_array().expect("a list") {
            taken(&server, path, &json!({field: nothing}));
        }
    }
}

#[test]
fn embeddings_are_of_whole_texts_and_have_one_length() {
    let server = Setup::of(&["llama"]).start();
    let path = "/v1/embeddings";
    refused(
        &server,
        path,
        &json!({"truncate_prompt_tokens": 1}),
        "truncate_prompt_tokens: a text is never cut: shorten it",
    );
    for (name, value) in [("embd_normalize", json!(-1)), ("normalize", json!(false))] {
        let says = format!("{name}: vectors have length 1 here: /embedding makes others");
        refused(&server, path, &json!({name: value}), &says);
    }
    taken(
        &server,
        path,
        &json!({"truncate_prompt_tokens": -1, "embd_normalize": 2, "normalize": true}),
    );
}

#[test]
fn two_names_of_one_thing_must_say_the_same() {
    let server = Setup::of(&["llama"]).start();
    for (path, one, other, [a, b]) in [
        (
            CHAT,
            "max_tokens",
            "max_completion_tokens",
            [json!(1), json!(2)],
        ),
        (
            CHAT,
            "thinking_budget_tokens",
            "reasoning_budget",
            [json!(1), json!(2)],
        ),
        (
            TEXT,
            "repeat_penalty",
            "repetition_penalty",
            [json!(1.5), json!(1)],
        ),
        ("/completion", "n", "n_cmpl", [json!(2), json!(1)]),
        ("/embedding", "content", "input", [json!("a"), json!("b")]),
        ("/tokenize", "prompt", "content", [json!("a"), json!("b")]),
        (
            "/tokenize",
            "add_special",
            "add_special_tokens",
            [json!(true), json!(false)],
        ),
        (
            "/api/chat",
            "model",
            "name",
            [json!("llama"), json!("qwen3")],
        ),
    ] {
        let says = format!("{other}: says something else than {one}, which is the same");
        refused(&server, path, &json!({one: a, other: b}), &says);
        taken(&server, path, &json!({one: a, other: a}));
        taken(&server, path, &json!({one: null, other: a}));
    }
    // One model has two names itself.
    for [model, name] in [["llama", "llama:latest"], ["llama:latest", "llama"]] {
        let both = json!({"model": model, "name": name});
        taken(&server, "/api/chat", &both);
        assert_eq!(server.post("/api/show", &both).status, 200, "{both}");
    }
    let other = json!({"name": "llama:8b"});
    let says = "name: says something else than model, which is the same";
    refused(&server, "/api/chat", &other, says);
    // What Ollama's own client leaves empty is not said.
    taken(&server, "/api/chat", &json!({"name": ""}));
    taken(&server, "/api/chat", &json!({"model": "", "name": "llama"}));
    let names = "model: is required";
    refused(
        &server,
        "/api/chat",
        &json!({"model": "", "name": ""}),
        names,
    );
}

/// Each name has its effect, whichever other name it stands beside.
#[test]
fn every_name_of_a_thing_counts() {
    let bos = [
        ("tokenizer.ggml.add_bos_token", Meta::Bool(true)),
        ("tokenizer.ggml.bos_token_id", Meta::U32(IM_START as u32)),
    ];
    let model = (bos.into_iter()).fold(Variant::of("llama"), |model, (k, v)| model.set(k, v));
    let model = model.write();
    let server = Setup::of(&[model.path()]).start();
    let count = |more: Value| {
        let body = said(&server, "/tokenize", &with(more, &[("model", json!(null))])).json();
        body["count"].as_u64().expect("a count")
    };
    let bare = count(json!({}));
    for name in ["add_special", "add_special_tokens"] {
        assert_eq!(count(json!({name: true})), bare + 1, "{name}");
        assert_eq!(count(json!({name: false})), bare, "{name}");
        let theirs = json!({"content": null, "prompt": "Hi", name: false});
        assert_eq!(count(theirs), bare, "{name}");
    }
    assert_eq!(count(json!({"prompt": "Hi"})), bare + 1);
    for name in ["n", "n_cmpl"] {
        let two = json!({name: 2, "model": null});
        let body = said(&server, TEXT, &two).json();
        assert_eq!(body["choices"].as_array().map(Vec::len), Some(2), "{name}");
        let says = format!("{name}: must be 1 to 128, is 0");
        let none = json!({name: 0, "model": null});
        refused(&server, "/completion", &none, &says);
    }
}

#[test]
fn likeliest_tokens_need_log_probabilities_everywhere() {
    let server = Setup::of(&["llama"]).start();
    let flag = "top_logprobs: needs \"logprobs\": true";
    let include = "top_logprobs: needs \"include\": [\"message.output_text.logprobs\"]";
    for (path, says) in [
        (CHAT, flag),
        ("/api/chat", flag),
        ("/api/generate", flag),
        (RESPONSES, include),
    ] {
        refused(&server, path, &json!({"top_logprobs": 3}), says);
        taken(&server, path, &json!({"top_logprobs": 0})); // what a response says that has none
    }
    refused(
        &server,
        "/api/chat",
        &json!({"top_logprobs": 3, "logprobs": false}),
        flag,
    );
}

#[test]
fn parts_of_a_response_that_nobody_knows_are_refused() {
    let server = Setup::of(&["llama"]).start();
    let unknown = json!({"include": ["reasoning.encrypted_content", "output_text.logprobs"]});
    let says = "include[1]: must be message.output_text.logprobs or a part that other servers add, is \"output_text.logprobs\"";
    refused(&server, RESPONSES, &unknown, says);
    // All that OpenAI's client (2.54) knows.
    let known = json!({"include": [
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
    ]});
    taken(&server, RESPONSES, &known);
}

#[test]
fn a_prompt_without_a_template_can_t_be_told_to_reason() {
    let names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"];
    let mut model = Variant::of("llama");
    for (i, name) in names.iter().enumerate() {
        model = model.token(FIRST_FREE + i, name, 3);
    }
    let model = model.write();
    let server = Setup::of(&[model.path()]).start();
    let name = server.get("/api/tags").json()["models"][0]["name"].clone();
    let says = "think: is told by the model's template, which a raw prompt and one with a suffix go without: \
                write in the prompt what begins reasoning, or leave them out";
    for (bare, value) in [("raw", json!(true)), ("suffix", json!("b"))] {
        for think in [json!(true), json!("high")] {
            let more = json!({"model": name, bare: value, "think": think});
            refused(&server, "/api/generate", &more, says);
        }
        let more = json!({"model": name, bare: value, "think": false});
        taken(&server, "/api/generate", &more);
    }
    taken(
        &server,
        "/api/generate",
        &json!({"model": name, "think": true}),
    );
}

#[test]
fn a_head_of_too_many_fields_is_told_so() {
    let server = Setup::of(&["llama"]).start();
    let reply = |fields: usize| {
        let more: String = (0..fields).map(|i| format!("x-{i}: a\r\n")).collect();
        let mut raw = Raw::connect(&server);
        raw.send(format!(
            "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n"
        ));
        raw.rest()
    };
    let many = reply(99);
    assert!(many.starts_with("HTTP/1.1 431 "), "{many}");
    assert!(many.contains("or has more than 100 fields"), "{many}");
    assert!(reply(98).starts_with("HTTP/1.1 200 "));
}
