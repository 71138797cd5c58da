//! The one 8-bit product: 16 R rows times N columns, from packed strips or from panels.
//!
//! For each block of 32 k, in the order that `numeric::dot_quantized` defines: an exact integer sum that
//! starts at -zero * (sum of the activations), times the weight's scale, accumulated with the activation's
//! scale; then the minimum.

// The preconditions are stated at the two kernels.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // plain indices unroll; iterators would be closures

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::format::{Format, HEAD};
use super::tiles::TilePlaces;
use crate::lanes::{Kernel, LANES, Lanes};

/// Products of R strips with N neighbouring columns of a tile of W, written as `[N][16 R]` f32.
///
/// # Safety
/// `strips` points to R strips of `superblocks` superblocks, `stride` bytes apart (they may be the same
/// strip); `acts` to the first of the columns (4 bytes a column) in a tile of W columns and as many
/// blocks; `out` to 16 R N values: with `more`, the sums over the blocks before, which go on in the same
/// order. `far`: R = 1 asks ahead from afar.
pub struct Product<F, const R: usize, const N: usize, const W: usize> {
    pub strips: *const u8,
    pub stride: usize,
    pub superblocks: usize,
    pub acts: *const u8,
    pub more: bool,
    pub far: bool,
    pub out: *mut f32,
    pub format: PhantomData<F>,
}

impl<F: Format, const R: usize, const N: usize, const W: usize> Kernel for Product<F, R, N, W> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let mut heads = [const { MaybeUninit::<[f32; HEAD]>::uninit() }; R];
        let mut acc = [[L::f_zero(); N]; R];
        if self.more {
            for c in 0..N {
                for r in 0..R {
                    acc[r][c] = L::f_load(self.out.add(LANES * (c * R + r)));
                }
            }
        }
        let (mut p, mut a) = (self.strips, self.acts);
        for _ in 0..self.superblocks {
            for r in 0..R {
                F::head::<L>(p.add(r * self.stride), heads[r].as_mut_ptr().cast());
            }
            for b in 0..F::BLOCKS {
                if R == 1 {
                    prefetch::<L, F>(p, b, self.far);
                }
                let at = At {
                    strips: p,
                    stride: self.stride,
                    acts: a,
                    b,
                };
                let t = block::<L, F, R, N, W>(&at, &heads);
                accumulate::<L, F, R, N, W>(&at, &heads, t, &mut acc);
                a = a.add(TilePlaces::new(W).bytes);
            }
            p = p.add(F::BYTES);
        }
        for c in 0..N {
            for r in 0..R {
                L::f_store(self.out.add(LANES * (c * R + r)), acc[r][c]);
            }
        }
    }
}

/// Where one block's operands lie.
struct At {
    strips: *const u8,
    stride: usize,
    acts: *const u8,
    b: usize,
}

type Heads<const R: usize> = [MaybeUninit<[f32; HEAD]>; R];

/// Asks for the lines that the same block will need a few superblocks later. A superblock's header confuses
/// the hardware prefetcher, so this is what makes K-quants reach the memory's bandwidth.
#[inline(always)]
unsafe fn prefetch<L: Lanes, F: Format>(p: *const u8, b: usize, far: bool) {
    let share = F::BYTES / F::BLOCKS;
    let mut x = 0;
    while x < share + 63 {
        // No load: past the end of the strips it asks for something else, or nothing.
        L::ask_ahead(p.wrapping_add(b * share + x), far);
        x += 64;
    }
}

