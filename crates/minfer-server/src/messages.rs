//! Messages as clients send them, made what templates know.

use std::collections::HashSet;

use minfer::chat::{Content, FunctionCall, Message, ToolCall};
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::chat::{Turn, held};
use crate::fields::{Fields, mismatch};

/// The most messages of a conversation.
pub const MAX_MESSAGES: usize = 4096;

/// The `messages` field: roles system, developer (a system message to templates), user, assistant, tool; text, or
/// parts of text.
///
/// # Errors
/// What is no message, by its place in the list and the field within it; a result that answers no call, where that is to be told.
pub fn parse(f: &mut Fields, results: Results) -> Result<Vec<Message>, ApiError> {
    let list = f.list("messages")?;
    let list = list.ok_or_else(|| ApiError::field("messages", "is required"))?;
    if list.is_empty() || list.len() > MAX_MESSAGES {
        let why = format!(
            "has {} messages: 1 to {MAX_MESSAGES} can be answered",
            list.len()
        );
        return Err(ApiError::field("messages", why));
    }
    let mut reader = Reader {
        results,
        ..Reader::default()
    };
    let message = |(i, value): (usize, Value)| {
        let name = format!("messages[{i}]");
        let fields = Fields::of_value(&name, value)?;
        reader.message(fields).map_err(|e| e.within(&name))
    };
    list.into_iter().enumerate().map(message).collect()
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

/// How the conversation's rendering ends: `continue_final_message` and `add_generation_prompt`, as vLLM has them. Without either an assistant's last message is
/// continued, as llama-server does, unless something holds the answer from its first character on (`held_by`, a field): it is answered anew then, as OpenAI does.
///
/// # Errors
/// Both; a last message that can't be continued, or not beside what holds the answer.
pub fn turn(f: &mut Fields, messages: &[Message], held_by: Option<&str>) -> Result<Turn, ApiError> {
    const NAME: &str = "continue_final_message";
    let begun: Option<bool> = f.take(NAME)?;
    let open: Option<bool> = f.take("add_generation_prompt")?;
    if begun == Some(true) && open == Some(true) {
        let why = "can't be used together with add_generation_prompt, which begins another message";
        return Err(ApiError::field(NAME, why));
    }
    let otherwise = match open {
        Some(false) => Turn::Closed,
        _ => Turn::Opened,
    };
    let asked = begun == Some(true);
    if begun == Some(false) || open.is_some() && !asked {
        return Ok(otherwise);
    }
    let last = messages.len().saturating_sub(1);
    let turn = Turn::of(messages, &format!("messages[{last}].tool_calls"))?;
    let beginning = turn.beginning(messages);
    match (turn, held_by.filter(|_| beginning.is_some())) {
        (Turn::Begun, None) => Ok(Turn::Begun),
        (Turn::Begun, Some(field)) if asked => {
            let way_out = "leave continue_final_message out, or end with a message of the user's";
            Err(held(field, way_out))
        }
        _ if asked => {
            let why = "needs a last message of the assistant's";
            Err(ApiError::field(NAME, why))
        }
        _ => Ok(otherwise),
    }
}

/// What the results of tools must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Results {
    /// Those of calls that came before, as OpenAI has it.
    OfCalls,
    /// Anything: Ollama's calls had no ids, and its conversations may be cut anywhere.
    #[default]
    Any,
}

/// Reads the messages of a conversation one after the other.
#[derive(Default)]
pub struct Reader {
    results: Results,
    /// The ids of the calls so far.
    ids: HashSet<String>,
    /// There was a call that has none.
    nameless: bool,
    /// How many calls had the older form, `function_call`.
    older: usize,
    /// The last of them that waits for its answer: the function's name and the id that its call was given.
    waiting: Option<(String, String)>,
}

