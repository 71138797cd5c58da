//! Tools for models whose chat template knows none: they are described in words, and calls are messages.

use serde_json::{Value, json};

use crate::chat::{Content, Message, ToolCall};

/// What a chat template shows of a conversation's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chat) struct Shows {
    /// A message of the role system that comes first.
    pub(in crate::chat) system: bool,
    /// It refuses or drops such a message, and shows a user's.
    pub(in crate::chat) no_system: bool,
    /// The tools on offer.
    pub(in crate::chat) tools: bool,
    /// Calls that the assistant made.
    pub(in crate::chat) calls: bool,
}

/// The same conversation in messages that a template shows; whether the tools are still for it to show.
pub(in crate::chat) fn taught(
    messages: &[Message],
    tools: Option<&Value>,
    shows: Shows,
) -> (Vec<Message>, bool) {
    let calls =
        |m: &Message| m.role == "tool" || m.tool_calls.as_ref().is_some_and(|c| !c.is_empty());
    let mut messages = match shows.calls || !messages.iter().any(calls) {
        true => messages.to_vec(),
        false => in_words(messages, !shows.tools),
    };
    match tools {
        Some(tools) if !shows.tools => {
            describe(&mut messages, tools, shows.system);
            (messages, false)
        }
        tools => (messages, tools.is_some()),
    }
}

/// Puts a description of the tools into the system's message, or before the user's first words.
fn describe(messages: &mut Vec<Message>, tools: &Value, system: bool) {
    let lines = tools.as_array().into_iter().flatten();
    let lines: Vec<String> = lines
        .map(|t| t.get("function").unwrap_or(t).to_string())
        .collect();
    let text = format!(
        "You can call tools. Each line describes one: its name, what it does, and a JSON schema of its arguments.\n{}\n\n\
         To call a tool, answer with nothing but a JSON object: {{\"name\": \"a tool's name\", \"arguments\": {{…}}}}. For several calls \
         answer with a list of such objects. What they give comes in the next message. If no tool is needed, answer in words.",
        lines.join("\n")
    );
    let role = if system { "system" } else { "user" };
    let at = messages.iter().position(|m| m.role == role);
    let at = at.filter(|at| !system || *at == 0);
    match at.and_then(|at| messages.get_mut(at)) {
        Some(message) => {
            let own = message.content.take();
            message.content = Some(joined(own, Content::Text(text), !system));
        }
        None => messages.insert(0, Message::new(role, &text)),
    }
}

/// Two contents as one, a blank line between them; `swap`: the second first.
pub(in crate::chat) fn joined(first: Option<Content>, second: Content, swap: bool) -> Content {
    let Some(first) = first else {
        return second;
    };
    let (first, second) = if swap {
        (second, first)
    } else {
        (first, second)
    };
    match (first, second) {
        (Content::Text(a), Content::Text(b)) if a.is_empty() => Content::Text(b),
        (Content::Text(mut a), Content::Text(b)) => {
            a.push_str("\n\n");
            a.push_str(&b);
            Content::Text(a)
        }
        (first, second) => {
            let gap = Content::Text("\n\n".to_owned());
            Content::Parts([first, gap, second].into_iter().flat_map(parts).collect())
        }
    }
}

fn parts(content: Content) -> Vec<Value> {
    match content {
        Content::Text(text) => vec![json!({"type": "text", "text": text})],
        Content::Parts(parts) => parts,
    }
}

/// Calls become what the assistant said, and, with `results`, what tools gave becomes the user's words. Turns of one speaker that come to follow each other become
/// one: many templates insist on taking turns.
fn in_words(messages: &[Message], results: bool) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::new();
    for message in messages {
        let mut message = message.clone();
        let calls = message.tool_calls.take().filter(|c| !c.is_empty());
        let result = results && message.role == "tool";
        if let Some(calls) = &calls {
            let said = Content::Text(written(calls));
            message.content = Some(joined(message.content.take(), said, false));
        }
        if result {
            let name = message.name.take().or_else(|| name_of(&message, messages));
            let head = match name {
                Some(name) => format!("The tool {name} gives:"),
                None => "The tool gives:".to_owned(),
            };
            let content = message.content.take();
            let content = content.unwrap_or(Content::Text(String::new()));
            message = Message {
                role: "user".to_owned(),
                content: Some(joined(Some(Content::Text(head)), content, false)),
                ..Message::default()
            };
        }
        match out.last_mut() {
            Some(last) if last.role == message.role && message.role == "user" => {
                let more = message.content.take();
                if let Some(more) = more {
                    last.content = Some(joined(last.content.take(), more, false));
                }
            }
            _ => out.push(message),
        }
    }
    out
}

/// The tool whose call a message answers.
fn name_of(message: &Message, messages: &[Message]) -> Option<String> {
    let id = message.tool_call_id.as_ref()?;
    let mut calls = messages.iter().flat_map(|m| m.tool_calls.iter().flatten());
    let call = calls.find(|c| c.id.as_ref() == Some(id))?;
    Some(call.function.name.clone())
}

/// Calls as [`describe`] asks for them.
fn written(calls: &[ToolCall]) -> String {
    let one = |call: &ToolCall| {
        let given = || call.function.arguments.clone();
        let arguments = call.function.parsed().unwrap_or_else(given);
        json!({"name": call.function.name, "arguments": arguments})
    };
    match calls {
        [call] => one(call).to_string(),
        calls => Value::Array(calls.iter().map(one).collect()).to_string(),
    }
}
