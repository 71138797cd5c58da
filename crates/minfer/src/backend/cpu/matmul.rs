//! Product nodes: activations into tiles once, then strips of every part of the group.

use crate::graph::{MatMul, NodeId, Norm, Op, Rows as RowCount, WeightId};

use super::blocks::Entry;
use super::execute::{Region, pieces};
use super::kernels::elementwise;
use super::kernels::matmul::{
    self as kernel, ActKind, ActTiles, Epilogue, glu_strips, interleave, matmul_strips, quantize,
};
use super::kernels::norm::{self, rms_scale};
use super::rows::Rows;
use super::scratch::{ThreadScratch, kind, shares};
use super::staged::OwnWeights;
use super::threads::Worker;

/// Pieces of a thread's share of the strips: few enough that each is a long stream.
const PIECES: usize = 8;
/// Up to so many columns every machine multiplies strips one by one.
const SINGLE_STRIPS: usize = 8;
/// Sizes of pieces that are tried for one that shares well.
const TRIED_GRAINS: usize = 8;

/// Up to so many rows every thread computes the norm's scales for itself: cheaper than a barrier.
const OWN_SCALES: usize = 8;

/// Whether a product, as it stands, has a kernel: all parts take one kind of activations, and a
/// gated unit adds no biases.
pub(super) fn supports(m: &MatMul, kind_of: impl Fn(WeightId) -> ActKind) -> bool {
    let alike = m
        .parts
        .windows(2)
        .all(|p| kind_of(p[0].weight) == kind_of(p[1].weight));
    let plain = m.parts.iter().all(|p| p.bias.is_none()) && !m.residual && m.parts.len() == 2;
    alike && (m.glu.is_none() || plain)
}

