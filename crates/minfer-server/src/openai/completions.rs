//! `POST /v1/completions`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use minfer::engine::{Event, Model, Request, Task, Timings};
use minfer::sampling::LogProbs;
use serde_json::{Map, Value, json};

use super::legacy::Lists;
use super::{Usage, fingerprint, others};
use crate::ApiError;
use crate::app::Shared;
use crate::chat::blocking;
use crate::completion::Completion;
use crate::fields::Fields;
use crate::gaps::Fim;
use crate::id;
use crate::pace::{Pace, timings};
use crate::params::{LIMITS, Params};
use crate::prompts::{self, Encoded, Prompt};
use crate::sse::{self, Message, Source};

/// The most likeliest tokens beside each one; OpenAI's number for this endpoint.
const MAX_TOP: usize = 5;
/// Tokens of an answer, where the request does not say how many; OpenAI's number.
const MAX_TOKENS: usize = 16;

/// The handler.
pub async fn completions(State(app): Shared, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&body)?;
    let name: Option<String> = fields.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    let model = loaded.engine.model().clone();
    let (asked, prompts) = blocking(move || {
        let asked = Asked::take(&mut fields, &model)?;
        others::refuse_in_text(&mut fields)?;
        fields.idle("completions", &others::USER)?;
        fields.close("completions", &[])?;
        let prompts = asked.encode(&model);
        Ok((asked, prompts))
    })
    .await?;
    let stream = asked.params.stream;
    let ids = prompts.iter().map(|p| p.ids.clone()).collect();
    let request = Request {
        no_cache: asked.params.no_cache,
        ..Request::new(Vec::new(), Task::Generate(asked.params.generate.clone()))
    };
    let work = Completion::start(loaded, "prompt", ids, request, asked.params.n).await?;
    let text = Text::new(work, asked, prompts);
    match stream {
        true => Ok(sse::response(text)),
        false => Ok(Json(text.whole().await?).into_response()),
    }
}

/// What is asked for.
struct Asked {
    prompts: Vec<Prompt>,
    suffix: Option<(Fim, String)>,
    echo: bool,
    params: Params,
}

impl Asked {
    /// Of the body's fields. May block.
    fn take(f: &mut Fields, model: &Model) -> Result<Asked, ApiError> {
        let prompts = prompts::parse("prompt", f.value("prompt"), model.hparams().n_vocab)?;
        let limited = LIMITS.iter().any(|name| f.has(name));
        let mut params = Params::take(f, model)?;
        if !limited {
            params.generate.n_predict = Some(MAX_TOKENS);
        }
        let echo = f.flag("echo")?;
        let top: Option<usize> = f.take("logprobs")?;
        if let Some(top) = top.filter(|n| *n > MAX_TOP) {
            let why = format!("must be 0 to {MAX_TOP}, is {top}");
            return Err(ApiError::field("logprobs", why));
        }
        params.generate.logprobs = top;
        params.generate.prompt_logprobs = top.filter(|_| echo);
        let n = params.n;
        let why = format!("this server returns all answers it makes: it must be n, which is {n}");
        f.refuse("best_of", &[json!(n)], &why)?;
        let suffix: Option<String> = f.take("suffix")?.filter(|s: &String| !s.is_empty());
        let suffix = suffix.map(|text| {
            if echo {
                let why = "can't be used together with echo";
                return Err(ApiError::field("suffix", why));
            }
            let why = "this model has no tokens for filling gaps: leave it out";
            let fim = Fim::of(model).ok_or_else(|| ApiError::field("suffix", why))?;
            Ok((fim, text))
        });
        Ok(Asked {
            prompts,
            suffix: suffix.transpose()?,
            echo,
            params,
        })
    }

    fn encode(&self, model: &Model) -> Vec<Encoded> {
        let tokenizer = model.tokenizer();
        let encode = |prompt: &Prompt| match &self.suffix {
            None => prompt.encode(tokenizer, true),
            Some((fim, suffix)) => Encoded {
                ids: fim.encode(tokenizer, prompt, suffix),
                text: String::new(),
                added_bos: false,
            },
        };
        self.prompts.iter().map(encode).collect()
    }
}

