//! Pools and index together: sequences get pages, share what they have in common, give pages back.

use super::OutOfPages;
use super::index::{Index, NodeId};
use super::pool::Pool;
use crate::graph::{LayerKind, PAGE};

/// A page's content is wanted in another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// Of which kind of layer.
    pub kind: LayerKind,
    /// The page to read.
    pub from: u32,
    /// The page to write.
    pub to: u32,
}

/// How the pages of one kind of layer are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUse {
    /// Pages there are.
    pub total: usize,
    /// Held by nobody and without content.
    pub free: usize,
    /// Held by nobody, kept for who may want their content.
    pub idle: usize,
}

impl PageUse {
    /// Held by sequences.
    pub fn used(&self) -> usize {
        self.total - self.free - self.idle
    }
}

/// The pages of one sequence, in order of slots.
#[derive(Debug, Default)]
pub struct SeqPages {
    pub(super) full: Vec<u32>,
    /// As long as `full` where the model has windowed layers; `None` where nothing can be seen any more.
    pub(super) windowed: Vec<Option<u32>>,
    /// So many first pages stand in the index, up to `tip`.
    pub(super) known: usize,
    pub(super) tip: Option<NodeId>,
    /// The leaf that says what the page after those holds so far.
    pub(super) begun: Option<NodeId>,
    /// Its keys were turned: they are no longer what the tokens alone give, and stay out of the index.
    pub(super) shifted: bool,
}

impl SeqPages {
    /// Its pages for one kind of layer, in order; `None` where there is nothing any more.
    pub fn pages(&self, kind: LayerKind) -> Vec<Option<u32>> {
        match kind {
            LayerKind::Full => self.full.iter().copied().map(Some).collect(),
            LayerKind::Windowed => self.windowed.clone(),
        }
    }

    /// Appends its line of the page table for one kind of layer; where there is nothing any more, -1: a pass that
    /// would look there is refused.
    pub fn write_line(&self, kind: LayerKind, line: &mut Vec<i32>) {
        match kind {
            LayerKind::Full => line.extend(self.full.iter().map(|p| *p as i32)),
            LayerKind::Windowed => {
                line.extend(self.windowed.iter().map(|p| p.map_or(-1, |p| p as i32)));
            }
        }
    }

    /// Positions that have a place.
    pub fn positions(&self) -> usize {
        self.full.len() * PAGE
    }

    /// Whether its context was shifted: it can't be computed again from its tokens.
    pub fn is_shifted(&self) -> bool {
        self.shifted
    }
}

/// What [`KvCache::attach`] found.
#[derive(Debug, Default)]
pub struct Attached {
    /// Pages that hold the first `positions` tokens.
    pub pages: SeqPages,
    /// How many tokens need not be computed.
    pub positions: usize,
    /// To be done before anything else is asked of the cache: the last page is shared in part.
    pub copies: Vec<PageCopy>,
}

/// What [`KvCache::shift`] leaves to do: first the copies, then these pages' keys are turned.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shifted {
    /// Pages that others hold, too, get a copy of their own.
    pub copies: Vec<PageCopy>,
    /// Pages of full layers whose keys have new positions.
    pub full: Vec<u32>,
    /// The same of windowed layers.
    pub windowed: Vec<u32>,
}

/// The pages of an engine.
#[derive(Debug)]
pub struct KvCache {
    pub(super) full: Kind,
    pub(super) windowed: Option<Kind>,
    pub(super) window: usize,
    pub(super) index: Index,
}

/// One kind of layer: its pages, and by page the node that knows its content.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) pool: Pool,
    pub(super) nodes: Vec<Option<NodeId>>,
}

impl Kind {
    fn new(total: usize) -> Kind {
        Kind {
            pool: Pool::new(total),
            nodes: vec![None; total],
        }
    }

    pub(super) fn available(&self) -> usize {
        self.pool.free() + self.pool.idle()
    }

    pub(super) fn release(&mut self, page: u32) {
        self.pool.release(page, self.nodes[page as usize].is_some());
    }

    fn forget(&mut self, page: u32) {
        self.nodes[page as usize] = None;
        self.pool.forget(page);
    }

    fn usage(&self) -> PageUse {
        PageUse {
            total: self.pool.total(),
            free: self.pool.free(),
            idle: self.pool.idle(),
        }
    }

