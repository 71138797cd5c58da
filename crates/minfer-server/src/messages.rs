//! Messages as clients send them, made what templates know.

use minfer::chat::{Content, Message};
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::fields::{Fields, kind};

/// The most messages of a conversation.
pub const MAX_MESSAGES: usize = 4096;

/// The `messages` field: roles system, developer (a system message to templates), user, assistant, tool; text, or
/// parts of text.
///
/// # Errors
/// What is no message, by its place in the list.
pub fn parse(value: Option<Value>) -> Result<Vec<Message>, ApiError> {
    let list = match value {
        Some(Value::Array(list)) => list,
        None => return Err(ApiError::field("messages", "is required")),
        Some(other) => {
            let why = format!("must be a list, not {}", kind(&other));
            return Err(ApiError::field("messages", why));
        }
    };
    if list.is_empty() || list.len() > MAX_MESSAGES {
        let why = format!(
            "has {} messages: 1 to {MAX_MESSAGES} can be answered",
            list.len()
        );
        return Err(ApiError::field("messages", why));
    }
    list.into_iter()
        .enumerate()
        .map(|(i, m)| message(i, m))
        .collect()
}

/// `chat_template_kwargs`: more variables for the template.
///
/// # Errors
/// One that stands for the conversation itself.
pub fn template_kwargs(f: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    const NAME: &str = "chat_template_kwargs";
    let kwargs: Map<String, Value> = f.take(NAME)?.unwrap_or_default();
    let taken = ["messages", "tools", "documents", "add_generation_prompt"];
    match taken.into_iter().find(|key| kwargs.contains_key(*key)) {
        Some(key) => {
            let why = "is what the request itself says: it can't be replaced here";
            Err(ApiError::field(&format!("{NAME}.{key}"), why))
        }
        None => Ok(kwargs),
    }
}

fn message(i: usize, value: Value) -> Result<Message, ApiError> {
    let name = format!("messages[{i}]");
    let mut m: Message = serde_json::from_value(value).map_err(|e| ApiError::field(&name, e))?;
    match m.role.as_str() {
        "developer" => m.role = "system".to_owned(),
        "system" | "user" | "assistant" | "tool" => {}
        "function" => m.role = "tool".to_owned(), // its name before there were tools
        other => {
            let why = format!("must be system, developer, user, assistant or tool, is '{other}'");
            return Err(ApiError::field(&format!("{name}.role"), why));
        }
    }
    m.content = match m.content.take() {
        Some(Content::Parts(parts)) => Some(Content::Parts(text_parts(&name, parts)?)),
        text => text,
    };
    let calls = m.tool_calls.as_ref().is_some_and(|c| !c.is_empty());
    if m.content.is_none() && !calls {
        if m.role != "assistant" {
            return Err(ApiError::field(&format!("{name}.content"), "is required"));
        }
        m.content = Some(Content::Text(String::new()));
    }
    Ok(m)
}

/// Text parts under each of their names; a part that is no text is refused.
fn text_parts(name: &str, parts: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let text = |(i, part): (usize, Value)| {
        let field = format!("{name}.content[{i}]");
        let ty = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let key = match ty {
            "text" | "input_text" | "output_text" => "text",
            "refusal" => "refusal",
            other => {
                let why = format!("type '{other}' is not supported: this model reads text only");
                return Err(ApiError::field(&field, why));
            }
        };
        match part.get(key).and_then(Value::as_str) {
            Some(text) => Ok(json!({"type": "text", "text": text})),
            None => Err(ApiError::field(
                &format!("{field}.{key}"),
                "must be a string",
            )),
        }
    };
    parts.into_iter().enumerate().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_refused_by_its_place() {
        for (value, says) in [
            (json!(null), "messages: "),
            (json!([]), "has 0 messages"),
            (
                json!([{"role": "user", "content": "a"}, {"role": "king", "content": "b"}]),
                "messages[1].role",
            ),
            (json!([{"role": "user"}]), "messages[0].content"),
            (json!([{"role": "user", "content": 3}]), "messages[0]"),
            (
                json!([{"role": "user", "content": [{"type": "image_url"}]}]),
                "messages[0].content[0]",
            ),
        ] {
            let e = parse(Some(value.clone())).unwrap_err();
            assert!(
                e.status == 400 && e.message.contains(says),
                "{value}: {}",
                e.message
            );
        }
    }

    #[test]
    fn roles_and_parts_become_what_templates_know() {
        let parsed = parse(Some(json!([
            {"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
            {"role": "assistant", "content": null},
        ])));
        let parsed = parsed.unwrap();
        assert_eq!(parsed[0].role, "system");
        assert_eq!(
            parsed[0].content,
            Some(Content::Parts(vec![json!({"type": "text", "text": "a"})]))
        );
        assert_eq!(parsed[1].content, Some(Content::Text(String::new())));
    }
}
