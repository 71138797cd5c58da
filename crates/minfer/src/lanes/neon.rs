//! aarch64: four registers a vector. The dot product is either `sdot` or, exact all the same, widening
//! multiplies into 16-bit sums that are folded before they could overflow.

// Each method is one or two instructions a quarter; the trait states the preconditions once.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

use super::{Kernel, LANES, Lanes};

/// Four 128-bit registers seen as sixteen lanes, with the dot product `T`.
#[derive(Clone, Copy, Debug)]
pub struct Quad<T>(PhantomData<T>);

/// NEON with the dot product extension.
pub type Neon = Quad<Sdot>;
/// NEON without it.
pub type NeonNodot = Quad<Widening>;

/// Runs a kernel compiled for NEON with `sdot`.
///
/// # Safety
/// The CPU has the features below; the kernel's own preconditions hold.
#[target_feature(enable = "neon,dotprod")]
pub unsafe fn run_dot<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Neon>()
}

/// Runs a kernel compiled for NEON.
///
/// # Safety
/// The CPU has the features below; the kernel's own preconditions hold.
#[target_feature(enable = "neon")]
pub unsafe fn run_nodot<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<NeonNodot>()
}

type I4 = [int32x4_t; 4];
type B4 = [int8x16_t; 4];

/// The integer dot product of one 128-bit register; the methods are those of [`Lanes`].
#[allow(clippy::missing_safety_doc)] // as for `Lanes`
pub trait Dot: Copy + 'static {
    /// The accumulator of four lanes.
    type D: Copy;
    /// See [`Lanes::steps`].
    fn steps(bits: usize) -> usize;
    /// See [`Lanes::d_new`].
    unsafe fn new(start: int32x4_t) -> Self::D;
    /// See [`Lanes::d_step`]; `w` is signed.
    unsafe fn step(d: Self::D, w: int8x16_t, a: int8x16_t) -> Self::D;
    /// See [`Lanes::d_flush`].
    unsafe fn flush(d: Self::D) -> Self::D;
    /// See [`Lanes::d_end`].
    unsafe fn end(d: Self::D) -> int32x4_t;
    /// See [`Lanes::call`].
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output;
}

/// `sdot`.
#[derive(Clone, Copy, Debug)]
pub struct Sdot;

impl Dot for Sdot {
    type D = int32x4_t;

    #[inline(always)]
    fn steps(_bits: usize) -> usize {
        8
    }
    #[inline(always)]
    unsafe fn new(start: int32x4_t) -> int32x4_t {
        start
    }
    #[inline(always)]
    unsafe fn step(mut d: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
        // The intrinsic (`vdotq_s32`) is not stable.
        asm!("sdot {d:v}.4s, {w:v}.16b, {a:v}.16b", d = inout(vreg) d, w = in(vreg) w, a = in(vreg) a,
            options(pure, nomem, nostack, preserves_flags));
        d
    }
    #[inline(always)]
    unsafe fn flush(d: int32x4_t) -> int32x4_t {
        d
    }
    #[inline(always)]
    unsafe fn end(d: int32x4_t) -> int32x4_t {
        d
    }
    #[inline(always)]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        run_dot(kernel)
    }
}

/// Widening multiplies: 16-bit sums of single products, folded by pairwise additions.
#[derive(Clone, Copy, Debug)]
pub struct Widening;

impl Dot for Widening {
    type D = (int32x4_t, int16x8_t, int16x8_t); // sums; products of bytes 0..8 and 8..16

    /// The most steps whose sums fit in 16 bits: 8 * 15 * 127 = 15240, 8 * 31 * 127 = 31496,
    /// 4 * 63 * 127 = 32004, 2 * 128 * 127 = 32512.
    #[inline(always)]
    fn steps(bits: usize) -> usize {
        match bits {
            4 | 5 => 8,
            6 => 4,
            _ => 2,
        }
    }
    #[inline(always)]
    unsafe fn new(start: int32x4_t) -> Self::D {
        (start, vdupq_n_s16(0), vdupq_n_s16(0))
    }
    #[inline(always)]
    unsafe fn step((sums, lo, hi): Self::D, w: int8x16_t, a: int8x16_t) -> Self::D {
        let lo = vmlal_s8(lo, vget_low_s8(w), vget_low_s8(a));
        (sums, lo, vmlal_high_s8(hi, w, a))
    }
    #[inline(always)]
    unsafe fn flush((sums, lo, hi): Self::D) -> Self::D {
        // Lane l owns bytes 4l..4l+4: pairs first, then pairs of pairs.
        let four = vpaddq_s32(vpaddlq_s16(lo), vpaddlq_s16(hi));
        Self::new(vaddq_s32(sums, four))
    }
    #[inline(always)]
    unsafe fn end(d: Self::D) -> int32x4_t {
        d.0
    }
    #[inline(always)]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        run_nodot(kernel)
    }
}

