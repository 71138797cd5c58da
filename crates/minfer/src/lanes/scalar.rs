//! The portable machine: plain loops over sixteen lanes. It is what the other machines are held to.

// Each method is the trait's contract itself; preconditions are stated there once.
#![allow(unsafe_op_in_unsafe_fn)]

use half::{bf16, f16};

use super::{Kernel, LANES, Lanes};

/// The portable machine.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

/// An array of 16 whose element `l` is the expression; a loop and not a closure, so that the expression is
/// compiled with the features of the function around it.
macro_rules! each {
    ($l:ident => $e:expr) => {{
        let mut out = [Default::default(); LANES];
        let mut $l = 0;
        while $l < LANES {
            out[$l] = $e;
            $l += 1;
        }
        out
    }};
}

/// The same for 64 bytes.
macro_rules! bytes {
    ($l:ident => $e:expr) => {{
        let mut out = [0u8; 64];
        let mut $l = 0;
        while $l < 64 {
            out[$l] = $e;
            $l += 1;
        }
        out
    }};
}

impl Lanes for Scalar {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 64];
    type M = [bool; LANES];
    type D = [i32; LANES];

    const WIDE: bool = false;
    const NARROW: usize = 3;
    const LATE_START: bool = false;
    const SIGNED8: bool = false;

    #[inline(always)]
    unsafe fn f_load(p: *const f32) -> Self::F {
        p.cast::<Self::F>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn f_store(p: *mut f32, v: Self::F) {
        p.cast::<Self::F>().write_unaligned(v)
    }
    #[inline(always)]
    unsafe fn f_set1(x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
        each!(l => a[l] + b[l])
    }
    #[inline(always)]
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
        each!(l => a[l] - b[l])
    }
    #[inline(always)]
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
        each!(l => a[l] * b[l])
    }
    #[inline(always)]
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
        each!(l => a[l] / b[l])
    }
    #[inline(always)]
    unsafe fn f_fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        each!(l => a[l].mul_add(b[l], c[l]))
    }
    #[inline(always)]
    unsafe fn f_sqrt(a: Self::F) -> Self::F {
        each!(l => a[l].sqrt())
    }
    #[inline(always)]
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
        each!(l => max(a[l], b[l]))
    }
    #[inline(always)]
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
        each!(l => if a[l] < b[l] { a[l] } else { b[l] })
    }
    #[inline(always)]
    unsafe fn f_gt(a: Self::F, b: Self::F) -> Self::M {
        each!(l => a[l] > b[l])
    }
    #[inline(always)]
    unsafe fn f_select(m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        each!(l => if m[l] { a[l] } else { b[l] })
    }
    #[inline(always)]
    unsafe fn f_load_f16(p: *const u16) -> Self::F {
        let h = p.cast::<[u16; LANES]>().read_unaligned();
        each!(l => f16::from_bits(h[l]).to_f32_const())
    }
    #[inline(always)]
    unsafe fn f_load_bf16(p: *const u16) -> Self::F {
        let h = p.cast::<[u16; LANES]>().read_unaligned();
        each!(l => bf16::from_bits(h[l]).to_f32_const())
    }
    #[inline(always)]
    unsafe fn f_store_f16(p: *mut u16, v: Self::F) {
        let h: [u16; LANES] = each!(l => f16::from_f32_const(v[l]).to_bits());
        p.cast::<[u16; LANES]>().write_unaligned(h)
    }
    #[inline(always)]
    unsafe fn f_hsum(mut a: Self::F) -> f32 {
        let mut half = LANES / 2;
        while half > 0 {
            for l in 0..half {
                a[l] += a[l + half];
            }
            half /= 2;
        }
        a[0]
    }
    #[inline(always)]
    unsafe fn f_hmax(mut a: Self::F) -> f32 {
        let mut half = LANES / 2;
        while half > 0 {
            for l in 0..half {
                a[l] = max(a[l], a[l + half]);
            }
            half /= 2;
        }
        a[0]
    }
    #[inline(always)]
    unsafe fn f_to_i(a: Self::F) -> Self::I {
        each!(l => a[l].round_ties_even() as i32)
    }
    #[inline(always)]
    unsafe fn f_bits(a: Self::F) -> Self::I {
        each!(l => a[l].to_bits() as i32)
    }
    #[inline(always)]
    unsafe fn f_turn(v: &mut [Self::F; LANES]) {
        let from = *v;
        for (l, to) in v.iter_mut().enumerate() {
            *to = each!(r => from[r][l]);
        }
    }

    #[inline(always)]
    unsafe fn i_load(p: *const i32) -> Self::I {
        p.cast::<Self::I>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn i_store(p: *mut i32, v: Self::I) {
        p.cast::<Self::I>().write_unaligned(v)
    }
    #[inline(always)]
    unsafe fn i_load_i8(p: *const i8) -> Self::I {
        let b = p.cast::<[i8; LANES]>().read_unaligned();
        each!(l => i32::from(b[l]))
    }
    #[inline(always)]
    unsafe fn i_store_i8(p: *mut i8, v: Self::I) {
        let b: [i8; LANES] = each!(l => v[l] as i8);
        p.cast::<[i8; LANES]>().write_unaligned(b)
    }
    #[inline(always)]
    unsafe fn i_set1(x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
        each!(l => a[l].wrapping_add(b[l]))
    }
    #[inline(always)]
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        each!(l => a[l].wrapping_sub(b[l]))
    }
    #[inline(always)]
    unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
        each!(l => a[l] & b[l])
    }
    #[inline(always)]
    unsafe fn i_or(a: Self::I, b: Self::I) -> Self::I {
        each!(l => a[l] | b[l])
    }
    #[inline(always)]
    unsafe fn i_shl(a: Self::I, n: i32) -> Self::I {
        each!(l => a[l] << n)
    }
    #[inline(always)]
    unsafe fn i_shr(a: Self::I, n: i32) -> Self::I {
        each!(l => (a[l] as u32 >> n) as i32)
    }
    #[inline(always)]
    unsafe fn i_gt(a: Self::I, b: Self::I) -> Self::M {
        each!(l => a[l] > b[l])
    }
    #[inline(always)]
    unsafe fn i_hsum(a: Self::I) -> i32 {
        let mut sum = 0i32;
        for x in a {
            sum = sum.wrapping_add(x);
        }
        sum
    }
    #[inline(always)]
    unsafe fn i_to_f(a: Self::I) -> Self::F {
        each!(l => a[l] as f32)
    }
    #[inline(always)]
    unsafe fn i_bits(a: Self::I) -> Self::F {
        each!(l => f32::from_bits(a[l] as u32))
    }

    #[inline(always)]
    unsafe fn b_load(p: *const u8) -> Self::B {
        p.cast::<Self::B>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn b_store(p: *mut u8, v: Self::B) {
        p.cast::<Self::B>().write_unaligned(v)
    }
    #[inline(always)]
    unsafe fn b_lo(x: Self::B) -> Self::B {
        bytes!(l => x[l] & 15)
    }
    #[inline(always)]
    unsafe fn b_hi(x: Self::B) -> Self::B {
        bytes!(l => x[l] >> 4)
    }
    #[inline(always)]
    unsafe fn b_merge(lo: Self::B, h: Self::B, from: i32, mask: u8) -> Self::B {
        bytes!(l => lo[l] | ((u32::from(h[l]) << 4 >> from) as u8 & mask))
    }

    #[inline(always)]
    fn steps(_bits: usize) -> usize {
        8
    }
    #[inline(always)]
    unsafe fn d_new(start: Self::I) -> Self::D {
        start
    }
    #[inline(always)]
    unsafe fn d_step(_bits: usize, d: Self::D, w: Self::B, a: i32) -> Self::D {
        let a = a.to_le_bytes().map(|x| i32::from(x as i8));
        each!(l => d[l]
            + i32::from(w[4 * l]) * a[0]
            + i32::from(w[4 * l + 1]) * a[1]
            + i32::from(w[4 * l + 2]) * a[2]
            + i32::from(w[4 * l + 3]) * a[3])
    }
    #[inline(always)]
    unsafe fn d_flush(d: Self::D) -> Self::D {
        d
    }
    #[inline(always)]
    unsafe fn d_end(d: Self::D) -> Self::I {
        d
    }

    #[inline]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        // Without the instruction, `mul_add` is a library call: same bits, far slower.
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("fma") {
            return run_with_fma(kernel);
        }
        kernel.run::<Scalar>()
    }
}

/// # Safety
/// The CPU has FMA; the kernel's own preconditions hold.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
unsafe fn run_with_fma<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Scalar>()
}

#[inline(always)]
fn max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}
