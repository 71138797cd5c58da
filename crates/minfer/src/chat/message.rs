//! Messages in OpenAI's shape.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::DateTime;

/// What a message says: a text, or a list of typed parts (`{"type": "text", "text": …}`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Typed parts, kept as they were given.
    Parts(Vec<Value>),
}

/// The function a tool call names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Name of the function.
    pub name: String,
    /// Its arguments: a JSON object, or (OpenAI's wire form) a string that holds one; an empty string stands for no arguments.
    #[serde(default)]
    pub arguments: Value,
    /// Fields this struct does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl FunctionCall {
    /// The arguments of the wire form: what the text holds, an empty object if it holds nothing. `None`: no JSON, or no text at all.
    pub(super) fn parsed(&self) -> Option<Value> {
        let text = self.arguments.as_str()?;
        match text.trim().is_empty() {
            true => Some(json!({})),
            false => serde_json::from_str(text).ok(),
        }
    }
}

/// A call the assistant made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// `function`.
    #[serde(rename = "type", default = "function_type")]
    pub kind: String,
    /// The call's id, answered by a tool message's `tool_call_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The function and its arguments.
    pub function: FunctionCall,
    /// Fields this struct does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn function_type() -> String {
    "function".to_owned()
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or what else the template knows.
    pub role: String,
    /// What it says; `None` for an assistant that only calls tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The assistant's reasoning, kept apart from its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls the assistant made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Which call a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Fields this struct does not know; templates may read them.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A plain text message.
    pub fn new(role: &str, text: &str) -> Message {
        Message {
            role: role.to_owned(),
            content: Some(Content::Text(text.to_owned())),
            ..Message::default()
        }
    }

    /// Its text; parts that are no text have none.
    pub fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let texts = parts.iter().map(|p| p.get("text"));
                texts.filter_map(|t| t?.as_str()).collect()
            }
        }
    }

    /// Whether it calls tools.
    pub fn calls(&self) -> bool {
        self.tool_calls.as_ref().is_some_and(|c| !c.is_empty())
    }

    /// Says more.
    pub(super) fn append(&mut self, more: &str) {
        match &mut self.content {
            Some(Content::Text(text)) => text.push_str(more),
            Some(Content::Parts(parts)) => match parts.last_mut().and_then(|p| p.get_mut("text")) {
                Some(Value::String(text)) => text.push_str(more),
                _ => parts.push(json!({"type": "text", "text": more})),
            },
            None => self.content = Some(Content::Text(more.to_owned())),
        }
    }
}

/// A conversation to render.
#[derive(Clone, Debug, Default)]
pub struct RenderRequest {
    /// The messages, oldest first; at least one.
    pub messages: Vec<Message>,
    /// The tools on offer, in OpenAI's shape (a list), or `None`.
    pub tools: Option<Value>,
    /// True to end with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// True to end within the last message, which must be the assistant's: the model goes on with its text. No turn is opened then.
    pub continue_final_message: bool,
    /// What `strftime_now` sees; `None`: the clock (UTC).
    pub now: Option<DateTime>,
    /// More variables for the template (`enable_thinking`, …). They win over the model's special tokens.
    pub extra: Map<String, Value>,
}

/// How the messages are shaped for a template.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Tool-call arguments given as a string become the object they hold (Hugging Face's convention).
    pub object_arguments: bool,
    /// Text goes as a list of one text part; otherwise a list of text parts goes as one text.
    pub parts: bool,
}

impl RenderRequest {
    /// A conversation that the assistant is to go on with.
    pub fn new(messages: Vec<Message>) -> RenderRequest {
        RenderRequest {
            messages,
            add_generation_prompt: true,
            ..RenderRequest::default()
        }
    }

    /// The messages as templates see them: null fields dropped, reasoning under its two names (as transformers does).
    pub(super) fn shaped(&self, shape: Shape) -> Vec<Value> {
        self.messages.iter().map(|m| shaped(m, shape)).collect()
    }

    /// True if a tool call's arguments came as a string.
    pub(super) fn has_string_arguments(&self) -> bool {
        self.messages
            .iter()
            .flat_map(|m| m.tool_calls.iter().flatten())
            .any(|c| c.function.arguments.is_string())
    }
}

fn shaped(message: &Message, shape: Shape) -> Value {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            map.insert(key.to_owned(), value);
        }
    };
    put("role", json!(message.role));
    put(
        "content",
        message
            .content
            .as_ref()
            .map_or(Value::Null, |c| content(c, shape.parts)),
    );
    let calls = message
        .tool_calls
        .iter()
        .map(|calls| {
            calls
                .iter()
                .map(|c| call(c, shape.object_arguments))
                .collect()
        })
        .next();
    put("tool_calls", calls.map_or(Value::Null, Value::Array));
    put("tool_call_id", json!(message.tool_call_id));
    put("name", json!(message.name));
    for (key, value) in &message.extra {
        put(key, value.clone());
    }
    let other = |key: &str| message.extra.get(key).filter(|v| !v.is_null()).cloned();
    let reasoning = message
        .reasoning_content
        .clone()
        .map(Value::String)
        .or_else(|| other("thinking"))
        .or_else(|| other("reasoning"));
    if let Some(reasoning) = reasoning {
        map.entry("thinking").or_insert_with(|| reasoning.clone());
        map.insert("reasoning_content".to_owned(), reasoning);
    }
    Value::Object(map)
}

fn content(content: &Content, as_parts: bool) -> Value {
    match content {
        Content::Text(text) if as_parts => json!([{"type": "text", "text": text}]),
        Content::Text(text) => json!(text),
        Content::Parts(parts) if as_parts => json!(parts),
        Content::Parts(parts) => {
            let texts: Option<Vec<&str>> = parts
                .iter()
                .map(|p| {
                    p.get("text")
                        .and_then(Value::as_str)
                        .filter(|_| p.get("type").is_none_or(|t| t == "text"))
                })
                .collect();
            texts.map_or_else(|| json!(parts), |texts| json!(texts.concat()))
        }
    }
}

fn call(call: &ToolCall, object_arguments: bool) -> Value {
    let mut value = serde_json::to_value(call).unwrap_or(Value::Null);
    let text = call.function.arguments.as_str();
    let arguments = match call.function.parsed() {
        Some(object @ Value::Object(_)) if object_arguments => object,
        // A template that writes the text as it is means JSON.
        _ if text.is_some_and(|t| t.trim().is_empty()) => json!("{}"),
        _ => return value,
    };
    if let Some(slot) = value.pointer_mut("/function/arguments") {
        *slot = arguments;
    }
    value
}
