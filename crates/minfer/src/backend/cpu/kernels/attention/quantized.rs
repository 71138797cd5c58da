//! Scores over keys kept as Q8_0: queries quantized alike, integer products.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use std::ops::Range;

use super::AttnArgs;
use super::phases::{Block, SCORE_STRIDE, Sight, by_rows, prefetch, share};
use crate::backend::cpu::kernels::kv::q8;
use crate::backend::cpu::kernels::matmul::codes;
use crate::graph::PAGE;
use crate::lanes::{Kernel, LANES, Lanes, kernel};

/// Bytes that one row takes in a block of packed queries: eight words of codes, the scale, and where the
/// integer sum starts on machines whose products take codes as unsigned bytes (-128 times their sum).
const ROW_BYTES: usize = 40;

/// Where the parts of a block of packed queries lie: `[8][rows]` words, `[rows]` scales, `[rows]` starts.
#[derive(Clone, Copy)]
struct Query {
    words: *const i32,
    scales: *const f32,
    starts: *const i32,
}

impl Query {
    /// From row `r` on.
    #[inline(always)]
    unsafe fn at(q: *const u8, block: usize, rows: usize, r: usize) -> Query {
        let words = q.add(block * ROW_BYTES * rows).cast::<i32>();
        Query {
            words: words.add(r),
            scales: words.add(8 * rows + r).cast(),
            starts: words.add(9 * rows + r),
        }
    }
}

kernel! {
    /// Quantizes a tile's query rows (token x group + head) by blocks of 32 channels into `out`, which
    /// has room for their f32 values.
    pub unsafe fn pack_q<L>(args: &AttnArgs<'_>, kv_head: usize, rows: &Range<usize>, out: *mut f32) {
        let (hd, group) = (args.head_dim, args.group());
        let n = rows.len() * group;
        let mut r = 0;
        while r < n {
            let head = kv_head * group + r % group;
            let x = args.q.add((rows.start + r / group) * args.q_stride + head * hd);
            let mut b = 0;
            while b < hd / q8::BLOCK {
                let x = x.add(b * q8::BLOCK);
                let c = codes::<L>([L::f_load(x), L::f_load(x.add(LANES))]);
                let to = Query::at(out.cast(), b, n, r);
                let mut j = 0;
                while j < 8 {
                    *to.words.add(j * n).cast_mut() = c.q[j];
                    j += 1;
                }
                *to.scales.cast_mut() = c.d;
                *to.starts.cast_mut() = -128 * (c.half_sums[0] + c.half_sums[1]);
                b += 1;
            }
            r += 1;
        }
    }
}

/// As [`Scores`](super::phases::Scores), for quantized queries and keys.
pub struct Scores<'a> {
    /// What [`pack_q`] wrote.
    pub q: *const u8,
    /// Query rows.
    pub rows: usize,
    /// Channels.
    pub head_dim: usize,
    /// Pages.
    pub blocks: &'a [Block],
    /// What the rows see of them.
    pub sight: Sight,
    /// `[rows][SCORE_STRIDE]`.
    pub scores: *mut f32,
}

impl Kernel for Scores<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for b in self.blocks {
            let mut r = 0;
            while r < self.rows {
                let s = self.scores.add(r * SCORE_STRIDE + b.column);
                let (q, rows, hd) = (self.q, self.rows, self.head_dim);
                let n = share(rows - r, if L::WIDE { 6 } else { 3 });
                if self.sight.of_rows(r, n, b).is_empty() {
                    // Nothing to see for these rows.
                } else if L::WIDE {
                    by_rows!(n, dots[L], 2, (q, rows, r, hd, b, s), 1 2 3 4 5 6);
                } else {
                    by_rows!(n, dots[L], 1, (q, rows, r, hd, b, s), 1 2 3);
                }
                r += n;
            }
        }
    }
}

/// `R` rows from `r` on against a page, `V` vectors of positions at a time.
#[inline(always)]
unsafe fn dots<L: Lanes, const R: usize, const V: usize>(
    q: *const u8,
    rows: usize,
    r: usize,
    head_dim: usize,
    page: &Block,
    s: *mut f32,
) {
    let mut v = 0;
    while v < PAGE {
        let mut acc = [[L::f_zero(); R]; V];
        let mut b = 0;
        while b < head_dim / q8::BLOCK {
            let at = b * q8::K_BYTES;
            let (k, ahead) = (page.k.add(at), page.k_next.wrapping_add(at));
            let q = Query::at(q, b, rows, r);
            prefetch::<L>(ahead, 64);
            let sums = products::<L, R, V>(q, rows, k.add(q8::K_CODES), ahead, v);
            let mut j = 0;
            while j < V {
                let d = L::f_load_f16(k.cast::<u16>().add(v + j * LANES));
                let mut i = 0;
                while i < R {
                    let t = L::f_mul(L::i_to_f(L::d_end(sums[j][i])), d);
                    acc[j][i] = L::f_fma(t, L::f_set1(*q.scales.add(i)), acc[j][i]);
                    i += 1;
                }
                j += 1;
            }
            b += 1;
        }
        let mut i = 0;
        while i < R {
            let mut j = 0;
            while j < V {
                L::f_store(s.add(i * SCORE_STRIDE + v + j * LANES), acc[j][i]);
                j += 1;
            }
            i += 1;
        }
        v += V * LANES;
    }
}

/// The integer sums of a block of 32 channels, from position `v` on. `k` are the block's codes, and
/// `ahead` what to prefetch.
#[inline(always)]
unsafe fn products<L: Lanes, const R: usize, const V: usize>(
    q: Query,
    rows: usize,
    k: *const u8,
    ahead: *const u8,
    v: usize,
) -> [[L::D; R]; V] {
    let mut sums = [[L::d_new(L::i_set1(0)); R]; V];
    if !L::SIGNED8 {
        let mut i = 0;
        while i < R {
            let start = L::d_new(L::i_set1(*q.starts.add(i)));
            let mut j = 0;
            while j < V {
                sums[j][i] = start;
                j += 1;
            }
            i += 1;
        }
    }
    let mut g = 0;
    while g < 8 {
        let mut keys = [L::b_load(k); V];
        let mut j = 0;
        while j < V {
            let at = 4 * (g * PAGE + v + j * LANES);
            keys[j] = L::b_load(k.add(at));
            L::prefetch(ahead.wrapping_add(q8::K_CODES + at));
            j += 1;
        }
        let mut i = 0;
        while i < R {
            let a = *q.words.add(g * rows + i);
            let mut j = 0;
            while j < V {
                sums[j][i] = L::d_step(8, sums[j][i], keys[j], a);
                if (g + 1) % L::steps(8) == 0 {
                    sums[j][i] = L::d_flush(sums[j][i]);
                }
                j += 1;
            }
            i += 1;
        }
        g += 1;
    }
    sums
}
