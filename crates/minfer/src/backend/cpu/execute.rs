//! One node on all threads: who does what share.

use crate::graph::{Activation, NodeId, Norm, Op, RopeKind, RopeTable, Run, WeightId};
use crate::lanes::Machine;
use crate::numeric;

use super::blocks::Block;
use super::buffer::AlignedBuffer;
use super::kernels::{elementwise, norm, rope};
use super::plan::Step;
use super::rows::Rows;
use super::scratch::{Shared, ThreadScratch};
use super::threads::Worker;
use super::weights::Weights;

/// Elements of a row that one thread takes at a time when rows are few: 4 cache lines.
const PIECE: usize = 64;

/// Everything a region's threads look at.
pub(super) struct Region<'a> {
    pub machine: Machine,
    pub run: &'a Run<'a>,
    pub weights: &'a Weights,
    pub buffers: &'a [Option<AlignedBuffer>],
    pub shared: &'a Shared,
}

impl<'a> Region<'a> {
    /// The buffer a node's output lies in.
    pub fn buffer(&self, id: NodeId) -> &'a AlignedBuffer {
        let at = self.run.place(id).buffer.0 as usize;
        self.buffers[at].as_ref().expect("a placed buffer exists")
    }

    /// A node's output: the rows in use.
    pub fn rows(&self, id: NodeId) -> Rows {
        let (node, place) = (self.run.graph.node(id), self.run.place(id));
        let rows = self.run.counts.rows(node.shape.rows);
        Rows::new(
            self.buffer(id),
            place.offset,
            place.stride,
            rows,
            node.shape.cols,
        )
    }

    /// This thread's share of a step, without the barrier before it.
    pub fn step(&self, step: &Step, w: &Worker<'_>, own: &mut ThreadScratch) {
        let done = match &step.block {
            None => false,
            Some(Block::Heads(heads)) => self.heads(heads, w, own),
            Some(Block::Entry(entry)) => self.entry(entry, w, own),
        };
        if done {
            return;
        }
        for single in &step.nodes {
            if single.barrier {
                w.barrier();
            }
            self.node(single.node, w, own);
        }
    }

    /// This thread's share of node `index`.
    pub fn node(&self, index: usize, w: &Worker<'_>, own: &mut ThreadScratch) {
        let id = NodeId(index as u32);
        let node = self.run.graph.node(id);
        let src = |i: usize| self.rows(node.srcs[i]);
        match &node.op {
            Op::Input(_) | Op::View { .. } => {}
            Op::GetRows { weight } => self.get_rows(*weight, src(0), self.rows(id), w),
            Op::SelectRows => self.select_rows(src(0), src(1), self.rows(id), w),
            Op::Scale { factor } => self.unary(Unary::Scale(*factor), src(0), self.rows(id), w),
            Op::Act(act) => self.unary(Unary::Act(*act), src(0), self.rows(id), w),
            Op::Add => self.binary(Binary::Add, [src(0), src(1)], self.rows(id), w),
            Op::Mul => self.binary(Binary::Mul, [src(0), src(1)], self.rows(id), w),
            Op::Glu(act) => self.binary(Binary::Glu(*act), [src(0), src(1)], self.rows(id), w),
            Op::RmsNorm(n) => self.rms_norm(n, src(0), self.rows(id), w),
            Op::RopeTable(t) => self.rope_table(t, src(0), self.rows(id), w),
            Op::Rope { kind, head_dim, .. } => {
                self.rope(*kind, *head_dim, [src(0), src(1)], self.rows(id), w);
            }
            Op::MatMul(m) => self.matmul(m, id, w, own),
            Op::KvStore { part, .. } => self.kv_store(*part, id, w),
            Op::KvShift { .. } => self.kv_shift(id, w, own),
            Op::Attention(a) => self.attention(a, id, w, own),
        }
    }

    fn get_rows(&self, weight: WeightId, ids: Rows, out: Rows, w: &Worker<'_>) {
        let table = self.weights.table(weight);
        let row_bytes = table
            .ty
            .row_bytes(out.cols)
            .expect("a table's rows are whole blocks");
        let batch = out.rows;
        for r in w.range(out.rows) {
            // SAFETY: ids are inputs; this thread alone writes row r.
            let (id, out) = unsafe { (ids.row_i32(r)[0] as usize, out.row_mut(r)) };
            let bytes = &table.data.bytes()[id * row_bytes..][..row_bytes];
            numeric::decode_row(table.ty, bytes, out)
                .expect("the loader has checked the table's type");
            self.weights.looked_up(weight, 1, batch);
        }
    }

    fn select_rows(&self, x: Rows, which: Rows, out: Rows, w: &Worker<'_>) {
        for r in w.range(out.rows) {
            // SAFETY: the plan puts a barrier after x's writer; this thread alone writes row r.
            unsafe {
                out.row_mut(r)
                    .copy_from_slice(x.row(which.row_i32(r)[0] as usize))
            };
        }
    }

    fn unary(&self, op: Unary, x: Rows, out: Rows, w: &Worker<'_>) {
        pieces(out, w, |r, c, n| {
            let (x, out) = (x.at(r, c), out.at(r, c));
            // SAFETY: n elements of row r, inside both; `out` is `x` or elsewhere; this thread's share.
            unsafe {
                match op {
                    Unary::Scale(f) => elementwise::scale(self.machine, x, f, out, n),
                    Unary::Act(a) => elementwise::act(self.machine, x, a, out, n),
                }
            }
        });
    }

    fn binary(&self, op: Binary, [a, b]: [Rows; 2], out: Rows, w: &Worker<'_>) {
        pieces(out, w, |r, c, n| {
            let (a, b, out) = (a.at(r, c), b.at(r, c), out.at(r, c));
            // SAFETY: n elements of row r, inside all three; `out` is `a` or elsewhere; this thread's share.
            unsafe {
                match op {
                    Binary::Add => elementwise::add(self.machine, a, b, out, n),
                    Binary::Mul => elementwise::mul(self.machine, a, b, out, n),
                    Binary::Glu(act) => elementwise::glu(self.machine, act, a, b, out, n),
                }
            }
        });
    }

    fn rms_norm(&self, n: &Norm, x: Rows, out: Rows, w: &Worker<'_>) {
        let weight = self.weights.vector(n.weight);
        let groups = out.cols / n.group;
        for item in w.range(out.rows * groups) {
            let (r, c) = (item / groups, item % groups * n.group);
            // SAFETY: one group of row r, inside both buffers, which differ (the op is not in place);
            // this thread alone writes it.
            let (x, out) = unsafe {
                (
                    std::slice::from_raw_parts(x.at(r, c), n.group),
                    std::slice::from_raw_parts_mut(out.at(r, c), n.group),
                )
            };
            norm::rms_norm(self.machine, x, weight, n.eps, out);
        }
    }

    fn rope_table(&self, t: &RopeTable, positions: Rows, out: Rows, w: &Worker<'_>) {
        let freqs = self.weights.freqs(t);
        let half = freqs.freqs.len();
        // By channel pair: a decode has one row, and an angle takes a while.
        for item in w.range(out.rows * half) {
            let (r, i) = (item / half, item % half);
            // SAFETY: positions are inputs.
            let (cos, sin) = freqs.angle(unsafe { positions.row_i32(r)[0] }, i);
            // SAFETY: both lie in row r; this thread alone writes them.
            unsafe { (*out.at(r, i), *out.at(r, half + i)) = (cos, sin) };
        }
    }

    fn rope(
        &self,
        kind: RopeKind,
        head_dim: usize,
        [x, table]: [Rows; 2],
        out: Rows,
        w: &Worker<'_>,
    ) {
        let heads = out.cols / head_dim;
        for item in w.range(out.rows * heads) {
            let (r, c) = (item / heads, item % heads * head_dim);
            let (from, to) = (x.at(r, c), out.at(r, c));
            // SAFETY: one head of row r, inside both; `out` is `x` or elsewhere; this thread's share.
            unsafe {
                if !std::ptr::eq(from, to) {
                    std::ptr::copy_nonoverlapping(from, to, head_dim);
                }
                let head = std::slice::from_raw_parts_mut(to, head_dim);
                rope::rope_row(self.machine, kind, head, head_dim, table.row(r));
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Unary {
    Scale(f32),
    Act(Activation),
}

#[derive(Clone, Copy)]
enum Binary {
    Add,
    Mul,
    Glu(Activation),
}

/// Calls `f(row, column, count)` for this thread's pieces of all rows: whole rows when there are
/// many, parts of a row when there are few.
pub(super) fn pieces(out: Rows, w: &Worker<'_>, mut f: impl FnMut(usize, usize, usize)) {
    if out.rows >= 4 * w.count() {
        w.range(out.rows).for_each(|r| f(r, 0, out.cols));
        return;
    }
    let per_row = out.cols.div_ceil(PIECE);
    let mut range = w.range(out.rows * per_row);
    // Neighbouring pieces of a row go together.
    while let Some(item) = range.next() {
        let (r, p) = (item / per_row, item % per_row);
        let more = (per_row - p - 1).min(range.len());
        if more > 0 {
            range.nth(more - 1);
        }
        let (first, end) = (p * PIECE, ((p + more + 1) * PIECE).min(out.cols));
        f(r, first, end - first);
    }
}