/// t of one block: integer sums times the weights' scales.
#[inline(always)]
unsafe fn block<L: Lanes, F: Format, const R: usize, const N: usize, const W: usize>(
    at: &At,
    heads: &Heads<R>,
) -> [[L::F; N]; R] {
    let q = at.acts.cast::<i32>();
    let halves = if F::HALF { 2 } else { 1 };
    let per_half = 8 / halves;
    let mut t = [[L::f_zero(); N]; R];
    for h in 0..halves {
        let mut sums = [[L::d_new(L::i_set1(0)); N]; R];
        if !L::LATE_START {
            for c in 0..N {
                let d = L::d_new(start::<L, F, W>(at.acts, h, c));
                for r in 0..R {
                    sums[r][c] = d;
                }
            }
        }
        for step in 0..per_half {
            let j = h * per_half + step;
            let mut w = [F::codes::<L>(at.strips, at.b, j); R];
            for r in 1..R {
                w[r] = F::codes::<L>(at.strips.add(r * at.stride), at.b, j);
            }
            for c in 0..N {
                let a = *q.add(j * W + c);
                for r in 0..R {
                    sums[r][c] = L::d_step(F::BITS, sums[r][c], w[r], a);
                }
            }
            if (step + 1) % L::steps(F::BITS) == 0 || step + 1 == per_half {
                for r in 0..R {
                    for c in 0..N {
                        sums[r][c] = L::d_flush(sums[r][c]);
                    }
                }
            }
        }
        for r in 0..R {
            let strip = at.strips.add(r * at.stride);
            let scale = F::scale::<L>(strip, heads[r].as_ptr().cast(), at.b, h);
            for c in 0..N {
                let mut sum = L::d_end(sums[r][c]);
                if L::LATE_START {
                    sum = L::i_add(sum, start::<L, F, W>(at.acts, h, c));
                }
                let x = L::i_to_f(sum);
                t[r][c] = if h == 0 {
                    L::f_mul(x, scale)
                } else {
                    L::f_fma(x, scale, t[r][c])
                };
            }
        }
    }
    t
}

/// What the sums of column `c` start at: -zero * (sum of the block's, or of half h's, activations).
#[inline(always)]
unsafe fn start<L: Lanes, F: Format, const W: usize>(acts: *const u8, h: usize, c: usize) -> L::I {
    let Some(log2) = F::ZERO_LOG2 else {
        return L::i_set1(0);
    };
    if L::SIGNED8 && F::BITS == 8 {
        return L::i_set1(0);
    }
    let places = TilePlaces::new(W);
    let from = if F::HALF {
        places.half_sums[h]
    } else {
        places.sum
    };
    L::i_shl(L::i_set1(*acts.add(from).cast::<i32>().add(c)), log2)
}

/// acc = fma(t, da, acc), then acc = fma(min, da * sum, acc).
#[inline(always)]
unsafe fn accumulate<L: Lanes, F: Format, const R: usize, const N: usize, const W: usize>(
    at: &At,
    heads: &Heads<R>,
    t: [[L::F; N]; R],
    acc: &mut [[L::F; N]; R],
) {
    let places = TilePlaces::new(W);
    let scales = at.acts.add(places.scale).cast::<f32>();
    for c in 0..N {
        let da = L::f_set1(*scales.add(c));
        for r in 0..R {
            acc[r][c] = L::f_fma(t[r][c], da, acc[r][c]);
        }
    }
    if F::MIN {
        let scaled_sums = at.acts.add(places.scaled_sum).cast::<f32>();
        for r in 0..R {
            let strip = at.strips.add(r * at.stride);
            let min = F::min::<L>(strip, heads[r].as_ptr().cast(), at.b);
            for c in 0..N {
                acc[r][c] = L::f_fma(min, L::f_set1(*scaled_sums.add(c)), acc[r][c]);
            }
        }
    }
}

/// Unpacks a strip into a panel.
///
/// # Safety
/// `strip` points to a strip of `superblocks` superblocks, `panel` to room for as many blocks of
/// `F::Panel`.
pub struct Unpack<F> {
    pub strip: *const u8,
    pub superblocks: usize,
    pub panel: *mut u8,
    pub format: PhantomData<F>,
}

impl<F: Format> Kernel for Unpack<F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let mut head = MaybeUninit::<[f32; HEAD]>::uninit();
        let head = head.as_mut_ptr().cast::<f32>();
        let (mut p, mut out) = (self.strip, self.panel);
        let codes = F::Panel::BYTES - 512;
        for _ in 0..self.superblocks {
            F::head::<L>(p, head);
            for b in 0..F::BLOCKS {
                let scales = out.cast::<f32>();
                L::f_store(scales, F::scale::<L>(p, head, b, 0));
                if F::MIN {
                    L::f_store(scales.add(LANES), F::min::<L>(p, head, b));
                }
                if F::HALF {
                    L::f_store(scales.add(LANES), F::scale::<L>(p, head, b, 1));
                }
                for j in 0..8 {
                    L::b_store(out.add(codes + 64 * j), F::codes::<L>(p, b, j));
                }
                out = out.add(F::Panel::BYTES);
            }
            p = p.add(F::BYTES);
        }
    }
}
