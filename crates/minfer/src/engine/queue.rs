//! The bounded queue in front of an engine's thread.

use std::collections::VecDeque;

use super::sync::{Condvar, Mutex, MutexGuard};

/// Why nothing was put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// So many wait already.
    Full {
        /// Jobs that wait, beside those for whom a place is free.
        waiting: usize,
    },
    /// Nobody takes anything out any more.
    Closed,
}

/// Jobs on their way to one taker. A job counts as waiting from [`Queue::push`] until the taker says by
/// [`Queue::settled`] that it has begun or is gone: so the bound holds although the taker sees all of them. The taker's
/// free places come on top: who comes at the same time as others waits no longer than they do.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    jobs: VecDeque<T>,
    /// Jobs in `jobs`, and those taken out but not settled.
    waiting: usize,
    /// Places that the taker had free when it last said so; jobs that have taken one since still count as waiting.
    free: usize,
    /// Pushers may come.
    open: bool,
    /// The taker is there.
    taker: bool,
}

impl<T> Queue<T> {
    /// For at most `capacity` waiting jobs, and as many more as the taker has free places, `free` at first.
    pub fn new(capacity: usize, free: usize) -> Queue<T> {
        Queue {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                waiting: 0,
                free,
                open: true,
                taker: true,
            }),
            changed: Condvar::new(),
            capacity,
        }
    }

    /// The state. A panic elsewhere cannot leave it half changed: nothing here panics while it is held.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Puts all of `jobs` in, or none.
    pub fn push(&self, jobs: impl ExactSizeIterator<Item = T>) -> Result<(), Refused> {
        let mut state = self.lock();
        if !state.open || !state.taker {
            return Err(Refused::Closed);
        }
        if state.waiting + jobs.len() > self.capacity + state.free {
            let waiting = state.waiting.saturating_sub(state.free);
            return Err(Refused::Full { waiting });
        }
        state.waiting += jobs.len();
        state.jobs.extend(jobs);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Moves what is there to `into`; with `wait`, waits until there is something. `false`: there is
    /// nothing and nothing will come.
    pub fn take(&self, wait: bool, into: &mut Vec<T>) -> bool {
        let mut state = self.lock();
        while wait && state.jobs.is_empty() && state.open {
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        into.extend(state.jobs.drain(..));
        !into.is_empty() || state.open
    }

    /// So many jobs that were taken out wait no longer, and so many places are free now.
    pub fn settled(&self, n: usize, free: usize) {
        let mut state = self.lock();
        state.waiting = state.waiting.saturating_sub(n);
        state.free = free;
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Nothing more is put in; what is there can still be taken.
    pub fn close(&self) {
        self.lock().open = false;
        self.changed.notify_all();
    }

    /// Nothing more is taken out: what is there is dropped, and pushers are refused.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.taker = false;
        let dropped = std::mem::take(&mut state.jobs);
        drop(state); // their owners may look at the queue
        drop(dropped);
    }
}