    pub(super) fn out(&self, kind: LayerKind, needed: usize) -> OutOfPages {
        OutOfPages {
            kind,
            needed,
            free: self.available(),
            total: self.pool.total(),
        }
    }
}

impl KvCache {
    /// So many pages for full layers and, for a model with windowed ones, for those: `(pages, window)`.
    pub fn new(full: usize, windowed: Option<(usize, usize)>) -> KvCache {
        KvCache {
            full: Kind::new(full),
            windowed: windowed.map(|(pages, _)| Kind::new(pages)),
            window: windowed.map_or(0, |(_, window)| window),
            index: Index::default(),
        }
    }

    /// All free again, whoever held them, and nothing known.
    pub fn reset(&mut self) {
        let windowed = self
            .windowed
            .as_ref()
            .map(|w| (w.pool.total(), self.window));
        *self = KvCache::new(self.full.pool.total(), windowed);
    }

    /// How the pages of one kind are used; all zero where there are none.
    pub fn usage(&self, kind: LayerKind) -> PageUse {
        match kind {
            LayerKind::Full => self.full.usage(),
            LayerKind::Windowed => self
                .windowed
                .as_ref()
                .map_or(PageUse::default(), Kind::usage),
        }
    }

    /// Pages whose content is known.
    pub fn known(&self) -> usize {
        self.index.len()
    }

    /// The first page that a row at slot `n` sees in a windowed layer.
    fn first_seen(&self, n: usize) -> usize {
        (n + 1).saturating_sub(self.window) / PAGE
    }

    /// Finds the longest prefix of `ids` that pages hold, of at most `limit` tokens, and holds its pages. For a
    /// model with windowed layers, what the next row sees must be there, and the first `keep` pages.
    pub fn attach(&mut self, ids: &[u32], limit: usize, keep: usize) -> Attached {
        let ids = &ids[..limit.min(ids.len())];
        let mut path = self.path(ids);
        let deepest = path.len();
        while !self.window_is_there(&path, keep) {
            path.pop();
        }
        let mut pages = SeqPages {
            known: path.len(),
            tip: path.last().copied(),
            ..SeqPages::default()
        };
        let first = self.first_seen(path.len() * PAGE);
        for (i, &node) in path.iter().enumerate() {
            let node = self.index.node(node);
            self.full.pool.hold(node.full);
            pages.full.push(node.full);
            if let Some(windowed) = &mut self.windowed {
                let page = node.windowed.filter(|_| i >= first || i < keep);
                if let Some(page) = page {
                    windowed.pool.hold(page);
                }
                pages.windowed.push(page);
            }
        }
        let (mut positions, mut copies) = (path.len() * PAGE, Vec::new());
        if path.len() == deepest {
            let rest = &ids[positions..ids.len().min(positions + PAGE)];
            let more = self.attach_begun(&mut pages, rest, &mut copies);
            positions += more;
        }
        Attached {
            pages,
            positions,
            copies,
        }
    }

    /// Whether the pages of a path hold all that the row after it sees in windowed layers.
    fn window_is_there(&self, path: &[NodeId], keep: usize) -> bool {
        let first = self.first_seen(path.len() * PAGE);
        self.windowed.is_none()
            || path.iter().enumerate().all(|(i, &node)| {
                (i < first && i >= keep) || self.index.node(node).windowed.is_some()
            })
    }

    /// Copies what another page has of `rest`; returns how many tokens that is.
    fn attach_begun(
        &mut self,
        pages: &mut SeqPages,
        rest: &[u32],
        copies: &mut Vec<PageCopy>,
    ) -> usize {
        let Some((node, n)) = self.index.longest(pages.tip, rest) else {
            return 0;
        };
        let node = self.index.node(node);
        let (full, windowed) = (node.full, node.windowed);
        if self.windowed.is_some() && windowed.is_none() {
            return 0;
        }
        // Held, so that making room for the copy does not take the original.
        self.hold_both(full, windowed);
        if let Ok((new_full, new_windowed)) = self.take_both() {
            pages.full.push(new_full);
            copies.push(PageCopy {
                kind: LayerKind::Full,
                from: full,
                to: new_full,
            });
            if let (Some(from), Some(to)) = (windowed, new_windowed) {
                pages.windowed.push(Some(to));
                let kind = LayerKind::Windowed;
                copies.push(PageCopy { kind, from, to });
            }
        }
        self.full.release(full);
        if let (Some(kind), Some(page)) = (&mut self.windowed, windowed) {
            kind.release(page);
        }
        if copies.is_empty() { 0 } else { n }
    }

