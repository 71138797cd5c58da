//! One request under way: its tokens, its pages, what it wants and what it has said.

use std::cell::Cell;
use std::time::Instant;

use super::EngineError;
use super::answer::Answer;
use super::embed::Pool;
use super::events::Events;
use super::request::{Done, Event, FinishReason, Timings};
use super::session::Content;
use super::speculate::Speculation;
use crate::Error;
use crate::graph::{GraphKind, PAGE};
use crate::kv::SeqPages;
use crate::sampling::{SamplingError, log_probs};
use crate::tokenizer::Tokenizer;
use std::sync::Arc;

/// What a sequence is run for.
pub(super) enum Want {
    /// The text that continues it.
    Answer(Box<Answer>),
    /// Its logits, after each token or the last.
    Logits {
        /// After each one.
        all: bool,
    },
    /// One vector.
    Embedding(Pool),
}

/// A request under way.
pub(super) struct Sequence {
    /// Prompt, then answer.
    pub tokens: Vec<u32>,
    /// Slots of the KV that hold its tokens.
    pub n_past: usize,
    /// Tokens that shifts of the context have dropped.
    pub dropped: usize,
    /// Where its KV lies.
    pub pages: SeqPages,
    /// Content for its pages, to be written before it goes on.
    pub content: Option<Arc<Content>>,
    pub want: Want,
    pub priority: i32,
    /// Counts up with every request; lower is older.
    pub arrival: u64,
    pub no_cache: bool,
    /// It has had a place before: the queue does not count it any more.
    pub begun: bool,
    /// Which one, the last time.
    pub place: Option<usize>,
    /// Tokens guessed for the step that is planned.
    pub guesses: Vec<u32>,
    /// It has rows in the pass that runs.
    pub in_step: bool,
    pub prompt_n: usize,
    pub cached_n: usize,
    /// Prompt rows before this one have been told of.
    told: usize,
    events: Events,
    /// It was told how it ended.
    ended: Cell<bool>,
    submitted: Instant,
    started: Option<Instant>,
    prompt_done: Option<Instant>,
}

/// Whether a sequence goes on.
#[derive(Debug)]
pub(super) enum Next {
    /// Another step, please.
    Step,
    /// It has ended; this text was held back.
    End(FinishReason, String),
}

impl Sequence {
    /// A checked request. `tokens` are those of its session, then its prompt.
    pub fn new(tokens: Vec<u32>, want: Want, events: Events) -> Sequence {
        Sequence {
            prompt_n: tokens.len(),
            tokens,
            n_past: 0,
            dropped: 0,
            pages: SeqPages::default(),
            content: None,
            want,
            priority: 0,
            arrival: 0,
            no_cache: false,
            begun: false,
            place: None,
            guesses: Vec::new(),
            in_step: false,
            cached_n: 0,
            told: 0,
            events,
            ended: Cell::new(false),
            submitted: Instant::now(),
            started: None,
            prompt_done: None,
        }
    }

    /// What is computed for it.
    pub fn kind(&self) -> GraphKind {
        match self.want {
            Want::Embedding(_) => GraphKind::Embeddings,
            _ => GraphKind::Logits,
        }
    }

