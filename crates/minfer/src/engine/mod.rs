//! Model, Engine, Request, Event: what run, chat and the server drive.
//!
//! An [`Engine`] owns a model's weights (packed by its backends), its KV pages and a thread. A
//! [`Request`] goes in, a stream of [`Event`]s comes out; dropping the stream cancels the request
//! within one step. One sequence runs at a time for now; the others wait in a bounded queue.

mod batch;
mod core;
mod handle;
mod measure;
mod model;
mod options;
mod request;
#[cfg(test)]
mod schedule_tests;
mod sequence;
mod work;

pub use handle::{Engine, EventStream};
pub use measure::{Measure, Measured};
pub use model::Model;
pub use options::{EngineOptions, MAX_SEQS, default_n_ctx};
pub use request::{Done, Event, FinishReason, Generate, Request, Task, Timings};
pub use work::Work;

/// Why a request or an engine is refused.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The prompt is longer than the context.
    #[error("the prompt has {prompt} tokens, the context {n_ctx}: {}", way_out(*n_ctx, *limit))]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions of the context.
        n_ctx: usize,
        /// Positions that the model was trained for.
        limit: usize,
    },
    /// A measurement needs more positions than a sequence has.
    #[error(
        "{depth} tokens of depth and {tokens} measured ones are {}, the context has {n_ctx}", depth + tokens
    )]
    MeasureTooLong {
        /// Tokens before the clock starts.
        depth: usize,
        /// Tokens after that.
        tokens: usize,
        /// Positions of the context.
        n_ctx: usize,
    },
    /// The prompt has no token.
    #[error("the prompt is empty: there is nothing to continue")]
    EmptyPrompt,
    /// A token of the prompt is none of the model's.
    #[error("token id {id} is not in the vocabulary of {n_vocab}")]
    TokenOutOfRange {
        /// The token.
        id: u32,
        /// Tokens there are.
        n_vocab: usize,
    },
    /// An option of the engine is out of its range.
    #[error("{name} is {value}: it must lie between {min} and {max}")]
    OptionOutOfRange {
        /// The option.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The least it can be.
        min: usize,
        /// The most it can be.
        max: usize,
    },
    /// A KV format keeps blocks of channels that this model's heads are no multiple of.
    #[error(
        "a {part} cache of type {} keeps blocks of {} channels, and this model's head_dim is \
         {head_dim}: use f16 or f32", ty.name(), ty.block()
    )]
    KvBlocks {
        /// Of keys or of values.
        part: &'static str,
        /// The format asked for.
        ty: crate::graph::KvType,
        /// Channels of a head.
        head_dim: usize,
    },
    /// The queue of requests is full.
    #[error("the engine's queue is full ({waiting} requests wait): try again later")]
    QueueFull {
        /// Requests in it.
        waiting: usize,
    },
    /// The engine's thread has ended.
    #[error("the engine has stopped")]
    Stopped,
    /// A defect of minfer: the engine goes on without the request.
    #[error("internal error, the request is lost, the engine goes on: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
}

/// What to do about a prompt that is too long.
fn way_out(n_ctx: usize, limit: usize) -> String {
    match n_ctx < limit {
        true => format!("raise --n-ctx (the model's limit is {limit}) or shorten the prompt"),
        false => "shorten the prompt (more is beyond the model's limit)".to_owned(),
    }
}