    fn hold_both(&mut self, full: u32, windowed: Option<u32>) {
        self.full.pool.hold(full);
        if let (Some(kind), Some(page)) = (&mut self.windowed, windowed) {
            kind.pool.hold(page);
        }
    }

    /// A page of each kind there is.
    fn take_both(&mut self) -> Result<(u32, Option<u32>), OutOfPages> {
        self.check_room(1, usize::from(self.windowed.is_some()))?;
        let full = self.take(LayerKind::Full);
        let windowed = self.windowed.is_some();
        Ok((full, windowed.then(|| self.take(LayerKind::Windowed))))
    }

    fn check_room(&self, full: usize, windowed: usize) -> Result<(), OutOfPages> {
        if full > self.full.available() {
            return Err(self.full.out(LayerKind::Full, full));
        }
        match &self.windowed {
            Some(kind) if windowed > kind.available() => {
                Err(kind.out(LayerKind::Windowed, windowed))
            }
            _ => Ok(()),
        }
    }

    /// A page of which there is known to be one, free or idle.
    pub(super) fn take(&mut self, kind: LayerKind) -> u32 {
        loop {
            let of = match (kind, &mut self.windowed) {
                (LayerKind::Windowed, Some(windowed)) => windowed,
                _ => &mut self.full,
            };
            if let Some(page) = of.pool.take() {
                return page;
            }
            let oldest = of.pool.oldest_idle().expect("room was checked");
            let node = of.nodes[oldest as usize].expect("idle pages have known content");
            match kind {
                LayerKind::Full => self.remove(node),
                LayerKind::Windowed => self.forget_windowed(node),
            }
        }
    }

    pub(super) fn forget_windowed(&mut self, node: NodeId) {
        let page = self.index.node_mut(node).windowed.take();
        if let (Some(kind), Some(page)) = (&mut self.windowed, page) {
            kind.forget(page);
        }
    }

    /// Takes a node and all below it out of the index; their idle pages are free then.
    pub(super) fn remove(&mut self, node: NodeId) {
        let mut at = node;
        loop {
            while let Some(child) = self.index.node(at).children.last() {
                at = *child;
            }
            let gone = self.index.remove(at);
            self.full.forget(gone.full);
            if let (Some(kind), Some(page)) = (&mut self.windowed, gone.windowed) {
                kind.forget(page);
            }
            match gone.parent {
                Some(parent) if at != node => at = parent,
                _ => return,
            }
        }
    }

    /// Pages for `positions` whose content comes from elsewhere; of windowed layers those at the places `windowed` only.
    ///
    /// # Errors
    /// [`OutOfPages`]: nothing is taken then.
    pub fn restore(
        &mut self,
        positions: usize,
        windowed: &[u32],
        shifted: bool,
    ) -> Result<SeqPages, OutOfPages> {
        let n = positions.div_ceil(PAGE);
        let has_windows = self.windowed.is_some();
        self.check_room(n, if has_windows { windowed.len() } else { 0 })?;
        let mut pages = SeqPages {
            shifted,
            ..SeqPages::default()
        };
        for at in 0..n {
            pages.full.push(self.take(LayerKind::Full));
            if has_windows {
                let here = windowed.contains(&(at as u32));
                pages
                    .windowed
                    .push(here.then(|| self.take(LayerKind::Windowed)));
            }
        }
        Ok(pages)
    }

    /// Makes room for so many positions; idle pages go, the longest idle first.
    ///
    /// # Errors
    /// [`OutOfPages`] if even so there are not enough: nothing is taken then.
    pub fn reserve(&mut self, pages: &mut SeqPages, positions: usize) -> Result<(), OutOfPages> {
        let want = positions.div_ceil(PAGE);
        let full = want.saturating_sub(pages.full.len());
        let windowed = match self.windowed {
            Some(_) => want.saturating_sub(pages.windowed.len()),
            None => 0,
        };
        self.check_room(full, windowed)?;
        for _ in 0..full {
            let page = self.take(LayerKind::Full);
            pages.full.push(page);
        }
        for _ in 0..windowed {
            let page = self.take(LayerKind::Windowed);
            pages.windowed.push(Some(page));
        }
        Ok(())
    }

