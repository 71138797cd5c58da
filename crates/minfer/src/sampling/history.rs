//! The recent tokens that the penalties look at.

use std::collections::{HashMap, VecDeque};

/// The last n tokens, and how often each occurs among them.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// `None`: all tokens count, none is forgotten.
    limit: Option<usize>,
    recent: VecDeque<u32>,
    counts: HashMap<u32, u32>,
}

impl History {
    /// `last_n`: 0 keeps nothing, -1 everything.
    pub(super) fn new(last_n: i32) -> History {
        let limit = usize::try_from(last_n).ok();
        // A limit may be absurdly large: reserve what is likely, grow if it comes to that.
        let reserve = limit.unwrap_or(0).min(4096);
        History {
            limit,
            recent: VecDeque::with_capacity(reserve),
            counts: HashMap::with_capacity(2 * reserve),
        }
    }

    pub(super) fn push(&mut self, token: u32) {
        match self.limit {
            Some(0) => return,
            Some(limit) => {
                if self.recent.len() >= limit {
                    self.forget_oldest();
                }
                self.recent.push_back(token);
            }
            None => {}
        }
        *self.counts.entry(token).or_insert(0) += 1;
    }

    fn forget_oldest(&mut self) {
        let Some(old) = self.recent.pop_front() else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&old) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
    }

    /// The tokens with their counts, in no particular order.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u32, u32)> {
        self.counts.iter().map(|(token, count)| (*token, *count))
    }

    pub(super) fn clear(&mut self) {
        self.recent.clear();
        self.counts.clear();
    }
}
