//! KV regions of random numbers, for programs that run attention alone.

use minfer::backend::cpu::kernels::attention::AttnArgs;
use minfer::graph::KvType;

/// Fills a region with half precision numbers between 0.5 and 1, either sign; as Q8_0, with some codes and
/// scales, as f32, with some numbers.
pub fn fill(region: &mut [u8], seed: u64) {
    let mut x = seed;
    for to in region.chunks_exact_mut(2) {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let bits = (x >> 48) as u16 & 0x83ff | 0x3800;
        to.copy_from_slice(&bits.to_le_bytes());
    }
}

/// The regions of one KV head, and which pages belong to a sequence.
#[derive(Clone, Copy)]
pub struct Kv<'a> {
    /// Formats of K and V.
    pub types: (KvType, KvType),
    /// Region of K.
    pub k: &'a [u8],
    /// Region of V.
    pub v: &'a [u8],
    /// Pages of each sequence.
    pub page_table: &'a [i32],
    /// Pages of one sequence.
    pub pages_per_seq: usize,
}

impl<'a> Kv<'a> {
    /// Attention of rows `q` of `group` query heads, row `i` at `slots[i]` of sequence `row_seq[i]`.
    pub fn args(
        &self,
        q: &'a [f32],
        slots: &'a [i32],
        row_seq: &'a [i32],
        head_dim: usize,
        group: usize,
    ) -> AttnArgs<'a> {
        AttnArgs {
            q: q.as_ptr(),
            q_stride: group * head_dim,
            k: self.k.as_ptr(),
            v: self.v.as_ptr(),
            k_type: self.types.0,
            v_type: self.types.1,
            slots,
            row_seq,
            page_table: self.page_table,
            pages_per_seq: self.pages_per_seq,
            n_head: group,
            n_head_kv: 1,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            window: None,
        }
    }
}
