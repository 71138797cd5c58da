//! Answers in Anthropic's shape, whole and as events.

use std::collections::VecDeque;

use minfer::engine::Timings;
use serde_json::{Value, json};

use super::{Failure, cut};
use crate::chat::{Conversation, Piece};
use crate::speech::Said;
use crate::sse::{Message, Source};
use crate::{ApiError, id};

/// A block of an answer, without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    /// A call: its id and its tool.
    Tool(String, String),
}

/// What a piece says.
enum Part {
    /// A block of its own begins.
    Begin(Kind),
    /// A piece of a text block's or a thinking block's text.
    Of(Kind, String),
    /// A piece of the arguments of the call under way.
    Input(String),
    /// The block under way is complete.
    End,
}

fn part(said: Said) -> Part {
    match said {
        Said::Reasoning(text) => Part::Of(Kind::Thinking, text),
        Said::Content(text) => Part::Of(Kind::Text, text),
        Said::Call { id, name, .. } => Part::Begin(Kind::Tool(id, name)),
        Said::Arguments { piece, .. } => Part::Input(piece),
        Said::CallEnd { .. } => Part::End,
    }
}

/// A block that says this; a call's input is read from its JSON, of which there may be only a beginning.
fn block(kind: &Kind, text: &str) -> Value {
    match kind {
        Kind::Thinking => json!({"type": "thinking", "thinking": text, "signature": ""}),
        Kind::Text => json!({"type": "text", "text": text, "citations": null}),
        Kind::Tool(id, name) => {
            json!({"type": "tool_use", "id": id, "name": name, "input": cut::object(text)})
        }
    }
}

/// A piece of a block.
fn delta(kind: &Kind, text: &str) -> Value {
    match kind {
        Kind::Thinking => json!({"type": "thinking_delta", "thinking": text}),
        Kind::Text => json!({"type": "text_delta", "text": text}),
        Kind::Tool(..) => json!({"type": "input_json_delta", "partial_json": text}),
    }
}

fn message(talk: &Conversation, id: &str, content: &[Value]) -> Value {
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": talk.loaded.id,
        "content": content,
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(talk.prompt_n, 0, 0),
    })
}

/// Cached tokens are not among the input tokens.
fn usage(prompt: usize, cached: usize, output: usize) -> Value {
    json!({
        "input_tokens": prompt.saturating_sub(cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    })
}

fn usage_of(t: &Timings) -> Value {
    usage(t.prompt_n, t.cached_n, t.predicted_n)
}

/// Why an answer ended, in Anthropic's words.
fn stop_reason(
    reason: &str,
    stop: Option<&str>,
    timings: &Timings,
    limit: Option<usize>,
) -> &'static str {
    match (reason, stop) {
        ("tool_calls", _) => "tool_use",
        ("length", _) if limit.is_some_and(|n| timings.predicted_n < n) => {
            "model_context_window_exceeded"
        }
        ("length", _) => "max_tokens",
        (_, Some(_)) => "stop_sequence",
        (_, None) => "end_turn",
    }
}

/// The whole answer.
///
/// # Errors
/// The engine failed.
pub async fn whole(mut talk: Conversation) -> Result<Value, ApiError> {
    let mut blocks: Vec<(Kind, String)> = Vec::new();
    let mut say = |said: Vec<Said>| {
        for said in said {
            let (kind, text) = match part(said) {
                Part::Begin(kind) => (Some(kind), String::new()),
                Part::Of(kind, text) => (Some(kind), text),
                Part::Input(text) => (None, text),
                Part::End => continue,
            };
            match (blocks.last_mut(), kind) {
                (Some((last, known)), Some(kind)) if *last == kind => known.push_str(&text),
                (_, Some(kind)) => blocks.push((kind, text)),
                (Some((_, known)), None) => known.push_str(&text),
                (None, None) => {}
            }
        }
    };
    let mut end = None;
    while let Some((_, piece)) = talk.next().await? {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Token { said, .. } => say(said),
            Piece::Done {
                said,
                reason,
                stop,
                timings,
                ..
            } => {
                say(said);
                end = Some((reason, stop, timings));
            }
        }
    }
    let blocks: Vec<Value> = blocks
        .iter()
        .map(|(kind, text)| block(kind, text))
        .collect();
    let mut body = message(&talk, &id::named("msg_"), &blocks);
    if let (Some((reason, stop, timings)), Some(map)) = (end, body.as_object_mut()) {
        let limit = talk.params.generate.n_predict;
        let reason = stop_reason(reason, stop.as_deref(), &timings, limit);
        map.insert("stop_reason".to_owned(), json!(reason));
        map.insert("stop_sequence".to_owned(), json!(stop));
        map.insert("usage".to_owned(), usage_of(&timings));
    }
    Ok(body)
}

