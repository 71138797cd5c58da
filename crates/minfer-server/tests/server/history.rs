//! What conversations hold from before: calls and refusals in their forms, as the model reads them, and what can't be read.

use serde_json::{Value, json};

use crate::harness::{Running, Setup, with};
use crate::models::saying;

/// Shows all that a message may hold; a call and its answer by their ids, as Mistral's templates insist on.
const ALL: &str = "{% for t in tools or [] %}{{ t | tojson }}{{ '\\n' }}{% endfor %}{% for m in messages %}{{ m.role }}{% if m.name %}({{ m.name }}){% endif %}\
{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif %}: {{ m.content }}\
{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}[{{ c.id }}]{{ c.function.arguments | tojson }}{% endfor %}{{ '\\n' }}{% endfor %}\
{% if enable_thinking is defined %}thinking: {{ enable_thinking | tojson }}{% endif %}";

fn server() -> Running {
    let model = saying(&[b"Yes!"])
        .text("tokenizer.chat_template", ALL)
        .write();
    Setup::of(&[model.path()]).start()
}

fn prompt(server: &Running, body: &Value) -> String {
    // A last message of the assistant's is one like any other here.
    let body = with(body.clone(), &[("continue_final_message", json!(false))]);
    let reply = server.post("/apply-template", &body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["prompt"].as_str().expect("a text").to_owned()
}

/// OpenAI's deprecated form (`ChatCompletionAssistantMessageParam`, `ChatCompletionFunctionMessageParam` of openai 3.57).
#[test]
fn calls_of_before_there_were_tools_are_read() {
    let server = server();
    let call = |arguments: &str| json!({"role": "assistant", "content": null, "function_call": {"name": "weather", "arguments": arguments}});
    let messages = json!([
        {"role": "user", "content": "Weather?"},
        call("{\"city\": \"Rome\"}"),
        {"role": "function", "name": "weather", "content": "Sun"},
        call(""),
        {"role": "function", "name": "weather", "content": "Rain"},
    ]);
    let shown = prompt(&server, &json!({"messages": messages}));
    let said: Vec<&str> = shown.lines().collect();
    assert_eq!(
        said,
        [
            "user: Weather?",
            r#"assistant: <tool_call>weather[call00000]{"city": "Rome"}"#,
            "tool(weather)[call00000]: Sun",
            "assistant: <tool_call>weather[call00001]{}",
            "tool(weather)[call00001]: Rain",
        ]
    );
    let chat = server.post("/v1/chat/completions", &json!({"messages": messages}));
    assert_eq!(chat.status, 200, "{}", chat.text);
}

/// Clients send an answer back as it came: `refusal` beside a content that is null.
#[test]
fn a_refusal_is_what_the_assistant_said() {
    let server = server();
    let part = |key: &str, text: &str| json!({"type": key, key: text});
    for (content, refusal, said) in [
        (json!(null), json!("I can't."), "I can't."),
        (json!(""), json!("I can't."), "I can't."),
        (json!("Hm."), json!(" I can't."), "Hm. I can't."),
        (json!([part("text", "Hm.")]), json!(" No."), "Hm. No."),
        (json!([part("refusal", "No.")]), json!(null), "No."),
        (json!("Yes."), json!(null), "Yes."),
        (json!("Yes."), json!(""), "Yes."),
    ] {
        let answer = json!({"role": "assistant", "content": content, "refusal": refusal});
        let messages = json!([{"role": "user", "content": "Hi"}, answer]);
        let shown = prompt(&server, &json!({"messages": messages}));
        assert_eq!(shown, format!("user: Hi\nassistant: {said}\n"), "{answer}");
    }
}

#[test]
fn a_call_without_arguments_has_an_empty_object() {
    let server = server();
    for arguments in [json!(""), json!(" "), json!("{}"), json!({}), json!(null)] {
        let call = json!({"id": "a", "type": "function", "function": {"name": "now", "arguments": arguments}});
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}]);
        let shown = prompt(&server, &json!({"messages": messages}));
        assert!(shown.ends_with("<tool_call>now[a]{}\n"), "{call}: {shown}");
    }
}

