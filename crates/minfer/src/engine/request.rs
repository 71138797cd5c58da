//! What goes into an engine and what comes out.

use std::sync::Arc;
use std::time::Duration;

use super::embed::Embed;
use super::measure::{Measure, Measured};
use super::reading::Reading;
use super::session::Session;
use super::speculate::Speculation;
use crate::Error;
use crate::sampling::{ConstraintSpec, LogProbs, SamplerParams};

/// One piece of work: a prompt and what to do with it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Token ids, as the tokenizer made them; nothing is added. Not used by a measurement. With a session: what
    /// follows its tokens, which may be nothing.
    pub prompt: Vec<u32>,
    /// What is wanted.
    pub task: Task,
    /// Higher goes first: into the engine, through the prompt, and back to memory when that is short.
    pub priority: i32,
    /// Compute the whole prompt, even where pages of earlier ones hold its beginning. The bits are the same.
    pub no_cache: bool,
    /// Go on where a saved sequence ended: nothing of it is computed again.
    pub session: Option<Arc<Session>>,
}

impl Request {
    /// With default priority, sharing what earlier prompts have left, without a session.
    pub fn new(prompt: Vec<u32>, task: Task) -> Request {
        Request {
            prompt,
            task,
            ..Request::default()
        }
    }
}

/// What a request wants of its prompt.
#[derive(Clone, Debug)]
pub enum Task {
    /// Continue it.
    Generate(Generate),
    /// The logits after its last token, or after each one.
    Logits {
        /// After each one.
        all: bool,
    },
    /// One vector for the whole prompt.
    Embed(Embed),
    /// How long forward passes take; dropping the stream ends it after the repetition under way.
    Measure(Measure),
}

impl Default for Task {
    /// A generation with its defaults.
    fn default() -> Task {
        Task::Generate(Generate::default())
    }
}

/// How to continue a prompt.
#[derive(Clone, Debug)]
pub struct Generate {
    /// The sampler chain.
    pub sampling: SamplerParams,
    /// At most so many tokens; `None`: until the context is full.
    pub n_predict: Option<usize>,
    /// Text that ends the answer; it is not part of it.
    pub stop: Vec<String>,
    /// How the answer is read: stop strings are then looked for in its content alone, and the answer's text goes on to the end of the token that
    /// completes one; a [`super::Reader`] of the same reading and strings ends where they say. `None`: all of the text is content.
    pub reading: Option<Reading>,
    /// After so many tokens of reasoning its closing tag comes. Needs a reading that tells reasoning; without one the request is refused
    /// ([`super::EngineError::BudgetWithoutReasoning`]).
    pub reasoning_budget: Option<usize>,
    /// End-of-generation tokens are tokens like any other.
    pub ignore_eos: bool,
    /// Control tokens whose text is part of the answer's, such as those that set tool calls or reasoning apart; of all
    /// others nothing is seen.
    pub shown: Vec<u32>,
    /// Which of several answers to one prompt: its draws are its own.
    pub choice: u32,
    /// Limits what may be said. Compiled when the request is submitted.
    pub constraint: Option<ConstraintSpec>,
    /// Log-probabilities of each token said, and of so many likeliest beside it.
    pub logprobs: Option<usize>,
    /// The same of the prompt's tokens from the second on: [`Event::PromptLogProbs`].
    pub prompt_logprobs: Option<usize>,
    /// When the context is full, forget the older half of what comes after `n_keep` tokens and go on; else
    /// the answer ends with [`FinishReason::Length`].
    pub context_shift: bool,
    /// First tokens that a shift keeps, rounded up to whole pages.
    pub n_keep: usize,
    /// Where guesses of the next tokens come from, which one pass verifies together. The answer is the same.
    pub speculation: Speculation,
    /// At the end, hand the sequence out: [`Event::Session`]. An answer that ends at its length does not say what is
    /// held back then: see [`Done::held`].
    pub save: bool,
}

impl Default for Generate {
    fn default() -> Generate {
        Generate {
            sampling: SamplerParams::default(),
            n_predict: Some(512),
            stop: Vec::new(),
            reading: None,
            reasoning_budget: None,
            ignore_eos: false,
            shown: Vec::new(),
            choice: 0,
            constraint: None,
            logprobs: None,
            prompt_logprobs: None,
            context_shift: false,
            n_keep: 0,
            speculation: Speculation::None,
            save: false,
        }
    }
}

/// What an engine says while it works on a request; [`Event::Done`] or [`Event::Error`] is last.
#[derive(Debug)]
pub enum Event {
    /// So much of the prompt is in.
    Prompt {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// A token was chosen. `text` is what can be shown now: it may be empty while a character or
    /// a possible stop string is incomplete, and later hold more than this token's own.
    Token {
        /// Its id.
        id: u32,
        /// New text.
        text: String,
        /// Of this token, where they were asked for.
        logprobs: Option<LogProbs>,
    },
    /// Log-probabilities of prompt token `row` (from 1 on) after those before it.
    PromptLogProbs {
        /// Index into the prompt.
        row: usize,
        /// Its own, and the likeliest.
        logprobs: LogProbs,
    },
    /// The prompt's vector, `[n_embd]`.
    Embedding {
        /// One a channel.
        values: Vec<f32>,
    },
    /// The whole sequence as it is now, to go on with later. Comes before [`Event::Done`].
    Session(Arc<Session>),
    /// Logits after prompt token `row`, `[n_vocab]`.
    Logits {
        /// Index into the prompt.
        row: usize,
        /// One a vocabulary entry.
        values: Vec<f32>,
    },
    /// One repetition of a measurement.
    Measured(Measured),
    /// The end.
    Done(Done),
    /// The end, with a failure.
    Error(Error),
}

/// How a request ended.
#[derive(Clone, Debug)]
pub struct Done {
    /// Why.
    pub reason: FinishReason,
    /// The stop string that ended it; `None`: something else did.
    pub stop: Option<String>,
    /// Text that was held back until now.
    pub text: String,
    /// Text that stays held back, in the session that was saved ([`Generate::save`]): it may be the beginning of a stop
    /// string, or of a character (U+FFFD then). An answer that goes on from the session says it, or what it became.
    pub held: String,
    /// How long it took.
    pub timings: Timings,
    /// The place in the batch that it had last ([`super::Stats::places`]); a measurement has none.
    pub place: Option<usize>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-generation token or a stop string.
    Stop,
    /// `n_predict` tokens, or the context is full.
    Length,
}

impl FinishReason {
    /// The name clients know.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
        }
    }
}

/// Wall times of one request, and what was spared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// From the submission to the first chunk's start.
    pub queued: Duration,
    /// Prompt tokens.
    pub prompt_n: usize,
    /// Those of them that pages of earlier prompts, or the session, held already.
    pub cached_n: usize,
    /// From the first chunk's start to the prompt's last logits.
    pub prompt: Duration,
    /// Generated tokens.
    pub predicted_n: usize,
    /// From the prompt's last logits to the end.
    pub predicted: Duration,
    /// Tokens that were guessed and verified.
    pub drafted_n: usize,
    /// Those of them that the model chose, too.
    pub accepted_n: usize,
}
