//! Answers whose beginning is given: a last message of the assistant's.

use minfer::gguf::Value as Gguf;
use serde_json::{Value, json};

use crate::cuts::both;
use crate::harness::{Running, with};
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
            let reply = server.post(path, &ask);
            assert_eq!(reply.status, status, "{path} {text}: {}", reply.text);
            assert!(
                status == 200 || reply.text.contains("messages: the last one"),
                "{}",
                reply.text
            );
        }
    }
}

/// What comes is the model's continuation of that prompt, and nothing of the prompt, on every surface.
#[test]
fn llama_cpp_11755_an_answer_goes_on_from_its_beginning() {
    let (server, ask) = start(&random());
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Well <|eot_id|>, the"},
    ]);
    let ask = with(
        ask,
        &[
            ("messages", messages.clone()),
            ("max_tokens", json!(12)),
            ("top_k", json!(1)),
        ],
    );
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
    let other = with(ask.clone(), &[("continue_final_message", json!(false))]);
    let other = server.post(CHAT, &other).json();
    assert_ne!(&other["usage"]["prompt_tokens"], n);

    let claude = server.post("/v1/messages", &ask).json();
    assert_eq!(&claude["content"][0]["text"], content, "{claude}");
    let count = server.post("/v1/messages/count_tokens", &ask).json();
    assert_eq!(&count["input_tokens"], n);
    let options = json!({"temperature": 0, "top_k": 1, "num_predict": 12});
    let ollama =
        json!({"model": ask["model"], "messages": messages, "options": options, "stream": false});
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

#[test]
fn what_can_t_be_continued_is_refused_by_name() {
    let (server, ask) = start(&random());
    let user = json!({"role": "user", "content": "Hi"});
    let says = json!({"role": "assistant", "content": "A"});
    let call = json!([{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]);
    let calls = json!({"role": "assistant", "content": "A", "tool_calls": call});
    let block = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {}}]});
    let format = ("response_format", json!({"type": "json_object"}));
    let begun = ("continue_final_message", json!(true));
    let required = ("tool_choice", json!("required"));
    let strict = with(weather(), &[("strict", json!(true))]);
    let strict = json!([{"type": "function", "function": strict}]);
    let claude = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
    let any = ("tool_choice", json!({"type": "any"}));
    let output = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
    for (path, last, more, param) in [
        (
            CHAT,
            &calls,
            vec![("tools", tools())],
            "messages[1].tool_calls",
        ),
        (CHAT, &user, vec![begun.clone()], "continue_final_message"),
        (
            CHAT,
            &says,
            vec![begun.clone(), ("add_generation_prompt", json!(true))],
            "continue_final_message",
        ),
        (
            CHAT,
            &says,
            vec![begun.clone(), format.clone()],
            "response_format",
        ),
        (
            CHAT,
            &says,
            vec![begun.clone(), ("grammar", json!("root ::= \"a\""))],
            "grammar",
        ),
        (
            CHAT,
            &says,
            vec![begun.clone(), ("tools", tools()), required.clone()],
            "tools",
        ),
        (
            "/apply-template",
            &says,
            vec![begun.clone(), ("tools", tools()), required],
            "tools",
        ),
        ("/api/chat", &says, vec![("tools", strict)], "tools"),
        (
            "/v1/messages",
            &says,
            vec![("max_tokens", json!(9)), ("tools", claude), any],
            "tools",
        ),
        (
            "/v1/messages",
            &says,
            vec![("max_tokens", json!(9)), ("output_config", output)],
            "output_config.format.schema",
        ),
        ("/apply-template", &calls, vec![], "messages[1].tool_calls"),
        ("/api/chat", &calls, vec![], "messages[1].tool_calls"),
        (
            "/api/chat",
            &says,
            vec![("format", json!("json"))],
            "format",
        ),
        (
            "/v1/messages",
            &block,
            vec![("max_tokens", json!(9))],
            "messages[1].content",
        ),
    ] {
        let messages = ("messages", json!([user, last]));
        let body = with(with(ask.clone(), &[messages]), &more);
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 400, "{path} {body}: {}", reply.text);
        let error = reply.json();
        let message = error["error"]["message"]
            .as_str()
            .or(error["error"].as_str());
        let message = message.unwrap();
        assert!(message.starts_with(param), "{path} {body}: {error}");
        // A way out is one that this surface has.
        let flag = message.contains("continue_final_message");
        let has = [CHAT, "/apply-template"].contains(&path);
        assert!(!flag || has, "{path} {body}: {error}");
    }
    // As a message that is complete it may stand beside them.
    let more = [
        ("messages", json!([user, says])),
        format,
        ("continue_final_message", json!(false)),
        ("max_tokens", json!(1)),
    ];
    let reply = server.post(CHAT, &with(ask, &more));
    assert_eq!(reply.status, 200, "{}", reply.text);
}
