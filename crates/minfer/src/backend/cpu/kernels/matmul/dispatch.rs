//! From a type and a tile's width to the instance of a kernel: the shapes that each machine has.

// The preconditions are those of the kernels.
#![allow(unsafe_op_in_unsafe_fn)]

use std::marker::PhantomData;
use std::ops::Range;

use super::float::{Ahead, Bf16, F16, F32, FloatFormat, FloatProduct};
use super::format::{Format, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
use super::micro::{Product, Unpack};
use super::tiles::TilePlaces;
use crate::backend::cpu::pack::PackedMatrix;
use crate::lanes::{LANES, Lanes};
use crate::numeric::GgmlType;

/// Evaluates an expression with `$f` the format of a quantized type.
macro_rules! by_format {
    ($ty:expr, $f:ident => $e:expr) => {
        match $ty {
            GgmlType::Q4_0 => by_format!(@ $f, Q4_0, $e),
            GgmlType::Q4_1 => by_format!(@ $f, Q4_1, $e),
            GgmlType::Q5_0 => by_format!(@ $f, Q5_0, $e),
            GgmlType::Q5_1 => by_format!(@ $f, Q5_1, $e),
            GgmlType::Q8_0 => by_format!(@ $f, Q8_0, $e),
            GgmlType::Q4_K => by_format!(@ $f, Q4_K, $e),
            GgmlType::Q5_K => by_format!(@ $f, Q5_K, $e),
            GgmlType::Q6_K => by_format!(@ $f, Q6_K, $e),
            other => unreachable!("{other} is not packed as a quantized type"),
        }
    };
    (@ $f:ident, $name:ident, $e:expr) => {{
        type $f = $name;
        $e
    }};
}

/// Unpacks strip `s` into a panel with room for its columns.
///
/// # Safety
/// As for the kernel that it calls.
pub unsafe fn unpack<L: Lanes>(w: &PackedMatrix, s: usize, panel: *mut u8) {
    let (strip, cols) = (w.strip(s), w.layout().cols);
    by_format!(w.layout().ty, F => {
        L::call(Unpack::<F> { strip, superblocks: cols / 32 / F::BLOCKS, panel, format: PhantomData })
    })
}

/// Products of strip `s` as packed with a tile of `n` columns, to `[n][16]`; `far`: one strip at a time asks for
/// what follows from afar.
///
/// # Safety
/// As for the kernel that it calls.
pub unsafe fn direct_product<L: Lanes>(
    w: &PackedMatrix,
    s: usize,
    n: usize,
    far: bool,
    acts: *const u8,
    out: *mut f32,
) {
    let (strip, cols) = (w.strip(s), w.layout().cols);
    by_format!(w.layout().ty, F => {
        let args = Operands { strips: strip, stride: 0, superblocks: cols / 32 / F::BLOCKS, acts, more: false, far, out };
        if L::WIDE {
            match n {
                8 => args.call::<L, F, 1, 8, 8>(),
                4 => args.call::<L, F, 1, 4, 4>(),
                2 => args.call::<L, F, 1, 2, 2>(),
                _ => args.call::<L, F, 1, 1, 1>(),
            }
        } else {
            args.call_narrow::<L, F>(n)
        }
    })
}

/// Products of panels `stride` bytes apart with a tile of `n` columns, to `[n][group][16]`; `w` gives the format.
///
/// # Safety
/// As for the kernel that it calls.
pub unsafe fn panel_product<L: Lanes>(
    w: &PackedMatrix,
    panel: *const u8,
    stride: usize,
    n: usize,
    acts: *const u8,
    out: *mut f32,
) {
    let cols = w.layout().cols;
    by_format!(w.layout().ty, F => {
        type P = <F as Format>::Panel;
        let args = Operands { strips: panel, stride, superblocks: cols / 32, acts, more: false, far: false, out };
        if L::WIDE {
            match n {
                12 if F::HALF => args.parts::<L, P, 2, 4, 12>(),
                12 => args.parts::<L, P, 2, 6, 12>(),
                8 => args.parts::<L, P, 2, 4, 8>(),
                4 => args.call::<L, P, 2, 4, 4>(),
                2 => args.call::<L, P, 2, 2, 2>(),
                _ => args.call::<L, P, 2, 1, 1>(),
            }
        } else {
            args.call_narrow::<L, P>(n)
        }
    })
}

/// The arguments of a [`Product`], its shape not chosen yet.
struct Operands {
    strips: *const u8,
    stride: usize,
    superblocks: usize,
    acts: *const u8,
    more: bool,
    far: bool,
    out: *mut f32,
}

/// Blocks of k that all parts of a tile are multiplied with before the next: two strips' panels of them and the
/// tile's activations fit in the first cache together.
const PIECE: usize = 16;

impl Operands {
    /// N columns of a tile of W.
    #[inline(always)]
    unsafe fn call<L: Lanes, F: Format, const R: usize, const N: usize, const W: usize>(&self) {
        let &Operands {
            strips,
            stride,
            superblocks,
            acts,
            more,
            far,
            out,
        } = self;
        let format = PhantomData;
        L::call(Product::<F, R, N, W> {
            strips,
            stride,
            superblocks,
            acts,
            more,
            far,
            out,
            format,
        })
    }

    /// A tile of W columns, N at a time: as many as the format's sums leave registers for. Where that is few,
    /// all parts of a piece of k come before the next piece, so that strips leave the second cache once.
    #[inline(always)]
    unsafe fn parts<L: Lanes, F: Format, const R: usize, const N: usize, const W: usize>(mut self) {
        let all = self.superblocks;
        let piece = if F::HALF && L::WIDE {
            PIECE / F::BLOCKS
        } else {
            all
        };
        let (acts, out) = (self.acts, self.out);
        let mut from = 0;
        while from < all {
            self.superblocks = piece.min(all - from);
            self.more = from > 0;
            for part in 0..W / N {
                let block = from * F::BLOCKS * TilePlaces::new(W).bytes;
                self.acts = acts.add(block + 4 * N * part);
                self.out = out.add(LANES * R * N * part);
                self.call::<L, F, R, N, W>();
            }
            self.strips = self.strips.add(self.superblocks * F::BYTES);
            from += self.superblocks;
        }
    }

    /// The widths of machines with half the registers.
    #[inline(always)]
    unsafe fn call_narrow<L: Lanes, F: Format>(self, n: usize) {
        if L::NARROW == 4 {
            match n {
                // Two sets of sums: there is no room for those of four columns.
                4 if L::LATE_START && F::BITS == 5 => self.parts::<L, F, 1, 2, 4>(),
                4 => self.call::<L, F, 1, 4, 4>(),
                2 => self.call::<L, F, 1, 2, 2>(),
                _ => self.call::<L, F, 1, 1, 1>(),
            }
        } else {
            match n {
                3 => self.call::<L, F, 1, 3, 3>(),
                2 => self.call::<L, F, 1, 2, 2>(),
                _ => self.call::<L, F, 1, 1, 1>(),
            }
        }
    }
}

/// Products of columns `ks` of a strip of floats with a tile of `n` columns, to `[n][32]`; `ks` that don't
/// begin at 0 continue the sums that are there.
///
/// # Safety
/// As for the kernel that it calls.
pub unsafe fn float_product<L: Lanes>(
    w: &PackedMatrix,
    s: usize,
    ks: Range<usize>,
    n: usize,
    ahead: Ahead,
    acts: *const u8,
    out: *mut f32,
) {
    let args = FloatOperands {
        ahead,
        strip: w.strip(s),
        acts: acts.cast(),
        ks,
        out,
    };
    match w.layout().ty {
        GgmlType::F16 => args.width::<L, F16>(n),
        GgmlType::BF16 => args.width::<L, Bf16>(n),
        _ => args.width::<L, F32>(n),
    }
}

/// The arguments of a [`FloatProduct`], its shape not chosen yet.
struct FloatOperands {
    ahead: Ahead,
    strip: *const u8,
    acts: *const f32,
    ks: Range<usize>,
    out: *mut f32,
}

impl FloatOperands {
    #[inline(always)]
    unsafe fn width<L: Lanes, F: FloatFormat>(&self, n: usize) {
        if L::WIDE {
            match n {
                12 => self.call::<L, F, 12>(),
                4 => self.call::<L, F, 4>(),
                2 => self.call::<L, F, 2>(),
                _ => self.call::<L, F, 1>(),
            }
        } else {
            match n {
                2 => self.call::<L, F, 2>(),
                _ => self.call::<L, F, 1>(),
            }
        }
    }

    #[inline(always)]
    unsafe fn call<L: Lanes, F: FloatFormat, const N: usize>(&self) {
        L::call(FloatProduct::<F, N> {
            strip: self.strip.add(2 * LANES * F::SIZE * self.ks.start),
            k: self.ks.len(),
            more: self.ks.start > 0,
            ahead: self.ahead,
            acts: self.acts.add(N * self.ks.start),
            out: self.out,
            format: PhantomData,
        })
    }
}
