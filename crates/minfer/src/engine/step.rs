//! One step: plan, forward, then every sequence takes what the pass made for it.

use std::sync::{Mutex, PoisonError};

use super::EngineError;
use super::core::Core;
use super::plan::Share;
use super::request::{Event, FinishReason};
use super::sequence::{Next, Sequence};
use super::stats::Step;
use crate::Error;
use crate::graph::{GraphError, GraphKind, HostRows, LayerKind};
use crate::tokenizer::Tokenizer;

/// Sequences that have ended, by index in order, and how.
type Ended = Vec<(usize, Result<Next, Error>)>;

impl Core {
    /// A step of each kind of pass that somebody needs.
    pub(super) fn step(&mut self) {
        for kind in [GraphKind::Logits, GraphKind::Embeddings] {
            if !self.running.iter().any(|s| s.kind() == kind) {
                continue;
            }
            let shares = self.plan(kind);
            if shares.is_empty() {
                continue;
            }
            for share in &shares {
                self.running[share.seq].in_step = true;
            }
            if let Err(e) = self.pass(kind, &shares) {
                self.fail_step(e);
            }
            self.running.iter_mut().for_each(|s| s.in_step = false);
        }
    }

    fn pass(&mut self, kind: GraphKind, shares: &[Share]) -> Result<(), Error> {
        let _span = tracing::debug_span!("step", ?kind, sequences = shares.len()).entered();
        self.batch.clear();
        for share in shares {
            let s = &self.running[share.seq];
            let first = s.n_past + s.dropped;
            let known = s.tokens[first..].iter().copied();
            let ids = known.chain(s.guesses.iter().copied()).take(share.rows);
            self.batch.push(ids, s.n_past, share.asked, &s.pages);
        }
        let (passed, forward) = self.clocked(|core| {
            let _span = tracing::debug_span!("forward").entered();
            core.forward(kind)
        });
        passed?;
        let (ended, sample) = self.clocked(|core| {
            let _span = tracing::debug_span!("sample").entered();
            core.take_outputs(shares)
        });
        let ended = ended?;
        self.count(shares, forward, sample);
        for (i, end) in ended.into_iter().rev() {
            self.end(i, end);
        }
        Ok(())
    }

    /// Every sequence takes its rows. Who has ended, by index in order, and how.
    ///
    /// # Errors
    /// The rows can't be had, of none of them.
    fn take_outputs(&mut self, shares: &[Share]) -> Result<Ended, Error> {
        let mut ended = Vec::new();
        for (share, taken) in shares.iter().zip(self.choose(shares)?) {
            match taken.map(|taken| self.keep(share, taken)) {
                Ok(Next::Step) => {}
                end => ended.push((share.seq, end)),
            }
        }
        Ok(ended)
    }