/// Applies an intrinsic to all quarters.
macro_rules! quad {
    ($f:ident($a:expr)) => {
        [$f($a[0]), $f($a[1]), $f($a[2]), $f($a[3])]
    };
    ($f:ident($a:expr, $b:expr)) => {
        [
            $f($a[0], $b[0]),
            $f($a[1], $b[1]),
            $f($a[2], $b[2]),
            $f($a[3], $b[3]),
        ]
    };
    ($f:ident($a:expr, $b:expr, $c:expr)) => {
        [
            $f($a[0], $b[0], $c[0]),
            $f($a[1], $b[1], $c[1]),
            $f($a[2], $b[2], $c[2]),
            $f($a[3], $b[3], $c[3]),
        ]
    };
}

/// Compare + select, as the trait says; `fmax` would treat NaN and signed zeros in its own way.
#[inline(always)]
unsafe fn max4(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

#[inline(always)]
unsafe fn min4(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcltq_f32(a, b), a, b)
}

#[inline(always)]
unsafe fn half_to_f32(h: uint16x4_t) -> float32x4_t {
    let v: float32x4_t;
    // The intrinsic's half precision type is not stable; the instruction is in every aarch64.
    asm!("fcvtl {v:v}.4s, {h:v}.4h", v = lateout(vreg) v, h = in(vreg) h,
        options(pure, nomem, nostack, preserves_flags));
    v
}

#[inline(always)]
unsafe fn f32_to_half(v: float32x4_t) -> uint16x4_t {
    let h: uint16x4_t;
    asm!("fcvtn {h:v}.4h, {v:v}.4s", h = lateout(vreg) h, v = in(vreg) v,
        options(pure, nomem, nostack, preserves_flags));
    h
}

#[inline(always)]
unsafe fn bfloat_to_f32(h: uint16x4_t) -> float32x4_t {
    vreinterpretq_f32_u32(vshll_n_u16::<16>(h))
}

/// Turns four vectors: lane l of vector v becomes lane v of vector l.
#[inline(always)]
unsafe fn turn(v: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let (a, b) = (vtrn1q_f32(v[0], v[1]), vtrn2q_f32(v[0], v[1]));
    let (c, d) = (vtrn1q_f32(v[2], v[3]), vtrn2q_f32(v[2], v[3]));
    let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
    let (c, d) = (vreinterpretq_f64_f32(c), vreinterpretq_f64_f32(d));
    [
        vreinterpretq_f32_f64(vtrn1q_f64(a, c)),
        vreinterpretq_f32_f64(vtrn1q_f64(b, d)),
        vreinterpretq_f32_f64(vtrn2q_f64(a, c)),
        vreinterpretq_f32_f64(vtrn2q_f64(b, d)),
    ]
}

impl<T: Dot> Lanes for Quad<T> {
    type F = [float32x4_t; 4];
    type I = I4;
    type B = B4;
    type M = [uint32x4_t; 4];
    type D = [T::D; 4];

    const WIDE: bool = false;
    const NARROW: usize = 3;
    const LATE_START: bool = false;
    const SIGNED8: bool = true;

