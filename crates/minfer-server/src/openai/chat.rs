//! `POST /v1/chat/completions`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use minfer::engine::Model;
use serde_json::{Map, Value, json};

use super::{Usage, fingerprint, logprobs, others, timings};
use crate::ApiError;
use crate::app::Shared;
use crate::chat::{Chat, Conversation, Piece, Systems, Token, blocking, held_by, reason_as};
use crate::fields::{Elsewhere, Fields};
use crate::messages::Results;
use crate::pace::Pace;
use crate::params::{MAX_TOP, Params};
use crate::speech::Said;
use crate::sse::{self, Message, Source};
use crate::{id, messages, tools};

/// What other surfaces have names for, and where it is said here.
const SAID_ELSEWHERE: &Elsewhere = &[
    ("system", "a message of the role system"),
    (
        "thinking",
        "reasoning_effort or chat_template_kwargs.enable_thinking",
    ),
];

/// The handler.
pub async fn completions(State(app): Shared, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&body)?;
    let name: Option<String> = fields.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    let model = loaded.engine.model().clone();
    let chat = blocking(move || {
        let chat = take(&mut fields, &model)?;
        fields.close("chat/completions", SAID_ELSEWHERE)?;
        Ok(chat)
    })
    .await?;
    let stream = chat.params.stream;
    let talk = Conversation::start(loaded, chat).await?;
    let head = Head::new(&talk);
    match stream {
        true => Ok(sse::response(Chunks::new(talk, head))),
        false => Ok(Json(whole(talk, &head).await?).into_response()),
    }
}

/// The body's fields. May block.
fn take(f: &mut Fields, model: &Model) -> Result<Chat, ApiError> {
    let messages = messages::parse(f, Results::OfCalls)?;
    let mut params = Params::take(f, model)?;
    let top: Option<usize> = f.take("top_logprobs")?;
    params.generate.logprobs = match (f.flag("logprobs")?, top) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => {
            return Err(ApiError::field("top_logprobs", "needs \"logprobs\": true"));
        }
    };
    if let Some(top) = top.filter(|n| *n > MAX_TOP) {
        let why = format!("must be 0 to {MAX_TOP}, is {top}");
        return Err(ApiError::field("top_logprobs", why));
    }
    let mut template_kwargs = messages::template_kwargs(f)?;
    if let Some(effort) = f.take::<String>("reasoning_effort")? {
        reason_as(&effort, &mut template_kwargs);
    }
    const OLDER: &str = "is the older name: use tools and tool_choice";
    f.refuse("functions", &[json!([])], OLDER)?;
    f.refuse("function_call", &[json!("none"), json!("auto")], OLDER)?;
    let offer = tools::take(f)?;
    let offer = tools::choose(f, offer, &tools::CHAT)?;
    let turn = messages::turn(
        f,
        &messages,
        held_by(params.constrained_by(), offer.as_ref()),
    )?;
    others::refuse_in_chat(f)?;
    f.idle("chat/completions", &others::IDLE)?;
    let split_reasoning = take_reasoning_format(f)?;
    params.generate.reasoning_budget = take_budget(f, split_reasoning, &params)?;
    Ok(Chat {
        messages,
        systems: Systems::new(),
        turn,
        drops_turns: false,
        template_kwargs,
        tools: offer,
        split_reasoning,
        params,
    })
}

/// The most tokens of reasoning, under llama-server's names and vLLM's; -1: any number.
fn take_budget(f: &mut Fields, split: bool, params: &Params) -> Result<Option<usize>, ApiError> {
    const NAMES: [&str; 3] = [
        "thinking_budget_tokens",
        "reasoning_budget",
        "thinking_token_budget",
    ];
    let Some((name, tokens)) = f.one_of::<i64>(&NAMES)? else {
        return Ok(None);
    };
    let wrong = |why: &str| Err(ApiError::field(name, why));
    if tokens < -1 {
        let why = format!("must be 0 or more, or -1 for no limit, is {tokens}");
        return wrong(&why);
    }
    if tokens >= 0 && !split {
        return wrong("needs reasoning to be told from the answer: leave reasoning_format out");
    }
    if tokens >= 0 && params.constraint_field == Some("grammar") {
        return wrong("can't be held beside a grammar, which is about the reasoning, too");
    }
    Ok(usize::try_from(tokens).ok())
}

/// llama-server's `reasoning_format`: whether reasoning is told from content.
fn take_reasoning_format(f: &mut Fields) -> Result<bool, ApiError> {
    const NAME: &str = "reasoning_format";
    match f.take::<String>(NAME)?.as_deref() {
        None | Some("auto" | "deepseek") => Ok(true),
        Some("none") => Ok(false),
        Some(other) => Err(ApiError::field(
            NAME,
            format!("must be auto, deepseek or none, is {other:?}"),
        )),
    }
}

