//! Grouped-query attention over pages.
//!
//! # Contract
//! What one row (a token's one query head) computes depends on its query, its slot, its sequence's keys
//! and values and the window; never on which rows share its tile, how a prompt was cut, or who computes:
//!
//! 1. Visible are the slots `s` with `s <= slot` and, under a window, `s > slot - window`. Segments of 256
//!    absolute slots are taken in order; one without a visible slot is skipped.
//! 2. In a segment, the score of a visible slot is `x * scale`, where `x` starts at +0 and goes
//!    `fma(k[d], q[d], x)` over the channels in order. Where K is kept as Q8_0, the query is quantized
//!    too ([`quantize_block`](crate::numeric::quantize_block)), and `x` goes over the blocks of 32
//!    channels in order: `x = fma(f32(i) * dk, dq, x)` with the exact integer sum `i` of the block's
//!    products of codes, the key's scale `dk` and the query's `dq`.
//! 3. `m` is the maximum of the visible scores. `p = exp(score - m)` ([`math::exp`](crate::lanes::math::exp));
//!    other slots have `p = +0` exactly. `l`: sixteen sums, that of lane `s % 16` over the segment's
//!    slots in order, then the horizontal tree.
//! 4. `o[c]` starts at +0 and goes `fma(v[s][c], p[s], o[c])` over the slots in order; at the end `+ 0`
//!    (which makes -0 into +0, so that slots with `p = 0` leave no trace). Of a Q8_0 region `v` is code
//!    times scale, which f32 holds exactly. Stored values are finite: another row's infinity may turn a row
//!    of its tile into NaN.
//! 5. The first segment of a row is its running result. Each later one is merged:
//!    `n = max(m, m')`, `a = exp(m - n)`, `b = exp(m' - n)`, `l = fma(l', b, l * a)`, `o = fma(o', b, o * a)`.
//! 6. The result is `o * (1 / l)`.
//!
//! Slots that are invisible to the whole tile are not read as values at all, and as keys only where they
//! share a page with a visible one; their scores are replaced, not multiplied away. So what was never
//! written (NaN included) has no effect.
//!
//! # Work
//! Rows are cut into tiles ([`AttnArgs::tile_from`]): consecutive slots of one sequence; the query heads
//! of one KV head go together. Prefill: [`tile`] for every (KV head, tile). Decode: [`segments`] for every
//! (KV head, tile, range of segments), then [`merge`] for every (KV head, tile). Both give the same bits.

#![allow(unsafe_op_in_unsafe_fn)] // pointers follow the preconditions of `AttnArgs`

mod phases;
mod quantized;
mod queries;
mod scratch;
#[cfg(test)]
mod tests;
mod values;

use std::ops::Range;

use super::kv::head_offset;
use crate::graph::{KvType, PAGE, SEGMENT};
use crate::lanes::{LANES, Machine};

use phases::{Block, Merge, Part, Scores, Sight, Softmax};
use queries::turn_queries;
pub use scratch::Scratch;
use values::Values;

/// Everything that one attention operation reads.
///
/// The functions that take it are unsafe; their precondition is that of its fields: `q` has every row;
/// each slot up to a row's own (within the window) has its page in the table and in both regions, and was
/// written; the regions and `q` are not written meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct AttnArgs<'a> {
    /// Rows of f32 `[n_head * head_dim]`.
    pub q: *const f32,
    /// Elements from row to row of `q`.
    pub q_stride: usize,
    /// K region (layout: [`kv`](super::kv)).
    pub k: *const u8,
    /// V region.
    pub v: *const u8,
    /// Format of K.
    pub k_type: KvType,
    /// Format of V.
    pub v_type: KvType,
    /// Slot of each row, its own position included in what it sees.
    pub slots: &'a [i32],
    /// Line of the page table of each row.
    pub row_seq: &'a [i32],
    /// Pages of each sequence, `[max_seqs][pages_per_seq]`.
    pub page_table: &'a [i32],
    /// Entries of a line of the page table.
    pub pages_per_seq: usize,
    /// Query heads.
    pub n_head: usize,
    /// KV heads.
    pub n_head_kv: usize,
    /// Channels of a head: a multiple of both formats' [`KvType::block`].
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Slots seen, the row's own included.
    pub window: Option<usize>,
}

