//! `POST /completion`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use minfer::engine::{Done, Event, FinishReason, Model, Request, Task};
use serde_json::{Map, Value, json};

use super::state::settings;
use crate::ApiError;
use crate::app::Shared;
use crate::chat::{Token, blocking};
use crate::completion::Completion;
use crate::fields::Fields;
use crate::logprobs;
use crate::models::Loaded;
use crate::pace::{Pace, timings};
use crate::params::{MAX_TOP, Params};
use crate::prompts;
use crate::sse::{self, Message, Source};

/// The handler.
pub async fn completion(State(app): Shared, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&body)?;
    let name: Option<String> = fields.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    let model = loaded.engine.model().clone();
    let prompt: Value = fields.need("prompt")?;
    let prompts = prompts::parse_mixed("prompt", Some(prompt), model.hparams().n_vocab)?;
    let take = move || {
        let asked = Asked::take(&mut fields, &model)?;
        fields.close("completion", &[])?;
        let ids = prompts
            .iter()
            .map(|p| p.encode(model.tokenizer(), true).ids);
        Ok((asked, ids.collect()))
    };
    answer(loaded, take).await
}

/// The answers to what `take` asks and to the prompts that it makes, on a thread that may block.
pub async fn answer(
    loaded: Arc<Loaded>,
    take: impl FnOnce() -> Result<(Asked, Vec<Vec<u32>>), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let tokenizer = loaded.engine.model().tokenizer().clone();
    let (asked, shown, prompts) = blocking(move || {
        let (asked, prompts) = take()?;
        let shown = prompts.iter().map(|ids| Shown {
            text: tokenizer.decode(ids, true).into(),
            n: ids.len(),
        });
        Ok((asked, shown.collect::<Vec<_>>(), prompts))
    })
    .await?;
    let request = Request {
        no_cache: asked.params.no_cache,
        ..Request::new(Vec::new(), Task::Generate(asked.params.generate.clone()))
    };
    let work = Completion::start(loaded, "prompt", prompts, request, asked.params.n).await?;
    let stream = asked.params.stream;
    let text = Text::new(work, asked, &shown);
    match stream {
        true => Ok(sse::response(text)),
        false => Ok(Json(text.whole().await?).into_response()),
    }
}

/// What is asked for, beside the prompts.
pub struct Asked {
    return_tokens: bool,
    params: Params,
}

impl Asked {
    /// Of the body's fields. May block.
    ///
    /// # Errors
    /// One that can't be honoured, by name.
    pub fn take(f: &mut Fields, model: &Model) -> Result<Asked, ApiError> {
        let mut params = Params::take(f, model)?;
        let top: usize = f.take("n_probs")?.unwrap_or(0);
        if top > MAX_TOP {
            let why = format!("must be 0 to {MAX_TOP}, is {top}");
            return Err(ApiError::field("n_probs", why));
        }
        params.generate.logprobs = Some(top).filter(|n| *n > 0);
        const SAMPLING: &str = "this server says what the model thinks, before sampling";
        f.refuse("post_sampling_probs", &[json!(false)], SAMPLING)?;
        const PLACES: &str = "this server chooses a request's slot itself: the lowest that is free";
        f.refuse("id_slot", &[json!(-1)], PLACES)?;
        const TIME: &str = "answers are limited by n_predict and stop here, not by time";
        f.refuse("t_max_predict_ms", &[json!(0), json!(-1)], TIME)?;
        f.refuse("n_indent", &[json!(0)], "indentation is not supported")?;
        // One token is always kept.
        f.refuse("min_keep", &[json!(0), json!(1)], "is not supported")?;
        f.refuse("lora", &[json!([])], "LoRA adapters are not supported yet")?;
        f.refuse("response_fields", &[json!([])], "is not supported")?;
        Ok(Asked {
            return_tokens: f.flag("return_tokens")?,
            params,
        })
    }
}

/// A prompt as the model reads it.
#[derive(Clone)]
struct Shown {
    text: Arc<str>,
    /// Its tokens.
    n: usize,
}

/// One answer under way.
struct Answer {
    /// What it continues.
    prompt: Shown,
    pace: Pace,
    content: String,
    tokens: Vec<u32>,
    probabilities: Vec<Value>,
}

/// All answers.
struct Text {
    work: Completion,
    asked: Asked,
    answers: Vec<Answer>,
}

impl Text {
    fn new(work: Completion, asked: Asked, prompts: &[Shown]) -> Text {
        let many = prompts
            .iter()
            .flat_map(|p| std::iter::repeat_n(p, asked.params.n));
        let answers = many.map(|p| Answer {
            prompt: p.clone(),
            pace: Pace::start(),
            content: String::new(),
            tokens: Vec::new(),
            probabilities: Vec::new(),
        });
        Text {
            answers: answers.collect(),
            work,
            asked,
        }
    }

