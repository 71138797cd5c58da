//! Answers whose beginning is given: a last message of the assistant's.

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::cuts::both;
use crate::harness::{Running, on, with};
use crate::models::{Model, Variant, saying};
use crate::tools::{HERMES, calling, start, thinking, tools, weather};

const CHAT: &str = "/v1/chat/completions";
/// As Llama 3's, which trims what is said.
const TEMPLATE: &str = "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}\
{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";

fn random() -> Model {
    let model = Variant::of("llama3");
    let model = model.text("tokenizer.chat_template", TEMPLATE);
    model.set("llama.context_length", Gguf::U32(1024)).write()
}

fn prompt(server: &Running, body: &Value) -> String {
    let reply = server.post("/apply-template", body);
    let prompt = reply.json()["prompt"].as_str().map(str::to_owned);
    prompt.unwrap_or_else(|| panic!("{}", reply.text))
}

/// The first is llama-server's own example (its pull request 13608).
#[test]
fn the_prompt_ends_with_what_the_assistant_has_said() {
    let (server, _) = start(&random());
    let said = |content: &str| json!([{"role": "assistant", "content": content}]);
    let head = "<|start_header_id|>assistant<|end_header_id|>\n\n";
    for (content, end) in [
        ("My name is", "My name is"),
        ("My name is\n ", "My name is"),
        ("", ""),
    ] {
        let prompt = prompt(&server, &json!({"messages": said(content)}));
        assert_eq!(prompt, format!("{head}{end}"));
    }
    let messages = said("My name is");
    let closed = format!("{head}My name is<|eot_id|>");
    for (more, want) in [
        (
            ("continue_final_message", json!(true)),
            format!("{head}My name is"),
        ),
        (
            ("continue_final_message", json!(false)),
            format!("{closed}{head}"),
        ),
        (
            ("add_generation_prompt", json!(true)),
            format!("{closed}{head}"),
        ),
        (("add_generation_prompt", json!(false)), closed.clone()),
    ] {
        let body = with(json!({"messages": messages}), &[more]);
        assert_eq!(prompt(&server, &body), want, "{body}");
    }
    let body = json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": false});
    assert_eq!(prompt(&server, &body), closed);
    let body = json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": true});
    assert_eq!(prompt(&server, &body), format!("{head}My name is"));
}

/// As OpenAI answers: what holds an answer holds all of it, so the assistant's last message is one like any other, unless it is said to be continued.
#[test]
fn what_holds_an_answer_has_it_begin_anew() {
    let (server, ask) = start(&random());
    let says = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"}]);
    let ask = with(ask, &[("messages", says), ("max_tokens", json!(1))]);
    let strict = with(weather(), &[("strict", json!(true))]);
    let strict = json!([{"type": "function", "function": strict}]);
    let required = ("tool_choice", json!("required"));
    let alone = ("parallel_tool_calls", json!(false));
    let anew = ("continue_final_message", json!(false));
    for (more, is_held) in [
        (
            vec![("response_format", json!({"type": "json_object"}))],
            true,
        ),
        (vec![("json_schema", json!({"type": "object"}))], true),
        (vec![("grammar", json!("root ::= \"a\""))], true),
        (vec![("tools", strict)], true),
        (vec![("tools", tools()), required], true),
        (vec![("tools", tools()), alone], true),
        (vec![("tools", tools())], false),
        (vec![("response_format", json!({"type": "text"}))], false),
    ] {
        let ask = with(ask.clone(), &more);
        let other = with(ask.clone(), std::slice::from_ref(&anew));
        let same = prompt(&server, &ask) == prompt(&server, &other);
        assert_eq!(same, is_held, "{ask}");
        let tokens = |ask: &Value| {
            let reply = server.post(CHAT, ask);
            assert_eq!(reply.status, 200, "{ask}: {}", reply.text);
            reply.json()["usage"]["prompt_tokens"].as_u64()
        };
        assert_eq!(tokens(&ask) == tokens(&other), is_held, "{ask}");
    }
}

/// What is a call only where it is the whole answer is none behind other text.
#[test]
fn a_call_without_a_marker_does_not_follow_a_beginning() {
    let call: [&[u8]; 2] = [
        br#"{"name": "weather", "arguments": "#,
        br#"{"city": "Rome"}}"#,
    ];
    let model = saying(&call).text("tokenizer.chat_template", HERMES);
    let model = model.set("llama.context_length", Gguf::U32(1024)).write();
    let (server, ask) = start(&model);
    let ask = with(ask, &[("tools", tools())]);
    for (begun, reason) in [(None, "tool_calls"), (Some("Sure: "), "stop")] {
        let mut messages = vec![json!({"role": "user", "content": "Hi"})];
        messages.extend(begun.map(|text| json!({"role": "assistant", "content": text})));
        let (message, why) = both(
            &server,
            &with(ask.clone(), &[("messages", json!(messages))]),
        );
        assert_eq!(why, reason, "{message}");
        let content = message["content"].as_str().unwrap_or_default();
        assert_eq!(
            content.starts_with("{\"name\""),
            begun.is_some(),
            "{message}"
        );
    }
}

