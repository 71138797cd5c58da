//! The pages of one kind of layer: who holds them, and which idle one goes first.

use std::collections::BTreeMap;

/// Pages with counted references.
#[derive(Debug)]
pub(super) struct Pool {
    /// Free pages, the next one to hand out last.
    free: Vec<u32>,
    /// By page: how many sequences hold it.
    refs: Vec<u32>,
    /// By page: when it became idle; meaningful for idle pages only.
    since: Vec<u64>,
    /// Idle pages by the time they became so, the first to go first.
    idle: BTreeMap<u64, u32>,
    clock: u64,
}

impl Pool {
    /// All free.
    pub fn new(total: usize) -> Pool {
        Pool {
            free: (0..total as u32).rev().collect(),
            refs: vec![0; total],
            since: vec![0; total],
            idle: BTreeMap::new(),
            clock: 0,
        }
    }

    /// All pages.
    pub fn total(&self) -> usize {
        self.refs.len()
    }

    /// Pages without content.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages with content that nobody holds.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// How many hold the page.
    pub fn refs(&self, page: u32) -> u32 {
        self.refs[page as usize]
    }

    /// A free page, held once from now on.
    pub fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.refs[page as usize] = 1;
        Some(page)
    }

    /// One more holds the page; an idle one is in use again.
    pub fn hold(&mut self, page: u32) {
        let refs = &mut self.refs[page as usize];
        if *refs == 0 {
            self.idle.remove(&self.since[page as usize]);
        }
        *refs += 1;
    }

    /// One fewer holds the page. Nobody any more: it is idle if its content is `known`, else free.
    pub fn release(&mut self, page: u32, known: bool) {
        let refs = &mut self.refs[page as usize];
        debug_assert!(*refs > 0, "page {page} is given back more often than taken");
        *refs -= 1;
        if *refs > 0 {
            return;
        }
        if known {
            self.clock += 1;
            self.since[page as usize] = self.clock;
            self.idle.insert(self.clock, page);
        } else {
            self.free.push(page);
        }
    }

    /// The page that has been idle for longest.
    pub fn oldest_idle(&self) -> Option<u32> {
        self.idle.first_key_value().map(|(_, page)| *page)
    }

    /// Nobody knows what the page holds any more: free, if it was idle.
    pub fn forget(&mut self, page: u32) {
        if self.refs[page as usize] == 0 && self.idle.remove(&self.since[page as usize]).is_some() {
            self.free.push(page);
        }
    }
}
