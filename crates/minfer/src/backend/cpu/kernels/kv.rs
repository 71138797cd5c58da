//! KV regions: where a head's keys and values lie, and writing rows into them.
//!
//! A region is `[page][kv head]`. A head's part of a K page is `[head_dim][32 positions]`, so that a
//! lane is a position; of a V page `[32 positions][head_dim]`, so that a lane is a channel. Values are
//! f32, or f16 rounded half to even, or Q8_0 ([`q8`]). Position `slot` of a sequence lies in the page
//! that its line of the page table names at `slot / 32`, at `slot % 32`.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use std::ops::Range;

use super::matmul::codes;
use crate::graph::{KvPart, KvShape, KvType, PAGE};
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

/// Bytes of a K or V region of this shape.
///
/// # Panics
/// As [`KvType::head_bytes`].
pub fn region_bytes(shape: &KvShape) -> usize {
    shape.pages * shape.n_head_kv * shape.ty.head_bytes(shape.head_dim)
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
    for row in rows {
        kv_store_heads(machine, args, row, 0..args.n_head_kv);
    }
}

/// Writes some KV heads of one row. Threads may write different heads and rows of one region at once.
///
/// # Safety
/// As [`kv_store`]; the heads exist.
pub unsafe fn kv_store_heads(
    machine: Machine,
    args: &StoreArgs<'_>,
    row: usize,
    heads: Range<usize>,
) {
    debug_assert!(args.head_dim % LANES == 0 && heads.end <= args.n_head_kv);
    let head = args.ty.head_bytes(args.head_dim);
    let (slot, seq) = (args.slots[row] as usize, args.row_seq[row] as usize);
    let page = args.page_table[seq * args.pages_per_seq + slot / PAGE];
    debug_assert!(
        page >= 0,
        "row {row}: slot {slot} of sequence {seq} has no page"
    );
    let first = page as usize * args.n_head_kv + heads.start;
    let to = args.region.add(first * head);
    let x = args
        .x
        .add(row * args.x_stride + heads.start * args.head_dim);
    let (n, hd, t) = (heads.len(), args.head_dim, slot % PAGE);
    match (args.part, args.ty) {
        (KvPart::K, KvType::F16) => store_k_f16(machine, x, n, hd, t, to.cast()),
        (KvPart::V, KvType::F16) => store_v_f16(machine, x, n, hd, t, to.cast()),
        (KvPart::K, KvType::F32) => store_k_f32(x, n, hd, t, to.cast()),
        (KvPart::V, KvType::F32) => store_v_f32(x, n, hd, t, to.cast()),
        (KvPart::K, KvType::Q8_0) => store_k_q8(machine, x, n, hd, t, to),
        (KvPart::V, KvType::Q8_0) => store_v_q8(machine, x, n, hd, t, to),
    }
}

kernel! {
    /// One row into position `t` of a K page at `to`.
    unsafe fn store_k_q8<L>(x: *const f32, heads: usize, head_dim: usize, t: usize, to: *mut u8) {
        // Heads follow one another without a gap, and so do the blocks of a page.
        let mut b = 0;
        while b < heads * head_dim / q8::BLOCK {
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
    /// One row into position `t` of a V page at `to`.
    unsafe fn store_v_q8<L>(x: *const f32, heads: usize, head_dim: usize, t: usize, to: *mut u8) {
        let mut h = 0;
        while h < heads {
            let to = to.add(h * (q8::v_codes(head_dim) + PAGE * head_dim));
            let line = to.add(q8::v_codes(head_dim) + t * head_dim);
            let mut b = 0;
            while b < head_dim / q8::BLOCK {
                let x = x.add(h * head_dim + b * q8::BLOCK);
                let c = codes::<L>([L::f_load(x), L::f_load(x.add(LANES))]);
                let mut half = [0u16; LANES];
                L::f_store_f16(half.as_mut_ptr(), L::f_set1(c.d));
                *to.cast::<u16>().add(b * PAGE + t) = half[0];
                line.add(b * q8::BLOCK).cast::<[i32; 8]>().write_unaligned(c.q);
                b += 1;
            }
            h += 1;
        }
    }
}

kernel! {
    /// One row into position `t` of a K page at `to`.
    unsafe fn store_k_f16<L>(x: *const f32, heads: usize, head_dim: usize, t: usize, to: *mut u16) {
        let mut half = [0u16; LANES];
        let mut c = 0;
        while c < heads * head_dim {
            L::f_store_f16(half.as_mut_ptr(), L::f_load(x.add(c)));
            // Heads follow one another without a gap: channel c of the row is line c of the page.
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
    /// One row into position `t` of a V page at `to`.
    unsafe fn store_v_f16<L>(x: *const f32, heads: usize, head_dim: usize, t: usize, to: *mut u16) {
        let mut h = 0;
        while h < heads {
            let to = to.add((h * PAGE + t) * head_dim);
            let mut c = 0;
            while c < head_dim {
                L::f_store_f16(to.add(c), L::f_load(x.add(h * head_dim + c)));
                c += LANES;
            }
            h += 1;
        }
    }
}

/// As [`store_k_f16`], unconverted.
unsafe fn store_k_f32(x: *const f32, heads: usize, head_dim: usize, t: usize, to: *mut f32) {
    for c in 0..heads * head_dim {
        *to.add(c * PAGE + t) = *x.add(c);
    }
}

/// As [`store_v_f16`], unconverted.
unsafe fn store_v_f32(x: *const f32, heads: usize, head_dim: usize, t: usize, to: *mut f32) {
    for h in 0..heads {
        let to = to.add((h * PAGE + t) * head_dim);
        std::ptr::copy_nonoverlapping(x.add(h * head_dim), to, head_dim);
    }
}
