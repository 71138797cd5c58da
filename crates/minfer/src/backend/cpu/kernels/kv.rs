//! KV regions: where a head's keys and values lie, and writing rows into them.
//!
//! A region is `[page / 8][kv head][page % 8]`: a sequence mostly has pages that follow one another, and
//! eight of them, a segment, are then one stretch of memory a head, which the processor's own prefetcher
//! reads up to 1.4 times as fast as pages apart. A head's part of a K page is `[head_dim][32 positions]`,
//! so that a lane is a position; of a V page `[32 positions][head_dim]`, so that a lane is a channel.
//! Values are f32, or f16 rounded half to even, or Q8_0 ([`q8`]). Position `slot` of a sequence lies in
//! the page that its line of the page table names at `slot / 32`, at `slot % 32`.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use std::ops::Range;

use super::matmul::codes;
use crate::graph::{KvPart, KvShape, KvType, PAGE, SEGMENT};
use crate::lanes::{LANES, Machine, kernel};

/// How Q8_0 regions are laid out: blocks of 32 channels of a position have one f16 scale.
///
/// A head's part of a K page is `[head_dim / 32]` times 32 scales, one a position, and `[8][32 positions]`
/// words of four channels' codes, as unsigned bytes, code + 128. Of a V page: `[head_dim / 32][32
/// positions]` scales, then `[32 positions][head_dim]` signed codes.
pub mod q8 {
    use crate::graph::PAGE;

    /// Channels of a block.
    pub const BLOCK: usize = 32;
    /// Bytes before the codes of a block of a K page.
    pub const K_CODES: usize = 2 * PAGE;
    /// Bytes of a block of a K page.
    pub const K_BYTES: usize = K_CODES + BLOCK * PAGE;

    /// Bytes before the codes of a V page.
    pub fn v_codes(head_dim: usize) -> usize {
        2 * PAGE * (head_dim / BLOCK)
    }
}

/// Pages of which a head's parts lie side by side.
const BESIDE: usize = SEGMENT / PAGE;

/// Bytes of a K or V region of this shape.
///
/// # Panics
/// As [`KvType::head_bytes`].
pub fn region_bytes(shape: &KvShape) -> usize {
    let pages = shape.pages.next_multiple_of(BESIDE);
    pages * shape.n_head_kv * shape.ty.head_bytes(shape.head_dim)
}

/// Where a head's part of a page lies in a region, in bytes.
pub fn head_offset(
    ty: KvType,
    (n_head_kv, head_dim): (usize, usize),
    page: usize,
    head: usize,
) -> usize {
    let part = (page / BESIDE * n_head_kv + head) * BESIDE + page % BESIDE;
    part * ty.head_bytes(head_dim)
}

/// Where the parts of a page lie in a region, in bytes, head after head: the page's own bytes are these in this
/// order. Files keep pages so.
pub fn page_parts(shape: &KvShape, page: usize) -> impl Iterator<Item = Range<usize>> {
    let (ty, heads) = (shape.ty, (shape.n_head_kv, shape.head_dim));
    let bytes = ty.head_bytes(shape.head_dim);
    (0..shape.n_head_kv).map(move |head| {
        let at = head_offset(ty, heads, page, head);
        at..at + bytes
    })
}

/// Rows to write into one region.
#[derive(Clone, Copy, Debug)]
pub struct StoreArgs<'a> {
    /// K or V.
    pub part: KvPart,
    /// Format of the region.
    pub ty: KvType,
    /// KV heads.
    pub n_head_kv: usize,
    /// Channels of a head: a multiple of 16, and of [`KvType::block`].
    pub head_dim: usize,
    /// Rows of f32 `[n_head_kv * head_dim]`.
    pub x: *const f32,
    /// Elements from row to row of `x`.
    pub x_stride: usize,
    /// Slot of each row.
    pub slots: &'a [i32],
    /// Line of the page table of each row.
    pub row_seq: &'a [i32],
    /// Pages of each sequence, `[max_seqs][pages_per_seq]`.
    pub page_table: &'a [i32],
    /// Entries of a line of the page table.
    pub pages_per_seq: usize,
    /// The region.
    pub region: *mut u8,
}

