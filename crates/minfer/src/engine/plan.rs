//! Which rows a step has: a next token of everybody who has one to come, guesses behind it, and a part of the
//! prompts, so that a long one never stalls the others.

use super::core::Core;
use super::speculate::{self, Speculation};
use crate::graph::GraphKind;

/// Most logits a step may leave behind, in values: 64 MB of f32.
const MAX_LOGITS: usize = 1 << 24;

/// One sequence's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Index into the running sequences.
    pub seq: usize,
    /// Rows, guesses included.
    pub rows: usize,
    /// How many of the last are asked for.
    pub asked: usize,
    /// Whether they make a next token, not get through a prompt.
    pub decodes: bool,
    /// Tokens chosen before it.
    pub chosen: usize,
}

impl Core {
    /// Plans a step of one kind. All its rows have pages; who found none waits.
    pub(super) fn plan(&mut self, kind: GraphKind) -> Vec<Share> {
        self.shift_full_contexts();
        self.guess(kind);
        let mut shares = self.wanted(kind);
        // The oldest first: who finds no page takes the youngest's.
        let mut i = 0;
        while i < shares.len() && shares[i].seq < self.running.len() {
            let Share { seq, rows, .. } = shares[i];
            let running = &mut self.running[seq];
            let end = running.n_past + rows;
            match self.kv.reserve(&mut running.pages, end) {
                Ok(()) => i += 1,
                Err(_) => {
                    self.preempt_last();
                }
            }
        }
        shares.truncate(i);
        shares
    }

    /// What the sequences would do with pages enough.
    fn wanted(&self, kind: GraphKind) -> Vec<Share> {
        let of_kind = || {
            self.running
                .iter()
                .enumerate()
                .filter(move |(_, s)| s.kind() == kind)
        };
        let (mut rows, mut outs) = (0, 0);
        for (_, s) in of_kind().filter(|(_, s)| s.decodes()) {
            rows += 1 + s.guesses.len();
            outs += 1 + s.guesses.len();
        }
        // A prompt never stands still, even if all rows were taken.
        let left = self.n_batch.saturating_sub(rows).max(1);
        // Who decodes waits for a pass of another kind, too.
        let decoders = self.running.iter().filter(|s| s.decodes()).count();
        let left = self.pace.prompt_rows(rows.max(decoders), left);
        let prompts = of_kind().filter(|(_, s)| !s.decodes());
        let pending: Vec<(usize, i32, usize)> = prompts
            .map(|(i, s)| (i, s.priority, s.pending().min(self.n_ctx - s.n_past)))
            .collect();
        let parts = divide(&pending, left);
        let width = match kind {
            GraphKind::Embeddings => self.model.hparams().n_embd,
            _ => self.n_vocab(),
        };
        let most = (MAX_LOGITS / width).max(1);
        let mut shares = Vec::new();
        for (i, s) in of_kind() {
            let mut share = Share {
                seq: i,
                rows: 1 + s.guesses.len(),
                asked: 1 + s.guesses.len(),
                decodes: s.decodes(),
                chosen: s.answer().map_or(0, |a| a.count),
            };
            if !s.decodes() {
                share.rows = parts.iter().find(|p| p.0 == i).map_or(0, |p| p.1);
                share.asked = s.asked(share.rows);
                if share.asked > 1 {
                    // Rows that are asked for are bounded; the first ones of them then.
                    let spare = most.saturating_sub(outs).max(1);
                    let less = share.asked.saturating_sub(spare);
                    share.rows -= less;
                    share.asked = s.asked(share.rows);
                }
                outs += share.asked;
            }
            if share.rows > 0 {
                shares.push(share);
            }
        }
        shares
    }

    /// Guesses for who decodes and wants them, where they pay and fit.
    fn guess(&mut self, kind: GraphKind) {
        if kind != GraphKind::Logits {
            return;
        }
        let (n_ctx, rows) = (self.n_ctx, self.running.len());
        let mut room = self.n_batch.saturating_sub(rows);
        let most = (MAX_LOGITS / self.n_vocab()).saturating_sub(rows);
        room = room.min(most);
        let mut drafts = Vec::new();
        for (i, s) in self.running.iter_mut().enumerate() {
            s.guesses.clear();
            let from = s.speculation();
            if from == Speculation::None || !s.decodes() {
                continue;
            }
            // The last of them leaves the context's last slot to the token after it.
            let fit = n_ctx.saturating_sub(s.n_past + 1);
            let Some(answer) = s.answer_mut() else {
                continue;
            };
            let wanted = answer
                .params
                .n_predict
                .map_or(usize::MAX, |n| n - answer.count);
            let n = answer
                .depth
                .next()
                .min(fit)
                .min(room)
                .min(wanted.saturating_sub(1));
            if n == 0 {
                continue;
            }
            match from {
                Speculation::Lookup => s.guesses = speculate::lookup(&s.tokens, n).to_vec(),
                _ => drafts.push((i, n)),
            }
            room -= s.guesses.len();
        }
        if !drafts.is_empty() {
            self.draft(&drafts, room);
        }
    }
}

/// Divides `left` rows between prompts, `(index, priority, rows wanted)`: higher priorities first, and among
/// equals evenly, what one does not need going to the others.
fn divide(pending: &[(usize, i32, usize)], mut left: usize) -> Vec<(usize, usize)> {
    let mut order = pending.to_vec();
    order.sort_by_key(|&(i, priority, wanted)| (std::cmp::Reverse(priority), wanted, i));
    if left < order.len() {
        // A row each for the oldest: the shortest would let the others wait for ever.
        order.sort_by_key(|&(i, priority, _)| (std::cmp::Reverse(priority), i));
        let first = order.iter().enumerate();
        let row = |(at, p): (usize, &(usize, i32, usize))| (p.0, p.2.min(usize::from(at < left)));
        return first.map(row).collect();
    }
    let mut parts = Vec::with_capacity(order.len());
    for (at, &(i, priority, wanted)) in order.iter().enumerate() {
        let equals = order[at..].iter().take_while(|p| p.1 == priority).count();
        let part = wanted.min(left / equals);
        left -= part;
        parts.push((i, part));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_share_rows_evenly_and_by_priority() {
        assert_eq!(
            divide(&[(0, 0, 100), (1, 0, 3), (2, 0, 100)], 64),
            [(1, 3), (0, 30), (2, 31)]
        );
        assert_eq!(divide(&[(0, 0, 100), (1, 5, 40)], 64), [(1, 40), (0, 24)]);
        assert_eq!(divide(&[(0, 0, 100), (1, 0, 100)], 1), [(0, 1), (1, 0)]);
        assert_eq!(divide(&[], 64), []);
    }
}
