//! Model, Engine, Request, Event: what run, chat and the server drive.
//!
//! An [`Engine`] owns a model's weights (packed by its backends), its KV pages and a thread. A
//! [`Request`] goes in, a stream of [`Event`]s comes out; dropping the stream cancels the request
//! within one step. Requests wait in a bounded queue (`queue`); each turn of the thread (`core`) gives places
//! to who waits (`admit`), plans one batch (`plan`), runs it and hands every sequence what the pass made for
//! it (`step`).

mod admit;
mod answer;
mod batch;
mod check;
mod compiler;
mod core;
mod draft;
mod embed;
mod events;
mod handle;
mod measure;
mod memory;
mod model;
mod options;
mod pace;
mod plan;
mod queue;
mod reading;
mod request;
#[cfg(test)]
mod schedule_tests;
mod sequence;
mod session;
mod session_file;
mod shift;
mod speculate;
mod stats;
mod step;
mod sync;
mod work;

pub use embed::{Embed, Pooling};
pub use events::EventStream;
pub use handle::Engine;
pub use measure::{Measure, Measured};
pub use model::Model;
pub use options::{EngineOptions, MAX_SEQS, default_n_ctx};
pub use reading::{Part, Reader, Reading};
pub use request::{Done, Event, FinishReason, Generate, Request, Task, Timings};
pub use session::{Session, SessionError};
pub use speculate::Speculation;
pub use stats::{Places, Stats, Step};
pub use work::Work;

use crate::words::{count, size, size_or_more};

/// Why a request or an engine is refused.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The prompt is longer than the context.
    #[error("the prompt has {}, the context {n_ctx}: {}", count(*prompt, "token"), way_out(*n_ctx, *limit))]
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
        "{} of depth and {tokens} measured ones are {}, the context has {n_ctx}", count(*depth, "token"), depth + tokens
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
    /// Not even one sequence of the context fits into the memory for KV.
    #[error(
        "a context of {} needs at least {} of KV, --kv-memory gives {}: raise it, lower --n-ctx, or \
         use --cache-type-k and -v q8_0", count(*n_ctx, "token"), size_or_more(*need), size(*limit)
    )]
    KvMemory {
        /// Bytes of one sequence's pages.
        need: u64,
        /// Bytes there are.
        limit: u64,
        /// Positions of the context.
        n_ctx: usize,
    },
    /// The memory for KV is more than there can ever be.
    #[error(
        "--kv-memory is {}, this machine has {} of memory: lower it, or leave it out (KV takes what the context needs)",
        size(*kv), size(*limit)
    )]
    KvMemoryTooLarge {
        /// Bytes asked for.
        kv: u64,
        /// Bytes of memory.
        limit: u64,
    },
    /// More than the machine has.
    #[error(
        "{} of weights and {} of KV do not fit into {} of memory: lower --n-ctx, use --kv-memory, or \
         --no-pack", size(*weights), size(*kv), size(*limit)
    )]
    Memory {
        /// Bytes of packed weights.
        weights: u64,
        /// Bytes of KV.
        kv: u64,
        /// Bytes of memory.
        limit: u64,
    },
    /// More pages of KV than can be told apart.
    #[error(
        "the context needs {pages} pages of {} tokens each, {max} can be told apart: lower --n-ctx",
        crate::graph::PAGE
    )]
    Pages {
        /// Pages of all sequences.
        pages: usize,
        /// The most there can be.
        max: usize,
    },
    /// The draft model's tokens are not the model's.
    #[error("{}: no draft for this model: {reason}", draft.display())]
    DraftVocabulary {
        /// The draft model's file.
        draft: std::path::PathBuf,
        /// The first difference.
        reason: String,
    },
    /// A request wants drafts, and there is no draft model.
    #[error("the engine has no draft model")]
    NoDraft,
    /// A budget of reasoning, and nothing tells what is reasoning.
    #[error(
        "reasoning_budget can't be held: the answer's reading does not tell reasoning; leave the budget out"
    )]
    BudgetWithoutReasoning,
    /// A shift would have nothing to drop.
    #[error(
        "a context of {} can't be shifted when {n_keep} of them are kept: lower n_keep", count(*n_ctx, "token")
    )]
    NothingToShift {
        /// First tokens to keep.
        n_keep: usize,
        /// Positions of the context.
        n_ctx: usize,
        /// Positions that the model was trained for.
        limit: usize,
    },
    /// A chat template hides what an assistant said: there is no telling where a turn begins.
    #[error(
        "the chat template does not show earlier answers: the conversation can't go on turn by turn"
    )]
    NoTurn,
    /// Only a generation goes on from a session.
    #[error(
        "a session can only be continued: logits, embeddings and log-probabilities of its prompt are gone"
    )]
    SessionTask,
    /// The file asks for a pooling that this engine has not.
    #[error("{key} is {value}: this engine has 1 (mean), 2 (cls) and 3 (last)")]
    Pooling {
        /// The metadata key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A defect of minfer, or the engine is gone: nothing more will be said.
    #[error("the request was lost before its end")]
    Lost,
    /// A step in which this request had a part has failed.
    #[error("the step failed: {message}")]
    Step {
        /// What the first of its requests was told.
        message: String,
    },
    /// The queue of requests is full.
    #[error("the engine's queue is full ({} waiting): try again later", count(*waiting, "request"))]
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