/// Writes the rows `rows` of `args`. Threads may write different rows of one region at once.
///
/// # Safety
/// `x` has the rows; every slot and sequence of `rows` is in the table, and its page within the region;
/// no two rows have one place; nobody reads the region meanwhile. `head_dim` is as [`StoreArgs`] says.
pub unsafe fn kv_store(machine: Machine, args: &StoreArgs<'_>, rows: Range<usize>) {
    let shape = (args.n_head_kv, args.head_dim);
    let mut row = rows.start;
    while row < rows.end {
        let n = args.side_by_side(row, rows.end);
        let (slot, seq) = (args.slots[row] as usize, args.row_seq[row] as usize);
        let page = args.page_table[seq * args.pages_per_seq + slot / PAGE];
        debug_assert!(
            page >= 0,
            "row {row}: slot {slot} of sequence {seq} has no page"
        );
        for head in 0..args.n_head_kv {
            let x = args.x.add(row * args.x_stride + head * args.head_dim);
            let to = head_offset(args.ty, shape, page as usize, head);
            let (t, to) = (slot % PAGE, args.region.add(to));
            match (args.part, args.ty, n) {
                (KvPart::K, KvType::F16, LANES) => {
                    store_k_f16_turned(machine, x, args.x_stride, args.head_dim, t, to.cast());
                }
                (KvPart::K, KvType::F32, LANES) => {
                    store_k_f32_turned(machine, x, args.x_stride, args.head_dim, t, to.cast());
                }
                _ => kv_store_head(machine, (args.part, args.ty), args.head_dim, x, t, to),
            }
        }
        row += n;
    }
}

impl StoreArgs<'_> {
    /// How many rows from `row` on are written at once: sixteen keys that follow one another in a page, else one.
    fn side_by_side(&self, row: usize, end: usize) -> usize {
        let turned = self.part == KvPart::K && self.ty != KvType::Q8_0;
        let (slot, last) = (self.slots[row] as usize, row + LANES - 1);
        let fits = turned && last < end && slot % PAGE + LANES <= PAGE;
        let follows = |i: usize| {
            self.slots[i] == self.slots[i - 1] + 1 && self.row_seq[i] == self.row_seq[row]
        };
        if fits && (row + 1..=last).all(follows) {
            LANES
        } else {
            1
        }
    }
}

/// Writes one head of one row into position `t` of its part of a page ([`head_offset`]), `to`.
///
/// # Safety
/// `x` has `head_dim` values (as [`StoreArgs`] asks) and `to` is a part of a page; nobody else reads or
/// writes this position of it meanwhile.
pub unsafe fn kv_store_head(
    machine: Machine,
    kept: (KvPart, KvType),
    head_dim: usize,
    x: *const f32,
    t: usize,
    to: *mut u8,
) {
    debug_assert!(head_dim % LANES == 0 && t < PAGE);
    match kept {
        (KvPart::K, KvType::F16) => store_k_f16(machine, x, head_dim, t, to.cast()),
        (KvPart::V, KvType::F16) => {
            store_v_f16(machine, x, head_dim, to.cast::<u16>().add(t * head_dim))
        }
        (KvPart::K, KvType::F32) => store_k_f32(x, head_dim, t, to.cast()),
        (KvPart::V, KvType::F32) => {
            std::ptr::copy_nonoverlapping(x, to.cast::<f32>().add(t * head_dim), head_dim);
        }
        (KvPart::K, KvType::Q8_0) => store_k_q8(machine, x, head_dim, t, to),
        (KvPart::V, KvType::Q8_0) => store_v_q8(machine, x, head_dim, t, to),
    }
}

