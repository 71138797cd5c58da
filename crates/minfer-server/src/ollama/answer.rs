//! Answers in Ollama's shape, whole and as lines.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use minfer::chat::DateTime;
use minfer::engine::Timings;
use minfer::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use super::request::Asked;
use crate::ApiError;
use crate::chat::{Conversation, Piece, Token};
use crate::shape::Shape;
use crate::speech::Said;
use crate::sse::{self, Message, Source};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `message`.
    Chat,
    /// `response`.
    Generate,
}

/// What was said.
#[derive(Default)]
struct Words {
    thinking: String,
    content: String,
    /// Of the calls: places, names, and arguments in JSON.
    calls: Vec<(usize, String, String)>,
    logprobs: Vec<Value>,
}

impl Words {
    fn say(&mut self, said: Vec<Said>) {
        for said in said {
            match said {
                Said::Reasoning(text) => self.thinking.push_str(&text),
                Said::Content(text) => self.content.push_str(&text),
                Said::Call { index, name, .. } => {
                    self.calls.push((index, name, String::new()));
                }
                Said::Arguments { piece, .. } => {
                    if let Some((.., arguments)) = self.calls.last_mut() {
                        arguments.push_str(&piece);
                    }
                }
                Said::CallEnd { .. } => {}
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.thinking.is_empty()
            && self.content.is_empty()
            && self.calls.is_empty()
            && self.logprobs.is_empty()
    }

    fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.content});
        let Some(map) = message.as_object_mut() else {
            return message;
        };
        if !self.thinking.is_empty() {
            map.insert("thinking".to_owned(), json!(self.thinking));
        }
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|(i, name, arguments)| {
                // The parser tells whole calls, whose arguments are an object.
                let arguments: Value =
                    serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
                json!({"function": {"index": i, "name": name, "arguments": arguments}})
            });
            map.insert("tool_calls".to_owned(), calls.collect());
        }
        message
    }
}

/// How an answer ended.
struct End {
    reason: &'static str,
    timings: Timings,
    /// How many messages of the conversation were not read.
    left_out: usize,
}

/// What all lines of an answer have in common.
pub struct Head {
    asked: Asked,
    form: Form,
}

/// A time as Ollama writes it.
pub fn time(seconds: DateTime) -> String {
    seconds.strftime("%Y-%m-%dT%H:%M:%SZ").unwrap_or_default()
}

/// Nanoseconds.
pub fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The answer to a request that says nothing: it is about the model of this name alone, which it loads or unloads.
pub fn nothing_said(name: &str, form: Form, reason: &str) -> Response {
    let mut line = line(name, form, Words::default());
    line.insert("done".to_owned(), json!(true));
    line.insert("done_reason".to_owned(), json!(reason));
    Json(Value::Object(line)).into_response()
}

fn line(name: &str, form: Form, words: Words) -> Map<String, Value> {
    let mut line = Map::new();
    let mut put = |key: &str, value| line.insert(key.to_owned(), value);
    put("model", json!(name));
    put("created_at", json!(time(DateTime::now())));
    match form {
        Form::Chat => put("message", words.message()),
        Form::Generate => {
            if !words.thinking.is_empty() {
                put("thinking", json!(words.thinking));
            }
            put("response", json!(words.content))
        }
    };
    put("done", json!(false));
    if !words.logprobs.is_empty() {
        put("logprobs", Value::Array(words.logprobs));
    }
    line
}

impl Head {
    /// Of a request.
    pub fn new(asked: Asked, form: Form) -> Head {
        Head { asked, form }
    }

    /// The answer, in lines unless `stream` was false.
    ///
    /// # Errors
    /// The engine failed.
    pub async fn answer(self, talk: Conversation) -> Result<Response, ApiError> {
        match talk.params.stream {
            true => Ok(sse::lines(Lines { talk, head: self })),
            false => Ok(Json(self.whole(talk).await?).into_response()),
        }
    }

    async fn whole(self, mut talk: Conversation) -> Result<Value, ApiError> {
        let model = talk.loaded.engine.model().clone();
        let (mut words, mut end) = (Words::default(), None);
        while let Some((_, piece)) = talk.next().await? {
            let left_out = talk.left_out;
            end = take(piece, model.tokenizer(), &mut words, left_out).or(end);
        }
        Ok(match end {
            Some(end) => self.last(words, &end),
            None => Value::Object(self.line(words)),
        })
    }

    fn line(&self, words: Words) -> Map<String, Value> {
        line(&self.asked.name, self.form, words)
    }

    fn last(&self, words: Words, end: &End) -> Value {
        let mut line = self.line(words);
        let mut put = |key: &str, value| line.insert(key.to_owned(), value);
        put("done", json!(true));
        let reason = match end.reason {
            "length" => "length",
            _ => "stop",
        };
        put("done_reason", json!(reason));
        put("total_duration", json!(nanos(self.asked.since.elapsed())));
        put("load_duration", json!(nanos(self.asked.load)));
        put("prompt_eval_count", json!(end.timings.prompt_n));
        put("prompt_eval_duration", json!(nanos(end.timings.prompt)));
        put("eval_count", json!(end.timings.predicted_n));
        put("eval_duration", json!(nanos(end.timings.predicted)));
        if end.left_out > 0 {
            put("truncated_messages", json!(end.left_out)); // not Ollama's, which cuts in silence
        }
        Value::Object(line)
    }
}

/// Adds a piece to what was said; the end, if it is that.
fn take(piece: Piece, tokenizer: &Tokenizer, words: &mut Words, left_out: usize) -> Option<End> {
    match piece {
        Piece::Prompt { .. } => None,
        Piece::Token { token, said } => {
            words.logprobs.extend(logprob(tokenizer, &token));
            words.say(said);
            None
        }
        Piece::Done {
            said,
            reason,
            timings,
            ..
        } => {
            words.say(said);
            Some(End {
                reason,
                timings,
                left_out,
            })
        }
    }
}

fn logprob(tokenizer: &Tokenizer, token: &Token) -> Option<Value> {
    let logprobs = token.logprobs.as_ref()?;
    let one = |id: u32, p: f32| {
        let bytes = tokenizer.piece(id).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        // JSON has no infinities.
        json!({"token": text, "logprob": p.max(-9999.0), "bytes": bytes})
    };
    let mut entry = one(token.id, logprobs.chosen);
    let top = logprobs.top.iter().map(|(id, p)| one(*id, *p));
    if let Some(map) = entry.as_object_mut() {
        map.insert("top_logprobs".to_owned(), top.collect());
    }
    Some(entry)
}

/// The answer in lines.
struct Lines {
    talk: Conversation,
    head: Head,
}

impl Source for Lines {
    async fn more(&mut self, out: &mut VecDeque<Message>) -> bool {
        let piece = match self.talk.next().await {
            Ok(Some((_, piece))) => piece,
            Ok(None) => return false,
            Err(e) => {
                out.push_back(Message::json(&Shape::Ollama.last(&e)));
                return false;
            }
        };
        let mut words = Words::default();
        let model = self.talk.loaded.engine.model();
        let end = take(piece, model.tokenizer(), &mut words, self.talk.left_out);
        if !words.is_empty() {
            out.push_back(Message::json(&Value::Object(self.head.line(words))));
        }
        if let Some(end) = end {
            out.push_back(Message::json(&self.head.last(Words::default(), &end)));
        }
        true
    }
}
