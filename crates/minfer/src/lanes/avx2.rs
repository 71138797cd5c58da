//! x86-64 with AVX2, FMA and F16C: two registers a vector. The dot product is either AVX-VNNI's or, exact
//! all the same, `vpmaddubsw` into 16-bit sums that are folded before they could overflow.

// Each method is one or two instructions a half; the trait states the preconditions once.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{Kernel, LANES, Lanes};

/// Two 256-bit registers seen as sixteen lanes, with the dot product `T`.
#[derive(Clone, Copy, Debug)]
pub struct Ymm<T>(PhantomData<T>);

/// AVX2 alone.
pub type Avx2 = Ymm<Maddubs>;
/// AVX2 with AVX-VNNI.
pub type AvxVnni = Ymm<Vnni>;

/// Runs a kernel compiled for AVX2.
///
/// # Safety
/// The CPU has the features below; the kernel's own preconditions hold.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

/// Runs a kernel compiled for AVX2 with AVX-VNNI.
///
/// # Safety
/// The CPU has the features below; the kernel's own preconditions hold.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub unsafe fn run_avxvnni<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<AvxVnni>()
}

type Pair = (__m256i, __m256i);

/// The integer dot product of a 256-bit machine; the methods are those of [`Lanes`].
#[allow(clippy::missing_safety_doc)] // as for `Lanes`
pub trait Dot: Copy + 'static {
    /// The accumulator.
    type D: Copy;
    /// See [`Lanes::LATE_START`].
    const LATE_START: bool;
    /// See [`Lanes::SIGNED8`].
    const SIGNED8: bool;
    /// See [`Lanes::steps`].
    fn steps(bits: usize) -> usize;
    /// See [`Lanes::d_new`].
    unsafe fn new(start: Pair) -> Self::D;
    /// See [`Lanes::d_step`].
    unsafe fn step(bits: usize, d: Self::D, w: Pair, a: __m256i) -> Self::D;
    /// See [`Lanes::d_flush`].
    unsafe fn flush(d: Self::D) -> Self::D;
    /// See [`Lanes::d_end`].
    unsafe fn end(d: Self::D) -> Pair;
    /// See [`Lanes::call`].
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output;
}

/// `vpdpbusd` on 256 bits.
#[derive(Clone, Copy, Debug)]
pub struct Vnni;

impl Dot for Vnni {
    type D = Pair;
    const LATE_START: bool = false;
    const SIGNED8: bool = false;

    #[inline(always)]
    fn steps(_bits: usize) -> usize {
        8
    }
    #[inline(always)]
    unsafe fn new(start: Pair) -> Pair {
        start
    }
    #[inline(always)]
    unsafe fn step(_bits: usize, d: Pair, w: Pair, a: __m256i) -> Pair {
        #[cfg(test)]
        if stand_in::needed() {
            return (stand_in::dpbusd(d.0, w.0, a), stand_in::dpbusd(d.1, w.1, a));
        }
        (
            _mm256_dpbusd_avx_epi32(d.0, w.0, a),
            _mm256_dpbusd_avx_epi32(d.1, w.1, a),
        )
    }
    #[inline(always)]
    unsafe fn flush(d: Pair) -> Pair {
        d
    }
    #[inline(always)]
    unsafe fn end(d: Pair) -> Pair {
        d
    }
    #[inline(always)]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        run_avxvnni(kernel)
    }
}

/// Unit tests run the AVX-VNNI machine also on CPUs that have its one instruction only in AVX-512's
/// encoding: the kernels are the same, and only that encoding stays untested there.
#[cfg(test)]
pub(super) mod stand_in {
    use std::arch::is_x86_feature_detected as has;
    use std::arch::x86_64::{__m256i, _mm256_dpbusd_epi32};

    /// Whether this CPU has AVX-512's encoding of the instruction, and not AVX-VNNI's.
    pub fn needed() -> bool {
        !has!("avxvnni") && has!("avx512vnni") && has!("avx512vl")
    }

    /// The same instruction.
    ///
    /// # Safety
    /// [`needed`] is true.
    #[target_feature(enable = "avx512vnni,avx512vl")]
    pub unsafe fn dpbusd(d: __m256i, w: __m256i, a: __m256i) -> __m256i {
        _mm256_dpbusd_epi32(d, w, a)
    }
}

/// `vpmaddubsw`: sums of two products in 16 bits, then one `vpmaddwd` by ones a flush.
#[derive(Clone, Copy, Debug)]
pub struct Maddubs;

