//! Pages, who holds them and what they hold: the host side of the KV cache. Data, not structure: this
//! room knows no device and no architecture; a page is a number, a position's place in it is `slot % PAGE`.
//!
//! - `pool`: pages of one kind of layer, counted references, which idle page goes first.
//! - `index`: what pages hold: a tree of token ids, found by hash, compared by the ids themselves.
//! - [`KvCache`]: both together: sequences get pages, share prefixes, give pages back.
//!
//! A page that nobody holds but that the index knows is *idle*: its content stays until the page is needed.

mod cache;
mod index;
mod lookup;
mod pool;
mod shift;
#[cfg(test)]
mod tests;

pub use cache::{Attached, KvCache, PageCopy, PageUse, SeqPages, Shifted};

use crate::graph::{LayerKind, PAGE};

/// There are not enough pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the KV cache is full: {needed} more page(s) of {PAGE} positions needed for {} layers, \
     {free} of {total} free", match kind { LayerKind::Full => "full", LayerKind::Windowed => "windowed" }
)]
pub struct OutOfPages {
    /// Of which kind of layer.
    pub kind: LayerKind,
    /// Pages asked for.
    pub needed: usize,
    /// Pages free or idle.
    pub free: usize,
    /// Pages there are.
    pub total: usize,
}
