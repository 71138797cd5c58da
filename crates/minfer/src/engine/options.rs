//! How an engine is set up.

use std::sync::Arc;

use super::{EngineError, Model, memory};
use crate::graph::KvType;

/// The most sequences of a batch.
pub const MAX_SEQS: usize = 256;

/// Options of an [`super::Engine`].
#[derive(Clone)]
pub struct EngineOptions {
    /// Positions a sequence can have; fixed for the engine's life.
    pub n_ctx: usize,
    /// Sequences that are worked on at once; others wait. Each may have up to `n_ctx` positions.
    pub n_seqs: usize,
    /// Bytes for KV, shared by all sequences; at least what one of `n_ctx` positions needs, at most the machine's memory. `None`:
    /// `n_ctx` positions for each. A draft model may have as much again.
    pub kv_memory: Option<u64>,
    /// Windowed layers have as many pages as full ones: a [`super::Measure`] keeps all of its sequences' pages.
    pub whole_windows: bool,
    /// Requests that may wait.
    pub queue: usize,
    /// A smaller model of the same vocabulary that guesses tokens for requests that want it
    /// ([`super::Speculation::Draft`]).
    pub draft: Option<Arc<Model>>,
    /// Most prompt tokens in one step.
    pub n_batch: usize,
    /// Threads; `None`: one for each fast core this process may use
    /// ([`crate::backend::cpu::default_threads`]).
    pub n_threads: Option<usize>,
    /// Instruction set of the CPU backend (`scalar`, `avx2`, …); `None`: what `MINFER_CPU` names, or
    /// the fastest this CPU has. The bits are the same.
    pub cpu: Option<String>,
    /// Format of K.
    pub type_k: KvType,
    /// Format of V.
    pub type_v: KvType,
    /// Let the graph's nodes be fused. Off only to compare: the bits are the same.
    pub fuse: bool,
    /// Copy matrices into memory, packed for speed. Off: they stay in the file's mapping and are packed a few
    /// rows at a time at every use, for models larger than memory. The bits are the same.
    pub pack: bool,
    /// Keep the wall time of every node ([`super::Engine::profile`]). Passes take longer, the bits are the same.
    pub profile: bool,
    /// Backends to use, by name in any order; `None`: all there are.
    pub backends: Option<Vec<String>>,
    /// Take the vocabulary in for constraints as soon as the engine has nothing to do, on a thread of its own; else the first
    /// request with a constraint does it.
    pub constraints_ahead: bool,
    /// Build the graph again at every reuse and compare: on in debug builds, off elsewhere.
    pub check_rebuilds: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            n_ctx: 4096,
            n_seqs: 1,
            kv_memory: None,
            whole_windows: false,
            queue: 64,
            draft: None,
            n_batch: 512,
            n_threads: None,
            cpu: None,
            type_k: KvType::F16,
            type_v: KvType::F16,
            fuse: true,
            pack: true,
            profile: false,
            backends: None,
            constraints_ahead: false,
            check_rebuilds: cfg!(debug_assertions),
        }
    }
}

/// Refuses a value that is not in `1..=max`, naming its option.
pub(super) fn within(name: &'static str, value: usize, max: usize) -> Result<(), EngineError> {
    match (1..=max).contains(&value) {
        true => Ok(()),
        false => Err(EngineError::OptionOutOfRange {
            name,
            value,
            min: 1,
            max,
        }),
    }
}

impl EngineOptions {
    /// Refuses what can't be, naming the option.
    pub(super) fn check(&self, model: &Model) -> Result<(), EngineError> {
        let limit = model.hparams().n_ctx_train;
        within("n_ctx", self.n_ctx, limit)?;
        within("n_seqs", self.n_seqs, MAX_SEQS)?;
        within("n_batch", self.n_batch, 1 << 16)?;
        within("queue", self.queue, 1 << 20)?;
        memory::check_kv(self.kv_memory)?;
        self.check_formats(model)
    }

    /// Refuses formats of K and V that a model's heads do not fit.
    pub(super) fn check_formats(&self, model: &Model) -> Result<(), EngineError> {
        let head_dim = model.hparams().head_dim;
        for (part, ty) in [("key", self.type_k), ("value", self.type_v)] {
            if head_dim % ty.block() != 0 {
                return Err(EngineError::KvBlocks { part, ty, head_dim });
            }
        }
        Ok(())
    }
}

/// The context of a run whose user gave none: what prompt and answer need, at least 4096, up to the
/// model's limit. A prompt past the limit is refused with both numbers.
pub fn default_n_ctx(
    model: &Model,
    prompt: usize,
    n_predict: Option<usize>,
) -> Result<usize, EngineError> {
    const LEAST: usize = 4096;
    let limit = model.hparams().n_ctx_train;
    if prompt > limit {
        return Err(EngineError::PromptTooLong {
            prompt,
            n_ctx: limit,
            limit,
        });
    }
    // An answer without a bound gets so much room, not the model's limit: KV is memory.
    let wanted = prompt.saturating_add(n_predict.unwrap_or(LEAST));
    Ok(wanted.max(LEAST).min(limit))
}
