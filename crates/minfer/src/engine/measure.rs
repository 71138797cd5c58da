//! Measuring: forward passes over made-up tokens, of one sequence or several in lockstep, planned and run
//! as a generation's are.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::core::Core;
use super::events::Events;
use super::request::{Done, Event, FinishReason, Timings};
use super::stats::Step;
use crate::Error;
use crate::graph::{Counters, GraphError, GraphKind, HostRows};
use crate::kv::SeqPages;
use crate::sampling::{Sampler, SamplerParams};

/// What to measure: every sequence gets `depth` tokens; then, timed and as often as asked, `n_prompt` tokens
/// in chunks and `n_gen` tokens one by one, all sequences in one batch.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Sequences, at most [`super::EngineOptions::n_seqs`].
    pub n_seqs: usize,
    /// Tokens of each sequence that are in the KV before the clock starts.
    pub depth: usize,
    /// Prompt tokens of each sequence; sequences one after the other.
    pub n_prompt: usize,
    /// Decode steps, one token of every sequence each.
    pub n_gen: usize,
    /// How often the timed part is run; each is told by an [`Event::Measured`].
    pub repetitions: usize,
    /// Time whole tokens: logits are read and the next token is chosen from them, which is then the next
    /// step's. `None`: forward passes alone.
    pub sampling: Option<SamplerParams>,
    /// Reads a count of allocations, right before and right after the timed part.
    pub allocations: Option<fn() -> u64>,
    /// Say the logits after the last decode step of each sequence at the end ([`Event::Logits`], `row` is
    /// the sequence), to compare them.
    pub logits: bool,
}

impl Default for Measure {
    /// 128 decode steps of one sequence, once.
    fn default() -> Measure {
        Measure {
            n_seqs: 1,
            depth: 0,
            n_prompt: 0,
            n_gen: 128,
            repetitions: 1,
            sampling: None,
            allocations: None,
            logits: false,
        }
    }
}

impl Measure {
    /// The made-up token of a sequence at a position: any do, speed does not depend on them.
    pub fn token(seq: usize, position: usize, n_vocab: usize) -> u32 {
        ((position * 7919 + seq * 104_729 + 1) % n_vocab) as u32
    }

    /// Positions that each sequence needs.
    pub fn positions(&self) -> usize {
        self.depth + self.n_prompt + self.n_gen
    }
}

/// One run of the timed part.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Wall time.
    pub elapsed: Duration,
    /// Forward passes.
    pub steps: u64,
    /// Time in them.
    pub forward: Duration,
    /// Time in choosing tokens.
    pub sample: Duration,
    /// What the backends counted in it.
    pub counters: Counters,
    /// Allocations in it; 0 if they were not counted.
    pub allocations: u64,
}

/// A measured sequence. It stays between measurements, so that the next one at the same depth or
/// beyond fills only what is missing.
#[derive(Default)]
pub(super) struct Lane {
    pages: SeqPages,
    /// The first so many positions hold the made-up tokens.
    filled: usize,
    /// The next step's token.
    next: u32,
    sampler: Option<Sampler>,
}

impl Core {
    /// Runs a checked measurement to its end, or until nobody listens any more.
    pub fn measure(&mut self, m: &Measure, events: &Events) {
        let end = match self.repeat(m, events) {
            Ok(()) => Event::Done(Done {
                reason: FinishReason::Length,
                stop: None,
                text: String::new(),
                held: String::new(),
                timings: Timings::default(),
                place: None,
            }),
            Err(e) => {
                self.release_lanes();
                Event::Error(e)
            }
        };
        // Who hears the end may look at the numbers.
        self.publish();
        events.send(end);
    }

    /// Forgets the measured sequences.
    pub fn release_lanes(&mut self) {
        for lane in self.lanes.drain(..) {
            // Made-up tokens: nothing to share.
            self.kv.release(lane.pages, &[], 0);
        }
    }

    fn repeat(&mut self, m: &Measure, events: &Events) -> Result<(), Error> {
        if self.lanes.len() < m.n_seqs {
            self.lanes.resize_with(m.n_seqs, Lane::default);
        }
        let n_vocab = self.n_vocab();
        for lane in &mut self.lanes[..m.n_seqs] {
            self.kv.reserve(&mut lane.pages, m.positions())?;
            let params = m.sampling.clone();
            let new = |p| Sampler::new(p, n_vocab);
            lane.sampler = params.map(new).transpose()?;
        }
        if !self.fill(m, events)? {
            return Ok(());
        }
        for _ in 0..m.repetitions {
            let measured = self.timed(m)?;
            if !events.send(Event::Measured(measured)) {
                return Ok(());
            }
        }
        if m.logits {
            for row in 0..m.n_seqs {
                let values = self.scheduler.output_row(row, &mut self.row)?.to_vec();
                events.send(Event::Logits { row, values });
            }
        }
        Ok(())
    }