/// Whether these kernels can run heads of this shape.
pub fn supports(n_head: usize, n_head_kv: usize, head_dim: usize) -> bool {
    n_head_kv > 0 && n_head % n_head_kv == 0 && head_dim > 0 && head_dim % LANES == 0
}

/// Query rows (token x head) that a tile should have: whole register tiles, and scores that stay in cache.
const TILE_ROWS: Range<usize> = 48..97;
/// Register tiles' rows: tiles are a multiple of it where the group allows.
const TILE_STEP: usize = 12;

/// Tokens of a full tile for groups of so many query heads.
pub fn tile_tokens(group: usize) -> usize {
    let most = (TILE_ROWS.end - 1) / group;
    (1..=most)
        .find(|t| t * group >= TILE_ROWS.start && t * group % TILE_STEP == 0)
        .unwrap_or(most.max(1))
}

impl AttnArgs<'_> {
    /// Query heads of a KV head.
    pub fn group(&self) -> usize {
        self.n_head / self.n_head_kv
    }

    /// The tile that starts at row `start`, cut off at row `end`: rows of one sequence at consecutive
    /// slots, at most [`tile_tokens`].
    pub fn tile_from(&self, start: usize, end: usize) -> Range<usize> {
        let end = end.min(start + tile_tokens(self.group()));
        let mut i = start + 1;
        while i < end
            && self.row_seq[i] == self.row_seq[start]
            && self.slots[i] == self.slots[i - 1] + 1
        {
            i += 1;
        }
        start..i
    }

    /// The segments that a tile sees.
    pub fn segments(&self, rows: &Range<usize>) -> Range<usize> {
        let seen = self.seen(rows);
        seen.start / SEGMENT..seen.end.div_ceil(SEGMENT)
    }

    /// f32 values of one partial result: a tile's rows x heads of one KV head, in one segment.
    pub fn partial_len(&self, rows: &Range<usize>) -> usize {
        rows.len() * self.group() * (self.head_dim + 2)
    }

    /// The slots that one row sees.
    fn visible(&self, row: usize) -> Range<usize> {
        debug_assert!(self.slots[row] >= 0, "row {row} has no slot");
        let end = self.slots[row] as usize + 1;
        self.window.map_or(0, |w| end.saturating_sub(w))..end
    }

    /// The slots that some row of a tile sees.
    fn seen(&self, rows: &Range<usize>) -> Range<usize> {
        self.visible(rows.start).start..self.visible(rows.end - 1).end
    }

    /// A tile's query rows as `[head_dim][rows]`, row = token x group + head; quantized if K is.
    unsafe fn pack_q(&self, machine: Machine, kv_head: usize, rows: &Range<usize>, out: *mut f32) {
        if self.k_type == KvType::Q8_0 {
            return quantized::pack_q(machine, self, kv_head, rows, out);
        }
        let (hd, group) = (self.head_dim, self.group());
        let q = self
            .q
            .add(rows.start * self.q_stride + kv_head * group * hd);
        turn_queries(machine, q, self.q_stride, (rows.len(), group, hd), out);
    }

    /// Where page `index` of the tile's sequence has this head's keys and values.
    unsafe fn page(&self, kv_head: usize, seq: usize, index: usize) -> (*const u8, *const u8) {
        let page = self.page_table[seq * self.pages_per_seq + index];
        debug_assert!(page >= 0, "page {index} of sequence {seq} is missing");
        let (page, shape) = (page as usize, (self.n_head_kv, self.head_dim));
        (
            self.k.add(head_offset(self.k_type, shape, page, kv_head)),
            self.v.add(head_offset(self.v_type, shape, page, kv_head)),
        )
    }

    /// The pages of one segment that a tile sees, each with what to prefetch while it is read: two blocks
    /// ahead in the order in which memory is read (the segment's K, its V, the next segment's K).
    unsafe fn blocks(
        &self,
        kv_head: usize,
        rows: &Range<usize>,
        segment: usize,
        last: bool,
        out: &mut [Block; SEGMENT / PAGE],
    ) -> usize {
        let (seen, seq) = (self.seen(rows), self.row_seq[rows.start] as usize);
        let lo = seen.start.max(segment * SEGMENT);
        let hi = seen.end.min((segment + 1) * SEGMENT);
        let (first, n) = (lo / PAGE, hi.div_ceil(PAGE) - lo / PAGE);
        for (i, b) in out[..n].iter_mut().enumerate() {
            let start = (first + i) * PAGE;
            let (k, v) = self.page(kv_head, seq, first + i);
            let positions = lo.max(start) - start..hi.min(start + PAGE) - start;
            *b = Block {
                k,
                v,
                k_next: k,
                v_next: v,
                column: start % SEGMENT,
                positions,
            };
        }
        let pages = seen.end.div_ceil(PAGE);
        for i in 0..n {
            let (mut k_next, mut v_next) = (out[i].k, out[i].v);
            if i + 2 < n {
                (k_next, v_next) = (out[i + 2].k, out[i + 2].v);
            } else {
                if i + 2 - n < n {
                    k_next = out[i + 2 - n].v;
                }
                if !last && first + i + 2 < pages {
                    v_next = self.page(kv_head, seq, first + i + 2).0;
                }
            }
            (out[i].k_next, out[i].v_next) = (k_next, v_next);
        }
        n
    }

    /// One segment of a tile into `part`. `q` is packed; `last`: no later segment follows.
    unsafe fn one_segment(
        &self,
        machine: Machine,
        kv_head: usize,
        rows: &Range<usize>,
        segment: usize,
        last: bool,
        scratch: &mut Scratch,
        part: Part,
    ) {
        let mut blocks = [const { Block::EMPTY }; SEGMENT / PAGE];
        let n = self.blocks(kv_head, rows, segment, last, &mut blocks);
        let blocks = &blocks[..n];
        let sight = Sight {
            group: self.group(),
            end: self.visible(rows.start).end,
            window: self.window,
            base: segment * SEGMENT,
        };
        let (q, scores, both) = (scratch.q(), scratch.scores(), (blocks, sight));
        let (n_rows, head_dim) = (rows.len() * sight.group, self.head_dim);
        match self.k_type {
            KvType::F16 => machine.run(Scores::<u16>::new(q, n_rows, head_dim, both, scores)),
            KvType::F32 => machine.run(Scores::<f32>::new(q, n_rows, head_dim, both, scores)),
            KvType::Q8_0 => machine.run(quantized::Scores {
                q: q.cast(),
                rows: n_rows,
                head_dim,
                blocks,
                sight,
                scores,
            }),
        }
        let columns = blocks[0].column..blocks[n - 1].column + PAGE;
        machine.run(Softmax {
            scores,
            tokens: rows.len(),
            sight,
            columns,
            scale: self.scale,
            part,
        });
        let (rows, o) = (n_rows, part.o);
        match self.v_type {
            KvType::F16 => machine.run(Values::<u16>::new(scores, rows, head_dim, both, o)),
            KvType::F32 => machine.run(Values::<f32>::new(scores, rows, head_dim, both, o)),
            KvType::Q8_0 => machine.run(Values::<i8>::new(scores, rows, head_dim, both, o)),
        }
    }

    /// Divides a tile's running result by its sums and writes it to the rows of `out`.
    unsafe fn finish(
        &self,
        kv_head: usize,
        rows: &Range<usize>,
        part: Part,
        out: *mut f32,
        out_stride: usize,
    ) {
        let (hd, group) = (self.head_dim, self.group());
        for r in 0..rows.len() * group {
            let inv = 1.0 / *part.l.add(r);
            let row = (rows.start + r / group) * out_stride;
            let to = out.add(row + (kv_head * group + r % group) * hd);
            for c in 0..hd {
                *to.add(c) = *part.o.add(r * hd + c) * inv;
            }
        }
    }
}