/// The answer as events.
pub struct Events {
    talk: Conversation,
    begun: bool,
    /// The block under way, and how many have ended.
    open: Option<Kind>,
    index: usize,
}

impl Events {
    /// Of a conversation.
    pub fn new(talk: Conversation) -> Events {
        Events {
            talk,
            begun: false,
            open: None,
            index: 0,
        }
    }

    fn begin(&mut self, out: &mut VecDeque<Message>) {
        self.begun = true;
        let message = message(&self.talk, &id::named("msg_"), &[]);
        say(out, "message_start", json!({"message": message}));
        say(out, "ping", json!({}));
    }

    fn say(&mut self, said: Vec<Said>, out: &mut VecDeque<Message>) {
        for said in said {
            match part(said) {
                Part::Begin(kind) => self.open(kind, out),
                Part::Of(kind, text) => {
                    if self.open.as_ref() != Some(&kind) {
                        self.open(kind, out);
                    }
                    self.delta(&text, out);
                }
                Part::Input(text) => self.delta(&text, out),
                Part::End => self.close(out),
            }
        }
    }

    fn delta(&mut self, text: &str, out: &mut VecDeque<Message>) {
        if let Some(kind) = &self.open {
            let delta = json!({"index": self.index, "delta": delta(kind, text)});
            say(out, "content_block_delta", delta);
        }
    }

    fn open(&mut self, kind: Kind, out: &mut VecDeque<Message>) {
        self.close(out);
        let start = json!({"index": self.index, "content_block": block(&kind, "")});
        say(out, "content_block_start", start);
        self.open = Some(kind);
    }

    fn close(&mut self, out: &mut VecDeque<Message>) {
        if self.open.take().is_some() {
            say(out, "content_block_stop", json!({"index": self.index}));
            self.index = self.index.saturating_add(1);
        }
    }

    fn piece(&mut self, piece: Piece, out: &mut VecDeque<Message>) {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Token { said, .. } => self.say(said, out),
            Piece::Done {
                said,
                reason,
                stop,
                timings,
                ..
            } => {
                self.say(said, out);
                self.close(out);
                let limit = self.talk.params.generate.n_predict;
                let reason = stop_reason(reason, stop.as_deref(), &timings, limit);
                let delta = json!({"stop_reason": reason, "stop_sequence": stop});
                let end = json!({"delta": delta, "usage": usage_of(&timings)});
                say(out, "message_delta", end);
                say(out, "message_stop", json!({}));
            }
        }
    }
}

/// An event; its data says its name, too.
fn say(out: &mut VecDeque<Message>, event: &'static str, data: Value) {
    let mut all = json!({"type": event});
    if let (Some(all), Value::Object(data)) = (all.as_object_mut(), data) {
        all.extend(data);
    }
    out.push_back(Message::named(event, &all));
}

impl Source for Events {
    async fn more(&mut self, out: &mut VecDeque<Message>) -> bool {
        if !self.begun {
            self.begin(out);
            return true;
        }
        match self.talk.next().await {
            Ok(Some((_, piece))) => {
                self.piece(piece, out);
                true
            }
            Ok(None) => false,
            Err(e) => {
                out.push_back(Message::named("error", &Failure(e).body()));
                false
            }
        }
    }
}
