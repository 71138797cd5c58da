//! What a region's code sees of its thread.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::lines::{MAX_BARRIERS, ONE_BARRIER, Shared};
use super::share::{self, End, MAX_LOOPS, MAX_PIECES};

/// One thread of a region. It stays on its thread and does not outlive the region.
pub struct Worker<'p> {
    shared: &'p Shared,
    index: usize,
    epoch: Cell<u64>,
    loops: Cell<u64>,
    /// `loops` at the last barrier.
    loops_at_barrier: Cell<u64>,
    in_loop: Cell<bool>,
}

impl<'p> Worker<'p> {
    pub(super) fn new(shared: &'p Shared, index: usize, epoch: u64, loops: u64) -> Worker<'p> {
        Worker {
            shared,
            index,
            epoch: Cell::new(epoch),
            loops: Cell::new(loops),
            loops_at_barrier: Cell::new(loops),
            in_loop: Cell::new(false),
        }
    }

    /// Which thread this is: `0..count()`; 0 is the caller of `run`.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many threads the region has.
    pub fn count(&self) -> usize {
        self.shared.n_threads()
    }

    /// Waits until every thread of the region has come here: what they wrote before is seen after.
    ///
    /// Unwinds, ending the region with an error, if a thread has panicked or left the region.
    ///
    /// # Panics
    /// Inside a loop's closure, and after more than eight million barriers in one region.
    pub fn barrier(&self) {
        assert!(!self.in_loop.get(), "a barrier inside a loop");
        let epoch = self.epoch.get() + ONE_BARRIER;
        assert!(
            epoch >> 1 & MAX_BARRIERS != 0,
            "more than {MAX_BARRIERS} barriers in one region"
        );
        self.epoch.set(epoch);
        self.loops_at_barrier.set(self.loops.get());
        self.shared.barrier(self.index, epoch);
    }

    /// This thread's fixed share of `0..n`: shares are consecutive and differ by at most one.
    pub fn range(&self, n: usize) -> Range<usize> {
        share::static_range(n, self.index, self.count())
    }

    /// Shares the items `0..items` among the threads: `f` is called with ranges of `grain` items (the
    /// last may be shorter), each item in exactly one call on one thread. A thread takes its own static
    /// share from the front, then pieces from the far ends of others' (also of threads that have
    /// not come yet).
    ///
    /// Every thread of the region calls it with the same numbers. It returns when every piece is
    /// *taken*; a [`barrier`](Self::barrier) says when all are done. `grain` 0 counts as 1; beyond a
    /// million pieces, pieces grow.
    ///
    /// # Panics
    /// Inside another loop's closure, and after more than four million loops without a barrier.
    pub fn for_each(&self, items: usize, grain: usize, mut f: impl FnMut(Range<usize>)) {
        assert!(!self.in_loop.replace(true), "a loop inside a loop");
        let number = self.loops.get() + 1;
        assert!(
            number - self.loops_at_barrier.get() <= MAX_LOOPS,
            "more than {MAX_LOOPS} loops without a barrier"
        );
        self.loops.set(number);
        let grain = grain.max(1).max(items.div_ceil(MAX_PIECES));
        let pieces = items.div_ceil(grain);
        let mut take = |owner: usize, end: End| {
            let untouched = share::static_range(pieces, owner, self.count());
            let piece = share::take(&self.shared.slots[owner].work.0, number, &untouched, end)?;
            f(piece * grain..items.min((piece + 1).saturating_mul(grain)));
            Some(())
        };
        while take(self.index, End::Front).is_some() {}
        for distance in 1..self.count() {
            let victim = (self.index + distance) % self.count();
            while take(victim, End::Back).is_some() {
                self.shared.slots[self.index]
                    .place
                    .0
                    .steals
                    .fetch_add(1, Relaxed);
            }
        }
        self.in_loop.set(false);
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    pub(super) fn loops(&self) -> u64 {
        self.loops.get()
    }
}
