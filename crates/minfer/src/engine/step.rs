//! One step: plan, forward, then every sequence takes what the pass made for it.

use super::EngineError;
use super::core::Core;
use super::plan::Share;
use super::request::{Event, FinishReason};
use super::sequence::Next;
use super::stats::Step;
use crate::Error;
use crate::graph::{GraphKind, LayerKind};

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
        self.count(shares, forward, sample);
        for (i, end) in ended.into_iter().rev() {
            self.end(i, end);
        }
        Ok(())
    }

    /// Every sequence takes its rows. Who has ended, by index in order, and how.
    fn take_outputs(&mut self, shares: &[Share]) -> Vec<(usize, Result<Next, Error>)> {
        let (mut ended, mut out) = (Vec::new(), 0);
        for share in shares {
            match self.take_output(share, out) {
                Ok(Next::Step) => {}
                end => ended.push((share.seq, end)),
            }
            out += share.asked;
        }
        ended
    }

    /// One sequence takes its rows, the first asked one being row `out` of the output.
    fn take_output(&mut self, share: &Share, out: usize) -> Result<Next, Error> {
        let s = &mut self.running[share.seq];
        let guesses = std::mem::take(&mut s.guesses);
        let first = s.n_past + s.dropped;
        s.n_past += share.rows - guesses.len();
        let prompt_ends = s.prompt_progress();
        let first_asked = first + share.rows - share.asked;
        let (mut next, mut right) = (Next::Step, 0);
        for k in 0..share.asked {
            let row = self.scheduler.output_row(out + k, &mut self.row)?;
            let s = &mut self.running[share.seq];
            next = s.output(first_asked + k, row, self.model.tokenizer(), self.n_ctx)?;
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
        let s = &mut self.running[share.seq];
        if let Some(answer) = s.answer_mut().filter(|_| !guesses.is_empty()) {
            answer.depth.note(guesses.len(), right);
            answer.drafted += guesses.len();
            answer.accepted += right;
            self.stats.drafted_tokens += guesses.len() as u64;
            self.stats.accepted_tokens += right as u64;
        }
        let s = &mut self.running[share.seq];
        self.kv.learn(&mut s.pages, &s.tokens, s.n_past);
        if prompt_ends {
            self.kv.learn_begun(&mut s.pages, &s.tokens, s.n_past);
        }
        let keep = s.keep_pages();
        self.kv.trim(&mut s.pages, s.n_past, keep);
        Ok(next)
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
