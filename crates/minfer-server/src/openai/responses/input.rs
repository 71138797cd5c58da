//! Items of an input, made messages.

use std::collections::HashMap;

use minfer::chat::{FunctionCall, Message, ToolCall};
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::chat::Systems;
use crate::fields::{Fields, Idle, mismatch};
use crate::messages::{self, MAX_MESSAGES, Reader};

/// `instructions` and `input`: a text, or items (messages, reasoning, function calls and what they gave); and where systems speak.
///
/// # Errors
/// An item that can't be read, by its place.
pub fn parse(
    instructions: Option<&str>,
    input: Option<Value>,
) -> Result<(Vec<Message>, Systems), ApiError> {
    let items = match input {
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
        None => return Err(ApiError::field("input", "is required")),
        Some(other) => return Err(mismatch("input", "a string or a list of items", &other)),
    };
    if items.is_empty() || items.len() > MAX_MESSAGES {
        let n = items.len();
        let why = format!("has {n} items: 1 to {MAX_MESSAGES} can be answered");
        return Err(ApiError::field("input", why));
    }
    let mut talk = Talk::default();
    let mut systems = Systems::new();
    if let Some(text) = instructions {
        systems.push((0, "instructions".to_owned()));
        talk.messages.push(Message::new("system", text));
    }
    for (i, item) in items.into_iter().enumerate() {
        let name = format!("input[{i}]");
        let item = Fields::of_value(&name, item)?;
        let at = talk.messages.len();
        talk.item(item).map_err(|e| e.within(&name))?;
        if talk.messages.get(at).is_some_and(|m| m.role == "system") {
            systems.push((at, name));
        }
    }
    Ok((talk.messages, systems))
}

/// A conversation so far.
#[derive(Default)]
struct Talk {
    messages: Vec<Message>,
    /// Of the answer that comes next.
    reasoning: Option<String>,
    /// The functions' names by their calls' ids.
    calls: HashMap<String, String>,
}

impl Talk {
    /// The next item; errors name the field within it.
    fn item(&mut self, mut item: Fields) -> Result<(), ApiError> {
        const TYPE: &str = "type";
        let ty = item.text(TYPE)?;
        match ty.as_deref().unwrap_or("message") {
            "message" => {
                // They are about the item, not for a template.
                let own = ["id", "status", "phase"].map(|key| (key, Idle::Text));
                item.idle("input", &own)?;
                let mut message = Reader::default().message(item)?;
                // Reasoning that no answer followed has no turn.
                let reasoning = self.reasoning.take();
                if message.role == "assistant" {
                    message.reasoning_content = reasoning;
                }
                self.messages.push(message);
            }
            "reasoning" => {
                let texts = ["content", "summary"].map(|key| texts(item.value(key)));
                if let Some(text) = texts.into_iter().find(|text| !text.is_empty()) {
                    self.reasoning.get_or_insert_default().push_str(&text);
                }
            }
            "function_call" => self.call(item)?,
            "function_call_output" => self.output(item)?,
            other => {
                let why = format!("'{other}' is not supported");
                return Err(ApiError::field(TYPE, why));
            }
        }
        Ok(())
    }

    /// A call belongs to the assistant's turn that it follows.
    fn call(&mut self, mut item: Fields) -> Result<(), ApiError> {
        let id = item.need_text("call_id")?;
        let function = FunctionCall {
            name: item.need_text("name")?,
            arguments: Value::String(item.need_text("arguments")?),
            extra: Map::new(),
        };
        self.calls.insert(id.clone(), function.name.clone());
        let call = ToolCall {
            kind: "function".to_owned(),
            id: Some(id),
            function,
            extra: Map::new(),
        };
        match self.messages.last_mut() {
            Some(last) if last.role == "assistant" => {
                last.tool_calls.get_or_insert_default().push(call);
            }
            _ => self.messages.push(Message {
                role: "assistant".to_owned(),
                reasoning_content: self.reasoning.take(),
                tool_calls: Some(vec![call]),
                ..Message::default()
            }),
        }
        Ok(())
    }

    /// What a call gave.
    fn output(&mut self, mut item: Fields) -> Result<(), ApiError> {
        const OUTPUT: &str = "output";
        let id = item.need_text("call_id")?;
        let Some(function) = self.calls.get(&id) else {
            let why = format!("'{id}' is the id of no call before it");
            return Err(ApiError::field("call_id", why));
        };
        let output = item.value(OUTPUT);
        let output = output.ok_or_else(|| ApiError::field(OUTPUT, "is required"))?;
        self.messages.push(Message {
            role: "tool".to_owned(),
            content: Some(messages::content(OUTPUT, output)?),
            tool_call_id: Some(id),
            name: Some(function.clone()),
            ..Message::default()
        });
        Ok(())
    }
}

/// The texts of a list of parts.
fn texts(parts: Option<Value>) -> String {
    let parts = parts.as_ref().and_then(Value::as_array);
    let texts = parts.into_iter().flatten();
    texts
        .filter_map(|p| p.get("text").and_then(Value::as_str))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let input = json!([
            {"role": "user", "content": "Weather?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Look."}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{\"city\":\"Rome\"}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "Sun"},
        ]);
        let (messages, _) = parse(Some("Be brief."), Some(input)).unwrap();
        let call = json!({"type": "function", "id": "call_1", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}});
        assert_eq!(
            serde_json::to_value(messages).unwrap(),
            json!([
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": [{"type": "text", "text": "I look."}], "reasoning_content": "Look.", "tool_calls": [call]},
                {"role": "tool", "content": "Sun", "tool_call_id": "call_1", "name": "weather"},
            ])
        );
    }

    #[test]
    fn what_can_t_be_read_is_refused_by_its_place() {
        for (input, param) in [
            (json!(null), "input"),
            (json!(3), "input"),
            (json!([]), "input"),
            (
                json!([{"role": "user", "content": "a"}, {"role": "king", "content": "b"}]),
                "input[1].role",
            ),
            (json!(["Hi"]), "input[0]"),
            (
                json!([{"type": "item_reference", "id": "x"}]),
                "input[0].type",
            ),
            (
                json!([{"type": "function_call", "call_id": "x", "name": "f", "arguments": {}}]),
                "input[0].arguments",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_text", "text": 1}]}]),
                "input[0].content[0].text",
            ),
            (
                json!([
                    {"type": "function_call", "call_id": "x", "name": "f", "arguments": ""},
                    {"type": "function_call_output", "call_id": "x", "output": 3},
                ]),
                "input[1].output",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_image"}]}]),
                "input[0].content[0]",
            ),
            (
                json!([{"type": "function_call_output", "call_id": "x", "output": "y"}]),
                "input[0].call_id",
            ),
        ] {
            let input = Some(input).filter(|v| !v.is_null());
            let e = parse(None, input.clone()).unwrap_err();
            assert_eq!(e.param.as_deref(), Some(param), "{input:?}: {}", e.message);
            assert!(
                e.status == 400 && e.message.starts_with(param),
                "{}",
                e.message
            );
        }
    }
}