impl Reader {
    /// The next message.
    ///
    /// # Errors
    /// It is none; the name is that of the field within it.
    pub fn message(&mut self, mut f: Fields) -> Result<Message, ApiError> {
        let said = f.need_text("role")?;
        let role = match said.as_str() {
            "developer" => "system",
            "function" => "tool", // its name before there were tools
            role @ ("system" | "user" | "assistant" | "tool") => role,
            other => {
                let why =
                    format!("must be system, developer, user, assistant or tool, is '{other}'");
                return Err(ApiError::field("role", why));
            }
        };
        let content = f.value("content");
        let mut m = Message {
            role: role.to_owned(),
            content: content.map(|c| self::content("content", c)).transpose()?,
            reasoning_content: f.text("reasoning_content")?,
            tool_calls: calls(&mut f)?,
            tool_call_id: f.text("tool_call_id")?,
            name: f.text("name")?,
            extra: Map::new(),
        };
        if role == "assistant" {
            self.older_call(&mut m, &mut f)?;
            refusal(&mut m, &mut f)?;
        }
        match said.as_str() {
            "function" => self.older_result(&mut m),
            "tool" if self.results == Results::OfCalls => self.check_result(&m)?,
            _ => {}
        }
        for call in m.tool_calls.iter().flatten() {
            self.nameless |= call.id.is_none();
            self.ids.extend(call.id.clone());
        }
        m.extra = f.rest();
        let calls = m.tool_calls.as_ref().is_some_and(|c| !c.is_empty());
        if m.content.is_none() && !calls {
            if role != "assistant" {
                return Err(ApiError::field("content", "is required"));
            }
            m.content = Some(Content::Text(String::new()));
        }
        Ok(m)
    }

    /// `function_call`: what a call was before there were tools. It had no id, and some templates insist on one: nine letters and digits are
    /// what Mistral's take.
    fn older_call(&mut self, m: &mut Message, f: &mut Fields) -> Result<(), ApiError> {
        const NAME: &str = "function_call";
        let Some(function) = f.object(NAME)? else {
            return Ok(());
        };
        if m.tool_calls.as_ref().is_some_and(|c| !c.is_empty()) {
            let why = "is the older name of tool_calls: say a call in one of them";
            return Err(ApiError::field(NAME, why));
        }
        let function = self::function(function).map_err(|e| e.within(NAME))?;
        let id = format!("call{:05}", self.older);
        self.older = self.older.saturating_add(1);
        self.waiting = Some((function.name.clone(), id.clone()));
        m.tool_calls = Some(vec![ToolCall {
            kind: "function".to_owned(),
            id: Some(id),
            function,
            extra: Map::new(),
        }]);
        Ok(())
    }

    /// A result belongs to a call before it; one without an id to any, as templates that know no ids have it.
    fn check_result(&self, m: &Message) -> Result<(), ApiError> {
        const NAME: &str = "tool_call_id";
        match &m.tool_call_id {
            _ if self.nameless => Ok(()),
            Some(id) if self.ids.contains(id) => Ok(()),
            Some(id) => {
                let why = format!("'{id}' is the id of no call before it");
                Err(ApiError::field(NAME, why))
            }
            None if self.ids.is_empty() => {
                let why =
                    "is required: it names a call of the assistant's before, and there is none";
                Err(ApiError::field(NAME, why))
            }
            None => Ok(()),
        }
    }

    /// What a function gave, before there were tools: it answers the call before it, by the function's name.
    fn older_result(&mut self, m: &mut Message) {
        if m.tool_call_id.is_none() {
            let asked =
                |(name, _): &mut (String, String)| m.name.as_ref().is_none_or(|n| n == name);
            m.tool_call_id = self.waiting.take_if(asked).map(|(_, id)| id);
        }
    }
}

/// `refusal`: what an assistant said instead of an answer, as clients send it back.
fn refusal(m: &mut Message, f: &mut Fields) -> Result<(), ApiError> {
    let Some(refusal) = f.text("refusal")?.filter(|r| !r.is_empty()) else {
        return Ok(());
    };
    let part = |text: String| json!({"type": "text", "text": text});
    m.content = Some(match m.content.take() {
        None => Content::Text(refusal),
        Some(Content::Text(text)) if text.is_empty() => Content::Text(refusal),
        Some(Content::Text(text)) => Content::Parts(vec![part(text), part(refusal)]),
        Some(Content::Parts(mut parts)) => {
            parts.push(part(refusal));
            Content::Parts(parts)
        }
    });
    Ok(())
}

