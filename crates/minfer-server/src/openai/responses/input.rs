//! Items of an input, made messages.

use std::collections::HashMap;

use minfer::chat::{FunctionCall, Message, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::fields::kind;
use crate::messages::{self, MAX_MESSAGES};

#[derive(Deserialize)]
struct Call {
    call_id: String,
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct CallOutput {
    call_id: String,
    output: Value,
}

/// `instructions` and `input`: a text, or items (messages, reasoning, function calls and what they gave).
///
/// # Errors
/// An item that can't be read, by its place.
pub fn parse(instructions: Option<&str>, input: Option<Value>) -> Result<Vec<Message>, ApiError> {
    let items = match input {
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
        None => return Err(ApiError::field("input", "is required")),
        Some(other) => {
            let why = format!("must be a string or a list of items, not {}", kind(&other));
            return Err(ApiError::field("input", why));
        }
    };
    if items.is_empty() || items.len() > MAX_MESSAGES {
        let n = items.len();
        let why = format!("has {n} items: 1 to {MAX_MESSAGES} can be answered");
        return Err(ApiError::field("input", why));
    }
    let mut talk = Talk::default();
    talk.messages
        .extend(instructions.map(|text| Message::new("system", text)));
    for (i, item) in items.into_iter().enumerate() {
        talk.item(&format!("input[{i}]"), item)?;
    }
    Ok(talk.messages)
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
    fn item(&mut self, name: &str, item: Value) -> Result<(), ApiError> {
        let ty = item.get("type").and_then(Value::as_str);
        match ty.unwrap_or("message") {
            "message" => {
                let mut message = message(name, item)?;
                // Reasoning that no answer followed has no turn.
                let reasoning = self.reasoning.take();
                if message.role == "assistant" {
                    message.reasoning_content = reasoning;
                }
                self.messages.push(message);
            }
            "reasoning" => {
                let texts = ["content", "summary"].map(|key| texts(&item, key));
                if let Some(text) = texts.into_iter().find(|text| !text.is_empty()) {
                    self.reasoning.get_or_insert_default().push_str(&text);
                }
            }
            "function_call" => {
                let call = serde_json::from_value(item).map_err(|e| ApiError::field(name, e))?;
                self.call(call);
            }
            "function_call_output" => {
                let output: CallOutput =
                    serde_json::from_value(item).map_err(|e| ApiError::field(name, e))?;
                let Some(function) = self.calls.get(&output.call_id) else {
                    let why = format!("'{}' is the id of no call before it", output.call_id);
                    return Err(ApiError::field(&format!("{name}.call_id"), why));
                };
                let said = json!({"role": "tool", "content": output.output, "name": function, "tool_call_id": output.call_id});
                self.messages.push(message(name, said)?);
            }
            other => {
                let why = format!("type '{other}' is not supported");
                return Err(ApiError::field(name, why));
            }
        }
        Ok(())
    }

    /// A call belongs to the assistant's turn that it follows.
    fn call(&mut self, call: Call) {
        self.calls.insert(call.call_id.clone(), call.name.clone());
        let function = FunctionCall {
            name: call.name,
            arguments: Value::String(call.arguments),
            extra: Map::new(),
        };
        let call = ToolCall {
            kind: "function".to_owned(),
            id: Some(call.call_id),
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
    }
}

/// The texts of a list of parts.
fn texts(item: &Value, key: &str) -> String {
    let parts = item.get(key).and_then(Value::as_array);
    let texts = parts.into_iter().flatten();
    texts
        .filter_map(|p| p.get("text").and_then(Value::as_str))
        .collect()
}

/// A message, known to clients as `name`.
fn message(name: &str, mut item: Value) -> Result<Message, ApiError> {
    if let Some(item) = item.as_object_mut() {
        // They are about the item, not for a template.
        for key in ["type", "id", "status", "phase"] {
            item.shift_remove(key);
        }
    }
    let named = |text: String| text.replace("messages[0]", name);
    let parsed = messages::parse(Some(Value::Array(vec![item]))).map_err(|e| ApiError {
        message: named(e.message.clone()),
        param: e.param.clone().map(named),
        ..e
    })?;
    let first = parsed.into_iter().next();
    first.ok_or_else(|| ApiError::field(name, "is no message"))
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
        let messages = parse(Some("Be brief."), Some(input)).unwrap();
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
            (json!([{"type": "item_reference", "id": "x"}]), "input[0]"),
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
