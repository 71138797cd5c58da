//! Weighted sums of values: a lane is a channel.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use std::ops::Range;

use super::phases::{Block, Elem, SCORE_STRIDE, Sight, by_rows, prefetch, share};
use crate::backend::cpu::kernels::kv::q8;
use crate::graph::PAGE;
use crate::lanes::{Kernel, LANES, Lanes};

/// How a V region keeps sixteen channels of one position.
pub trait Kept {
    /// Bytes of a channel.
    const BYTES: usize;
    /// Rows that a tile of four vectors of channels has at most; with more than these, tiles are
    /// `MANY` rows times two vectors if `MANY` is larger than 7.
    const FEW: usize;
    /// See `FEW`.
    const MANY: usize;

    /// Bytes of a head's part of a page before its first position.
    #[inline(always)]
    fn start(_head_dim: usize) -> usize {
        0
    }
    /// The scales of `vectors` (at most four) vectors of channels from `c` on, over the page's positions:
    /// one a block of 32 channels. Prefetches those at `ahead`.
    ///
    /// # Safety
    /// The page can be read; as [`Lanes`] asks.
    #[inline(always)]
    unsafe fn scales<L: Lanes>(
        _page: *const u8,
        _ahead: *const u8,
        _c: usize,
        _vectors: usize,
        _out: &mut [[f32; PAGE]; 2],
    ) {
    }
    /// Sixteen channels as f32.
    ///
    /// # Safety
    /// They can be read; as [`Lanes`] asks.
    unsafe fn load<L: Lanes>(p: *const u8, scale: f32) -> L::F;
}

impl Kept for u16 {
    const BYTES: usize = 2;
    const FEW: usize = 7;
    const MANY: usize = 6;
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8, _scale: f32) -> L::F {
        <u16 as Elem>::load::<L>(p.cast())
    }
}

impl Kept for f32 {
    const BYTES: usize = 4;
    const FEW: usize = 7;
    const MANY: usize = 6;
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8, _scale: f32) -> L::F {
        <f32 as Elem>::load::<L>(p.cast())
    }
}

/// Q8_0: turning codes into numbers costs as much as a row, so that tiles are high.
impl Kept for i8 {
    const BYTES: usize = 1;
    const FEW: usize = 6;
    const MANY: usize = 12;
    #[inline(always)]
    fn start(head_dim: usize) -> usize {
        q8::v_codes(head_dim)
    }
    #[inline(always)]
    unsafe fn scales<L: Lanes>(
        page: *const u8,
        ahead: *const u8,
        c: usize,
        vectors: usize,
        out: &mut [[f32; PAGE]; 2],
    ) {
        let first = c / q8::BLOCK;
        let mut b = 0;
        while b < vectors.div_ceil(2) {
            let at = (first + b) * PAGE;
            L::prefetch(ahead.wrapping_add(2 * at));
            let mut t = 0;
            while t < PAGE {
                let d = L::f_load_f16(page.cast::<u16>().add(at + t));
                L::f_store(out[b].as_mut_ptr().add(t), d);
                t += LANES;
            }
            b += 1;
        }
    }
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8, scale: f32) -> L::F {
        L::f_mul(L::i_to_f(L::i_load_i8(p.cast())), L::f_set1(scale))
    }
}

/// Weighted values of a tile's rows in the pages of a segment.
pub struct Values<'a, T> {
    weights: *const f32,
    rows: usize,
    head_dim: usize,
    blocks: &'a [Block],
    sight: Sight,
    o: *mut f32,
    kept: std::marker::PhantomData<T>,
}

impl<'a, T> Values<'a, T> {
    /// `weights` is `[rows][SCORE_STRIDE]`, `o` `[rows][head_dim]`.
    pub fn new(
        weights: *const f32,
        rows: usize,
        head_dim: usize,
        (blocks, sight): (&'a [Block], Sight),
        o: *mut f32,
    ) -> Self {
        Values {
            weights,
            rows,
            head_dim,
            blocks,
            sight,
            o,
            kept: std::marker::PhantomData,
        }
    }
}

impl<T: Kept> Kernel for Values<'_, T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let hd = self.head_dim;
        let few = self.rows <= if L::WIDE { T::FEW } else { 6 };
        let most = match (few, L::WIDE) {
            (true, _) => self.rows,
            (_, true) => T::MANY,
            _ => 6,
        };
        let mut first = true;
        for b in self.blocks {
            let mut r = 0;
            while r < self.rows {
                let n = share(self.rows - r, most);
                let p = self.weights.add(r * SCORE_STRIDE + b.column);
                // Weights of zero leave no trace, so what none of these rows sees is passed over.
                let seen = self.sight.of_rows(r, n, b);
                if seen.is_empty() && !first {
                    r += n;
                    continue;
                }
                let mut c = 0;
                while c < hd {
                    let o = self.o.add(r * hd + c);
                    if L::WIDE && c + 4 * LANES <= hd && (few || T::MANY <= 7) {
                        by_rows!(n, sums[L, T], 4, (p, (b, &seen), c, hd, o, first), 1 2 3 4 5 6 7);
                        c += 4 * LANES;
                    } else if L::WIDE && c + 2 * LANES <= hd && T::MANY > 7 {
                        by_rows!(n, sums[L, T], 2, (p, (b, &seen), c, hd, o, first), 1 2 3 4 5 6 7 8 9 10 11 12);
                        c += 2 * LANES;
                    } else {
                        by_rows!(n, sums[L, T], 1, (p, (b, &seen), c, hd, o, first), 1 2 3 4 5 6 7);
                        c += LANES;
                    }
                }
                r += n;
            }
            first = false;
        }
    }
}

/// `C` vectors of channels from `c`, of `R` rows, over the positions of a page that some row sees. `first`: sums start here.
#[inline(always)]
unsafe fn sums<L: Lanes, T: Kept, const R: usize, const C: usize>(
    p: *const f32,
    (b, seen): (&Block, &Range<usize>),
    c: usize,
    head_dim: usize,
    o: *mut f32,
    first: bool,
) {
    let mut scales = [[0.0f32; PAGE]; 2];
    T::scales::<L>(b.v, b.v_next, c, C, &mut scales);
    let start = T::start(head_dim);
    let (v, ahead) = (b.v.add(start), b.v_next.wrapping_add(start));
    let mut acc = [[L::f_zero(); R]; C];
    if !first {
        let mut r = 0;
        while r < R {
            let mut j = 0;
            while j < C {
                acc[j][r] = L::f_load(o.add(r * head_dim + j * LANES));
                j += 1;
            }
            r += 1;
        }
    }
    let mut t = seen.start;
    while t < seen.end {
        let at = (t * head_dim + c) * T::BYTES;
        prefetch::<L>(ahead.wrapping_add(at), C * LANES * T::BYTES);
        let mut values = [L::f_zero(); C];
        let mut j = 0;
        while j < C {
            values[j] = T::load::<L>(v.add(at + j * LANES * T::BYTES), scales[j / 2][t]);
            j += 1;
        }
        let mut r = 0;
        while r < R {
            let x = L::f_set1(*p.add(r * SCORE_STRIDE + t));
            let mut j = 0;
            while j < C {
                acc[j][r] = L::f_fma(values[j], x, acc[j][r]);
                j += 1;
            }
            r += 1;
        }
        t += 1;
    }
    let mut r = 0;
    while r < R {
        let mut j = 0;
        while j < C {
            L::f_store(o.add(r * head_dim + j * LANES), acc[j][r]);
            j += 1;
        }
        r += 1;
    }
}