impl Region<'_> {
    /// This thread's share of a product.
    pub(super) fn matmul(&self, m: &MatMul, id: NodeId, w: &Worker<'_>, own: &mut ThreadScratch) {
        let x = self.rows(self.run.graph.node(id).srcs[0]);
        self.product(m, id, x, w, own);
    }

    /// This thread's share of the norm, sum and product of `e`, if rows are so few that every thread makes
    /// the sum for itself.
    pub(super) fn entry(&self, e: &Entry, w: &Worker<'_>, own: &mut ThreadScratch) -> bool {
        let (x, sum, residual) = (self.rows(e.x), self.rows(e.sum), self.rows(e.residual));
        let Op::MatMul(m) = &self.run.graph.node(e.product).op else {
            return false;
        };
        if x.rows == 0 || shares(x.rows) {
            return false;
        }
        let asked = e.asked.map(|rows| self.integers(rows));
        let weight = self.weights.vector(e.norm.weight);
        let values = x.rows * x.cols;
        assert!(own.sums.len() >= 4 * values, "reserved before the region");
        // SAFETY: so long (just checked), every bit pattern is an f32, and the memory is this thread's own
        // and neither moved nor used otherwise during the node.
        let mine = unsafe { std::slice::from_raw_parts_mut(own.sums.as_mut_ptr().cast(), values) };
        for (r, mine) in mine.chunks_exact_mut(x.cols).enumerate() {
            let from = asked.map_or(r, |rows| rows[r] as usize);
            // SAFETY: written before the last barrier; nothing of the step is written there (`plan`).
            let (x, residual) = unsafe { (x.row(r), residual.row(from)) };
            norm::rms_norm(self.machine, x, weight, e.norm.eps, mine);
            let to = mine.as_mut_ptr();
            // SAFETY: rows of equal length, which the sum's node has; in place on this thread's memory.
            unsafe { elementwise::add(self.machine, to, residual.as_ptr(), to, x.len()) };
        }
        let mine = Rows::of(mine, x.cols, x.cols);
        pieces(sum, w, |r, c, n| {
            let (from, to) = (mine.at(r, c), sum.at(r, c));
            // SAFETY: n elements of row r of both; this thread's share, which is read after a barrier.
            unsafe { std::ptr::copy_nonoverlapping(from, to, n) };
        });
        self.product(m, e.product, mine, w, own);
        true
    }

    /// This thread's share of the product `m` (node `id`) of the rows `x`.
    fn product(&self, m: &MatMul, id: NodeId, x: Rows, w: &Worker<'_>, own: &mut ThreadScratch) {
        let node = self.run.graph.node(id);
        if x.rows == 0 {
            return;
        }
        let out = self.rows(id);
        let residual = m.residual.then(|| self.rows(node.srcs[1]));
        let kind = kind(m, self.weights);
        if shares(x.rows) {
            let rows: RowCount = self.run.graph.node(node.srcs[0]).shape.rows;
            let tiles = self.shared.tiles(kind, rows, x.cols);
            self.tile_together(m.norm, tiles, x, w, &mut own.scales);
            self.strips(m, tiles, residual, out, w, &mut own.weights);
        } else {
            let room = own.tiles.reset(self.machine, kind, x.rows, x.cols);
            assert!(room, "the thread's tiles were reserved before the region");
            let (blocks, scales) = (
                0..own.tiles.blocks(),
                self.scales(m.norm, x, &mut own.scales),
            );
            // SAFETY: the tiles are this thread's own.
            unsafe { self.tile(m.norm, &own.tiles, x, scales, blocks) };
            self.strips(m, &own.tiles, residual, out, w, &mut own.weights);
        }
    }

    /// 1 / rms of row `r`; 1 without a norm.
    fn scale_of(&self, norm: Option<Norm>, x: Rows, r: usize) -> f32 {
        // SAFETY: the plan puts a barrier after x's writer.
        norm.map_or(1.0, |n| rms_scale(self.machine, unsafe { x.row(r) }, n.eps))
    }

    /// Fills the shared tiles on all threads, and waits for them.
    fn tile_together(
        &self,
        norm: Option<Norm>,
        tiles: &ActTiles,
        x: Rows,
        w: &Worker<'_>,
        own: &mut Vec<f32>,
    ) {
        let scales = match norm {
            Some(_) if x.rows > OWN_SCALES => self.scales_together(norm, x, w),
            _ => self.scales(norm, x, own),
        };
        // SAFETY: each block is one thread's.
        unsafe { self.tile(norm, tiles, x, scales, w.range(tiles.blocks())) };
        w.barrier();
    }

    /// 1 / rms of each row, by this thread for itself.
    fn scales<'o>(&self, norm: Option<Norm>, x: Rows, own: &'o mut Vec<f32>) -> &'o [f32] {
        own.clear();
        own.extend((0..x.rows).map(|r| self.scale_of(norm, x, r)));
        own
    }

    /// The same by all threads, which wait for each other.
    fn scales_together(&self, norm: Option<Norm>, x: Rows, w: &Worker<'_>) -> &[f32] {
        let (floats, len) = self.shared.floats();
        assert!(
            len >= x.rows,
            "scratch was reserved for {len} rows, not {}",
            x.rows
        );
        for r in w.range(x.rows) {
            // SAFETY: r is below the reserved length; this thread alone writes it.
            unsafe { *floats.add(r) = self.scale_of(norm, x, r) };
        }
        w.barrier();
        // SAFETY: written before the barrier, and nobody writes them before the next.
        unsafe { std::slice::from_raw_parts(floats, x.rows) }
    }

    /// Writes blocks of activations.
    ///
    /// # Safety
    /// No other thread uses these blocks of `tiles` now.
    unsafe fn tile(
        &self,
        norm: Option<Norm>,
        tiles: &ActTiles,
        x: Rows,
        scale: &[f32],
        blocks: std::ops::Range<usize>,
    ) {
        let norm = norm.map(|n| kernel::Norm {
            scale,
            weight: self.weights.vector(n.weight),
        });
        match tiles.kind() {
            // SAFETY: the plan puts a barrier after x's writer; the blocks are this thread's (caller).
            ActKind::Q8 => unsafe { quantize(self.machine, tiles, x, norm, blocks) },
            // SAFETY: as above.
            ActKind::F32 => unsafe { interleave(self.machine, tiles, x, norm, blocks) },
        }
    }

    /// This thread's strips of all parts.
    fn strips(
        &self,
        m: &MatMul,
        tiles: &ActTiles,
        residual: Option<Rows>,
        out: Rows,
        w: &Worker<'_>,
        own: &mut OwnWeights,
    ) {
        let matrix = |i: usize| self.weights.matrix(m.parts[i].weight);
        if let Some(act) = m.glu {
            let (gate, up) = (matrix(0), matrix(1));
            let n = gate.layout().strips();
            w.for_each(n, grain(n, out.rows, w.count()), |strips| {
                own.with_packed([gate, up], strips, |[gate, up], strips, rows, panels| {
                    let out = out.columns(rows.start, rows.len());
                    // SAFETY: each strip's rows of `out` are this thread's; weights and tiles are not
                    // written in a region after their barrier.
                    unsafe { glu_strips(self.machine, gate, up, act, strips, tiles, out, panels) };
                });
            });
            return;
        }
        let n: usize = (0..m.parts.len())
            .map(|i| matrix(i).layout().strips())
            .sum();
        w.for_each(n, grain(n, out.rows, w.count()), |range| {
            let (mut first, mut column) = (0, 0);
            for (i, part) in m.parts.iter().enumerate() {
                let matrix = matrix(i);
                let end = first + matrix.layout().strips();
                let (from, to) = (range.start.max(first), range.end.min(end));
                if from < to {
                    let bias = part.bias.map(|b| self.weights.vector(b));
                    let strips = from - first..to - first;
                    own.with_packed([matrix], strips, |[packed], strips, rows, panels| {
                        let epilogue = Epilogue {
                            bias: bias.map(|b| &b[rows.clone()]),
                            residual: residual.map(|r| r.columns(rows.start, rows.len())),
                        };
                        let out = out.columns(column + rows.start, rows.len());
                        // SAFETY: as above; a residual's rows are those of `out`, or written before the
                        // last barrier.
                        unsafe {
                            matmul_strips(
                                self.machine,
                                packed,
                                strips,
                                tiles,
                                &epilogue,
                                out,
                                panels,
                            )
                        };
                    });
                }
                (first, column) = (end, column + part.rows);
            }
        });
    }
}

