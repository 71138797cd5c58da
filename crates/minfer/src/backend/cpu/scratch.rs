//! Memory of a region beside the graph's buffers: activations as products take them, and what each
//! thread has for itself.

use crate::graph::{Counts, MatMul, Node, Op, Rows as RowCount, Run};
use crate::lanes::Machine;

use super::attention::Tile;
use super::buffer::AlignedBuffer;
use super::kernels::attention;
use super::kernels::matmul::{ActKind, ActTiles, Scratch};
use super::weights::Weights;

/// Up to so many rows every thread prepares a product's activations for itself: cheaper than a barrier.
const OWN_ROWS: usize = 2;

/// What each thread has for itself.
#[derive(Default)]
pub(super) struct ThreadScratch {
    /// Activations of products of few rows.
    pub tiles: ActTiles,
    /// Unpacked strips.
    pub panels: Scratch,
    /// 1 / rms of each row.
    pub scales: Vec<f32>,
    /// Attention's queries, scores and running results.
    pub attention: attention::Scratch,
    /// An attention node's rows, cut into tiles.
    pub tiles_of_rows: Vec<Tile>,
}

/// Which activations: kind, rows, values a row.
type Key = (ActKind, RowCount, usize);

/// What all threads share.
#[derive(Default)]
pub(super) struct Shared {
    tiles: Vec<(Key, ActTiles)>,
    /// 1 / rms of each row; attention's partial results.
    floats: Option<AlignedBuffer>,
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
    /// Makes room for everything the run's nodes share; `floats` is what attention needs. False if
    /// there is no memory.
    pub fn reserve(
        &mut self,
        machine: Machine,
        run: &Run<'_>,
        weights: &Weights,
        floats: usize,
    ) -> bool {
        let mut most_rows = 0;
        for (_, node) in run.iter() {
            let Op::MatMul(m) = &node.op else { continue };
            let rows = run.counts.rows(node.shape.rows);
            if !shares(rows) {
                continue;
            }
            most_rows = most_rows.max(rows);
            let x = run.graph.node(node.srcs[0]).shape;
            self.prepare(machine, (kind(m, weights), x.rows, x.cols), rows);
        }
        let bytes = 4 * floats.max(most_rows);
        if self.floats.as_ref().map_or(0, AlignedBuffer::len) < bytes {
            self.floats = AlignedBuffer::try_zeroed(bytes.next_power_of_two());
            return self.floats.is_some();
        }
        true
    }

    fn prepare(&mut self, machine: Machine, key: Key, rows: usize) {
        let at = match self.tiles.iter().position(|t| t.0 == key) {
            Some(at) => at,
            None => {
                self.tiles.push((key, ActTiles::new()));
                self.tiles.len() - 1
            }
        };
        let tiles = &mut self.tiles[at].1;
        if (tiles.kind(), tiles.tokens(), tiles.k()) != (key.0, rows, key.2) {
            tiles.reset(machine, key.0, rows, key.2);
        }
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
        match &self.floats {
            Some(b) => (b.as_mut_ptr().cast(), b.len() / 4),
            None => (std::ptr::NonNull::dangling().as_ptr(), 0),
        }
    }
}
