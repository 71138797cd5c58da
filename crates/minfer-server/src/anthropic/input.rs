//! Anthropic's conversations, made what templates know.

use std::collections::HashMap;

use minfer::chat::{Content, FunctionCall, Message, ToolCall};
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::chat::Systems;
use crate::fields::{Fields, mismatch};
use crate::messages::MAX_MESSAGES;

/// What a message is made of; other blocks (images, files, …) are refused by their type.
enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
    },
    /// Of another model, and encrypted: there is nothing to read.
    RedactedThinking,
    /// A text with a title.
    Document {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<Value>,
        is_error: bool,
    },
}

impl Block {
    /// A block that stands at `field`.
    fn read(field: &str, value: Value) -> Result<Block, ApiError> {
        let f = Fields::of_value(field, value)?;
        Block::of(f).map_err(|e| e.within(field))
    }

    fn of(mut f: Fields) -> Result<Block, ApiError> {
        const TYPE: &str = "type";
        const INPUT: &str = "input";
        Ok(match f.need_text(TYPE)?.as_str() {
            "text" => Block::Text {
                text: f.need_text("text")?,
            },
            "thinking" => Block::Thinking {
                thinking: f.need_text("thinking")?,
            },
            "redacted_thinking" => {
                f.need_text("data")?;
                Block::RedactedThinking
            }
            "document" => Block::Document { text: document(f)? },
            "tool_use" => Block::ToolUse {
                id: f.need_text("id")?,
                name: f.need_text("name")?,
                input: match f.object(INPUT)? {
                    Some(input) => input.rest(),
                    None => return Err(ApiError::field(INPUT, "is required")),
                },
            },
            "tool_result" => Block::ToolResult {
                tool_use_id: f.need_text("tool_use_id")?,
                content: f.value("content"),
                is_error: f.flag("is_error")?,
            },
            other => {
                let why = format!(
                    "'{other}' is not supported: text, document (of text), thinking, redacted_thinking, tool_use and tool_result are"
                );
                return Err(ApiError::field(TYPE, why));
            }
        })
    }
}

/// A document's text, between tags that Anthropic recommends for them, with its title and what else is said of it.
fn document(mut f: Fields) -> Result<String, ApiError> {
    const SOURCE: &str = "source";
    let (title, context) = (f.text("title")?, f.text("context")?);
    if let Some(mut citations) = f.object("citations")? {
        let why = "this server marks no citations: leave them out";
        let asked = citations.refuse("enabled", &[json!(false)], why);
        asked.map_err(|e| e.within("citations"))?;
    }
    let Some(source) = f.object(SOURCE)? else {
        return Err(ApiError::field(SOURCE, "is required"));
    };
    let text = source_text(source).map_err(|e| e.within(SOURCE))?;
    let tagged = |tag: &str, text: Option<String>| {
        let text = text.filter(|t| !t.is_empty());
        text.map_or_else(String::new, |t| format!("<{tag}>{t}</{tag}>\n"))
    };
    let (title, context) = (tagged("source", title), tagged("context", context));
    Ok(format!(
        "<document>\n{title}{context}<document_content>\n{text}\n</document_content>\n</document>\n"
    ))
}

/// What a document's `source` holds: `data`, or `content` of texts.
fn source_text(mut f: Fields) -> Result<String, ApiError> {
    const CONTENT: &str = "content";
    match f.need_text("type")?.as_str() {
        "text" => {
            let why = "must be text/plain";
            f.refuse("media_type", &[json!("text/plain")], why)?;
            f.need_text("data")
        }
        CONTENT => match f.value(CONTENT) {
            Some(Value::String(text)) => Ok(text),
            Some(Value::Array(blocks)) => {
                let parts = texts(CONTENT, blocks, "a document holds texts only")?;
                let texts = parts.iter().filter_map(|p| p.get("text")?.as_str());
                Ok(texts.collect::<Vec<_>>().join("\n"))
            }
            Some(other) => Err(mismatch(CONTENT, "a string or a list of blocks", &other)),
            None => Err(ApiError::field(CONTENT, "is required")),
        },
        other => {
            let why = format!(
                "'{other}' is not supported: this model reads text only, send it as text or content"
            );
            Err(ApiError::field("type", why))
        }
    }
}

