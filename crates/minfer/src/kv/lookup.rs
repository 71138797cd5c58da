//! Looking before taking: what pages hold of a prompt, and whether it can have a place.

use super::cache::{Kind, KvCache};
use super::index::NodeId;
use crate::graph::PAGE;

impl KvCache {
    /// How many first tokens of `ids` whole pages hold, of at most `limit`.
    pub fn held(&self, ids: &[u32], limit: usize) -> usize {
        self.path(&ids[..limit.min(ids.len())]).len() * PAGE
    }

    /// The nodes that hold the first whole pages of `ids`.
    pub(super) fn path(&self, ids: &[u32]) -> Vec<NodeId> {
        let mut path = Vec::new();
        for page in ids.chunks_exact(PAGE) {
            match self.index.find(path.last().copied(), page) {
                Some(node) => path.push(node),
                None => break,
            }
        }
        path
    }

    /// Whether a sequence that begins with `ids`, of which pages may hold the first `limit`, can have pages for
    /// `positions` without taking anybody's.
    pub fn fits(&self, ids: &[u32], limit: usize, positions: usize) -> bool {
        let path = self.path(&ids[..limit.min(ids.len())]);
        let new = positions.div_ceil(PAGE).saturating_sub(path.len());
        let idle = |kind: &Kind, page: Option<u32>| page.is_some_and(|p| kind.pool.refs(p) == 0);
        let nodes = || path.iter().map(|&node| self.index.node(node));
        // Idle pages of the prefix would be used, not made room of.
        let used = nodes().filter(|n| idle(&self.full, Some(n.full))).count();
        let windowed = self.windowed.as_ref().is_none_or(|kind| {
            let used = nodes().filter(|n| idle(kind, n.windowed)).count();
            new.min(self.window / PAGE + 2) <= kind.available().saturating_sub(used)
        });
        windowed && new <= self.full.available().saturating_sub(used)
    }
}