/// One answer under way.
struct Answer {
    /// Log-probabilities of the prompt's tokens from the second on, until they are said.
    echo: Vec<LogProbs>,
    /// Whether what comes before the answer is said.
    echoed: bool,
    lists: Option<Lists>,
    usage: Usage,
    pace: Pace,
}

/// A piece of an answer.
struct Piece {
    choice: usize,
    text: String,
    logprobs: Option<Value>,
    end: Option<(&'static str, Timings)>,
    /// What a stream says beside it.
    beside: Option<(&'static str, Value)>,
}

/// All answers as they come.
struct Text {
    work: Completion,
    asked: Asked,
    prompts: Vec<Encoded>,
    answers: Vec<Answer>,
    model: Arc<Model>,
    id: String,
    created: u64,
}

impl Text {
    fn new(work: Completion, asked: Asked, prompts: Vec<Encoded>) -> Text {
        let model = work.loaded.engine.model().clone();
        let params = &asked.params;
        let before = |prompt: &Encoded| match asked.echo {
            true => prompt.text.chars().count(),
            false => 0,
        };
        let many = prompts
            .iter()
            .flat_map(|p| std::iter::repeat_n(before(p), params.n));
        let answers = many.map(|at| {
            let lists = params.generate.logprobs;
            Answer {
                echo: Vec::new(),
                echoed: !asked.echo,
                lists: lists.map(|_| Lists::answer(model.tokenizer(), at)),
                usage: Usage::default(),
                pace: Pace::start(),
            }
        });
        Text {
            answers: answers.collect(),
            id: id::named("cmpl-"),
            created: id::now(),
            work,
            asked,
            prompts,
            model,
        }
    }

    /// The next pieces; `false` after the last.
    async fn next(&mut self, out: &mut Vec<Piece>) -> Result<bool, ApiError> {
        let Some((choice, event)) = self.work.next().await? else {
            return Ok(false);
        };
        let Some(answer) = self.answers.get_mut(choice) else {
            return Ok(true);
        };
        if matches!(event, Event::Token { .. } | Event::Done(_)) && !answer.echoed {
            answer.echoed = true;
            let prompt = choice.checked_div(self.asked.params.n);
            let prompt = prompt.and_then(|p| self.prompts.get(p));
            out.extend(prompt.map(|prompt| Piece {
                choice,
                text: prompt.text.clone(),
                logprobs:
                    (answer.lists.as_ref()).map(|_| echoed(&self.model, prompt, &answer.echo)),
                end: None,
                beside: None,
            }));
        }
        answer.pace.note(&event);
        let params = &self.asked.params;
        match event {
            Event::Prompt { done, total } if params.return_progress => out.push(Piece {
                choice,
                text: String::new(),
                logprobs: None,
                end: None,
                beside: Some(("prompt_progress", answer.pace.progress(done, total))),
            }),
            Event::PromptLogProbs { logprobs, .. } => answer.echo.push(logprobs),
            Event::Token { id, text, logprobs } => {
                let logprobs = answer.lists.as_mut().map(|lists| {
                    lists.push(id, logprobs.as_ref());
                    lists.take()
                });
                out.push(Piece {
                    choice,
                    text,
                    logprobs,
                    end: None,
                    beside: (params.timings_per_token).then(|| ("timings", answer.pace.timings())),
                });
            }
            Event::Done(done) => {
                answer.usage.add(&done.timings);
                out.push(Piece {
                    choice,
                    text: done.text,
                    logprobs: None,
                    end: Some((done.reason.name(), done.timings)),
                    beside: Some(("timings", timings(&done.timings))),
                });
            }
            _ => {}
        }
        Ok(true)
    }

    fn usage(&self) -> Value {
        let prompts = self.answers.chunks(self.asked.params.n.max(1));
        let prompts = prompts.map(|answers| {
            let all = answers.iter().map(|a| a.usage);
            all.reduce(|a, b| a.beside(&b)).unwrap_or_default()
        });
        prompts.reduce(|a, b| a.plus(&b)).unwrap_or_default().json()
    }

    fn body(&self, choices: Vec<Value>) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value| map.insert(key.to_owned(), value);
        put("id", json!(self.id));
        put("object", json!("text_completion"));
        put("created", json!(self.created));
        put("model", json!(self.work.loaded.id));
        put("system_fingerprint", json!(fingerprint()));
        put("seed", json!(self.asked.params.generate.sampling.seed));
        put("choices", Value::Array(choices));
        map
    }

    /// The whole response.
    async fn whole(mut self) -> Result<Value, ApiError> {
        let mut choices: Vec<Whole> = Vec::new();
        choices.resize_with(self.answers.len(), Whole::default);
        let (mut pieces, mut last) = (Vec::new(), None);
        while self.next(&mut pieces).await? {
            for piece in pieces.drain(..) {
                last = piece.end.map(|(_, timings)| timings).or(last);
                if let Some(choice) = choices.get_mut(piece.choice) {
                    choice.add(piece);
                }
            }
        }
        let choices = choices.into_iter().enumerate();
        let mut body = self.body(choices.map(|(i, c)| c.json(i)).collect());
        body.insert("usage".to_owned(), self.usage());
        if let Some(last) = last {
            body.insert("timings".to_owned(), timings(&last));
        }
        Ok(Value::Object(body))
    }

    fn chunk(&self, choices: Vec<Value>, more: Option<(&str, Value)>) -> Message {
        let mut body = self.body(choices);
        if self.asked.params.include_usage {
            body.insert("usage".to_owned(), Value::Null);
        }
        if let Some((key, value)) = more {
            body.insert(key.to_owned(), value);
        }
        Message::json(&Value::Object(body))
    }
}

/// An echoed prompt's log-probabilities. Nothing comes before its first token.
fn echoed(model: &Model, prompt: &Encoded, known: &[LogProbs]) -> Value {
    let mut lists = Lists::text(model.tokenizer());
    let first = prompt.ids.first().copied();
    match first {
        Some(bos) if prompt.added_bos => lists.push_hidden(bos),
        Some(id) => lists.push(id, None),
        None => {}
    }
    for (id, logprobs) in prompt.ids.iter().skip(1).zip(known) {
        lists.push(*id, Some(logprobs));
    }
    lists.take()
}

/// One answer, collected.
#[derive(Default)]
struct Whole {
    text: String,
    logprobs: Option<Value>,
    reason: Option<&'static str>,
}

impl Whole {
    fn add(&mut self, piece: Piece) {
        self.text.push_str(&piece.text);
        self.reason = piece.end.map(|(reason, _)| reason).or(self.reason);
        match (&mut self.logprobs, piece.logprobs) {
            (Some(Value::Object(all)), Some(Value::Object(more))) => {
                let lists = all.values_mut().zip(more);
                for (list, (_, more)) in lists {
                    if let (Value::Array(list), Value::Array(more)) = (list, more) {
                        list.extend(more);
                    }
                }
            }
            (all @ None, more) => *all = more,
            _ => {}
        }
    }

    fn json(self, index: usize) -> Value {
        json!({"text": self.text, "index": index, "logprobs": self.logprobs, "finish_reason": self.reason})
    }
}

impl Source for Text {
    async fn more(&mut self, out: &mut VecDeque<Message>) -> bool {
        let mut pieces = Vec::new();
        match self.next(&mut pieces).await {
            Ok(true) => {}
            Ok(false) => {
                if self.asked.params.include_usage {
                    let usage = ("usage", self.usage());
                    out.push_back(self.chunk(Vec::new(), Some(usage)));
                }
                out.push_back(Message::done());
                return false;
            }
            Err(e) => {
                out.push_back(Message::json(&e.body()));
                return false;
            }
        }
        for piece in pieces {
            // A token that can't be shown yet has its log-probabilities all the same.
            if piece.text.is_empty() && piece.logprobs.is_none() && piece.beside.is_none() {
                continue;
            }
            let choice = json!({
                "text": piece.text,
                "index": piece.choice,
                "logprobs": piece.logprobs,
                "finish_reason": piece.end.map(|(reason, _)| reason),
            });
            out.push_back(self.chunk(vec![choice], piece.beside));
        }
        true
    }
}
