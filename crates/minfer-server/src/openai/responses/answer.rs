//! A response object, and the events by which it grows.

use std::collections::VecDeque;

use minfer::engine::Timings;
use serde_json::{Map, Value, json};

use super::Echo;
use crate::chat::{Conversation, Piece, Token};
use crate::speech::Said;
use crate::sse::{Message, Source};
use crate::{ApiError, id, logprobs};

/// Kinds of items.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
    /// A call: its id and its function.
    Call(String, String),
}

/// The item under way.
struct Item {
    kind: Kind,
    id: String,
    text: String,
    logprobs: Vec<Value>,
    /// Of a call: all of it has been told.
    complete: bool,
}

impl Item {
    fn new(kind: Kind) -> Item {
        let prefix = match kind {
            Kind::Reasoning => "rs_",
            Kind::Text => "msg_",
            Kind::Call(..) => "fc_",
        };
        Item {
            id: id::named(prefix),
            kind,
            text: String::new(),
            logprobs: Vec::new(),
            complete: false,
        }
    }

    /// Its content; a call has none.
    fn part(&self) -> Option<Value> {
        match self.kind {
            Kind::Reasoning => Some(json!({"type": "reasoning_text", "text": self.text})),
            Kind::Text => Some(
                json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": self.logprobs}),
            ),
            Kind::Call(..) => None,
        }
    }

