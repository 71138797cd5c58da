//! Who gets a place, and who loses it when pages run out.

use std::sync::Arc;

use super::core::Core;
use super::sequence::Sequence;
use super::session::Content;
use crate::Error;
use crate::graph::PAGE;
use crate::kv::PageCopy;

impl Core {
    /// Gives places to waiting sequences, the first first, as long as there are places and pages. One whose
    /// prompt another is computing right now waits for that, and lets others pass.
    pub(super) fn admit(&mut self) {
        self.release_lanes();
        let mut i = 0;
        while i < self.waiting.len() {
            if self.is_being_computed(&self.waiting[i]) {
                i += 1;
                continue;
            }
            if !self.make_place(self.waiting[i].priority) {
                return;
            }
            let mut seq = self.waiting.remove(i);
            // Before anything can go wrong: what is lost by a panic waits no longer either.
            self.settle(&mut seq);
            match self.in_hand(&mut seq, Core::place) {
                Ok(true) => {
                    seq.place = Some(self.places().choose(seq.place));
                    Core::enqueue(&mut self.running, seq);
                }
                Ok(false) => {
                    let lower = self
                        .running
                        .last()
                        .is_some_and(|r| r.priority < seq.priority);
                    self.waiting.insert(i, seq);
                    if !lower || !self.preempt_last() {
                        return;
                    }
                }
                Err(e) => {
                    self.fail(&seq, e);
                    let pages = std::mem::take(&mut seq.pages);
                    self.kv.release(pages, &[], 0);
                }
            }
        }
    }

    /// Whether a running sequence is about to make known more of this prompt than pages hold now.
    fn is_being_computed(&self, seq: &Sequence) -> bool {
        let limit = seq.cache_limit();
        if limit == 0 || seq.content.is_some() {
            return false;
        }
        let held = self.kv.held(&seq.tokens, limit);
        self.running.iter().any(|other| {
            let done = other.n_past;
            if done >= other.prompt_n || other.dropped > 0 {
                return false;
            }
            let prompt = &other.tokens[..other.prompt_n];
            let common = prompt
                .iter()
                .zip(&seq.tokens[..limit])
                .take_while(|(a, b)| a == b);
            let common = common.count();
            common >= PAGE && common > done && common > held && other.priority >= seq.priority
        })
    }

    /// Whether there is a place; a sequence of lower priority may have to give up its own.
    fn make_place(&mut self, priority: i32) -> bool {
        if self.running.len() < self.n_seqs {
            return true;
        }
        match self.running.last() {
            Some(last) if last.priority < priority => self.preempt_last(),
            _ => false,
        }
    }

    /// Gives a sequence its first pages: those that hold its prompt's beginning, or those of its content.
    /// `false`: there are not enough pages for what it has to compute, yet.
    fn place(&mut self, seq: &mut Sequence) -> Result<bool, Error> {
        if let Some(content) = seq.content.clone() {
            return self.bring_back(seq, &content);
        }
        let limit = seq.cache_limit();
        // Begin only with a chance to get through the prompt: others' tokens would have to be computed again.
        let want = (seq.tokens.len() + 1).min(self.n_ctx);
        if !self.running.is_empty() && !self.kv.fits(&seq.tokens, limit, want) {
            return Ok(false);
        }
        let found = self.kv.attach(&seq.tokens, limit, seq.keep_pages());
        seq.pages = found.pages;
        self.copy(&found.copies)?;
        self.stats.cached_tokens += found.positions as u64;
        seq.start(found.positions);
        Ok(true)
    }

    /// Writes saved content into new pages.
    fn bring_back(&mut self, seq: &mut Sequence, content: &Arc<Content>) -> Result<bool, Error> {
        let (n_past, shifted) = (content.n_past, content.dropped > 0);
        seq.pages = match self.kv.restore(n_past, &content.windowed_at, shifted) {
            Ok(pages) => pages,
            Err(e) if self.running.is_empty() => return Err(e.into()),
            Err(_) => return Ok(false),
        };
        self.write_content(&seq.pages, content)?;
        (seq.dropped, seq.content) = (content.dropped, None);
        // Saved before a token was chosen: the last one's row is computed once more, to the same bits.
        let all = seq.tokens.len() == content.n_past + content.dropped;
        seq.start(content.n_past - usize::from(all));
        Ok(true)
    }

    /// Copies pages.
    pub(super) fn copy(&mut self, copies: &[PageCopy]) -> Result<(), Error> {
        for c in copies {
            self.scheduler.kv_copy(c.kind, c.from, c.to)?;
        }
        Ok(())
    }

    /// The youngest running sequence loses its pages and waits. It is computed again; a shifted one, whose
    /// keys have seen tokens that are gone, has its pages saved. `false`: nobody runs.
    pub(super) fn preempt_last(&mut self) -> bool {
        let Some(mut seq) = self.running.pop() else {
            return false;
        };
        let pages = std::mem::take(&mut seq.pages);
        if seq.dropped > 0 {
            let read = self.in_hand(&mut seq, |core, seq| {
                core.read_content(&pages, seq.n_past, seq.dropped)
            });
            match read {
                Ok(content) => seq.content = Some(Arc::new(content)),
                Err(e) => {
                    self.kv.release(pages, &[], 0);
                    self.fail(&seq, e);
                    return true;
                }
            }
            self.stats.swapped += 1;
        } else {
            self.stats.preempted += 1;
        }
        self.kv.release(pages, &seq.tokens, seq.n_past);
        seq.guesses.clear();
        seq.n_past = 0;
        Core::enqueue(&mut self.waiting, seq);
        true
    }
}