/// What all chunks of a response have in common.
struct Head {
    id: String,
    created: u64,
    model: String,
    seed: u64,
}

impl Head {
    fn new(talk: &Conversation) -> Head {
        Head {
            id: id::named("chatcmpl-"),
            created: id::now(),
            model: talk.loaded.id.clone(),
            seed: talk.params.generate.sampling.seed,
        }
    }

    fn json(&self, object: &str, choices: Vec<Value>) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value| map.insert(key.to_owned(), value);
        put("id", json!(self.id));
        put("object", json!(object));
        put("created", json!(self.created));
        put("model", json!(self.model));
        put("system_fingerprint", json!(fingerprint()));
        put("seed", json!(self.seed));
        put("choices", Value::Array(choices));
        map
    }
}

/// One answer, collected.
#[derive(Default)]
struct Answer {
    reasoning: String,
    content: String,
    calls: Vec<Value>,
    logprobs: Vec<Value>,
    reason: Option<&'static str>,
}

impl Answer {
    fn say(&mut self, said: Vec<Said>) {
        for said in said {
            match said {
                Said::Reasoning(text) => self.reasoning.push_str(&text),
                Said::Content(text) => self.content.push_str(&text),
                Said::Call { id, name, .. } => self.calls.push(call(&id, &name)),
                Said::Arguments { piece, .. } => self.argue(&piece),
                Said::CallEnd { .. } => {}
            }
        }
    }

    /// More of the last call's arguments.
    fn argue(&mut self, piece: &str) {
        let last = self.calls.last_mut();
        if let Some(Value::String(arguments)) =
            last.and_then(|c| c.pointer_mut("/function/arguments"))
        {
            arguments.push_str(piece);
        }
    }

    fn json(self, index: usize, with_logprobs: bool) -> Value {
        let logprobs = with_logprobs.then(|| json!({"content": self.logprobs, "refusal": null}));
        // Who only calls says nothing.
        let content = Some(self.content).filter(|c| self.calls.is_empty() || !c.is_empty());
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if let Some(map) = message.as_object_mut() {
            if !self.reasoning.is_empty() {
                map.insert("reasoning_content".to_owned(), json!(self.reasoning));
            }
            if !self.calls.is_empty() {
                map.insert("tool_calls".to_owned(), Value::Array(self.calls));
            }
        }
        json!({
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": self.reason,
        })
    }
}

/// A call that begins.
fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}})
}

/// The whole response.
async fn whole(mut talk: Conversation, head: &Head) -> Result<Value, ApiError> {
    let mut answers: Vec<Answer> = Vec::new();
    answers.resize_with(talk.params.n, Answer::default);
    let (mut usage, mut last) = (Usage::default(), None);
    let model = talk.loaded.engine.model().clone();
    while let Some((choice, piece)) = talk.next().await? {
        let Some(answer) = answers.get_mut(choice) else {
            continue;
        };
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Token { token, said } => {
                answer
                    .logprobs
                    .extend(logprobs::entry(model.tokenizer(), &token));
                answer.say(said);
            }
            Piece::Done {
                said,
                reason,
                timings,
                reasoning_n,
                ..
            } => {
                answer.say(said);
                answer.reason = Some(reason);
                usage.add(&timings);
                usage.reasoned(reasoning_n);
                last = Some(timings);
            }
        }
    }
    let with_logprobs = talk.params.generate.logprobs.is_some();
    let choices = answers.into_iter().enumerate();
    let choices = choices.map(|(i, a)| a.json(i, with_logprobs)).collect();
    let mut body = head.json("chat.completion", choices);
    body.insert("usage".to_owned(), usage.json());
    if let Some(last) = last {
        body.insert("timings".to_owned(), timings(&last));
    }
    Ok(Value::Object(body))
}

/// The response in pieces.
struct Chunks {
    talk: Conversation,
    head: Head,
    usage: Usage,
    /// Which answers have said who speaks.
    greeted: Vec<bool>,
    paces: Vec<Pace>,
    /// Times up to the token that is being said, where they are asked for.
    times: Option<Value>,
    model: Arc<Model>,
}

impl Chunks {
    fn new(talk: Conversation, head: Head) -> Chunks {
        Chunks {
            usage: Usage::default(),
            greeted: vec![false; talk.params.n],
            paces: vec![Pace::start(); talk.params.n],
            times: None,
            model: talk.loaded.engine.model().clone(),
            talk,
            head,
        }
    }

