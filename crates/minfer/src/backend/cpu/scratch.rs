//! Memory of a region beside the graph's buffers: activations as products take them, and what each
//! thread has for itself.

#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::graph::{BackendError, Counts, MatMul, Node, Op, Rows as RowCount, Run};
use crate::lanes::Machine;

use super::attention::{ITEMS_A_THREAD, Tile};
use super::buffer::AlignedBuffer;
use super::heads::FreshHeads;
use super::kernels::attention;
use super::kernels::matmul::{ActKind, ActTiles, Scratch};
use super::staged::OwnWeights;
use super::weights::Weights;

/// Up to so many rows every thread prepares a product's activations for itself: cheaper than a barrier.
const OWN_ROWS: usize = 2;

/// What each thread has for itself.
#[derive(Default)]
pub(super) struct ThreadScratch {
    /// Activations of products of few rows.
    pub tiles: ActTiles,
    /// Strips of weights, unpacked or packed for the product at hand.
    pub weights: OwnWeights,
    /// 1 / rms of each row.
    pub scales: Vec<f32>,
    /// Attention's queries, scores and running results.
    pub attention: attention::Scratch,
    /// An attention node's rows, cut into tiles.
    pub tiles_of_rows: Vec<Tile>,
    /// A row's heads, as a block of attention makes them; a key that is turned.
    pub heads: AlignedBuffer,
    /// Sums of few rows, as the entry to a product makes them.
    pub sums: AlignedBuffer,
}

/// What a run's nodes need of each thread's own memory.
#[derive(Default)]
pub(super) struct ThreadNeeds {
    tiles: usize,
    panels: usize,
    staged: usize,
    attention_rows: usize,
    head_dim: usize,
    heads: usize,
    sums: usize,
}

impl ThreadNeeds {
    /// The most of any node.
    pub fn of(machine: Machine, run: &Run<'_>, weights: &Weights) -> ThreadNeeds {
        let mut n = ThreadNeeds::default();
        for (_, node) in run.iter() {
            let rows = run.counts.rows(node.shape.rows);
            match &node.op {
                Op::MatMul(m) => {
                    let (kind, k) = (kind(m, weights), run.graph.node(node.srcs[0]).shape.cols);
                    n.panels = n.panels.max(Scratch::bytes(machine, kind, rows, k));
                    for part in &m.parts {
                        let bytes = weights.matrix(part.weight).staged_bytes();
                        n.staged = n.staged.max(bytes);
                    }
                    if !shares(rows) {
                        n.tiles = n.tiles.max(ActTiles::bytes(machine, kind, rows, k));
                        n.sums = n.sums.max(4 * rows * k);
                    }
                }
                Op::Attention(a) => {
                    let group = a.n_head / a.n_head_kv;
                    let tokens = rows.min(attention::tile_tokens(group));
                    n.attention_rows = n.attention_rows.max(tokens * group);
                    n.head_dim = n.head_dim.max(a.head_dim);
                    n.heads = n.heads.max(4 * FreshHeads::values(a));
                }
                Op::KvShift { head_dim, .. } => n.heads = n.heads.max(4 * head_dim),
                _ => {}
            }
        }
        n
    }
}

impl ThreadScratch {
    /// Makes room, so that nothing is allocated inside the region, where nobody could say that there is no
    /// memory.
    pub fn reserve(&mut self, needs: &ThreadNeeds) -> Result<(), BackendError> {
        enough(self.tiles.reserve(needs.tiles), needs.tiles, "activations")?;
        let own = &mut self.weights;
        enough(
            own.panels.reserve(needs.panels),
            needs.panels,
            "unpacked weights",
        )?;
        enough(
            own.reserve_staged(needs.staged),
            needs.staged,
            "weights of the mapping",
        )?;
        enough(self.heads.grow(needs.heads), needs.heads, "heads")?;
        enough(self.sums.grow(needs.sums), needs.sums, "sums")?;
        let (rows, head_dim) = (needs.attention_rows, needs.head_dim);
        let bytes = attention::Scratch::bytes(rows, head_dim);
        enough(self.attention.reserve(rows, head_dim), bytes, "attention")
    }
}

/// The error of a reservation that did not succeed.
fn enough(room: bool, bytes: usize, what: &str) -> Result<(), BackendError> {
    if room {
        return Ok(());
    }
    Err(BackendError::OutOfMemory {
        backend: "cpu",
        bytes,
        what: what.to_owned(),
    })
}

/// Which activations: kind, rows, values a row.
type Key = (ActKind, RowCount, usize);

/// What all threads share.
pub(super) struct Shared {
    tiles: Vec<(Key, ActTiles)>,
    /// 1 / rms of each row; attention's partial results.
    floats: AlignedBuffer,
    /// How many segments of each tile and KV head of an attention are done; 0 between attentions.
    done: Vec<AtomicUsize>,
    /// The segment that a test wants to fail, counted from now; 0: none.
    #[cfg(test)]
    pub fail: Arc<AtomicUsize>,
}

/// Whether a product of so many rows uses the shared tiles.
pub(super) fn shares(rows: usize) -> bool {
    rows > OWN_ROWS
}