/// `system` and `messages`, and where systems speak. Turns of one speaker that follow each other become one, as Anthropic has it.
///
/// # Errors
/// What is no message or can't be read, by its place.
pub fn parse(
    system: Option<Value>,
    turns: Vec<Value>,
) -> Result<(Vec<Message>, Systems), ApiError> {
    if turns.is_empty() || turns.len() > MAX_MESSAGES {
        let why = format!(
            "has {} messages: 1 to {MAX_MESSAGES} can be answered",
            turns.len()
        );
        return Err(ApiError::field("messages", why));
    }
    let mut talk = Talk::default();
    if let Some(system) = system {
        talk.push("system", "system", system)?;
        talk.note(0, "system");
    }
    for (i, turn) in turns.into_iter().enumerate() {
        let name = format!("messages[{i}]");
        let mut turn = Fields::of_value(&name, turn)?;
        let at = talk.messages.len();
        talk.turn_of(&mut turn).map_err(|e| e.within(&name))?;
        talk.note(at, &name);
    }
    // A turn that was cut while it reasoned says nothing: templates join texts, so it is an empty one.
    let silent = |m: &&mut Message| m.role == "assistant" && m.tool_calls.is_none();
    for message in talk.messages.iter_mut().filter(silent) {
        message
            .content
            .get_or_insert_with(|| Content::Text(String::new()));
    }
    Ok((talk.messages, talk.systems))
}

/// A conversation so far.
#[derive(Default)]
struct Talk {
    messages: Vec<Message>,
    systems: Systems,
    /// The tools' names by their calls' ids.
    calls: HashMap<String, String>,
}

impl Talk {
    /// Notes where a system spoke, if it did and its message is new.
    fn note(&mut self, at: usize, place: &str) {
        if self.messages.get(at).is_some_and(|m| m.role == "system") {
            self.systems.push((at, place.to_owned()));
        }
    }

    /// A turn; errors name the field within it.
    fn turn_of(&mut self, turn: &mut Fields) -> Result<(), ApiError> {
        const CONTENT: &str = "content";
        let role = turn.need_text("role")?;
        if !["user", "assistant", "system"].contains(&role.as_str()) {
            let why = format!("must be user, assistant or system, is '{role}'");
            return Err(ApiError::field("role", why));
        }
        let content = turn.value(CONTENT);
        let content = content.ok_or_else(|| ApiError::field(CONTENT, "is required"))?;
        self.push(&role, CONTENT, content)
    }

    /// A turn's content: a text or blocks.
    fn push(&mut self, role: &str, field: &str, content: Value) -> Result<(), ApiError> {
        let list = match content {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(list) => list,
            other => return Err(mismatch(field, "a string or a list of blocks", &other)),
        };
        for (i, block) in list.into_iter().enumerate() {
            let field = format!("{field}[{i}]");
            let block = Block::read(&field, block)?;
            self.block(role, &field, block)?;
        }
        Ok(())
    }

    fn block(&mut self, role: &str, field: &str, block: Block) -> Result<(), ApiError> {
        match (role, block) {
            (_, Block::Text { text }) => {
                let part = json!({"type": "text", "text": text});
                self.turn(role, |m| match &mut m.content {
                    Some(Content::Parts(parts)) => parts.push(part),
                    content => *content = Some(Content::Parts(vec![part])),
                });
            }
            ("user", Block::Document { text }) => {
                return self.block(role, field, Block::Text { text });
            }
            // The turn is there all the same.
            ("assistant", Block::RedactedThinking) => self.turn(role, |_| {}),
            ("assistant", Block::Thinking { thinking }) => {
                self.turn(role, |m| {
                    let known = m.reasoning_content.get_or_insert_default();
                    known.push_str(&thinking);
                });
            }
            ("assistant", Block::ToolUse { id, name, input }) => {
                self.calls.insert(id.clone(), name.clone());
                let function = FunctionCall {
                    name,
                    arguments: Value::Object(input),
                    extra: Map::new(),
                };
                let call = ToolCall {
                    kind: "function".to_owned(),
                    id: Some(id),
                    function,
                    extra: Map::new(),
                };
                self.turn(role, |m| m.tool_calls.get_or_insert_default().push(call));
            }
            (
                "user",
                Block::ToolResult {
                    tool_use_id,
                    content,
                    is_error,
                },
            ) => self.result(field, tool_use_id, content, is_error)?,
            _ => {
                let why = format!("is of a type that {role} can't say");
                return Err(ApiError::field(field, why));
            }
        }
        Ok(())
    }

