//! Dropping pages from the middle of a sequence: those behind become its own, to be turned.

use super::OutOfPages;
use super::cache::{Kind, KvCache, PageCopy, SeqPages, Shifted};
use crate::graph::LayerKind;

impl KvCache {
    /// Drops `drop` pages after the first `keep` of a sequence. The pages behind move to the front, become the
    /// sequence's own, and leave the index for good: their keys are to be turned.
    ///
    /// # Errors
    /// [`OutOfPages`] if pages shared with others can't be copied: nothing is changed then.
    pub fn shift(
        &mut self,
        pages: &mut SeqPages,
        keep: usize,
        drop: usize,
    ) -> Result<Shifted, OutOfPages> {
        self.forget_begun(pages);
        let (gone, rest) = (keep..keep + drop, keep + drop);
        let full: Vec<u32> = pages.full.iter().skip(rest).copied().collect();
        let windowed: Vec<u32> = pages
            .windowed
            .iter()
            .skip(rest)
            .flatten()
            .copied()
            .collect();
        let windowed_gone: Vec<u32> = within(&pages.windowed, &gone).flatten().copied().collect();
        self.full
            .check_copies(LayerKind::Full, &full, within(&pages.full, &gone))?;
        if let Some(kind) = &self.windowed {
            kind.check_copies(LayerKind::Windowed, &windowed, windowed_gone.iter())?;
        }
        self.drop_pages(pages, gone);
        while pages.known > keep {
            pages.tip = pages.tip.and_then(|tip| self.index.node(tip).parent);
            pages.known -= 1;
        }
        pages.shifted = true;
        let mut shifted = Shifted::default();
        for i in keep..pages.full.len() {
            let page = self.own(LayerKind::Full, pages.full[i], &mut shifted.copies);
            pages.full[i] = page;
            shifted.full.push(page);
        }
        for i in keep..pages.windowed.len() {
            if let Some(page) = pages.windowed[i] {
                let page = self.own(LayerKind::Windowed, page, &mut shifted.copies);
                pages.windowed[i] = Some(page);
                shifted.windowed.push(page);
            }
        }
        Ok(shifted)
    }

    /// A page that the sequence holds, made its own: a copy if others hold it, unknown in any case.
    fn own(&mut self, kind: LayerKind, page: u32, copies: &mut Vec<PageCopy>) -> u32 {
        let of = match (kind, &self.windowed) {
            (LayerKind::Windowed, Some(windowed)) => windowed,
            _ => &self.full,
        };
        if of.pool.refs(page) > 1 {
            let to = self.take(kind);
            copies.push(PageCopy {
                kind,
                from: page,
                to,
            });
            match (kind, &mut self.windowed) {
                (LayerKind::Windowed, Some(windowed)) => windowed.release(page),
                _ => self.full.release(page),
            }
            return to;
        }
        if let Some(node) = of.nodes[page as usize] {
            match kind {
                LayerKind::Full => self.remove(node),
                LayerKind::Windowed => self.forget_windowed(node),
            }
        }
        page
    }
}

impl Kind {
    /// Whether the pages that others hold, too, can be copied once those `gone` are given back.
    fn check_copies<'a>(
        &self,
        kind: LayerKind,
        rest: &[u32],
        gone: impl Iterator<Item = &'a u32>,
    ) -> Result<(), OutOfPages> {
        let shared = rest.iter().filter(|p| self.pool.refs(**p) > 1).count();
        let freed = gone.filter(|p| self.pool.refs(**p) == 1).count();
        match shared > self.available() + freed {
            true => Err(self.out(kind, shared)),
            false => Ok(()),
        }
    }
}

/// The entries of a list in a range of places, as far as there are.
fn within<'a, T>(list: &'a [T], range: &std::ops::Range<usize>) -> impl Iterator<Item = &'a T> {
    list.iter().take(range.end).skip(range.start)
}
