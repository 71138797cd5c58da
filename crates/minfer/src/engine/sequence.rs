//! One request under way: its tokens, its pages, its sampler and what it has said.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::batch::Pages;
use super::request::{Done, Event, FinishReason, Generate, Timings};
use crate::Error;
use crate::sampling::{Sampler, SamplingError, StopMatcher};
use crate::tokenizer::{Decoder, Tokenizer};

/// The answer's side of a generation.
struct Answer {
    params: Generate,
    sampler: Sampler,
    stop: StopMatcher,
    decoder: Decoder<Arc<Tokenizer>>,
    count: usize,
}

impl Answer {
    fn new(
        params: Generate,
        prompt: &[u32],
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<Answer, SamplingError> {
        let sampler = Sampler::new(params.sampling.clone(), tokenizer.n_vocab())?;
        let mut sampler = sampler.with_choice(u64::from(params.choice));
        prompt.iter().for_each(|t| sampler.accept(*t));
        Ok(Answer {
            sampler,
            stop: StopMatcher::new(params.stop.clone()),
            decoder: Decoder::new(tokenizer.clone(), false),
            count: 0,
            params,
        })
    }
}

/// What a sequence is run for.
#[allow(clippy::large_enum_variant)] // made and taken apart once a request
pub(super) enum Wanted {
    /// The text that continues it.
    Answer(Generate),
    /// Its logits, after each token or the last.
    Logits {
        /// After each one.
        all: bool,
    },
}

/// A request under way.
pub(super) struct Sequence {
    /// Prompt, then answer.
    pub tokens: Vec<u32>,
    /// How many of them are in the KV.
    pub n_past: usize,
    /// Where its KV lies.
    pub pages: Pages,
    prompt_n: usize,
    /// `None` for a request for logits.
    answer: Option<Answer>,
    all_logits: bool,
    events: Sender<Event>,
    started: Instant,
    prompt_done: Option<Instant>,
}

/// Whether a sequence goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another step, please.
    Step,
    /// It has ended, or nobody listens any more.
    End,
}

impl Sequence {
    /// Takes the prompt of a checked request in: to continue it, or for its logits.
    pub fn new(
        prompt: Vec<u32>,
        wanted: Wanted,
        events: Sender<Event>,
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<Sequence, Error> {
        let (answer, all_logits) = match wanted {
            Wanted::Logits { all } => (None, all),
            Wanted::Answer(params) => (Some(Answer::new(params, &prompt, tokenizer)?), false),
        };
        Ok(Sequence {
            prompt_n: prompt.len(),
            tokens: prompt,
            n_past: 0,
            pages: Pages::default(),
            answer,
            all_logits,
            events,
            started: Instant::now(),
            prompt_done: None,
        })
    }

    /// Tokens the next step should take, at most `n_batch`.
    pub fn next_rows(&self, n_batch: usize) -> usize {
        (self.tokens.len() - self.n_past).min(n_batch)
    }

    /// Whether the logits of every row are wanted.
    pub fn wants_all_logits(&self) -> bool {
        self.all_logits
    }

    fn send(&self, event: Event) -> Next {
        match self.events.send(event) {
            Ok(()) => Next::Step,
            Err(_) => Next::End, // the receiver was dropped: cancelled
        }
    }

    /// The end, with a failure.
    pub fn fail(&self, error: Error) {
        self.send(Event::Error(error));
    }

    /// After a step of `rows` rows that left `n_past` behind them: says how far the prompt is.
    pub fn prompt_progress(&mut self) -> Next {
        if self.n_past > self.prompt_n || self.prompt_done.is_some() {
            return Next::Step;
        }
        if self.n_past == self.prompt_n {
            self.prompt_done = Some(Instant::now());
        }
        self.send(Event::Prompt {
            done: self.n_past,
            total: self.prompt_n,
        })
    }

    /// Logits of token `row` of the prompt, for a request for logits; an error if one is no number.
    pub fn logits(&mut self, row: usize, values: &[f32]) -> Result<Next, Error> {
        if let Some(token) = values.iter().position(|x| !x.is_finite()) {
            let value = values[token];
            return Err(SamplingError::NonFinite { token, value }.into());
        }
        let sent = self.send(Event::Logits {
            row,
            values: values.to_vec(),
        });
        if row + 1 < self.prompt_n || sent == Next::End {
            return Ok(sent);
        }
        Ok(self.done(FinishReason::Length, String::new()))
    }

    /// Whether this is a request for logits.
    pub fn is_logits(&self) -> bool {
        self.answer.is_none()
    }

    /// Chooses the next token from logits `[n_vocab]`, says it, and decides whether to go on.
    pub fn choose(
        &mut self,
        logits: &mut [f32],
        tokenizer: &Tokenizer,
        n_ctx: usize,
    ) -> Result<Next, Error> {
        let Some(a) = &mut self.answer else {
            return Ok(Next::End);
        };
        if a.params.n_predict == Some(0) {
            return Ok(self.done(FinishReason::Length, String::new()));
        }
        let position = self.tokens.len() as u64;
        let id = a.sampler.sample(logits, position)?;
        a.sampler.accept(id);
        self.tokens.push(id);
        a.count += 1;
        if tokenizer.is_eog(id) && !a.params.ignore_eos {
            let mut tail = a.stop.push(&a.decoder.finish());
            tail.text.push_str(&a.stop.finish());
            // The token counts, but has no text.
            self.send(Event::Token {
                id,
                text: String::new(),
            });
            return Ok(self.done(FinishReason::Stop, tail.text));
        }
        let piece = a.decoder.push(id);
        let out = a.stop.push(&piece);
        let full = a.params.n_predict.is_some_and(|n| a.count >= n) || self.tokens.len() > n_ctx;
        let tail = match (out.stop.is_some(), full) {
            (false, true) => {
                let mut tail = a.stop.push(&a.decoder.finish());
                if tail.stop.is_none() {
                    tail.text.push_str(&a.stop.finish());
                }
                Some((
                    if tail.stop.is_some() {
                        FinishReason::Stop
                    } else {
                        FinishReason::Length
                    },
                    tail.text,
                ))
            }
            (true, _) => Some((FinishReason::Stop, String::new())),
            (false, false) => None,
        };
        let sent = self.send(Event::Token { id, text: out.text });
        Ok(match tail {
            Some((reason, text)) => self.done(reason, text),
            None => sent,
        })
    }

    fn done(&self, reason: FinishReason, text: String) -> Next {
        let now = Instant::now();
        let prompt_done = self.prompt_done.unwrap_or(now);
        let timings = Timings {
            prompt_n: self.prompt_n,
            prompt: prompt_done - self.started,
            predicted_n: self.answer.as_ref().map_or(0, |a| a.count),
            predicted: now - prompt_done,
        };
        self.send(Event::Done(Done {
            reason,
            text,
            timings,
        }));
        Next::End
    }
}
