//! A full context that goes on: the older half of what may go is dropped, what stays moves to the front.

use super::core::Core;
use crate::Error;
use crate::graph::{BatchInputs, GraphKind, PAGE};
use crate::kv::Shifted;

impl Core {
    /// Shifts every sequence that has no slot left for its next token. The point depends on its own tokens alone.
    pub(super) fn shift_full_contexts(&mut self) {
        let mut i = 0;
        while i < self.running.len() {
            let s = &self.running[i];
            if s.n_past < self.n_ctx || !s.shifts() || s.pending() == 0 {
                i += 1;
                continue;
            }
            match self.shift(i) {
                Ok(()) => i += 1,
                Err(Error::Kv(_)) if self.running.len() > 1 => {
                    // The youngest makes room; that may be this one.
                    self.preempt_last();
                }
                Err(e) => {
                    let mut seq = self.running.remove(i);
                    self.fail(&seq, e);
                    let pages = std::mem::take(&mut seq.pages);
                    self.kv.release(pages, &seq.tokens, 0);
                }
            }
        }
    }

    fn shift(&mut self, i: usize) -> Result<(), Error> {
        let s = &mut self.running[i];
        let keep = s.keep_pages();
        // Whole pages only; the submission has seen to it that there are two.
        let drop = (s.n_past / PAGE).saturating_sub(keep).div_ceil(2).max(1);
        let shifted = self.kv.shift(&mut s.pages, keep, drop)?;
        let by = drop * PAGE;
        s.n_past -= by;
        s.dropped += by;
        self.copy(&shifted.copies)?;
        self.turn_keys(&shifted, by)?;
        self.stats.shifts += 1;
        Ok(())
    }

    /// Turns the keys of these pages back by so many positions, in place.
    fn turn_keys(&mut self, shifted: &Shifted, by: usize) -> Result<(), Error> {
        let rows = shifted.full.len().max(shifted.windowed.len());
        let positions = vec![-(by as i32); rows];
        let pages = |pages: &[u32]| {
            let mut pages: Vec<i32> = pages.iter().map(|p| *p as i32).collect();
            pages.resize(rows, -1); // the kinds may have different numbers of pages
            pages
        };
        let (pages_full, pages_windowed) = (pages(&shifted.full), pages(&shifted.windowed));
        let inputs = BatchInputs {
            positions: &positions,
            pages_full: &pages_full,
            pages_windowed: &pages_windowed,
            ..BatchInputs::default()
        };
        let params = self.params(GraphKind::KvShift, rows, 1);
        let arch = self.model.arch();
        self.scheduler
            .forward(&params, &|p| arch.build(p), &inputs, None)?;
        Ok(())
    }
}