    /// Tokens that are not in the KV.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.dropped - self.n_past
    }

    /// Whether all but the newest token is in the KV, and that one follows a prompt that was answered.
    pub fn decodes(&self) -> bool {
        self.pending() == 1 && self.tokens.len() > self.prompt_n
    }

    /// The answer, if that is what it wants.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.want {
            Want::Answer(a) => Some(a),
            _ => None,
        }
    }

    /// The same, to change it.
    pub fn answer_mut(&mut self) -> Option<&mut Answer> {
        match &mut self.want {
            Want::Answer(a) => Some(a),
            _ => None,
        }
    }

    /// Whether a full context is shifted, not the end.
    pub fn shifts(&self) -> bool {
        self.answer().is_some_and(|a| a.params.context_shift)
    }

    /// First pages that a shift keeps.
    pub fn keep_pages(&self) -> usize {
        match self.answer() {
            Some(a) if a.params.context_shift => a.params.n_keep.div_ceil(PAGE),
            _ => 0,
        }
    }

    /// Where its guesses come from.
    pub fn speculation(&self) -> Speculation {
        self.answer()
            .map_or(Speculation::None, |a| a.params.speculation)
    }

    /// Of the next `rows` tokens, how many of the last are asked for.
    pub fn asked(&self, rows: usize) -> usize {
        let start = self.n_past + self.dropped;
        let end = start + rows;
        let all = match &self.want {
            Want::Answer(a) => a.params.prompt_logprobs.is_some() && self.told + 1 < self.prompt_n,
            Want::Logits { all } => *all,
            Want::Embedding(_) => true,
        };
        match all {
            true => end - start.max(self.told).min(end),
            false => usize::from(end >= self.tokens.len()),
        }
    }

    /// How many prompt tokens pages may hold already: never the last, and none whose logits are wanted.
    pub fn cache_limit(&self) -> usize {
        let all = match &self.want {
            Want::Answer(a) => a.params.prompt_logprobs.is_some(),
            Want::Logits { all } => *all,
            Want::Embedding(_) => true,
        };
        match self.no_cache || all {
            true => 0,
            false => self.tokens.len() - 1,
        }
    }

    /// It has a place; `cached` tokens need not be computed.
    pub fn start(&mut self, cached: usize) {
        self.n_past = cached;
        if self.started.is_none() {
            self.started = Some(Instant::now());
            self.cached_n = cached;
        }
    }

    /// Whether nobody listens any more.
    pub fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Says something. That nobody listens any more shows at the next step's start.
    pub fn say(&self, event: Event) {
        self.events.send(event);
    }

    /// After a step that left `n_past` behind it: says how far the prompt is. `true` once, at its end.
    pub fn prompt_progress(&mut self) -> bool {
        let done = self.n_past + self.dropped;
        if done > self.prompt_n || self.prompt_done.is_some() {
            return false;
        }
        if done == self.prompt_n {
            self.prompt_done = Some(Instant::now());
        }
        self.say(Event::Prompt {
            done,
            total: self.prompt_n,
        });
        done == self.prompt_n
    }

    /// What the model says after token `row`: logits `[n_vocab]`, or the hidden state `[n_embd]`.
    ///
    /// # Errors
    /// A value that is no number; what the sampler refuses.
    pub fn output(
        &mut self,
        row: usize,
        values: &mut [f32],
        tokenizer: &Tokenizer,
        n_ctx: usize,
    ) -> Result<Next, Error> {
        let last = row + 1 == self.prompt_n;
        match &mut self.want {
            Want::Answer(a) => {
                if row + 1 < self.prompt_n {
                    let top = a.params.prompt_logprobs.unwrap_or(0);
                    let logprobs = log_probs(values, self.tokens[row + 1], top)?;
                    self.told = row + 1;
                    let row = row + 1;
                    self.say(Event::PromptLogProbs { row, logprobs });
                    return Ok(Next::Step);
                }
                return self.choose(values, tokenizer, n_ctx);
            }
            Want::Logits { .. } => {
                check_finite(values)?;
                let values = values.to_vec();
                self.say(Event::Logits { row, values });
            }
            Want::Embedding(pool) => {
                check_finite(values)?;
                pool.push(values);
                if last {
                    let values = pool.finish();
                    self.say(Event::Embedding { values });
                }
            }
        }
        self.told = row + 1;
        Ok(match last {
            true => Next::End(FinishReason::Length, String::new()),
            false => Next::Step,
        })
    }

    /// Chooses the next token, says it, and decides whether to go on.
    fn choose(
        &mut self,
        logits: &mut [f32],
        tokenizer: &Tokenizer,
        n_ctx: usize,
    ) -> Result<Next, Error> {
        let position = self.tokens.len();
        // The last token needs no slot: its successors do.
        let room = match self.shifts() {
            true => None,
            false => Some(n_ctx.saturating_sub(position - self.dropped)),
        };
        let Want::Answer(answer) = &mut self.want else {
            return Ok(Next::Step);
        };
        let said = answer.choose(logits, position, tokenizer, room)?;
        self.tokens.extend(said.id);
        if let Some(event) = said.event {
            self.say(event);
        }
        Ok(match said.end {
            Some((reason, text)) => Next::End(reason, text),
            None => Next::Step,
        })
    }

    /// Says why it could not go on.
    pub fn fail(&self, error: Error) {
        self.ended.set(true);
        self.say(Event::Error(error));
    }

    /// Says how it ended.
    pub fn finish(&self, reason: FinishReason, text: String) {
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let prompt_done = self.prompt_done.unwrap_or(now);
        let answer = self.answer();
        let timings = Timings {
            queued: started - self.submitted,
            prompt_n: self.prompt_n,
            cached_n: self.cached_n,
            prompt: prompt_done.saturating_duration_since(started),
            predicted_n: answer.map_or(0, |a| a.count),
            predicted: now - prompt_done,
            drafted_n: answer.map_or(0, |a| a.drafted),
            accepted_n: answer.map_or(0, |a| a.accepted),
        };
        self.ended.set(true);
        self.say(Event::Done(Done {
            reason,
            stop: answer.and_then(|a| a.stop()).map(str::to_owned),
            text,
            held: answer.map_or(String::new(), |a| a.held().shown()),
            timings,
            place: self.place,
        }));
    }
}

/// However a sequence is lost, its stream hears of an end.
impl Drop for Sequence {
    fn drop(&mut self) {
        if !self.ended.get() {
            self.say(Event::Error(EngineError::Lost.into()));
        }
    }
}

fn check_finite(values: &[f32]) -> Result<(), SamplingError> {
    match values.iter().position(|x| !x.is_finite()) {
        Some(token) => Err(SamplingError::NonFinite {
            token,
            value: values[token],
        }),
        None => Ok(()),
    }
}