    /// What every sequence makes of its rows: several at once, where the backend has threads. None looks at another, so the
    /// order changes nothing.
    fn choose(&mut self, shares: &[Share]) -> Result<Vec<Result<Taken, Error>>, Error> {
        let parts: Vec<usize> = shares.iter().map(|s| s.asked).collect();
        let mut running = self.running.iter_mut().enumerate();
        let mut jobs = Vec::with_capacity(shares.len());
        for share in shares {
            // Shares are in order of the sequences.
            if let Some((_, seq)) = running.find(|(i, _)| *i == share.seq) {
                jobs.push(Mutex::new((seq, share, None)));
            }
        }
        let (tokenizer, n_ctx) = (self.model.tokenizer(), self.n_ctx);
        let work = |i: usize, rows: Result<HostRows<'_>, GraphError>| {
            let mut job = jobs[i].lock().unwrap_or_else(PoisonError::into_inner);
            let (seq, share, taken) = &mut *job;
            *taken = Some(take(seq, share, rows, tokenizer, n_ctx));
        };
        self.scheduler.output_parts(&parts, &mut self.row, &work)?;
        let taken = jobs.into_iter().map(|job| {
            let (.., taken) = job.into_inner().unwrap_or_else(PoisonError::into_inner);
            taken.unwrap_or_else(|| Err(EngineError::Lost.into()))
        });
        Ok(taken.collect())
    }

    /// What a sequence has made of its rows counts, and its pages are what they hold now.
    fn keep(&mut self, share: &Share, taken: Taken) -> Next {
        let s = &mut self.running[share.seq];
        if let Some(answer) = s.answer_mut().filter(|_| taken.guessed > 0) {
            answer.depth.note(taken.guessed, taken.right);
            answer.drafted += taken.guessed;
            answer.accepted += taken.right;
            self.stats.drafted_tokens += taken.guessed as u64;
            self.stats.accepted_tokens += taken.right as u64;
        }
        self.kv.learn(&mut s.pages, &s.tokens, s.n_past);
        if taken.prompt_ends {
            self.kv.learn_begun(&mut s.pages, &s.tokens, s.n_past);
        }
        let keep = s.keep_pages();
        self.kv.trim(&mut s.pages, s.n_past, keep);
        taken.next
    }

    /// A sequence's end: its session if that is wanted, the last word, its pages.
    fn end(&mut self, i: usize, end: Result<Next, Error>) {
        let mut seq = self.running.remove(i);
        let saved = match seq.answer().is_some_and(|a| a.params.save) && end.is_ok() {
            true => self.in_hand(&mut seq, |core, seq| core.save(seq)).map(Some),
            false => Ok(None),
        };
        match end.and_then(|next| Ok((next, saved?))) {
            Ok((next, session)) => {
                let (reason, text) = match next {
                    Next::End(reason, text) => (reason, text),
                    Next::Step => (FinishReason::Length, String::new()),
                };
                if let Some(session) = session {
                    seq.say(Event::Session(session));
                }
                self.stats.finished += 1;
                seq.finish(reason, text);
            }
            Err(e) => {
                // What a failed sequence has computed last is not to be believed by others.
                self.fail(&seq, e);
                seq.n_past = 0;
            }
        }
        let pages = std::mem::take(&mut seq.pages);
        self.kv.release(pages, &seq.tokens, seq.n_past);
    }

    /// A pass has failed: so have all sequences that had rows in it, and nobody else.
    fn fail_step(&mut self, error: Error) {
        let message = error.to_string();
        let mut error = Some(error);
        for i in (0..self.running.len()).rev() {
            if !self.running[i].in_step {
                continue;
            }
            let mut seq = self.running.remove(i);
            let message = message.clone();
            let own = error.take();
            self.fail(&seq, own.unwrap_or(EngineError::Step { message }.into()));
            // As in `end`: what it has computed last is not to be believed by others.
            seq.n_past = 0;
            let pages = std::mem::take(&mut seq.pages);
            self.kv.release(pages, &seq.tokens, seq.n_past);
        }
    }

    fn count(
        &mut self,
        shares: &[Share],
        forward: std::time::Duration,
        sample: std::time::Duration,
    ) {
        let mut step = Step {
            sequences: shares.len(),
            forward,
            sample,
            ..Step::default()
        };
        for share in shares {
            match share.decodes {
                true => step.decode_rows += share.rows,
                false => step.prompt_rows += share.rows,
            }
            let chosen = self.running[share.seq].answer().map_or(0, |a| a.count);
            self.stats.predicted_tokens += (chosen - share.chosen) as u64;
        }
        self.pace
            .note(step.decode_rows, step.prompt_rows, forward + sample);
        self.stats.add(step);
        tracing::trace!(
            sequences = step.sequences,
            decode_rows = step.decode_rows,
            prompt_rows = step.prompt_rows,
            free_pages = self.kv.usage(LayerKind::Full).free,
            ?forward,
            ?sample,
            "step"
        );
    }
}

/// What a sequence has made of its rows.
struct Taken {
    next: Next,
    /// Tokens guessed, and how many of them were right.
    guessed: usize,
    right: usize,
    /// These rows were the prompt's last.
    prompt_ends: bool,
}

/// A sequence takes its rows.
///
/// # Errors
/// Why they can't be had; what the sampler or a constraint refuses.
fn take(
    s: &mut Sequence,
    share: &Share,
    rows: Result<HostRows<'_>, GraphError>,
    tokenizer: &Tokenizer,
    n_ctx: usize,
) -> Result<Taken, Error> {
    let guesses = std::mem::take(&mut s.guesses);
    let first = s.n_past + s.dropped;
    s.n_past += share.rows - guesses.len();
    let prompt_ends = s.prompt_progress();
    let first_asked = first + share.rows - share.asked;
    let (mut next, mut right, mut rows) = (Next::Step, 0, rows?);
    for k in 0..share.asked {
        let row = rows
            .row(k)
            .ok_or_else(|| GraphError::Output(format!("row {k} is past its part's end")))?;
        next = s.output(first_asked + k, row, tokenizer, n_ctx)?;
        let guess = guesses.get(k);
        if matches!(next, Next::End(..)) || guess.is_some() && guess != s.tokens.last() {
            break;
        }
        // The guess was right: its row is this token's own.
        if guess.is_some() {
            s.n_past += 1;
            right += 1;
        }
    }
    Ok(Taken {
        next,
        guessed: guesses.len(),
        right,
        prompt_ends,
    })
}
