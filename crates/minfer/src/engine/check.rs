//! Whether a request can be served at all: what can be said before any weight is loaded, and before a constraint is compiled.

use super::measure::Measure;
use super::options::within;
use super::request::{Generate, Request, Task};
use super::speculate::Speculation;
use super::{EngineError, EngineOptions, Model};
use crate::Error;
use crate::graph::PAGE;

impl Request {
    /// Whether an engine of this model and these options could serve it: what can be said before the weights are loaded.
    ///
    /// # Errors
    /// As [`super::Engine::submit`], but for the constraint, the queue, and sizes that only the loaded engine knows.
    pub fn check(&self, model: &Model, options: &EngineOptions) -> Result<(), Error> {
        request(self, model, options, None)
    }
}

/// See [`Request::check`]; `page_bytes` as for a session's check.
pub(super) fn request(
    request: &Request,
    model: &Model,
    options: &EngineOptions,
    page_bytes: Option<[usize; 2]>,
) -> Result<(), Error> {
    if let Task::Measure(m) = &request.task {
        return Ok(measure(m, options)?);
    }
    let (n_ctx, h) = (options.n_ctx, model.hparams());
    let mut held = 0;
    if let Some(session) = &request.session {
        session.check(model, options, page_bytes)?;
        held = session.positions();
    }
    let prompt = request.prompt.len() + held;
    if prompt == 0 {
        return Err(EngineError::EmptyPrompt.into());
    }
    // A session may be full, and shift.
    let shifts = held > 0 && matches!(&request.task, Task::Generate(g) if g.context_shift);
    if prompt > n_ctx && !shifts {
        let limit = h.n_ctx_train;
        return Err(EngineError::PromptTooLong {
            prompt,
            n_ctx,
            limit,
        }
        .into());
    }
    if let Some(id) = request.prompt.iter().find(|t| **t as usize >= h.n_vocab) {
        let (id, n_vocab) = (*id, h.n_vocab);
        return Err(EngineError::TokenOutOfRange { id, n_vocab }.into());
    }
    match &request.task {
        Task::Generate(g) => {
            check_shift(g, n_ctx, h.n_ctx_train)?;
            Ok(generate(g, options, request.session.is_some())?)
        }
        _ if request.session.is_some() => Err(EngineError::SessionTask.into()),
        _ => Ok(()),
    }
}

/// A shift has something to drop, in a context of `n_ctx` positions; the model may have up to `limit`.
fn check_shift(g: &Generate, n_ctx: usize, limit: usize) -> Result<(), EngineError> {
    let n_keep = g.n_keep;
    match g.context_shift && n_keep.div_ceil(PAGE) + 2 > n_ctx / PAGE {
        true => Err(EngineError::NothingToShift {
            n_keep,
            n_ctx,
            limit,
        }),
        false => Ok(()),
    }
}

fn generate(g: &Generate, options: &EngineOptions, session: bool) -> Result<(), EngineError> {
    if g.speculation == Speculation::Draft && options.draft.is_none() {
        return Err(EngineError::NoDraft);
    }
    let reasoning = g.reading.as_ref().and_then(|r| r.reasoning);
    if g.reasoning_budget.is_some() && reasoning.is_none() {
        return Err(EngineError::BudgetWithoutReasoning);
    }
    match session && g.prompt_logprobs.is_some() {
        true => Err(EngineError::SessionTask),
        false => Ok(()),
    }
}

fn measure(m: &Measure, options: &EngineOptions) -> Result<(), EngineError> {
    within("n_seqs", m.n_seqs, options.n_seqs)?;
    within("repetitions", m.repetitions, usize::MAX)?;
    if m.logits {
        within("n_gen", m.n_gen, usize::MAX)?;
    }
    let (depth, n_ctx) = (m.depth, options.n_ctx);
    let tokens = m.n_prompt.saturating_add(m.n_gen);
    within("n_prompt + n_gen", tokens, usize::MAX)?;
    match depth.saturating_add(tokens) > n_ctx {
        true => Err(EngineError::MeasureTooLong {
            depth,
            tokens,
            n_ctx,
        }),
        false => Ok(()),
    }
}
