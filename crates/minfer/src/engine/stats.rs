//! What an engine has done, as numbers: the server exports them, the bench prints them.

use std::time::Duration;

use super::options::MAX_SEQS;
use crate::graph::Counters;
use crate::kv::PageUse;

/// Counters since the engine's start, and how it stands. A copy: [`super::Engine::stats`] takes it after any step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Requests submitted and accepted.
    pub requests: u64,
    /// Requests that ended with [`super::Event::Done`].
    pub finished: u64,
    /// Requests that ended with [`super::Event::Error`].
    pub failed: u64,
    /// Requests whose stream was dropped before their end.
    pub cancelled: u64,
    /// Prompt tokens computed.
    pub prompt_tokens: u64,
    /// Prompt tokens that pages of earlier prompts held already.
    pub cached_tokens: u64,
    /// Tokens chosen.
    pub predicted_tokens: u64,
    /// Tokens guessed and verified.
    pub drafted_tokens: u64,
    /// Those of them that were right.
    pub accepted_tokens: u64,
    /// Sequences that lost their pages and were computed again.
    pub preempted: u64,
    /// Sequences whose pages were saved to make room, and brought back.
    pub swapped: u64,
    /// Contexts shifted.
    pub shifts: u64,
    /// Steps.
    pub steps: u64,
    /// Rows of all steps.
    pub rows: u64,
    /// Time in forward passes.
    pub forward: Duration,
    /// Time in choosing tokens.
    pub sample: Duration,
    /// Time in guessing tokens.
    pub draft: Duration,
    /// Sequences that have pages.
    pub running: usize,
    /// The places they have.
    pub places: Places,
    /// Requests that wait for a place or for pages.
    pub waiting: usize,
    /// Pages of full layers.
    pub pages_full: PageUse,
    /// Pages of windowed layers.
    pub pages_windowed: PageUse,
    /// What the backends counted.
    pub backends: Counters,
    /// The last step.
    pub last: Step,
}

impl Stats {
    /// Counts a step.
    pub(super) fn add(&mut self, step: Step) {
        self.steps += 1;
        self.rows += (step.decode_rows + step.prompt_rows) as u64;
        self.prompt_tokens += step.prompt_rows as u64;
        self.forward += step.forward;
        self.sample += step.sample;
        self.last = step;
    }
}

/// A set of places in the batch, which are numbered from 0. A sequence keeps its place for as long as it has pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places([u64; MAX_SEQS.div_ceil(64)]);

impl Places {
    /// Whether a place is taken.
    pub fn contains(&self, place: usize) -> bool {
        let word = self.0.get(place / 64);
        word.is_some_and(|w| (w >> (place % 64)) & 1 == 1)
    }

    /// The place for one more: the one it had, if that is free, else the lowest that is.
    pub(super) fn choose(&self, had: Option<usize>) -> usize {
        let free = |place: &usize| !self.contains(*place);
        had.filter(free)
            .or_else(|| (0..MAX_SEQS).find(free))
            .unwrap_or(MAX_SEQS)
    }
}

impl FromIterator<usize> for Places {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Places {
        let mut set = Places::default();
        for place in places {
            if let Some(word) = set.0.get_mut(place / 64) {
                *word |= 1 << (place % 64);
            }
        }
        set
    }
}

/// One step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step {
    /// Sequences in it.
    pub sequences: usize,
    /// Rows that make a next token, guessed ones included.
    pub decode_rows: usize,
    /// Rows of prompts.
    pub prompt_rows: usize,
    /// Its forward pass.
    pub forward: Duration,
    /// Choosing its tokens.
    pub sample: Duration,
}