    /// Brings every sequence to its depth. `false`: nobody listens any more.
    fn fill(&mut self, m: &Measure, events: &Events) -> Result<bool, Error> {
        let total = m.n_seqs * m.depth;
        for lane in 0..m.n_seqs {
            while self.lanes[lane].filled < m.depth {
                let start = self.lanes[lane].filled;
                let end = m.depth.min(start + self.n_batch);
                self.chunk(lane, start..end, 0)?;
                self.lanes[lane].filled = end;
                let done = lane * m.depth + end;
                if !events.send(Event::Prompt { done, total }) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// One run of the timed part.
    fn timed(&mut self, m: &Measure) -> Result<Measured, Error> {
        let (start_of_gen, n_vocab) = (m.depth + m.n_prompt, self.n_vocab());
        for (seq, lane) in self.lanes[..m.n_seqs].iter_mut().enumerate() {
            lane.next = Measure::token(seq, start_of_gen, n_vocab);
            lane.filled = match m.sampling {
                Some(_) => m.depth, // what comes after it is the sampler's choice
                None => lane.filled.max(m.positions()),
            };
            if let Some(sampler) = &mut lane.sampler {
                sampler.reset();
            }
        }
        let allocations = || m.allocations.map_or(0, |count| count());
        let (counters, before) = (self.scheduler.counters(), self.stats);
        let allocated = allocations();
        let clock = Instant::now();
        for lane in 0..m.n_seqs {
            for start in (m.depth..start_of_gen).step_by(self.n_batch) {
                let end = start_of_gen.min(start + self.n_batch);
                self.chunk(lane, start..end, usize::from(end == start_of_gen))?;
            }
        }
        for position in start_of_gen..start_of_gen + m.n_gen {
            self.decode(m.n_seqs, position)?;
        }
        let elapsed = clock.elapsed();
        Ok(Measured {
            elapsed,
            steps: self.stats.steps - before.steps,
            forward: self.stats.forward - before.forward,
            sample: self.stats.sample - before.sample,
            allocations: allocations() - allocated,
            counters: self.scheduler.counters().since(counters),
        })
    }

    /// Made-up tokens of one sequence, the last `outs` asked for.
    fn chunk(&mut self, seq: usize, positions: Range<usize>, outs: usize) -> Result<(), Error> {
        let (n_vocab, first) = (self.n_vocab(), positions.start);
        self.batch.clear();
        let ids = positions.map(|p| Measure::token(seq, p, n_vocab));
        let prompt_rows = ids.len();
        self.batch.push(ids, first, outs, &self.lanes[seq].pages);
        let (passed, forward) = self.clocked(|core| core.forward(GraphKind::Logits));
        self.stats.add(Step {
            sequences: 1,
            prompt_rows,
            forward,
            ..Step::default()
        });
        passed
    }

    /// One token of every sequence, all at one position; then the next one of each.
    fn decode(&mut self, n_seqs: usize, position: usize) -> Result<(), Error> {
        self.batch.clear();
        for lane in &self.lanes[..n_seqs] {
            let id = std::iter::once(lane.next);
            self.batch.push(id, position, 1, &lane.pages);
        }
        let (passed, forward) = self.clocked(|core| core.forward(GraphKind::Logits));
        passed?;
        let (chosen, sample) = self.clocked(|core| core.next_tokens(n_seqs, position));
        self.stats.add(Step {
            sequences: n_seqs,
            decode_rows: n_seqs,
            forward,
            sample,
            ..Step::default()
        });
        chosen
    }

    /// Every sequence's token after `position`: the sampler's choice, or a made-up one.
    fn next_tokens(&mut self, n_seqs: usize, position: usize) -> Result<(), Error> {
        let next = position + 1;
        let n_vocab = self.n_vocab();
        for (seq, lane) in self.lanes[..n_seqs].iter_mut().enumerate() {
            lane.next = Measure::token(seq, next, n_vocab);
        }
        if self.lanes[..n_seqs].iter().all(|l| l.sampler.is_none()) {
            return Ok(());
        }
        let parts = vec![1; n_seqs];
        let lanes = self.lanes[..n_seqs].iter_mut();
        let jobs: Vec<_> = lanes.map(|l| Mutex::new((l, Ok(())))).collect();
        let work = |i: usize, rows: Result<HostRows<'_>, GraphError>| {
            let mut job = jobs[i].lock().unwrap_or_else(PoisonError::into_inner);
            let (lane, chosen) = &mut *job;
            *chosen = rows.map_err(Error::from).and_then(|r| lane.choose(r, next));
        };
        self.scheduler.output_parts(&parts, &mut self.row, &work)?;
        jobs.into_iter().try_for_each(|job| {
            let (_, chosen) = job.into_inner().unwrap_or_else(PoisonError::into_inner);
            chosen
        })
    }
}

impl Lane {
    /// The next token, for `position`, as the sampler chooses it from a row.
    fn choose(&mut self, mut rows: HostRows<'_>, position: usize) -> Result<(), Error> {
        if let (Some(sampler), Some(row)) = (&mut self.sampler, rows.row(0)) {
            self.next = sampler.sample(row, position as u64)?;
            sampler.accept(self.next);
        }
        Ok(())
    }
}