/// Attention of one tile and KV head over consecutive segments, not yet merged: `out` gets one partial
/// result ([`AttnArgs::partial_len`]) a segment, in order.
///
/// # Safety
/// That of [`AttnArgs`]; [`supports`]; `rows` is a tile of [`AttnArgs::tile_from`] (or a part of one) and
/// `segments` within its [`AttnArgs::segments`].
///
/// # Panics
/// If `out` is shorter than that.
pub unsafe fn segments(
    machine: Machine,
    args: &AttnArgs<'_>,
    kv_head: usize,
    rows: Range<usize>,
    segments: Range<usize>,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let (n, hd) = (rows.len() * args.group(), args.head_dim);
    assert!(scratch.reserve(n, hd), "no memory for a tile");
    args.pack_q(machine, kv_head, &rows, scratch.q());
    let (len, all) = (args.partial_len(&rows), args.segments(&rows));
    for (segment, out) in segments
        .clone()
        .zip(out[..segments.len() * len].chunks_exact_mut(len))
    {
        // What comes next is prefetched even if it is another call's: most often the same thread's.
        let (part, last) = (Part::new(out, n, hd), segment + 1 == all.end);
        args.one_segment(machine, kv_head, &rows, segment, last, scratch, part);
    }
}

/// Merges the partial results of all segments of one tile and KV head, in order, and writes the tile's
/// rows of `out` (f32 `[n_head * head_dim]`, `out_stride` elements from row to row, this KV head's columns).
/// `partials` holds them one after the other, for the whole of [`AttnArgs::segments`], and is used up.
///
/// # Safety
/// `out` has the tile's rows, which nobody else reads or writes in these columns.
pub unsafe fn merge(
    machine: Machine,
    args: &AttnArgs<'_>,
    kv_head: usize,
    rows: Range<usize>,
    partials: &mut [f32],
    out: *mut f32,
    out_stride: usize,
) {
    let (n, hd) = (rows.len() * args.group(), args.head_dim);
    let mut parts = partials.chunks_exact_mut(args.partial_len(&rows));
    let Some(first) = parts.next() else { return };
    let into = Part::new(first, n, hd);
    machine.run(Merge::first(into, n, hd));
    for p in parts {
        machine.run(Merge::later(into, Part::new(p, n, hd), n, hd));
    }
    args.finish(kv_head, &rows, into, out, out_stride);
}

/// Attention of one tile and KV head, all segments, into the tile's rows of `out` (as [`merge`] writes
/// them): the same bits as [`segments`] and [`merge`].
///
/// # Safety
/// That of [`segments`] and [`merge`].
pub unsafe fn tile(
    machine: Machine,
    args: &AttnArgs<'_>,
    kv_head: usize,
    rows: Range<usize>,
    scratch: &mut Scratch,
    out: *mut f32,
    out_stride: usize,
) {
    let (n, hd) = (rows.len() * args.group(), args.head_dim);
    assert!(scratch.reserve(n, hd), "no memory for a tile");
    args.pack_q(machine, kv_head, &rows, scratch.q());
    let (running, part) = scratch.parts(n, hd);
    let all = args.segments(&rows);
    for segment in all.clone() {
        let (first, last) = (segment == all.start, segment + 1 == all.end);
        let to = if first { running } else { part };
        args.one_segment(machine, kv_head, &rows, segment, last, scratch, to);
        machine.run(match first {
            true => Merge::first(running, n, hd),
            false => Merge::later(running, part, n, hd),
        });
    }
    args.finish(kv_head, &rows, running, out, out_stride);
}