/// What is applied is what chat would say to the model.
#[test]
fn a_template_is_applied_with_chat_s_choice_of_tools() {
    let server = server();
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let named = json!({"type": "function", "function": {"name": "b"}});
    let allowed =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}});
    let body = |choice: &Value| json!({"messages": [{"role": "user", "content": "Hi"}], "tools": [tool("a"), tool("b")], "tool_choice": choice, "reasoning_effort": "none"});
    for (choice, names) in [
        (json!("none"), vec![]),
        (json!("auto"), vec!["a", "b"]),
        (json!("required"), vec!["a", "b"]),
        (named.clone(), vec!["a", "b"]),
        (allowed, vec!["b"]),
    ] {
        let shown = prompt(&server, &body(&choice));
        let found = ["a", "b"].map(|n| shown.contains(&format!("\"name\": \"{n}\"")));
        assert_eq!(
            found,
            ["a", "b"].map(|n| names.contains(&n)),
            "{choice}: {shown}"
        );
        assert!(shown.ends_with("user: Hi\nthinking: false"), "{shown}");
    }
    let reply = server.post(
        "/apply-template",
        &body(&json!({"type": "function", "function": {"name": "c"}})),
    );
    assert_eq!(reply.status, 400, "{}", reply.text);
    assert_eq!(reply.json()["error"]["param"], "tool_choice.function.name");
}

/// A message that can't be read is the second: the refusal begins with its field, and says this.
fn unread(server: &Running, (path, list): (&str, &str), message: Value, param: &str, says: &str) {
    let user = json!({"role": "user", "content": "Hi"});
    let reply = server.post(path, &json!({list: [user, message]}));
    assert_eq!(reply.status, 400, "{param}: {}", reply.text);
    let error = &reply.json()["error"];
    assert_eq!(error["param"], param, "{}", reply.text);
    let text = error["message"].as_str().expect("a text");
    assert!(
        text.starts_with(&format!("{param}: ")) && text.contains(says),
        "{text}"
    );
}

#[test]
fn what_can_t_be_read_in_a_chat_is_named_within_its_message() {
    let server = server();
    for (message, param, says) in [
        (
            json!({"role": "user", "content": [{"type": "text", "text": 1}]}),
            "messages[1].content[0].text",
            "must be a string, not a number",
        ),
        (
            json!({"role": "user", "content": {"text": "a"}}),
            "messages[1].content",
            "must be a string or a list of parts, not an object",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}),
            "messages[1].tool_calls[0].function.arguments",
            "must be a string or an object, not a number",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}], "function_call": {"name": "f"}}),
            "messages[1].function_call",
            "older name",
        ),
        (
            json!({"role": "tool", "tool_call_id": "a", "content": "1"}),
            "messages[1].tool_call_id",
            "'a' is the id of no call before it",
        ),
        (
            json!({"role": "tool", "content": "1"}),
            "messages[1].tool_call_id",
            "is required",
        ),
    ] {
        let place = ("/v1/chat/completions", "messages");
        unread(&server, place, message, param, says);
    }
    let place = ("/apply-template", "messages");
    let says = "must be an object, not a string";
    unread(&server, place, json!("Hi"), "messages[1]", says);
}

/// People look at the prompt of a part of a conversation, and llama-server shows it.
#[test]
fn a_template_shows_a_result_without_its_call() {
    let server = server();
    let user = json!({"role": "user", "content": "Hi"});
    for (result, shown) in [
        (
            json!({"role": "tool", "tool_call_id": "a", "content": "1"}),
            "tool[a]: 1",
        ),
        (
            json!({"role": "tool", "name": "f", "content": "1"}),
            "tool(f)[]: 1",
        ),
    ] {
        let body = json!({"messages": [user, result]});
        assert_eq!(prompt(&server, &body), format!("user: Hi\n{shown}\n"));
        let chat = server.post("/v1/chat/completions", &body);
        assert_eq!(chat.status, 400, "{}", chat.text);
    }
}

#[test]
fn what_can_t_be_read_of_responses_is_named_within_its_item() {
    let server = server();
    for (item, param, says) in [
        (
            json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": {}}),
            "input[1].arguments",
            "must be a string, not an object",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_text"}]}),
            "input[1].content[0].text",
            "is required",
        ),
    ] {
        unread(&server, ("/v1/responses", "input"), item, param, says);
    }
}

#[test]
fn what_can_t_be_read_of_ollama_s_chat_is_named_within_its_message() {
    let server = server();
    let user = json!({"role": "user", "content": "Hi"});
    let ollama = json!({"model": server.id(), "messages": [user, {"role": "user", "content": 1}]});
    let reply = server.post("/api/chat", &ollama);
    assert!(reply.status == 400, "{}", reply.text);
    let says = "messages[1].content: must be a string or a list of parts, not a number";
    assert_eq!(reply.json()["error"], says);
}
