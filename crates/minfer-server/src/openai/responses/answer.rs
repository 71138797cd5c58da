//! A response object, and the events by which it grows.

use std::collections::VecDeque;

use minfer::engine::Timings;
use serde_json::{Map, Value, json};

use super::Echo;
use crate::chat::{Conversation, Piece, Said, Token};
use crate::openai::logprobs;
use crate::sse::{Message, Source};
use crate::{ApiError, id};

/// Kinds of items.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Text,
}

/// A piece of what is said: the kind of item it belongs to, and its text.
fn part(said: Said) -> (Kind, String) {
    match said {
        Said::Content(text) => (Kind::Text, text),
    }
}

/// The item under way.
struct Item {
    kind: Kind,
    id: String,
    text: String,
    logprobs: Vec<Value>,
}

impl Item {
    fn new(kind: Kind) -> Item {
        let prefix = match kind {
            Kind::Text => "msg_",
        };
        Item {
            id: id::named(prefix),
            kind,
            text: String::new(),
            logprobs: Vec::new(),
        }
    }

    fn part(&self) -> Value {
        json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": self.logprobs})
    }

    fn json(&self, status: &str, content: &[Value]) -> Value {
        match self.kind {
            Kind::Text => {
                json!({"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
        }
    }
}

/// A response as it grows.
pub struct Events {
    talk: Conversation,
    /// The object, all but what changes.
    response: Map<String, Value>,
    output: Vec<Value>,
    open: Option<Item>,
    /// Whether anybody hears the events, or only the whole is wanted.
    tell: bool,
    /// The next event's number.
    number: u64,
}

impl Events {
    /// The answer to a request.
    pub fn new(talk: Conversation, echo: Echo, tell: bool) -> Events {
        Events {
            response: begin(&talk, echo),
            output: Vec::new(),
            open: None,
            number: 0,
            tell,
            talk,
        }
    }

    /// The whole response.
    ///
    /// # Errors
    /// The engine failed.
    pub async fn whole(mut self) -> Result<Value, ApiError> {
        let mut unheard = VecDeque::new();
        while let Some((_, piece)) = self.talk.next().await? {
            self.piece(piece, &mut unheard);
        }
        Ok(self.json())
    }

    fn json(&self) -> Value {
        let mut response = self.response.clone();
        response.insert("output".to_owned(), json!(self.output));
        Value::Object(response)
    }

    fn set(&mut self, key: &str, value: Value) {
        self.response.insert(key.to_owned(), value);
    }

    fn event(&mut self, name: &'static str, data: Value, out: &mut VecDeque<Message>) {
        if !self.tell {
            return;
        }
        let mut event = json!({"type": name, "sequence_number": self.number});
        if let (Some(event), Value::Object(data)) = (event.as_object_mut(), data) {
            event.extend(data);
        }
        self.number = self.number.saturating_add(1);
        out.push_back(Message::named(name, &event));
    }

    /// An event about the response as it is now.
    fn state(&mut self, name: &'static str, out: &mut VecDeque<Message>) {
        let data = json!({"response": self.json()});
        self.event(name, data, out);
    }

    fn piece(&mut self, piece: Piece, out: &mut VecDeque<Message>) {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Token { token, said } => self.token(&token, said, out),
            Piece::Done {
                said,
                reason,
                timings,
                ..
            } => {
                self.say(said, &mut Vec::new(), out);
                self.end(reason, &timings, out);
            }
        }
    }

    fn token(&mut self, token: &Token, said: Vec<Said>, out: &mut VecDeque<Message>) {
        let model = self.talk.loaded.engine.model();
        let entry = logprobs::entry(model.tokenizer(), token);
        let mut entries: Vec<Value> = entry.into_iter().collect();
        self.say(said, &mut entries, out);
        // A token that can't be shown yet has its log-probabilities all the same.
        if let Some(item) = &mut self.open {
            item.logprobs.append(&mut entries);
        }
    }

    fn say(&mut self, said: Vec<Said>, logprobs: &mut Vec<Value>, out: &mut VecDeque<Message>) {
        for said in said {
            let (kind, text) = part(said);
            let mut item = match self.open.take() {
                Some(item) if item.kind == kind => item,
                other => {
                    self.open = other;
                    self.close("completed", out);
                    self.begin(kind, out)
                }
            };
            item.text.push_str(&text);
            item.logprobs.extend_from_slice(logprobs);
            let mut data = json!({"delta": text, "logprobs": std::mem::take(logprobs)});
            self.place(&item, &mut data);
            match item.kind {
                Kind::Text => self.event("response.output_text.delta", data, out),
            }
            self.open = Some(item);
        }
    }

    /// Where an event's item stands.
    fn place(&self, item: &Item, data: &mut Value) {
        if let Some(data) = data.as_object_mut() {
            data.insert("item_id".to_owned(), json!(item.id));
            data.insert("output_index".to_owned(), json!(self.output.len()));
            data.insert("content_index".to_owned(), json!(0));
        }
    }

    /// A new item.
    fn begin(&mut self, kind: Kind, out: &mut VecDeque<Message>) -> Item {
        let item = Item::new(kind);
        let index = self.output.len();
        let data = json!({"output_index": index, "item": item.json("in_progress", &[])});
        self.event("response.output_item.added", data, out);
        let mut data = json!({"part": item.part()});
        self.place(&item, &mut data);
        self.event("response.content_part.added", data, out);
        item
    }

    /// The item under way is done.
    fn close(&mut self, status: &str, out: &mut VecDeque<Message>) {
        let Some(item) = self.open.take() else {
            return;
        };
        let mut data = json!({"text": item.text, "logprobs": item.logprobs});
        self.place(&item, &mut data);
        match item.kind {
            Kind::Text => self.event("response.output_text.done", data, out),
        }
        let mut data = json!({"part": item.part()});
        self.place(&item, &mut data);
        self.event("response.content_part.done", data, out);
        let json = item.json(status, &[item.part()]);
        let data = json!({"output_index": self.output.len(), "item": json});
        self.event("response.output_item.done", data, out);
        self.output.push(json);
    }

    fn end(&mut self, reason: &str, timings: &Timings, out: &mut VecDeque<Message>) {
        let (status, event) = match reason {
            "length" => ("incomplete", "response.incomplete"),
            _ => ("completed", "response.completed"),
        };
        // An answer of no words is a message all the same.
        if self.open.is_none() && self.output.is_empty() {
            let item = self.begin(Kind::Text, out);
            self.open = Some(item);
        }
        self.close(status, out);
        self.set("status", json!(status));
        self.set("completed_at", json!(id::now()));
        if status == "incomplete" {
            let details = json!({"reason": "max_output_tokens"});
            self.set("incomplete_details", details);
        }
        self.set("usage", usage(timings));
        self.state(event, out);
    }
}

fn usage(t: &Timings) -> Value {
    json!({
        "input_tokens": t.prompt_n,
        "input_tokens_details": {"cached_tokens": t.cached_n, "cache_write_tokens": 0},
        "output_tokens": t.predicted_n,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": t.prompt_n.saturating_add(t.predicted_n),
    })
}

/// A response that has begun.
fn begin(talk: &Conversation, echo: Echo) -> Map<String, Value> {
    let generate = &talk.params.generate;
    let response = json!({
        "id": id::named("resp_"),
        "object": "response",
        "created_at": id::now(),
        "status": "in_progress",
        "background": false,
        "completed_at": null,
        "error": null,
        "incomplete_details": null,
        "instructions": echo.instructions,
        "max_output_tokens": generate.n_predict,
        "metadata": echo.metadata,
        "model": talk.loaded.id,
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": {"effort": echo.effort, "summary": null},
        "seed": generate.sampling.seed,
        "store": false,
        "temperature": generate.sampling.temperature,
        "text": {"format": echo.format},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": echo.top_logprobs,
        "top_p": generate.sampling.top_p,
        "truncation": "disabled",
        "usage": null,
        "user": echo.user,
    });
    match response {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Source for Events {
    async fn more(&mut self, out: &mut VecDeque<Message>) -> bool {
        if self.number == 0 {
            self.state("response.created", out);
            self.state("response.in_progress", out);
            return true;
        }
        match self.talk.next().await {
            Ok(Some((_, piece))) => {
                self.piece(piece, out);
                true
            }
            Ok(None) => false,
            Err(e) => {
                self.set("status", json!("failed"));
                let error = json!({"code": "server_error", "message": e.message});
                self.set("error", error);
                self.state("response.failed", out);
                false
            }
        }
    }
}