impl Dot for Maddubs {
    type D = (Pair, Pair); // 32-bit sums, 16-bit sums of pairs
    const LATE_START: bool = true;
    const SIGNED8: bool = true;

    /// The most steps whose pair sums fit in 16 bits: 8 * 2 * 15 * 127 = 30480, 4 * 2 * 31 * 127 = 31496,
    /// 2 * 2 * 63 * 127 = 32004, 2 * 128 * 127 = 32512.
    #[inline(always)]
    fn steps(bits: usize) -> usize {
        match bits {
            4 => 8,
            5 => 4,
            6 => 2,
            _ => 1,
        }
    }
    #[inline(always)]
    unsafe fn new(start: Pair) -> Self::D {
        let zero = _mm256_setzero_si256();
        (start, (zero, zero))
    }
    #[inline(always)]
    unsafe fn step(bits: usize, (sums, pairs): Self::D, w: Pair, a: __m256i) -> Self::D {
        // Nothing saturates (see `steps`); the instruction is chosen because the compiler does not regroup
        // saturating sums, which would need many more registers than there are.
        let lo = _mm256_adds_epi16(pairs.0, maddubs(bits, w.0, a));
        let hi = _mm256_adds_epi16(pairs.1, maddubs(bits, w.1, a));
        (sums, (lo, hi))
    }
    #[inline(always)]
    unsafe fn flush((sums, pairs): Self::D) -> Self::D {
        let ones = _mm256_set1_epi16(1);
        let lo = _mm256_add_epi32(sums.0, _mm256_madd_epi16(pairs.0, ones));
        let hi = _mm256_add_epi32(sums.1, _mm256_madd_epi16(pairs.1, ones));
        Self::new((lo, hi))
    }
    #[inline(always)]
    unsafe fn end(d: Self::D) -> Pair {
        d.0
    }
    #[inline(always)]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        run_avx2(kernel)
    }
}

/// Pair sums of w * a. 8-bit weights are taken as s = w - 128: |s| * (a with s's sign), as the instruction
/// wants an unsigned factor and two products of 255 * 127 would saturate.
#[inline(always)]
unsafe fn maddubs(bits: usize, w: __m256i, a: __m256i) -> __m256i {
    if bits == 8 {
        let s = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(a, s))
    } else {
        _mm256_maddubs_epi16(w, a)
    }
}

/// The sum of eight lanes: l and l + 4, l + 2, l + 1.
#[inline(always)]
pub unsafe fn hsum(a: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps::<1>(v, v)))
}

/// The maximum of eight lanes, in the order of [`hsum`].
#[inline(always)]
pub unsafe fn hmax(a: __m256) -> f32 {
    let v = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps::<1>(v, v)))
}

/// Turns eight vectors: lane l of vector v becomes lane v of vector l.
#[inline(always)]
unsafe fn turn(v: [__m256; 8]) -> [__m256; 8] {
    // Four rows at a time, within the halves of the registers; then the halves.
    let a = halves([v[0], v[1], v[2], v[3]]);
    let b = halves([v[4], v[5], v[6], v[7]]);
    const LOW: i32 = 0x20;
    const HIGH: i32 = 0x31;
    [
        _mm256_permute2f128_ps::<LOW>(a[0], b[0]),
        _mm256_permute2f128_ps::<LOW>(a[1], b[1]),
        _mm256_permute2f128_ps::<LOW>(a[2], b[2]),
        _mm256_permute2f128_ps::<LOW>(a[3], b[3]),
        _mm256_permute2f128_ps::<HIGH>(a[0], b[0]),
        _mm256_permute2f128_ps::<HIGH>(a[1], b[1]),
        _mm256_permute2f128_ps::<HIGH>(a[2], b[2]),
        _mm256_permute2f128_ps::<HIGH>(a[3], b[3]),
    ]
}

/// Turns the 4 x 4 matrices that each half of the four vectors makes, in place.
#[inline(always)]
unsafe fn halves(v: [__m256; 4]) -> [__m256; 4] {
    let (a, b) = (
        _mm256_unpacklo_ps(v[0], v[1]),
        _mm256_unpackhi_ps(v[0], v[1]),
    );
    let (c, d) = (
        _mm256_unpacklo_ps(v[2], v[3]),
        _mm256_unpackhi_ps(v[2], v[3]),
    );
    let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
    let (c, d) = (_mm256_castps_pd(c), _mm256_castps_pd(d));
    [
        _mm256_castpd_ps(_mm256_unpacklo_pd(a, c)),
        _mm256_castpd_ps(_mm256_unpackhi_pd(a, c)),
        _mm256_castpd_ps(_mm256_unpacklo_pd(b, d)),
        _mm256_castpd_ps(_mm256_unpackhi_pd(b, d)),
    ]
}