/// Whether the node uses memory that all threads share, so that two such nodes need a barrier between.
pub(super) fn uses_shared(node: &Node, counts: Counts) -> bool {
    match node.op {
        Op::MatMul(_) => shares(counts.rows(node.shape.rows)),
        Op::Attention(_) => true,
        _ => false,
    }
}

/// The kind of activations a product takes: one for all its parts (`matmul::supports`).
pub(super) fn kind(m: &MatMul, weights: &Weights) -> ActKind {
    weights.kind(m.parts[0].weight)
}

impl Shared {
    /// For so many threads.
    pub fn new(threads: usize) -> Shared {
        let none = std::iter::repeat_with(AtomicUsize::default);
        Shared {
            tiles: Vec::new(),
            floats: AlignedBuffer::empty(),
            done: none.take(ITEMS_A_THREAD * threads).collect(),
            #[cfg(test)]
            fail: Arc::default(),
        }
    }

    /// One more segment of the tile and KV head with number `at` is done: whether that was the last of
    /// `all`. Then all of them can be read.
    pub fn one_more_done(&self, at: usize, all: usize) -> bool {
        #[cfg(test)]
        self.fail_if_asked();
        let last = self.done[at].fetch_add(1, Ordering::AcqRel) + 1 == all;
        if last {
            // Nobody counts here again before the next barrier.
            self.done[at].store(0, Ordering::Relaxed);
        }
        last
    }

    #[cfg(test)]
    fn fail_if_asked(&self) {
        let left = self
            .fail
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        assert!(left != Ok(1), "a segment fails as a test asked");
    }

    /// After a region that ended in the middle.
    pub fn after_error(&mut self) {
        self.done.iter_mut().for_each(|d| *d.get_mut() = 0);
    }

    /// Makes room for everything the run's nodes share; `floats` is what attention needs.
    pub fn reserve(
        &mut self,
        machine: Machine,
        run: &Run<'_>,
        weights: &Weights,
        floats: usize,
    ) -> Result<(), BackendError> {
        let mut most_rows = 0;
        for (_, node) in run.iter() {
            let Op::MatMul(m) = &node.op else { continue };
            let rows = run.counts.rows(node.shape.rows);
            if !shares(rows) {
                continue;
            }
            most_rows = most_rows.max(rows);
            let x = run.graph.node(node.srcs[0]).shape;
            self.prepare(machine, (kind(m, weights), x.rows, x.cols), rows)?;
        }
        let bytes = 4 * floats.max(most_rows);
        if self.floats.len() < bytes {
            let bytes = bytes.next_power_of_two();
            return enough(
                self.floats.grow(bytes),
                bytes,
                "attention's partial results",
            );
        }
        Ok(())
    }

    fn prepare(&mut self, machine: Machine, key: Key, rows: usize) -> Result<(), BackendError> {
        let at = match self.tiles.iter().position(|t| t.0 == key) {
            Some(at) => at,
            None => {
                self.tiles.push((key, ActTiles::new()));
                self.tiles.len() - 1
            }
        };
        let tiles = &mut self.tiles[at].1;
        if (tiles.kind(), tiles.tokens(), tiles.k()) != (key.0, rows, key.2) {
            let room = tiles.reset(machine, key.0, rows, key.2);
            let bytes = ActTiles::bytes(machine, key.0, rows, key.2);
            return enough(room, bytes, "activations");
        }
        Ok(())
    }

    /// The shared tiles of some activations.
    ///
    /// # Panics
    /// If they were not prepared for this run.
    pub fn tiles(&self, kind: ActKind, rows: RowCount, cols: usize) -> &ActTiles {
        let found = self.tiles.iter().find(|t| t.0 == (kind, rows, cols));
        &found.expect("reserved before the region").1
    }

    /// The shared floats, at least as many as were reserved; who writes which is the node's affair.
    pub fn floats(&self) -> (*mut f32, usize) {
        (self.floats.as_mut_ptr().cast(), self.floats.len() / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_memory_is_an_error_that_names_the_bytes() {
        let mut own = ThreadScratch::default();
        let (tiles, panels) = (1 << 12, 1 << 12);
        let some = ThreadNeeds {
            tiles,
            panels,
            staged: 1 << 12,
            attention_rows: 4,
            head_dim: 64,
            heads: 1 << 12,
            sums: 1 << 12,
        };
        assert!(own.reserve(&some).is_ok());
        let too_much = [
            ThreadNeeds {
                tiles: 1 << 60,
                ..ThreadNeeds::default()
            },
            ThreadNeeds {
                panels: 1 << 60,
                ..ThreadNeeds::default()
            },
            ThreadNeeds {
                staged: 1 << 60,
                ..ThreadNeeds::default()
            },
            ThreadNeeds {
                heads: 1 << 60,
                ..ThreadNeeds::default()
            },
            ThreadNeeds {
                sums: 1 << 60,
                ..ThreadNeeds::default()
            },
            ThreadNeeds {
                attention_rows: 1 << 28,
                head_dim: 1 << 28,
                ..ThreadNeeds::default()
            },
        ];
        for needs in too_much {
            let error = own.reserve(&needs).unwrap_err();
            assert!(
                matches!(error, BackendError::OutOfMemory { bytes, .. } if bytes >= 1 << 56),
                "{error}"
            );
        }
    }
}
