//! What goes into an engine and what comes out.

use std::time::Duration;

use super::measure::{Measure, Measured};
use crate::Error;
use crate::sampling::SamplerParams;

/// One piece of work: a prompt and what to do with it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids, as the tokenizer made them; nothing is added. Not used by a measurement.
    pub prompt: Vec<u32>,
    /// What is wanted.
    pub task: Task,
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
    /// How long forward passes take; dropping the stream ends it after the repetition under way.
    Measure(Measure),
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
    /// End-of-generation tokens are tokens like any other.
    pub ignore_eos: bool,
    /// Which of several answers to one prompt: its draws are its own.
    pub choice: u32,
}

impl Default for Generate {
    fn default() -> Generate {
        Generate {
            sampling: SamplerParams::default(),
            n_predict: Some(512),
            stop: Vec::new(),
            ignore_eos: false,
            choice: 0,
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
    },
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
    /// Text that was held back until now.
    pub text: String,
    /// How long it took.
    pub timings: Timings,
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

/// Wall times of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Prompt tokens.
    pub prompt_n: usize,
    /// From the first chunk's start to the prompt's last logits.
    pub prompt: Duration,
    /// Generated tokens.
    pub predicted_n: usize,
    /// From the prompt's last logits to the end.
    pub predicted: Duration,
}
