//! Answers whose beginning is given: a last message of the assistant's.

use serde_json::{Value, json};

use crate::harness::{Running, with};
use crate::models::{Model, Variant};
use crate::tools::{start, thinking, tools};

const CHAT: &str = "/v1/chat/completions";
/// As Llama 3's, which trims what is said.
const TEMPLATE: &str = "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}\
{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";

fn random() -> Model {
    let model = Variant::of("llama3");
    model.text("tokenizer.chat_template", TEMPLATE).write()
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
        (
            ("add_generation_prompt", json!(false)),
            format!("{head}My name is"),
        ),
    ] {
        let body = with(json!({"messages": messages}), &[more]);
        assert_eq!(prompt(&server, &body), want, "{body}");
    }
    let body = json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": false});
    assert_eq!(prompt(&server, &body), closed);
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
        (CHAT, &says, vec![format.clone()], "response_format"),
        (
            CHAT,
            &says,
            vec![("grammar", json!("root ::= \"a\""))],
            "grammar",
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
        assert!(
            message.unwrap().starts_with(param),
            "{path} {body}: {error}"
        );
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