/// `tool_calls`.
fn calls(f: &mut Fields) -> Result<Option<Vec<ToolCall>>, ApiError> {
    const NAME: &str = "tool_calls";
    let Some(list) = f.list(NAME)? else {
        return Ok(None);
    };
    let one = |(i, value): (usize, Value)| {
        let name = format!("{NAME}[{i}]");
        let fields = Fields::of_value(&name, value)?;
        call(fields).map_err(|e| e.within(&name))
    };
    let all: Result<_, _> = list.into_iter().enumerate().map(one).collect();
    all.map(Some)
}

fn call(mut f: Fields) -> Result<ToolCall, ApiError> {
    const FUNCTION: &str = "function";
    let kind = f.text("type")?.unwrap_or_else(|| FUNCTION.to_owned());
    let id = f.text("id")?;
    let Some(function) = f.object(FUNCTION)? else {
        return Err(match kind == FUNCTION {
            true => ApiError::field(FUNCTION, "is required"),
            false => ApiError::field("type", format!("must be function, is '{kind}'")),
        });
    };
    Ok(ToolCall {
        kind,
        id,
        function: self::function(function).map_err(|e| e.within(FUNCTION))?,
        extra: f.rest(),
    })
}

/// A function and its arguments: text that holds an object, or (Ollama's) the object.
fn function(mut f: Fields) -> Result<FunctionCall, ApiError> {
    const ARGUMENTS: &str = "arguments";
    Ok(FunctionCall {
        name: f.need_text("name")?,
        arguments: match f.value(ARGUMENTS) {
            None => Value::Object(Map::new()),
            Some(given @ (Value::String(_) | Value::Object(_))) => given,
            Some(other) => return Err(mismatch(ARGUMENTS, "a string or an object", &other)),
        },
        extra: f.rest(),
    })
}

/// What a message says, which stands in `field`: a text, or parts that are text under each of their names; another part is refused.
///
/// # Errors
/// It is neither, by its place.
pub fn content(field: &str, value: Value) -> Result<Content, ApiError> {
    match value {
        Value::String(text) => Ok(Content::Text(text)),
        Value::Array(parts) => {
            let part = |(i, part)| text_part(&format!("{field}[{i}]"), part);
            let parts: Result<_, _> = parts.into_iter().enumerate().map(part).collect();
            parts.map(Content::Parts)
        }
        other => Err(mismatch(field, "a string or a list of parts", &other)),
    }
}