    /// Changes the message under way of this speaker, or a new one.
    fn turn(&mut self, role: &str, change: impl FnOnce(&mut Message)) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => change(last),
            _ => {
                let mut message = Message {
                    role: role.to_owned(),
                    ..Message::default()
                };
                change(&mut message);
                self.messages.push(message);
            }
        }
    }

    /// What a tool said: a message of its own to templates.
    fn result(
        &mut self,
        field: &str,
        id: String,
        content: Option<Value>,
        is_error: bool,
    ) -> Result<(), ApiError> {
        let name = self.calls.get(&id).cloned();
        let Some(name) = name else {
            let why = format!("'{id}' is the id of no tool_use block before it");
            return Err(ApiError::field(&format!("{field}.tool_use_id"), why));
        };
        let content = match content {
            None => Content::Text(String::new()),
            Some(Value::String(text)) => Content::Text(text),
            Some(Value::Array(blocks)) => {
                let field = format!("{field}.content");
                Content::Parts(texts(&field, blocks, "a tool can say texts only")?)
            }
            Some(other) => {
                let field = format!("{field}.content");
                return Err(mismatch(&field, "a string or a list of blocks", &other));
            }
        };
        let mut message = Message {
            role: "tool".to_owned(),
            content: Some(content),
            tool_call_id: Some(id),
            name: Some(name),
            ..Message::default()
        };
        if is_error {
            // Templates know no failed results: the model is told in words.
            const ERROR: &str = "Error: ";
            match &mut message.content {
                Some(Content::Text(text)) => text.insert_str(0, ERROR),
                Some(Content::Parts(parts)) => {
                    parts.insert(0, json!({"type": "text", "text": ERROR}));
                }
                None => {}
            }
        }
        self.messages.push(message);
        Ok(())
    }
}

/// Blocks that must be texts, in the list at `field`; `why` others are refused.
fn texts(field: &str, blocks: Vec<Value>, why: &str) -> Result<Vec<Value>, ApiError> {
    let text = |(i, block): (usize, Value)| {
        let field = format!("{field}[{i}]");
        match Block::read(&field, block)? {
            Block::Text { text } | Block::Document { text } => {
                Ok(json!({"type": "text", "text": text}))
            }
            _ => Err(ApiError::field(&field, why)),
        }
    };
    blocks.into_iter().enumerate().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(turns: Value) -> Result<Vec<Message>, ApiError> {
        parse(None, serde_json::from_value(turns).unwrap()).map(|(messages, _)| messages)
    }

    #[test]
    fn tool_blocks_become_calls_and_tool_messages() {
        let turns = json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Look it up.", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "Sun"}]},
                {"type": "text", "text": "And tomorrow?"},
            ]},
            {"role": "user", "content": "Hello?"},
        ]);
        let (messages, _) = parse(
            Some(json!("Be brief.")),
            serde_json::from_value(turns).unwrap(),
        )
        .unwrap();
        let messages = serde_json::to_value(messages).unwrap();
        let text = |text: &str| json!({"type": "text", "text": text});
        let call = json!({"type": "function", "id": "toolu_1", "function": {"name": "weather", "arguments": {"city": "Rome"}}});
        assert_eq!(
            messages,
            json!([
                {"role": "system", "content": [text("Be brief.")]},
                {"role": "user", "content": [text("Weather?")]},
                {"role": "assistant", "content": [text("I look.")], "reasoning_content": "Look it up.", "tool_calls": [call]},
                {"role": "tool", "content": [text("Sun")], "tool_call_id": "toolu_1", "name": "weather"},
                {"role": "user", "content": [text("And tomorrow?"), text("Hello?")]},
            ])
        );
    }

    #[test]
    fn what_can_t_be_read_is_refused_by_its_place() {
        for (turns, param, says) in [
            (json!([]), "messages", "has 0 messages"),
            (
                json!([{"role": "tool", "content": "x"}]),
                "messages[0].role",
                "'tool'",
            ),
            (json!([7]), "messages[0]", "an object, not a number"),
            (json!([{"content": "a"}]), "messages[0].role", "required"),
            (json!([{"role": "user"}]), "messages[0].content", "required"),
            (
                json!([{"role": "user", "content": [{"type": "text", "text": 7}]}]),
                "messages[0].content[0].text",
                "a string, not a number",
            ),
            (
                json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": "{}"}]}]),
                "messages[0].content[0].input",
                "an object, not a string",
            ),
            (
                json!([{"role": "user", "content": 7}]),
                "messages[0].content",
                "a number",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]),
                "messages[0].content[0].type",
                "image",
            ),
            (
                json!([{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]),
                "messages[0].content[0]",
                "user can't say",
            ),
            (
                json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]),
                "messages[0].content[0].tool_use_id",
                "no tool_use",
            ),
        ] {
            let e = parsed(turns.clone()).unwrap_err();
            assert_eq!(e.param.as_deref(), Some(param), "{turns}: {}", e.message);
            assert!(e.status == 400 && e.message.contains(says), "{}", e.message);
        }
    }
}
