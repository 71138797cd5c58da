//! Products with F32, F16 and BF16 weights: 32 rows times N columns, `acc = fma(w, x, acc)`, k in order.

// The preconditions are stated at the kernel.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::needless_range_loop)] // plain indices unroll; iterators would be closures

use std::marker::PhantomData;

use crate::lanes::{Kernel, LANES, Lanes};

/// A float type of weights.
pub trait FloatFormat: 'static {
    /// Bytes of a value.
    const SIZE: usize;
    /// Sixteen values.
    ///
    /// # Safety
    /// `p` points to them; as for [`Lanes`].
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F;
}

/// `F32`.
pub struct F32;
/// `F16`.
pub struct F16;
/// `BF16`.
pub struct Bf16;

impl FloatFormat for F32 {
    const SIZE: usize = 4;
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F {
        L::f_load(p.cast())
    }
}

impl FloatFormat for F16 {
    const SIZE: usize = 2;
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F {
        L::f_load_f16(p.cast())
    }
}

impl FloatFormat for Bf16 {
    const SIZE: usize = 2;
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u8) -> L::F {
        L::f_load_bf16(p.cast())
    }
}

/// How a strip of weights is asked for ahead of its use ([`Lanes::ask_ahead`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Not: it is in a near cache, an earlier tile had it.
    Not,
    /// Into the first cache only: its stream ends soon, or comes from a cache.
    Near,
    /// In two steps, from afar.
    Far,
}

/// Products of one strip (32 rows) with the N columns of a tile, written as `[N][32]` f32.
///
/// # Safety
/// `strip` points to `k` columns of a strip, `acts` to as many times N values of a tile, `out` to 32 N
/// values: with `more`, the sums over the columns before, which go on in the same order.
pub struct FloatProduct<F, const N: usize> {
    pub strip: *const u8,
    pub k: usize,
    pub more: bool,
    pub ahead: Ahead,
    pub acts: *const f32,
    pub out: *mut f32,
    pub format: PhantomData<F>,
}

impl<F: FloatFormat, const N: usize> Kernel for FloatProduct<F, N> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let mut acc = [[L::f_zero(); 2]; N];
        if self.more {
            for c in 0..N {
                acc[c][0] = L::f_load(self.out.add(2 * LANES * c));
                acc[c][1] = L::f_load(self.out.add(2 * LANES * c + LANES));
            }
        }
        let (mut p, mut a) = (self.strip, self.acts);
        for _ in 0..self.k {
            if self.ahead != Ahead::Not {
                let far = self.ahead == Ahead::Far;
                L::ask_ahead(p, far);
                if F::SIZE == 4 {
                    L::ask_ahead(p.wrapping_add(64), far);
                }
            }
            let w = [F::load::<L>(p), F::load::<L>(p.add(LANES * F::SIZE))];
            for c in 0..N {
                let x = L::f_set1(*a.add(c));
                acc[c][0] = L::f_fma(w[0], x, acc[c][0]);
                acc[c][1] = L::f_fma(w[1], x, acc[c][1]);
            }
            p = p.add(2 * LANES * F::SIZE);
            a = a.add(N);
        }
        for c in 0..N {
            L::f_store(self.out.add(2 * LANES * c), acc[c][0]);
            L::f_store(self.out.add(2 * LANES * c + LANES), acc[c][1]);
        }
    }
}