fn text_part(field: &str, part: Value) -> Result<Value, ApiError> {
    let mut part = Fields::of_value(field, part)?;
    let within = |e: ApiError| e.within(field);
    let ty = part.need_text("type").map_err(within)?;
    let key = match ty.as_str() {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        other => {
            let why = format!("type '{other}' is not supported: this model reads text only");
            return Err(ApiError::field(field, why));
        }
    };
    let text = part.need_text(key).map_err(within)?;
    Ok(json!({"type": "text", "text": text}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(messages: Value) -> Result<Vec<Message>, ApiError> {
        let mut f = Fields::of_value("body", json!({"messages": messages})).unwrap();
        parse(&mut f, Results::OfCalls)
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_place() {
        let call = |call: Value| json!([{"role": "assistant", "tool_calls": [call]}]);
        for (value, says) in [
            (json!(null), "messages: is required"),
            (json!({}), "messages: must be a list, not an object"),
            (json!([]), "has 0 messages"),
            (
                json!(["Hi"]),
                "messages[0]: must be an object, not a string",
            ),
            (json!([{"content": "a"}]), "messages[0].role: is required"),
            (
                json!([{"role": 1}]),
                "messages[0].role: must be a string, not a number",
            ),
            (
                json!([{"role": "user", "content": "a"}, {"role": "king", "content": "b"}]),
                "messages[1].role: must be system",
            ),
            (
                json!([{"role": "user"}]),
                "messages[0].content: is required",
            ),
            (
                json!([{"role": "user", "content": 3}]),
                "messages[0].content: must be a string or a list of parts, not a number",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url"}]}]),
                "messages[0].content[0]: type 'image_url'",
            ),
            (
                json!([{"role": "user", "content": ["a"]}]),
                "messages[0].content[0]: must be an object",
            ),
            (
                json!([{"role": "user", "content": [{"type": "text", "text": 7}]}]),
                "messages[0].content[0].text: must be a string, not a number",
            ),
            (
                call(json!(1)),
                "messages[0].tool_calls[0]: must be an object",
            ),
            (
                call(json!({"id": "a"})),
                "messages[0].tool_calls[0].function: is required",
            ),
            (
                call(json!({"type": "custom"})),
                "messages[0].tool_calls[0].type: must be function",
            ),
            (
                call(json!({"function": {"arguments": "{}"}})),
                "messages[0].tool_calls[0].function.name: is required",
            ),
            (
                call(json!({"function": {"name": "f", "arguments": [1]}})),
                "messages[0].tool_calls[0].function.arguments: must be a string or an object, not a list",
            ),
            (
                json!([{"role": "assistant", "function_call": {"name": 1}}]),
                "messages[0].function_call.name: must be a string, not a number",
            ),
            (
                json!([{"role": "assistant", "refusal": true}]),
                "messages[0].refusal: must be a string, not a boolean",
            ),
        ] {
            let e = parsed(value.clone()).unwrap_err();
            assert!(
                e.status == 400 && e.message.contains(says),
                "{value}: {}",
                e.message
            );
            let param = e.param.unwrap();
            assert!(
                e.message.starts_with(&format!("{param}: ")),
                "{param}: {}",
                e.message
            );
        }
    }

    #[test]
    fn roles_and_parts_become_what_templates_know() {
        let parsed = parsed(json!([
            {"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
            {"role": "assistant", "content": null},
        ]));
        let parsed = parsed.unwrap();
        assert_eq!(parsed[0].role, "system");
        assert_eq!(
            parsed[0].content,
            Some(Content::Parts(vec![json!({"type": "text", "text": "a"})]))
        );
        assert_eq!(parsed[1].content, Some(Content::Text(String::new())));
    }

    #[test]
    fn a_result_belongs_to_a_call_before_it() {
        let user = json!({"role": "user", "content": "Hi"});
        let call = |id: Value| json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": {"name": "f"}}]});
        let result = |id: Value| json!({"role": "tool", "tool_call_id": id, "content": "1"});
        for (messages, says) in [
            (
                json!([user, result(json!("a"))]),
                "'a' is the id of no call before it",
            ),
            (json!([user, result(json!(null))]), "there is none"),
            (
                json!([user, call(json!("b")), result(json!("a"))]),
                "'a' is the id of no call before it",
            ),
            // It came too late.
            (
                json!([user, result(json!("a")), call(json!("a"))]),
                "'a' is the id of no call before it",
            ),
        ] {
            let e = parsed(messages.clone()).unwrap_err();
            assert!(e.message.contains(says), "{messages}: {}", e.message);
            assert!(e.param.unwrap().ends_with("].tool_call_id"), "{messages}");
        }
        let (a, b) = (json!("a"), json!("b"));
        for messages in [
            // Several calls, their results in any order, and turns between.
            json!([
                user,
                call(a.clone()),
                call(b.clone()),
                result(b.clone()),
                user,
                result(a.clone())
            ]),
            json!([user, call(a), result(json!(null))]),
            json!([user, call(json!(null)), result(b)]),
            json!([user, {"role": "function", "name": "f", "content": "1"}]),
        ] {
            assert!(parsed(messages.clone()).is_ok(), "{messages}");
        }
    }

    /// Each answer has its call's id, and where a name fits no call, none.
    #[test]
    fn calls_of_before_there_were_tools_get_ids() {
        let parsed = parsed(json!([
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
            {"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}},
            {"role": "function", "name": "h", "content": "2"},
            {"role": "function", "name": "g", "content": "3"},
        ]));
        let parsed = parsed.unwrap();
        let call = |i: usize| parsed[i].tool_calls.as_ref().unwrap()[0].id.clone();
        let answers = |i: usize| parsed[i].tool_call_id.clone();
        assert!(call(0).is_some() && call(0) != call(2));
        assert_eq!(
            [answers(1), answers(3), answers(4)],
            [call(0), None, call(2)]
        );
    }
}