    /// A chunk of these choices and these fields beside them.
    fn chunk(&self, choices: Vec<Value>, more: &[(&str, Value)]) -> Message {
        let mut body = self.head.json("chat.completion.chunk", choices);
        if self.talk.params.include_usage {
            body.insert("usage".to_owned(), Value::Null);
        }
        if let Some(times) = &self.times {
            body.insert("timings".to_owned(), times.clone());
        }
        for (key, value) in more {
            body.insert((*key).to_owned(), value.clone());
        }
        Message::json(&Value::Object(body))
    }

    fn choice(
        choice: usize,
        delta: &Value,
        logprobs: Option<Value>,
        reason: Option<&str>,
    ) -> Value {
        json!({"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": reason})
    }

    /// The chunks of one piece.
    fn say(&mut self, choice: usize, piece: Piece, out: &mut VecDeque<Message>) {
        if let Some(greeted) = self.greeted.get_mut(choice)
            && !std::mem::replace(greeted, true)
        {
            let delta = json!({"role": "assistant", "content": ""});
            out.push_back(self.chunk(vec![Self::choice(choice, &delta, None, None)], &[]));
        }
        let progress = self.clock(choice, &piece);
        match piece {
            Piece::Prompt { .. } => {
                if self.talk.params.return_progress {
                    let none = Self::choice(choice, &json!({}), None, None);
                    out.push_back(self.chunk(vec![none], &[("prompt_progress", progress)]));
                }
            }
            Piece::Token { token, said } => self.say_token(choice, &token, said, out),
            Piece::Done {
                said,
                reason,
                timings,
                reasoning_n,
                ..
            } => {
                self.usage.add(&timings);
                self.usage.reasoned(reasoning_n);
                for delta in said.iter().filter_map(delta) {
                    out.push_back(self.chunk(vec![Self::choice(choice, &delta, None, None)], &[]));
                }
                let last = Self::choice(choice, &json!({}), None, Some(reason));
                let times = [("timings", super::timings(&timings))];
                out.push_back(self.chunk(vec![last], &times));
            }
        }
    }

    /// Keeps the answer's clock; of a piece of the prompt it says how far that is.
    fn clock(&mut self, choice: usize, piece: &Piece) -> Value {
        self.times = None;
        let Some(pace) = self.paces.get_mut(choice) else {
            return Value::Null;
        };
        match piece {
            Piece::Prompt { done, total } => {
                pace.prompt(*done, *total);
                return pace.progress(*done, *total);
            }
            Piece::Token { .. } => {
                pace.token();
                self.times = (self.talk.params.timings_per_token).then(|| pace.timings());
            }
            Piece::Done { .. } => {}
        }
        Value::Null
    }

    fn say_token(
        &mut self,
        choice: usize,
        token: &Token,
        said: Vec<Said>,
        out: &mut VecDeque<Message>,
    ) {
        let entry = logprobs::entry(self.model.tokenizer(), token);
        let mut entry = entry.map(|e| json!({"content": [e], "refusal": null}));
        for delta in said.iter().filter_map(delta) {
            let choice = Self::choice(choice, &delta, entry.take(), None);
            out.push_back(self.chunk(vec![choice], &[]));
        }
        // A token that can't be shown yet has its log-probabilities all the same.
        if entry.is_some() {
            let choice = Self::choice(choice, &json!({"content": ""}), entry, None);
            out.push_back(self.chunk(vec![choice], &[]));
        }
    }
}

/// A piece of a message; the end of a call is none.
fn delta(said: &Said) -> Option<Value> {
    let calls = |index: &usize, mut call: Value| {
        if let Some(map) = call.as_object_mut() {
            map.shift_insert(0, "index".to_owned(), json!(index));
        }
        json!({"tool_calls": [call]})
    };
    Some(match said {
        Said::Reasoning(text) => json!({"reasoning_content": text}),
        Said::Content(text) => json!({"content": text}),
        Said::Call { index, id, name } => calls(index, call(id, name)),
        Said::Arguments { index, piece } => calls(index, json!({"function": {"arguments": piece}})),
        Said::CallEnd { .. } => return None,
    })
}

impl Source for Chunks {
    async fn more(&mut self, out: &mut VecDeque<Message>) -> bool {
        match self.talk.next().await {
            Ok(Some((choice, piece))) => {
                self.say(choice, piece, out);
                true
            }
            Ok(None) => {
                if self.talk.params.include_usage {
                    let usage = [("usage", self.usage.json())];
                    out.push_back(self.chunk(Vec::new(), &usage));
                }
                out.push_back(Message::done());
                false
            }
            Err(e) => {
                out.push_back(Message::json(&e.body()));
                false
            }
        }
    }
}
