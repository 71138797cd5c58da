//! KV regions: where a head's keys and values lie, and writing rows into them.
//!
//! A region is `[page][kv head]`. A head's part of a K page is `[head_dim][32 positions]`, so that a
//! lane is a position; of a V page `[32 positions][head_dim]`, so that a lane is a channel. Values are
//! f32, or f16 rounded half to even. Position `slot` of a sequence lies in the page that its line of the
//! page table names at `slot / 32`, at `slot % 32`.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use std::ops::Range;

use crate::graph::{KvPart, KvShape, KvType, PAGE};
use crate::lanes::{LANES, Machine, kernel};

/// Bytes of a K or V region of this shape.
pub fn region_bytes(shape: &KvShape) -> usize {
    shape.pages * shape.n_head_kv * head_bytes(shape.ty, shape.head_dim)
}

/// Bytes of one head's part of a page.
pub fn head_bytes(ty: KvType, head_dim: usize) -> usize {
    PAGE * head_dim * ty.bytes()
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
    /// Channels of a head: a multiple of 16.
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
/// no two rows have one place; nobody reads the region meanwhile. `head_dim` is a multiple of 16.
pub unsafe fn kv_store(machine: Machine, args: &StoreArgs<'_>, rows: Range<usize>) {
    debug_assert!(args.head_dim % LANES == 0);
    let head = head_bytes(args.ty, args.head_dim);
    for row in rows {
        let (slot, seq) = (args.slots[row] as usize, args.row_seq[row] as usize);
        let page = args.page_table[seq * args.pages_per_seq + slot / PAGE];
        debug_assert!(
            page >= 0,
            "row {row}: slot {slot} of sequence {seq} has no page"
        );
        let to = args.region.add(page as usize * args.n_head_kv * head);
        let x = args.x.add(row * args.x_stride);
        let (n, hd, t) = (args.n_head_kv, args.head_dim, slot % PAGE);
        match (args.part, args.ty) {
            (KvPart::K, KvType::F16) => store_k_f16(machine, x, n, hd, t, to.cast()),
            (KvPart::V, KvType::F16) => store_v_f16(machine, x, n, hd, t, to.cast()),
            (KvPart::K, KvType::F32) => store_k_f32(x, n, hd, t, to.cast()),
            (KvPart::V, KvType::F32) => store_v_f32(x, n, hd, t, to.cast()),
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
