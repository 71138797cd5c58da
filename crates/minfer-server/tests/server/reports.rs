//! Faults that users of other servers reported, each under its report's number (ggml-org/llama.cpp where nothing else is said).

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::harness::{Running, Setup, on, with};
use crate::models::Variant;

fn server() -> Running {
    Setup::of(&["llama"]).start()
}

fn chat() -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 4, "ignore_eos": true})
}

/// An empty prompt has an answer, or is refused; the next request works.
#[test]
fn llama_cpp_5246_vllm_pr_7746_empty_prompts() {
    let server = server();
    let prompts = [
        json!(""),
        json!([""]),
        json!([]),
        json!([[]]),
        json!(["", "x"]),
        json!(null),
    ];
    for path in [
        "/v1/completions",
        "/completion",
        "/v1/embeddings",
        "/api/generate",
    ] {
        let field = if path == "/v1/embeddings" {
            "input"
        } else {
            "prompt"
        };
        for prompt in &prompts {
            let body = json!({"model": "llama", "max_tokens": 2, field: prompt});
            let reply = server.post(path, &on(path, body));
            assert!(
                [200, 400].contains(&reply.status),
                "{path} {prompt}: {}",
                reply.text
            );
            if reply.status == 400 {
                let names = if prompt.is_null() { field } else { "" };
                assert!(
                    reply.json()["error"].to_string().contains(names),
                    "{}",
                    reply.text
                );
            }
            let next = server.post("/v1/chat/completions", &chat());
            assert_eq!(next.status, 200, "after {path} {prompt}: {}", next.text);
        }
    }
}

/// Also llama-cpp-python#1907.
#[test]
fn llama_cpp_13700_max_completion_tokens_is_a_limit() {
    let server = server();
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": true, "max_completion_tokens": 5});
    let reply = server.post("/v1/chat/completions", &body).json();
    assert_eq!(reply["usage"]["completion_tokens"], 5);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}

/// Also ik_llama.cpp#467.
#[test]
fn apfel_100_usage_comes_once_and_only_if_asked_for() {
    let server = server();
    let stream = with(chat(), &[("stream", json!(true))]);
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let stream = match path {
            "/v1/completions" => with(stream.clone(), &[("prompt", json!("Hi"))]),
            _ => stream.clone(),
        };
        let chunks = server.post(path, &stream).chunks();
        assert!(
            chunks
                .iter()
                .all(|c| c.get("usage").is_none_or(Value::is_null)),
            "{path}"
        );
        assert!(chunks.iter().all(|c| c["choices"] != json!([])), "{path}");
        let asked = with(
            stream,
            &[("stream_options", json!({"include_usage": true}))],
        );
        let chunks = server.post(path, &asked).chunks();
        let with_usage = chunks.iter().filter(|c| !c["usage"].is_null());
        assert_eq!(with_usage.count(), 1, "{path}");
        let last = chunks.last().expect("a chunk");
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], 4);
    }
}

#[test]
fn llama_cpp_11346_completions_have_log_probabilities() {
    let body = json!({"model": "llama", "prompt": "Hi", "max_tokens": 3, "temperature": 0, "ignore_eos": true, "logprobs": 1});
    let reply = server().post("/v1/completions", &body).json();
    let logprobs = &reply["choices"][0]["logprobs"];
    let list = |key: &str| {
        logprobs[key]
            .as_array()
            .cloned()
            .unwrap_or_else(|| panic!("{key}: {reply}"))
    };
    let (tokens, values, top) = (list("tokens"), list("token_logprobs"), list("top_logprobs"));
    assert_eq!((tokens.len(), values.len(), top.len()), (3, 3, 3));
    for ((token, value), top) in tokens.iter().zip(&values).zip(&top) {
        let name = token.as_str().expect("a text");
        // Greedy: the chosen one is the likeliest.
        assert_eq!(&top[name], value, "{name}: {top}");
        assert!(value.as_f64().expect("a number") <= 0.0);
    }
}

/// Never 200 with free text.
#[test]
fn llama_cpp_19051_a_schema_with_an_invalid_pattern_is_400() {
    let model = Variant::of("llama").set("llama.context_length", Gguf::U32(2048));
    let model = model.write();
    let mut setup = Setup::of(&[model.path()]);
    setup.engine.n_ctx = 2048;
    let server = setup.start();
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}, "required": ["a"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let tool = json!([{"type": "function", "function": {"name": "f", "strict": true, "parameters": schema}}]);
    for (key, value, param) in [
        ("response_format", format, "response_format"),
        ("json_schema", schema.clone(), "json_schema"),
        ("tools", tool, "tools[0].function.parameters"),
    ] {
        let reply = server.post("/v1/chat/completions", &with(chat(), &[(key, value)]));
        assert_eq!(reply.status, 400, "{key}: {}", reply.text);
        assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
    }
}

/// Variables of the template are no way around what the request says.
#[test]
fn template_variables_replace_no_conversation() {
    let server = server();
    for (key, value) in [
        ("messages", json!([])),
        ("add_generation_prompt", json!(false)),
    ] {
        let body = with(chat(), &[("chat_template_kwargs", json!({key: value}))]);
        for path in ["/v1/chat/completions", "/apply-template"] {
            let reply = server.post(path, &body);
            assert_eq!(reply.status, 400, "{path} {key}: {}", reply.text);
            let param = format!("chat_template_kwargs.{key}");
            assert_eq!(reply.json()["error"]["param"], param, "{}", reply.text);
        }
    }
}

/// A call, or what a tool gave, without an id is understood.
#[test]
fn aichat_1296_calls_and_results_without_ids() {
    let server = server();
    let function = json!({"name": "f", "arguments": "{}"});
    for id in [json!(null), json!("call_1")] {
        let mut call = json!({"type": "function", "function": function, "id": id});
        for _ in 0..2 {
            let messages = json!([
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "content": "1", "tool_call_id": call["id"]},
            ]);
            let reply = server.post(
                "/v1/chat/completions",
                &with(chat(), &[("messages", messages)]),
            );
            assert_eq!(reply.status, 200, "{}", reply.text);
            call.as_object_mut().expect("an object").remove("id");
        }
    }
}