#[test]
fn a_beginning_that_ends_within_a_call_is_refused() {
    let (server, ask) = start(&calling());
    let claude = with(weather(), &[("input_schema", json!({"type": "object"}))]);
    let claude = json!([claude]);
    for (text, status) in [
        ("I look. <tool_call>{\"name\"", 400),
        ("{\"name\": \"weather\", \"arg", 400),
        (
            "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>",
            200,
        ),
        ("{\"name\": \"Al", 200),
        ("I look <", 200),
    ] {
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]);
        for (path, tools) in [
            (CHAT, tools()),
            ("/api/chat", tools()),
            ("/v1/messages", claude.clone()),
        ] {
            let more = [("messages", messages.clone()), ("tools", tools)];
            let ask = with(ask.clone(), &more);
            let ask = with(ask, &[("max_tokens", json!(2)), ("stream", json!(false))]);
            let reply = server.post(path, &on(path, ask));
            assert_eq!(reply.status, status, "{path} {text}: {}", reply.text);
            assert!(
                status == 200 || reply.text.contains("messages: the last one"),
                "{}",
                reply.text
            );
        }
    }
}

/// A question, and an answer to go on with, in which a control token's name stands.
fn well(ask: Value) -> Value {
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Well <|eot_id|>, the"},
    ]);
    let flags = [("max_tokens", json!(12)), ("top_k", json!(1))];
    with(with(ask, &flags), &[("messages", messages)])
}

/// What comes is the model's continuation of that prompt, and nothing of the prompt.
#[test]
fn llama_cpp_11755_an_answer_goes_on_from_its_beginning() {
    let (server, ask) = start(&random());
    let ask = well(ask);
    let whole = server.post(CHAT, &ask).json();
    let content = &whole["choices"][0]["message"]["content"];
    // The same as a raw prompt, in which the user's text is no control token, and the template's are.
    let text = prompt(&server, &ask);
    let (front, said) = text.split_once("Well").unwrap();
    let ids = |text: String, special: bool| {
        let body = json!({"content": text, "parse_special": special});
        server.post("/tokenize", &body).json()["tokens"]
            .as_array()
            .unwrap()
            .clone()
    };
    let mut tokens = ids(front.to_owned(), true);
    tokens.extend(ids(format!("Well{said}"), false));
    let raw = json!({"prompt": tokens, "n_predict": 12, "temperature": 0, "top_k": 1});
    let raw = server.post("/completion", &raw).json();
    assert_eq!(content, &raw["content"], "{whole}");
    assert_ne!(content, "");
    let n = &whole["usage"]["prompt_tokens"];
    assert_eq!(n, tokens.len(), "{whole}");
    // An answer of its own is another one.
    let other = with(ask, &[("continue_final_message", json!(false))]);
    let other = server.post(CHAT, &other).json();
    assert_ne!(&other["usage"]["prompt_tokens"], n);
}

#[test]
fn an_answer_goes_on_the_same_way_on_every_surface() {
    let (server, ask) = start(&random());
    let ask = well(ask);
    let whole = server.post(CHAT, &ask).json();
    let content = &whole["choices"][0]["message"]["content"];
    assert!(content.as_str().is_some_and(|c| !c.is_empty()), "{whole}");
    let claude = server.post("/v1/messages", &ask).json();
    assert_eq!(&claude["content"][0]["text"], content, "{claude}");
    let count = server.post("/v1/messages/count_tokens", &ask).json();
    assert_eq!(count["input_tokens"], whole["usage"]["prompt_tokens"]);
    let options = json!({"temperature": 0, "top_k": 1, "num_predict": 12});
    let (model, messages) = (&ask["model"], &ask["messages"]);
    let ollama = json!({"model": model, "messages": messages, "options": options, "stream": false});
    let ollama = server.post("/api/chat", &ollama).json();
    assert_eq!(&ollama["message"]["content"], content, "{ollama}");
    // Parts and blocks of text are as good.
    let parts = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Well <|eot_id|>"}, {"type": "text", "text": ", the"}]},
    ]);
    let parts = with(ask, &[("messages", parts)]);
    for (path, at) in [
        (CHAT, "/choices/0/message/content"),
        ("/v1/messages", "/content/0/text"),
    ] {
        let reply = server.post(path, &parts).json();
        assert_eq!(reply.pointer(at), Some(content), "{reply}");
    }
}