    #[inline(always)]
    unsafe fn f_load(p: *const f32) -> Self::F {
        [
            vld1q_f32(p),
            vld1q_f32(p.add(4)),
            vld1q_f32(p.add(8)),
            vld1q_f32(p.add(12)),
        ]
    }
    #[inline(always)]
    unsafe fn f_store(p: *mut f32, v: Self::F) {
        vst1q_f32(p, v[0]);
        vst1q_f32(p.add(4), v[1]);
        vst1q_f32(p.add(8), v[2]);
        vst1q_f32(p.add(12), v[3]);
    }
    #[inline(always)]
    unsafe fn f_set1(x: f32) -> Self::F {
        [vdupq_n_f32(x); 4]
    }
    #[inline(always)]
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
        quad!(vaddq_f32(a, b))
    }
    #[inline(always)]
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
        quad!(vsubq_f32(a, b))
    }
    #[inline(always)]
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
        quad!(vmulq_f32(a, b))
    }
    #[inline(always)]
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
        quad!(vdivq_f32(a, b))
    }
    #[inline(always)]
    unsafe fn f_fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        quad!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    unsafe fn f_sqrt(a: Self::F) -> Self::F {
        quad!(vsqrtq_f32(a))
    }
    #[inline(always)]
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
        quad!(max4(a, b))
    }
    #[inline(always)]
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
        quad!(min4(a, b))
    }
    #[inline(always)]
    unsafe fn f_gt(a: Self::F, b: Self::F) -> Self::M {
        quad!(vcgtq_f32(a, b))
    }
    #[inline(always)]
    unsafe fn f_select(m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        quad!(vbslq_f32(m, a, b))
    }
    #[inline(always)]
    unsafe fn f_load_f16(p: *const u16) -> Self::F {
        let h = [
            vld1_u16(p),
            vld1_u16(p.add(4)),
            vld1_u16(p.add(8)),
            vld1_u16(p.add(12)),
        ];
        quad!(half_to_f32(h))
    }
    #[inline(always)]
    unsafe fn f_load_bf16(p: *const u16) -> Self::F {
        let h = [
            vld1_u16(p),
            vld1_u16(p.add(4)),
            vld1_u16(p.add(8)),
            vld1_u16(p.add(12)),
        ];
        quad!(bfloat_to_f32(h))
    }
    #[inline(always)]
    unsafe fn f_store_f16(p: *mut u16, v: Self::F) {
        let h = quad!(f32_to_half(v));
        vst1_u16(p, h[0]);
        vst1_u16(p.add(4), h[1]);
        vst1_u16(p.add(8), h[2]);
        vst1_u16(p.add(12), h[3]);
    }
    #[inline(always)]
    unsafe fn f_hsum(a: Self::F) -> f32 {
        let v = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
        let v = vadd_f32(vget_low_f32(v), vget_high_f32(v));
        vget_lane_f32::<0>(v) + vget_lane_f32::<1>(v)
    }
    #[inline(always)]
    unsafe fn f_hmax(a: Self::F) -> f32 {
        let v = max4(max4(a[0], a[2]), max4(a[1], a[3]));
        let v = max4(v, vextq_f32::<2>(v, v));
        vgetq_lane_f32::<0>(max4(v, vextq_f32::<1>(v, v)))
    }
    #[inline(always)]
    unsafe fn f_to_i(a: Self::F) -> Self::I {
        quad!(vcvtnq_s32_f32(a))
    }
    #[inline(always)]
    unsafe fn f_bits(a: Self::F) -> Self::I {
        quad!(vreinterpretq_s32_f32(a))
    }
    #[inline(always)]
    unsafe fn f_turn(v: &mut [Self::F; LANES]) {
        let from = *v;
        let mut i = 0;
        while i < 4 {
            let mut j = 0;
            while j < 4 {
                let t = turn([
                    from[4 * j][i],
                    from[4 * j + 1][i],
                    from[4 * j + 2][i],
                    from[4 * j + 3][i],
                ]);
                let mut r = 0;
                while r < 4 {
                    v[4 * i + r][j] = t[r];
                    r += 1;
                }
                j += 1;
            }
            i += 1;
        }
    }

    #[inline(always)]
    unsafe fn i_load(p: *const i32) -> Self::I {
        [
            vld1q_s32(p),
            vld1q_s32(p.add(4)),
            vld1q_s32(p.add(8)),
            vld1q_s32(p.add(12)),
        ]
    }
    #[inline(always)]
    unsafe fn i_store(p: *mut i32, v: Self::I) {
        vst1q_s32(p, v[0]);
        vst1q_s32(p.add(4), v[1]);
        vst1q_s32(p.add(8), v[2]);
        vst1q_s32(p.add(12), v[3]);
    }
    #[inline(always)]
    unsafe fn i_load_i8(p: *const i8) -> Self::I {
        let b = vld1q_s8(p);
        let (lo, hi) = (vmovl_s8(vget_low_s8(b)), vmovl_s8(vget_high_s8(b)));
        let (a, b) = (vmovl_s16(vget_low_s16(lo)), vmovl_s16(vget_high_s16(lo)));
        [
            a,
            b,
            vmovl_s16(vget_low_s16(hi)),
            vmovl_s16(vget_high_s16(hi)),
        ]
    }
    #[inline(always)]
    unsafe fn i_store_i8(p: *mut i8, v: Self::I) {
        let lo = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
        let hi = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
        vst1q_s8(p, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
    }
    #[inline(always)]
    unsafe fn i_set1(x: i32) -> Self::I {
        [vdupq_n_s32(x); 4]
    }
    #[inline(always)]
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
        quad!(vaddq_s32(a, b))
    }
    #[inline(always)]
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        quad!(vsubq_s32(a, b))
    }
    #[inline(always)]
    unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
        quad!(vandq_s32(a, b))
    }
    #[inline(always)]
    unsafe fn i_or(a: Self::I, b: Self::I) -> Self::I {
        quad!(vorrq_s32(a, b))
    }
    #[inline(always)]
    unsafe fn i_shl(a: Self::I, n: i32) -> Self::I {
        let n = [vdupq_n_s32(n); 4];
        quad!(vshlq_s32(a, n))
    }
    #[inline(always)]
    unsafe fn i_shr(a: Self::I, n: i32) -> Self::I {
        let (a, n) = (quad!(vreinterpretq_u32_s32(a)), [vdupq_n_s32(-n); 4]);
        let v = quad!(vshlq_u32(a, n));
        quad!(vreinterpretq_s32_u32(v))
    }
    #[inline(always)]
    unsafe fn i_gt(a: Self::I, b: Self::I) -> Self::M {
        quad!(vcgtq_s32(a, b))
    }
    #[inline(always)]
    unsafe fn i_hsum(a: Self::I) -> i32 {
        vaddvq_s32(vaddq_s32(vaddq_s32(a[0], a[1]), vaddq_s32(a[2], a[3])))
    }
    #[inline(always)]
    unsafe fn i_to_f(a: Self::I) -> Self::F {
        quad!(vcvtq_f32_s32(a))
    }
    #[inline(always)]
    unsafe fn i_bits(a: Self::I) -> Self::F {
        quad!(vreinterpretq_f32_s32(a))
    }

    #[inline(always)]
    unsafe fn b_load(p: *const u8) -> Self::B {
        let p = p.cast::<i8>();
        [
            vld1q_s8(p),
            vld1q_s8(p.add(16)),
            vld1q_s8(p.add(32)),
            vld1q_s8(p.add(48)),
        ]
    }
    #[inline(always)]
    unsafe fn b_store(p: *mut u8, v: Self::B) {
        let p = p.cast::<i8>();
        vst1q_s8(p, v[0]);
        vst1q_s8(p.add(16), v[1]);
        vst1q_s8(p.add(32), v[2]);
        vst1q_s8(p.add(48), v[3]);
    }
    #[inline(always)]
    unsafe fn b_lo(x: Self::B) -> Self::B {
        let mask = [vdupq_n_s8(15); 4];
        quad!(vandq_s8(x, mask))
    }
    #[inline(always)]
    unsafe fn b_hi(x: Self::B) -> Self::B {
        let (x, n) = (quad!(vreinterpretq_u8_s8(x)), [vdupq_n_s8(-4); 4]);
        let v = quad!(vshlq_u8(x, n));
        quad!(vreinterpretq_s8_u8(v))
    }
    #[inline(always)]
    unsafe fn b_merge(lo: Self::B, h: Self::B, from: i32, mask: u8) -> Self::B {
        let (h, n) = (
            quad!(vreinterpretq_u8_s8(h)),
            [vdupq_n_s8(4 - from as i8); 4],
        );
        let h = quad!(vshlq_u8(h, n));
        let (h, mask) = (quad!(vreinterpretq_s8_u8(h)), [vdupq_n_s8(mask as i8); 4]);
        let h = quad!(vandq_s8(h, mask));
        quad!(vorrq_s8(lo, h))
    }

    #[inline(always)]
    fn steps(bits: usize) -> usize {
        T::steps(bits)
    }
    #[inline(always)]
    unsafe fn d_new(start: Self::I) -> Self::D {
        [
            T::new(start[0]),
            T::new(start[1]),
            T::new(start[2]),
            T::new(start[3]),
        ]
    }
    #[inline(always)]
    unsafe fn d_step(bits: usize, d: Self::D, w: Self::B, a: i32) -> Self::D {
        let a = vreinterpretq_s8_s32(vdupq_n_s32(a));
        let flip = [vdupq_n_s8(-128); 4]; // 8-bit weights are stored as w + 128: back to signed
        let w = if bits == 8 {
            quad!(veorq_s8(w, flip))
        } else {
            w
        };
        [
            T::step(d[0], w[0], a),
            T::step(d[1], w[1], a),
            T::step(d[2], w[2], a),
            T::step(d[3], w[3], a),
        ]
    }
    #[inline(always)]
    unsafe fn d_flush(d: Self::D) -> Self::D {
        [
            T::flush(d[0]),
            T::flush(d[1]),
            T::flush(d[2]),
            T::flush(d[3]),
        ]
    }
    #[inline(always)]
    unsafe fn d_end(d: Self::D) -> Self::I {
        [T::end(d[0]), T::end(d[1]), T::end(d[2]), T::end(d[3])]
    }

    #[inline(always)]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        T::call(kernel)
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
}