kernel! {
    /// One head into position `t` of a K page at `to`.
    unsafe fn store_k_q8<L>(x: *const f32, head_dim: usize, t: usize, to: *mut u8) {
        let mut b = 0;
        while b < head_dim / q8::BLOCK {
            let (x, to) = (x.add(b * q8::BLOCK), to.add(b * q8::K_BYTES));
            let c = codes::<L>([L::f_load(x), L::f_load(x.add(LANES))]);
            let mut half = [0u16; LANES];
            L::f_store_f16(half.as_mut_ptr(), L::f_set1(c.d));
            *to.cast::<u16>().add(t) = half[0];
            let words = to.add(q8::K_CODES).cast::<u32>();
            let mut g = 0;
            while g < 8 {
                *words.add(g * PAGE + t) = c.q[g] as u32 ^ 0x8080_8080;
                g += 1;
            }
            b += 1;
        }
    }
}

kernel! {
    /// One head into position `t` of a V page at `to`.
    unsafe fn store_v_q8<L>(x: *const f32, head_dim: usize, t: usize, to: *mut u8) {
        let line = to.add(q8::v_codes(head_dim) + t * head_dim);
        let mut b = 0;
        while b < head_dim / q8::BLOCK {
            let x = x.add(b * q8::BLOCK);
            let c = codes::<L>([L::f_load(x), L::f_load(x.add(LANES))]);
            let mut half = [0u16; LANES];
            L::f_store_f16(half.as_mut_ptr(), L::f_set1(c.d));
            *to.cast::<u16>().add(b * PAGE + t) = half[0];
            line.add(b * q8::BLOCK).cast::<[i32; 8]>().write_unaligned(c.q);
            b += 1;
        }
    }
}

kernel! {
    /// One head into position `t` of a K page at `to`.
    unsafe fn store_k_f16<L>(x: *const f32, head_dim: usize, t: usize, to: *mut u16) {
        let mut half = [0u16; LANES];
        let mut c = 0;
        while c < head_dim {
            L::f_store_f16(half.as_mut_ptr(), L::f_load(x.add(c)));
            let mut i = 0;
            while i < LANES {
                *to.add((c + i) * PAGE + t) = half[i];
                i += 1;
            }
            c += LANES;
        }
    }
}

kernel! {
    /// One head of sixteen rows, `stride` values apart, into positions from `t` on of a K page at `to`.
    unsafe fn store_k_f16_turned<L>(x: *const f32, stride: usize, head_dim: usize, t: usize, to: *mut u16) {
        let (rows, mut c) = (apart(x, stride), 0);
        while c < head_dim {
            let v = L::f_load_turned(&rows, c);
            let mut i = 0;
            while i < LANES {
                L::f_store_f16(to.add((c + i) * PAGE + t), v[i]);
                i += 1;
            }
            c += LANES;
        }
    }
}

kernel! {
    /// As [`store_k_f16_turned`], unconverted.
    unsafe fn store_k_f32_turned<L>(x: *const f32, stride: usize, head_dim: usize, t: usize, to: *mut f32) {
        let (rows, mut c) = (apart(x, stride), 0);
        while c < head_dim {
            let v = L::f_load_turned(&rows, c);
            let mut i = 0;
            while i < LANES {
                L::f_store(to.add((c + i) * PAGE + t), v[i]);
                i += 1;
            }
            c += LANES;
        }
    }
}

/// Sixteen rows, `stride` values apart.
#[inline(always)]
unsafe fn apart(x: *const f32, stride: usize) -> [*const f32; LANES] {
    let mut rows = [x; LANES];
    let mut i = 1;
    while i < LANES {
        rows[i] = x.add(i * stride);
        i += 1;
    }
    rows
}

kernel! {
    /// One head, to where its channels follow one another.
    unsafe fn store_v_f16<L>(x: *const f32, head_dim: usize, to: *mut u16) {
        let mut c = 0;
        while c < head_dim {
            L::f_store_f16(to.add(c), L::f_load(x.add(c)));
            c += LANES;
        }
    }
}

/// As [`store_k_f16`], unconverted.
unsafe fn store_k_f32(x: *const f32, head_dim: usize, t: usize, to: *mut f32) {
    for c in 0..head_dim {
        *to.add(c * PAGE + t) = *x.add(c);
    }
}