    /// Makes known what the sequence's whole pages hold: `ids` are its tokens, the first `n` of them in the KV.
    /// A page that another sequence has made known first is taken instead of its own.
    pub fn learn(&mut self, pages: &mut SeqPages, ids: &[u32], n: usize) {
        while !pages.shifted && (pages.known + 1) * PAGE <= n {
            self.forget_begun(pages);
            let i = pages.known;
            let tokens = &ids[i * PAGE..(i + 1) * PAGE];
            let node = match self.index.find(pages.tip, tokens) {
                Some(node) => {
                    self.take_over(pages, i, node);
                    node
                }
                None => self.insert(pages, i, tokens),
            };
            pages.tip = Some(node);
            pages.known += 1;
        }
    }

    /// Makes known what the page holds that is only begun, so that others can copy it.
    pub fn learn_begun(&mut self, pages: &mut SeqPages, ids: &[u32], n: usize) {
        self.learn(pages, ids, n);
        let i = pages.known;
        if pages.shifted || n <= i * PAGE {
            return;
        }
        self.forget_begun(pages);
        let tokens = &ids[i * PAGE..n];
        let there = self.index.longest(pages.tip, tokens);
        if there.is_none_or(|(_, shared)| shared < tokens.len()) {
            pages.begun = Some(self.insert(pages, i, tokens));
        }
    }

    fn insert(&mut self, pages: &SeqPages, i: usize, tokens: &[u32]) -> NodeId {
        let (full, windowed) = (pages.full[i], pages.windowed.get(i).copied().flatten());
        let node = self.index.insert(pages.tip, tokens, full, windowed);
        self.full.nodes[full as usize] = Some(node);
        if let (Some(kind), Some(page)) = (&mut self.windowed, windowed) {
            kind.nodes[page as usize] = Some(node);
        }
        node
    }

    pub(super) fn forget_begun(&mut self, pages: &mut SeqPages) {
        if let Some(node) = pages.begun.take() {
            self.remove(node);
        }
    }

    /// Page `i` of the sequence becomes the one that the node has: the content is the same.
    fn take_over(&mut self, pages: &mut SeqPages, i: usize, id: NodeId) {
        let node = self.index.node_mut(id);
        if node.full != pages.full[i] {
            self.full.pool.hold(node.full);
            self.full.release(pages.full[i]);
            pages.full[i] = node.full;
        }
        let (Some(kind), Some(Some(own))) = (&mut self.windowed, pages.windowed.get_mut(i)) else {
            return;
        };
        match node.windowed {
            Some(page) if page != *own => {
                kind.pool.hold(page);
                kind.release(*own);
                *own = page;
            }
            Some(_) => {}
            None => {
                node.windowed = Some(*own);
                kind.nodes[*own as usize] = Some(id);
            }
        }
    }

    /// Gives back the windowed pages that no row from slot `n` on sees, but for the first `keep`.
    pub fn trim(&mut self, pages: &mut SeqPages, n: usize, keep: usize) {
        let first = self.first_seen(n).min(pages.windowed.len());
        let Some(kind) = &mut self.windowed else {
            return;
        };
        for page in pages.windowed[..first].iter_mut().skip(keep).rev() {
            match page.take() {
                Some(page) => kind.release(page),
                None => break, // what lies before it was given back earlier
            }
        }
    }

    /// Gives every page back; what the first `n` tokens of `ids` have left there stays known.
    pub fn release(&mut self, mut pages: SeqPages, ids: &[u32], n: usize) {
        self.learn_begun(&mut pages, ids, n);
        self.drop_pages(&mut pages, 0..usize::MAX);
    }

    /// Gives pages of a sequence back, the last first, so that of a prefix the end goes before its beginning.
    pub(super) fn drop_pages(&mut self, pages: &mut SeqPages, range: std::ops::Range<usize>) {
        let within = |len: usize| range.start.min(len)..range.end.min(len);
        for page in pages.full.drain(within(pages.full.len())).rev() {
            self.full.release(page);
        }
        let gone = pages.windowed.drain(within(pages.windowed.len()));
        if let Some(kind) = &mut self.windowed {
            gone.rev().flatten().for_each(|page| kind.release(page));
        }
    }
}