    /// The whole response: one answer, or a list of them.
    async fn whole(mut self) -> Result<Value, ApiError> {
        let mut ends = vec![Value::Null; self.answers.len()];
        while let Some((index, event)) = self.work.next().await? {
            let tokenizer = self.work.loaded.engine.model().tokenizer();
            let Some(answer) = self.answers.get_mut(index) else {
                continue;
            };
            match event {
                Event::Token { id, text, logprobs } => {
                    let token = Token { id, logprobs };
                    answer.probabilities.extend(probability(tokenizer, &token));
                    answer.content.push_str(&text);
                    answer.tokens.push(id);
                }
                Event::Done(done) => {
                    answer.content.push_str(&done.text);
                    let content = std::mem::take(&mut answer.content);
                    let tokens = std::mem::take(&mut answer.tokens);
                    let tokens = if self.asked.return_tokens {
                        tokens
                    } else {
                        Vec::new()
                    };
                    let probabilities = std::mem::take(&mut answer.probabilities);
                    let mut end = self.end(index, &done);
                    end.insert("content".to_owned(), json!(content));
                    end.insert("tokens".to_owned(), json!(tokens));
                    if self.asked.params.generate.logprobs.is_some() {
                        let key = "completion_probabilities".to_owned();
                        end.insert(key, Value::Array(probabilities));
                    }
                    if let Some(slot) = ends.get_mut(index) {
                        *slot = Value::Object(end);
                    }
                }
                _ => {}
            }
        }
        match ends.len() {
            1 => Ok(ends.pop().unwrap_or_default()),
            _ => Ok(Value::Array(ends)),
        }
    }

    /// What an answer's last object says; its content is empty.
    fn end(&self, index: usize, done: &Done) -> Map<String, Value> {
        let (t, generate) = (&done.timings, &self.asked.params.generate);
        let stop_type = match (done.reason, &done.stop) {
            (FinishReason::Length, _) => "limit",
            (_, Some(_)) => "word",
            (_, None) => "eos",
        };
        // Less than what was asked for: the context is full.
        let all = generate.n_predict.is_some_and(|n| t.predicted_n >= n);
        let mut map = Map::new();
        let mut put = |key: &str, value| map.insert(key.to_owned(), value);
        put("index", json!(index));
        put("content", json!(""));
        put("tokens", json!([]));
        put("id_slot", json!(done.place));
        put("stop", json!(true));
        put("model", json!(self.work.loaded.id));
        put("tokens_predicted", json!(t.predicted_n));
        put("tokens_evaluated", json!(t.prompt_n));
        put("tokens_cached", json!(t.cached_n));
        put("truncated", json!(stop_type == "limit" && !all));
        put("stop_type", json!(stop_type));
        put(
            "stopping_word",
            json!(done.stop.as_deref().unwrap_or_default()),
        );
        put("generation_settings", settings(generate));
        let prompt = self.answers.get(index).map(|a| &*a.prompt.text);
        put("prompt", json!(prompt));
        put("timings", timings(t));
        map
    }

    /// The messages of one event.
    fn say(&mut self, index: usize, event: Event, out: &mut VecDeque<Message>) {
        let Some(answer) = self.answers.get_mut(index) else {
            return;
        };
        answer.pace.note(&event);
        let params = &self.asked.params;
        let mut piece = Map::new();
        let mut put = |key: &str, value| piece.insert(key.to_owned(), value);
        put("index", json!(index));
        match event {
            Event::Prompt { done, total } if params.return_progress => {
                put("content", json!(""));
                put("prompt_progress", answer.pace.progress(done, total));
            }
            Event::Token { id, text, logprobs } => {
                put("content", json!(text));
                put("tokens", json!([id]));
                let tokenizer = self.work.loaded.engine.model().tokenizer();
                if let Some(entry) = probability(tokenizer, &Token { id, logprobs }) {
                    put("completion_probabilities", json!([entry]));
                }
            }
            Event::Done(done) => {
                if !done.text.is_empty() {
                    let held =
                        json!({"index": index, "content": done.text, "tokens": [], "stop": false});
                    out.push_back(Message::json(&held));
                }
                let end = self.end(index, &done);
                out.push_back(Message::json(&Value::Object(end)));
                return;
            }
            _ => return,
        }
        put("stop", json!(false));
        put("tokens_predicted", json!(answer.pace.predicted()));
        put("tokens_evaluated", json!(answer.prompt.n));
        if params.timings_per_token {
            put("timings", answer.pace.timings());
        }
        out.push_back(Message::json(&Value::Object(piece)));
    }
}

/// A token's entry of `completion_probabilities`: OpenAI's entry with ids.
fn probability(tokenizer: &minfer::tokenizer::Tokenizer, token: &Token) -> Option<Value> {
    let mut entry = logprobs::entry(tokenizer, token)?;
    let top = token.logprobs.as_ref().map(|p| p.top.as_slice());
    let map = entry.as_object_mut()?;
    map.insert("id".to_owned(), json!(token.id));
    let list = map.get_mut("top_logprobs").and_then(Value::as_array_mut);
    for (one, (id, _)) in list.into_iter().flatten().zip(top.unwrap_or_default()) {
        if let Some(one) = one.as_object_mut() {
            one.insert("id".to_owned(), json!(id));
        }
    }
    Some(entry)
}

impl Source for Text {
    async fn more(&mut self, out: &mut VecDeque<Message>) -> bool {
        match self.work.next().await {
            Ok(Some((index, event))) => {
                self.say(index, event, out);
                true
            }
            Ok(None) => false,
            Err(e) => {
                out.push_back(Message::json(&e.body()));
                false
            }
        }
    }
}