    fn json(&self, status: &str, content: Option<Value>) -> Value {
        let content: Vec<Value> = content.into_iter().collect();
        match &self.kind {
            Kind::Reasoning => {
                json!({"id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content})
            }
            Kind::Text => {
                json!({"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
            Kind::Call(call, name) => {
                json!({"id": self.id, "type": "function_call", "status": status, "call_id": call, "name": name, "arguments": self.text})
            }
        }
    }

    /// The names of the events of a piece and of the whole.
    fn events(&self) -> [&'static str; 2] {
        match self.kind {
            Kind::Reasoning => [
                "response.reasoning_text.delta",
                "response.reasoning_text.done",
            ],
            Kind::Text => ["response.output_text.delta", "response.output_text.done"],
            Kind::Call(..) => [
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
            ],
        }
    }

    /// What its last event but one says.
    fn whole(&self) -> Value {
        match &self.kind {
            Kind::Reasoning => json!({"text": self.text}),
            Kind::Text => json!({"text": self.text, "logprobs": self.logprobs}),
            Kind::Call(_, name) => json!({"arguments": self.text, "name": name}),
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
    /// Log-probabilities of tokens whose text is still to come.
    waiting: Vec<Value>,
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
            waiting: Vec::new(),
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
                reasoning_n,
                ..
            } => {
                self.say(said, out);
                self.end(reason, &timings, reasoning_n, out);
            }
        }
    }

    fn token(&mut self, token: &Token, said: Vec<Said>, out: &mut VecDeque<Message>) {
        let model = self.talk.loaded.engine.model();
        self.waiting
            .extend(logprobs::entry(model.tokenizer(), token));
        self.say(said, out);
        // They are told of text only.
        if self.open.as_ref().is_some_and(|i| i.kind != Kind::Text) {
            self.waiting.clear();
        }
    }

    fn say(&mut self, said: Vec<Said>, out: &mut VecDeque<Message>) {
        for said in said {
            match said {
                Said::Reasoning(text) => self.add(&Kind::Reasoning, &text, out),
                Said::Content(text) => self.add(&Kind::Text, &text, out),
                Said::Call { id, name, .. } => self.open(Kind::Call(id, name), out),
                Said::Arguments { piece, .. } => {
                    if let Some(kind @ Kind::Call(..)) = self.open.as_ref().map(|i| i.kind.clone())
                    {
                        self.add(&kind, &piece, out);
                    }
                }
                Said::CallEnd { .. } => {
                    if let Some(item) = &mut self.open {
                        item.complete = true;
                    }
                    self.close("completed", out);
                }
            }
        }
    }

    /// A piece of an item of this kind: the one under way, or a new one.
    fn add(&mut self, kind: &Kind, text: &str, out: &mut VecDeque<Message>) {
        if self.open.as_ref().is_none_or(|item| item.kind != *kind) {
            self.open(kind.clone(), out);
        }
        let Some(mut item) = self.open.take() else {
            return;
        };
        item.text.push_str(text);
        let mut data = json!({"delta": text});
        if item.kind == Kind::Text {
            item.logprobs.extend_from_slice(&self.waiting);
            data = json!({"delta": text, "logprobs": std::mem::take(&mut self.waiting)});
        }
        self.place(&item, &mut data);
        let [piece, _] = item.events();
        self.event(piece, data, out);
        self.open = Some(item);
    }

    /// Where an event's item stands.
    fn place(&self, item: &Item, data: &mut Value) {
        if let Some(data) = data.as_object_mut() {
            data.insert("item_id".to_owned(), json!(item.id));
            data.insert("output_index".to_owned(), json!(self.output.len()));
            if !matches!(item.kind, Kind::Call(..)) {
                data.insert("content_index".to_owned(), json!(0));
            }
        }
    }

    /// A new item; the one under way is done.
    fn open(&mut self, kind: Kind, out: &mut VecDeque<Message>) {
        self.close("completed", out);
        let item = Item::new(kind);
        let index = self.output.len();
        let data = json!({"output_index": index, "item": item.json("in_progress", None)});
        self.event("response.output_item.added", data, out);
        if let Some(part) = item.part() {
            let mut data = json!({"part": part});
            self.place(&item, &mut data);
            self.event("response.content_part.added", data, out);
        }
        self.open = Some(item);
    }

    /// The item under way is done.
    fn close(&mut self, status: &str, out: &mut VecDeque<Message>) {
        let Some(mut item) = self.open.take() else {
            return;
        };
        // Of tokens that showed no text.
        item.logprobs.append(&mut self.waiting);
        // A call that was cut or went wrong is not to be run.
        let cut = matches!(item.kind, Kind::Call(..)) && !item.complete;
        let status = if cut { "incomplete" } else { status };
        if !cut {
            let mut data = item.whole();
            self.place(&item, &mut data);
            let [_, whole] = item.events();
            self.event(whole, data, out);
        }
        if let Some(part) = item.part() {
            let mut data = json!({"part": part});
            self.place(&item, &mut data);
            self.event("response.content_part.done", data, out);
        }
        let json = item.json(status, item.part());
        let data = json!({"output_index": self.output.len(), "item": json});
        self.event("response.output_item.done", data, out);
        self.output.push(json);
    }

    fn end(
        &mut self,
        reason: &str,
        timings: &Timings,
        reasoning_n: usize,
        out: &mut VecDeque<Message>,
    ) {
        let (status, event) = match reason {
            "length" => ("incomplete", "response.incomplete"),
            _ => ("completed", "response.completed"),
        };
        // An answer of no words is a message all the same.
        if self.open.is_none() && self.output.is_empty() {
            self.open(Kind::Text, out);
        }
        self.close(status, out);
        self.set("status", json!(status));
        self.set("completed_at", json!(id::now()));
        if status == "incomplete" {
            let details = json!({"reason": "max_output_tokens"});
            self.set("incomplete_details", details);
        }
        self.set("usage", usage(timings, reasoning_n));
        self.state(event, out);
    }
}

fn usage(t: &Timings, reasoning_n: usize) -> Value {
    json!({
        "input_tokens": t.prompt_n,
        "input_tokens_details": {"cached_tokens": t.cached_n, "cache_write_tokens": 0},
        "output_tokens": t.predicted_n,
        "output_tokens_details": {"reasoning_tokens": reasoning_n},
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
        "max_tool_calls": echo.max_tool_calls,
        "metadata": echo.metadata,
        "model": talk.loaded.id,
        "output": [],
        "parallel_tool_calls": echo.parallel,
        "previous_response_id": null,
        "reasoning": {"effort": echo.effort, "summary": null},
        "seed": generate.sampling.seed,
        "store": false,
        "temperature": generate.sampling.temperature,
        "text": {"format": echo.format},
        "tool_choice": echo.tool_choice,
        "tools": echo.tools,
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