/// Strips a thread takes at a time: so many that threads whose shares are whole pieces have equal work. With
/// many columns an even number, since wide kernels take two.
fn grain(strips: usize, columns: usize, threads: usize) -> usize {
    let unit = if columns <= SINGLE_STRIPS { 1 } else { 2 };
    let largest = strips.div_ceil(PIECES * threads).next_multiple_of(unit);
    let most = |grain: usize| grain * strips.div_ceil(grain).div_ceil(threads);
    (0..TRIED_GRAINS)
        .map_while(|i| largest.checked_sub(i * unit))
        .take_while(|g| *g > 0 && 2 * *g >= largest)
        .min_by_key(|g| most(*g))
        .unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::grain;

    #[test]
    fn pieces_give_threads_equal_shares() {
        // Rows of real models' products, in strips of 16: q/k/v, output, gate and up, head.
        for strips in [60, 36, 96, 128, 72, 56, 304, 9496, 3072, 16384] {
            for columns in [1, 512] {
                let g = grain(strips, columns, 2);
                let most = g * strips.div_ceil(g).div_ceil(2);
                assert!(columns == 1 || g % 2 == 0);
                assert!(
                    most as f64 <= 1.002 * (strips / 2) as f64
                        || columns > 1 && most <= strips / 2 + 2,
                    "{strips} strips by {g}: {most} on one thread"
                );
                assert!(strips.div_ceil(g) <= 4 * 8 * 2, "{strips} by {g}");
            }
        }
        for strips in 1..100 {
            for threads in 1..9 {
                for columns in [1, 9] {
                    assert!(grain(strips, columns, threads) > 0);
                }
            }
        }
    }
}