/// Applies an intrinsic to both halves.
macro_rules! both {
    ($f:ident($a:expr)) => {
        ($f($a.0), $f($a.1))
    };
    ($f:ident($a:expr, $b:expr)) => {
        ($f($a.0, $b.0), $f($a.1, $b.1))
    };
    ($f:ident($a:expr, $b:expr, $c:expr)) => {
        ($f($a.0, $b.0, $c.0), $f($a.1, $b.1, $c.1))
    };
}

impl<T: Dot> Lanes for Ymm<T> {
    type F = (__m256, __m256);
    type I = Pair;
    type B = Pair;
    type M = (__m256, __m256);
    type D = T::D;

    const WIDE: bool = false;
    const NARROW: usize = 4;
    const LATE_START: bool = T::LATE_START;
    const SIGNED8: bool = T::SIGNED8;

    #[inline(always)]
    unsafe fn f_load(p: *const f32) -> Self::F {
        (_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8)))
    }
    #[inline(always)]
    unsafe fn f_store(p: *mut f32, v: Self::F) {
        _mm256_storeu_ps(p, v.0);
        _mm256_storeu_ps(p.add(8), v.1)
    }
    #[inline(always)]
    unsafe fn f_set1(x: f32) -> Self::F {
        let v = _mm256_set1_ps(x);
        (v, v)
    }
    #[inline(always)]
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    unsafe fn f_fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    unsafe fn f_sqrt(a: Self::F) -> Self::F {
        both!(_mm256_sqrt_ps(a))
    }
    #[inline(always)]
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    unsafe fn f_gt(a: Self::F, b: Self::F) -> Self::M {
        (
            _mm256_cmp_ps::<_CMP_GT_OQ>(a.0, b.0),
            _mm256_cmp_ps::<_CMP_GT_OQ>(a.1, b.1),
        )
    }
    #[inline(always)]
    unsafe fn f_select(m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_blendv_ps(b, a, m))
    }
    #[inline(always)]
    unsafe fn f_load_f16(p: *const u16) -> Self::F {
        let (lo, hi) = (_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(8).cast()));
        (_mm256_cvtph_ps(lo), _mm256_cvtph_ps(hi))
    }
    #[inline(always)]
    unsafe fn f_load_bf16(p: *const u16) -> Self::F {
        let lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        let hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.add(8).cast()));
        Self::i_bits((_mm256_slli_epi32::<16>(lo), _mm256_slli_epi32::<16>(hi)))
    }
    #[inline(always)]
    unsafe fn f_store_f16(p: *mut u16, v: Self::F) {
        _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.0));
        _mm_storeu_si128(
            p.add(8).cast(),
            _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.1),
        )
    }
    #[inline(always)]
    unsafe fn f_hsum(a: Self::F) -> f32 {
        hsum(_mm256_add_ps(a.0, a.1))
    }
    #[inline(always)]
    unsafe fn f_hmax(a: Self::F) -> f32 {
        hmax(_mm256_max_ps(a.0, a.1))
    }
    #[inline(always)]
    unsafe fn f_to_i(a: Self::F) -> Self::I {
        both!(_mm256_cvtps_epi32(a))
    }
    #[inline(always)]
    unsafe fn f_bits(a: Self::F) -> Self::I {
        both!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    unsafe fn f_turn(v: &mut [Self::F; LANES]) {
        let from = *v;
        let (mut tl, mut tr) = ([from[0].0; 8], [from[0].0; 8]);
        let (mut bl, mut br) = (tl, tr);
        let mut i = 0;
        while i < 8 {
            (tl[i], tr[i]) = from[i];
            (bl[i], br[i]) = from[8 + i];
            i += 1;
        }
        let (tl, tr, bl, br) = (turn(tl), turn(tr), turn(bl), turn(br));
        let mut i = 0;
        while i < 8 {
            v[i] = (tl[i], bl[i]);
            v[8 + i] = (tr[i], br[i]);
            i += 1;
        }
    }

    #[inline(always)]
    unsafe fn i_load(p: *const i32) -> Self::I {
        Self::b_load(p.cast())
    }
    #[inline(always)]
    unsafe fn i_store(p: *mut i32, v: Self::I) {
        Self::b_store(p.cast(), v)
    }
    #[inline(always)]
    unsafe fn i_load_i8(p: *const i8) -> Self::I {
        let b = _mm_loadu_si128(p.cast());
        (
            _mm256_cvtepi8_epi32(b),
            _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(b)),
        )
    }
    #[inline(always)]
    unsafe fn i_store_i8(p: *mut i8, v: Self::I) {
        let low = _mm256_set1_epi32(0xff);
        // Packing works within 128-bit halves: 16-bit lanes come out as 0-3, 8-11, 4-7, 12-15.
        let w = _mm256_packus_epi32(_mm256_and_si256(v.0, low), _mm256_and_si256(v.1, low));
        let w = _mm256_permute4x64_epi64::<0b11_01_10_00>(w);
        let b = _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256::<1>(w));
        _mm_storeu_si128(p.cast(), b)
    }
    #[inline(always)]
    unsafe fn i_set1(x: i32) -> Self::I {
        let v = _mm256_set1_epi32(x);
        (v, v)
    }
    #[inline(always)]
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    unsafe fn i_or(a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    unsafe fn i_shl(a: Self::I, n: i32) -> Self::I {
        let n = _mm_cvtsi32_si128(n);
        (_mm256_sll_epi32(a.0, n), _mm256_sll_epi32(a.1, n))
    }
    #[inline(always)]
    unsafe fn i_shr(a: Self::I, n: i32) -> Self::I {
        let n = _mm_cvtsi32_si128(n);
        (_mm256_srl_epi32(a.0, n), _mm256_srl_epi32(a.1, n))
    }
    #[inline(always)]
    unsafe fn i_gt(a: Self::I, b: Self::I) -> Self::M {
        Self::i_bits(both!(_mm256_cmpgt_epi32(a, b)))
    }
    #[inline(always)]
    unsafe fn i_hsum(a: Self::I) -> i32 {
        let v = _mm256_add_epi32(a.0, a.1);
        let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
        let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b01_00_11_10>(v));
        _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32::<1>(v)))
    }
    #[inline(always)]
    unsafe fn i_to_f(a: Self::I) -> Self::F {
        both!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    unsafe fn i_bits(a: Self::I) -> Self::F {
        both!(_mm256_castsi256_ps(a))
    }

    #[inline(always)]
    unsafe fn b_load(p: *const u8) -> Self::B {
        (
            _mm256_loadu_si256(p.cast()),
            _mm256_loadu_si256(p.add(32).cast()),
        )
    }
    #[inline(always)]
    unsafe fn b_store(p: *mut u8, v: Self::B) {
        _mm256_storeu_si256(p.cast(), v.0);
        _mm256_storeu_si256(p.add(32).cast(), v.1)
    }
    #[inline(always)]
    unsafe fn b_lo(x: Self::B) -> Self::B {
        let mask = _mm256_set1_epi8(15);
        (_mm256_and_si256(x.0, mask), _mm256_and_si256(x.1, mask))
    }
    #[inline(always)]
    unsafe fn b_hi(x: Self::B) -> Self::B {
        Self::b_lo((_mm256_srli_epi16::<4>(x.0), _mm256_srli_epi16::<4>(x.1)))
    }
    #[inline(always)]
    unsafe fn b_merge(lo: Self::B, h: Self::B, from: i32, mask: u8) -> Self::B {
        // Bits that cross into the neighbouring byte of a 16-bit lane fall outside of the mask.
        let h = if from <= 4 {
            let n = _mm_cvtsi32_si128(4 - from);
            (_mm256_sll_epi16(h.0, n), _mm256_sll_epi16(h.1, n))
        } else {
            let n = _mm_cvtsi32_si128(from - 4);
            (_mm256_srl_epi16(h.0, n), _mm256_srl_epi16(h.1, n))
        };
        let mask = _mm256_set1_epi8(mask as i8);
        let h = (_mm256_and_si256(h.0, mask), _mm256_and_si256(h.1, mask));
        both!(_mm256_or_si256(lo, h))
    }

    #[inline(always)]
    fn steps(bits: usize) -> usize {
        T::steps(bits)
    }
    #[inline(always)]
    unsafe fn d_new(start: Self::I) -> Self::D {
        T::new(start)
    }
    #[inline(always)]
    unsafe fn d_step(bits: usize, d: Self::D, w: Self::B, a: i32) -> Self::D {
        T::step(bits, d, w, _mm256_set1_epi32(a))
    }
    #[inline(always)]
    unsafe fn d_flush(d: Self::D) -> Self::D {
        T::flush(d)
    }
    #[inline(always)]
    unsafe fn d_end(d: Self::D) -> Self::I {
        T::end(d)
    }

    #[inline(always)]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        T::call(kernel)
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(p.cast())
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        _mm_prefetch::<_MM_HINT_T1>(p.cast())
    }
}