/// What has begun to answer does not reason, unless it has begun to.
#[test]
fn llama_cpp_21889_a_beginning_may_open_reasoning() {
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}";
    let (server, ask) = start(&thinking(template));
    for (begun, reasoning, content) in [
        (None, Some("Hm, so."), "Yes!"),
        (Some("Sure"), None, "Hm, so.\n</think>\n\nYes!"),
        (Some("<think>\nLet"), Some("Hm, so."), "Yes!"),
        (
            Some("<think>\nLet</think>"),
            None,
            "Hm, so.\n</think>\n\nYes!",
        ),
    ] {
        let mut messages = vec![json!({"role": "user", "content": "Hi"})];
        messages.extend(begun.map(|text| json!({"role": "assistant", "content": text})));
        let whole = server.post(CHAT, &with(ask.clone(), &[("messages", json!(messages))]));
        let whole = whole.json();
        let message = &whole["choices"][0]["message"];
        assert_eq!(message["reasoning_content"].as_str(), reasoning, "{whole}");
        assert_eq!(message["content"], content, "{whole}");
    }
}

/// A conversation that ends with this message.
fn ending(ask: &Value, last: &Value, more: &[(&str, Value)]) -> Value {
    let user = json!({"role": "user", "content": "Hi"});
    let messages = ("messages", json!([user, last]));
    with(with(ask.clone(), &[messages]), more)
}

/// It is refused by the name of a field, and the way out is one that this surface has.
fn refused(server: &Running, path: &str, body: &Value, param: &str) {
    let reply = server.post(path, &on(path, body.clone()));
    assert_eq!(reply.status, 400, "{path} {body}: {}", reply.text);
    let error = reply.json();
    let message = error["error"]["message"]
        .as_str()
        .or(error["error"].as_str());
    let message = message.unwrap();
    assert!(message.starts_with(param), "{path} {body}: {error}");
    let flag = message.contains("continue_final_message");
    let has = [CHAT, "/apply-template"].contains(&path);
    assert!(!flag || has, "{path} {body}: {error}");
}

/// What the assistant says in them.
fn says() -> Value {
    json!({"role": "assistant", "content": "A"})
}

fn begun() -> (&'static str, Value) {
    ("continue_final_message", json!(true))
}

#[test]
fn only_an_answer_goes_on_and_no_other_with_it() {
    let (server, ask) = start(&random());
    let user = json!({"role": "user", "content": "Hi"});
    let body = ending(&ask, &user, &[begun()]);
    refused(&server, CHAT, &body, "continue_final_message");
    let anew = [begun(), ("add_generation_prompt", json!(true))];
    let body = ending(&ask, &says(), &anew);
    refused(&server, CHAT, &body, "continue_final_message");
}

#[test]
fn an_answer_that_has_called_does_not_go_on() {
    let (server, ask) = start(&random());
    let call = json!([{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]);
    let calls = json!({"role": "assistant", "content": "A", "tool_calls": call});
    let tools = [("tools", tools())];
    for (path, more) in [
        (CHAT, &tools[..]),
        ("/apply-template", &[]),
        ("/api/chat", &[]),
    ] {
        let body = ending(&ask, &calls, more);
        refused(&server, path, &body, "messages[1].tool_calls");
    }
    let block = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {}}]});
    let body = ending(&ask, &block, &[("max_tokens", json!(9))]);
    refused(&server, "/v1/messages", &body, "messages[1].content");
}

#[test]
fn an_answer_that_goes_on_follows_no_schema_or_grammar() {
    let (server, ask) = start(&random());
    let format = ("response_format", json!({"type": "json_object"}));
    let grammar = ("grammar", json!("root ::= \"a\""));
    let output = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
    let claude = vec![("max_tokens", json!(9)), ("output_config", output)];
    let at = "output_config.format.schema";
    for (path, more, param) in [
        (CHAT, vec![begun(), format.clone()], "response_format"),
        (CHAT, vec![begun(), grammar], "grammar"),
        ("/api/chat", vec![("format", json!("json"))], "format"),
        ("/v1/messages", claude, at),
    ] {
        refused(&server, path, &ending(&ask, &says(), &more), param);
    }
    // As a message that is complete it may stand beside them.
    let complete = ("continue_final_message", json!(false));
    let more = [format, complete, ("max_tokens", json!(1))];
    let reply = server.post(CHAT, &ending(&ask, &says(), &more));
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[test]
fn an_answer_that_goes_on_is_held_to_no_call() {
    let (server, ask) = start(&random());
    let required = || ("tool_choice", json!("required"));
    let strict = with(weather(), &[("strict", json!(true))]);
    let strict = json!([{"type": "function", "function": strict}]);
    let claude = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
    let any = ("tool_choice", json!({"type": "any"}));
    let claude = vec![("max_tokens", json!(9)), ("tools", claude), any];
    let must = || vec![begun(), ("tools", tools()), required()];
    for (path, more) in [
        (CHAT, must()),
        ("/apply-template", must()),
        ("/api/chat", vec![("tools", strict)]),
        ("/v1/messages", claude),
    ] {
        refused(&server, path, &ending(&ask, &says(), &more), "tools");
    }
}
