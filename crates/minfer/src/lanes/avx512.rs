//! x86-64 with AVX-512: one register a vector, `vpdpbusd` for the dot product.

// Each method is one or two instructions; the trait states the preconditions once.
#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::{Kernel, LANES, Lanes};

/// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy, Debug)]
pub struct Avx512;

/// Runs a kernel compiled for AVX-512.
///
/// # Safety
/// The CPU has the features below; the kernel's own preconditions hold.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}

/// The upper eight lanes.
#[inline(always)]
unsafe fn upper(a: __m512) -> __m256 {
    _mm512_extractf32x8_ps::<1>(a)
}

/// Turns the 4 x 4 matrices that quarter k of the four vectors makes, each in place.
#[inline(always)]
unsafe fn quarters(v: [__m512; 4]) -> [__m512; 4] {
    let (a, b) = (
        _mm512_unpacklo_ps(v[0], v[1]),
        _mm512_unpackhi_ps(v[0], v[1]),
    );
    let (c, d) = (
        _mm512_unpacklo_ps(v[2], v[3]),
        _mm512_unpackhi_ps(v[2], v[3]),
    );
    let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
    let (c, d) = (_mm512_castps_pd(c), _mm512_castps_pd(d));
    [
        _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(a, c)),
        _mm512_castpd_ps(_mm512_unpacklo_pd(b, d)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(b, d)),
    ]
}

impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    type M = __mmask16;
    type D = __m512i;

    const WIDE: bool = true;
    const NARROW: usize = 4;
    const LATE_START: bool = false;
    const SIGNED8: bool = false;

    #[inline(always)]
    unsafe fn f_load(p: *const f32) -> Self::F {
        _mm512_loadu_ps(p)
    }
    #[inline(always)]
    unsafe fn f_store(p: *mut f32, v: Self::F) {
        _mm512_storeu_ps(p, v)
    }
    #[inline(always)]
    unsafe fn f_set1(x: f32) -> Self::F {
        _mm512_set1_ps(x)
    }
    #[inline(always)]
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F {
        _mm512_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F {
        _mm512_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn f_fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn f_sqrt(a: Self::F) -> Self::F {
        _mm512_sqrt_ps(a)
    }
    #[inline(always)]
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F {
        _mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F {
        _mm512_min_ps(a, b)
    }
    #[inline(always)]
    unsafe fn f_gt(a: Self::F, b: Self::F) -> Self::M {
        _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b)
    }
    #[inline(always)]
    unsafe fn f_select(m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        _mm512_mask_blend_ps(m, b, a)
    }
    #[inline(always)]
    unsafe fn f_load_f16(p: *const u16) -> Self::F {
        _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn f_load_bf16(p: *const u16) -> Self::F {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }
    #[inline(always)]
    unsafe fn f_store_f16(p: *mut u16, v: Self::F) {
        _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
    }
    #[inline(always)]
    unsafe fn f_hsum(a: Self::F) -> f32 {
        super::avx2::hsum(_mm256_add_ps(_mm512_castps512_ps256(a), upper(a)))
    }
    #[inline(always)]
    unsafe fn f_hmax(a: Self::F) -> f32 {
        super::avx2::hmax(_mm256_max_ps(_mm512_castps512_ps256(a), upper(a)))
    }
    #[inline(always)]
    unsafe fn f_to_i(a: Self::F) -> Self::I {
        _mm512_cvtps_epi32(a)
    }
    #[inline(always)]
    unsafe fn f_bits(a: Self::F) -> Self::I {
        _mm512_castps_si512(a)
    }
    #[inline(always)]
    unsafe fn f_turn(v: &mut [Self::F; LANES]) {
        // Four rows at a time, within the quarters of the registers; then the quarters.
        let mut q = [_mm512_setzero_ps(); LANES];
        let mut i = 0;
        while i < LANES {
            let r = quarters([v[i], v[i + 1], v[i + 2], v[i + 3]]);
            (q[i], q[i + 1], q[i + 2], q[i + 3]) = (r[0], r[1], r[2], r[3]);
            i += 4;
        }
        const EVEN: i32 = 0b10_00_10_00;
        const ODD: i32 = 0b11_01_11_01;
        let mut j = 0;
        while j < 4 {
            let (a, b) = (
                _mm512_shuffle_f32x4::<EVEN>(q[j], q[4 + j]),
                _mm512_shuffle_f32x4::<EVEN>(q[8 + j], q[12 + j]),
            );
            let (c, d) = (
                _mm512_shuffle_f32x4::<ODD>(q[j], q[4 + j]),
                _mm512_shuffle_f32x4::<ODD>(q[8 + j], q[12 + j]),
            );
            v[j] = _mm512_shuffle_f32x4::<EVEN>(a, b);
            v[4 + j] = _mm512_shuffle_f32x4::<EVEN>(c, d);
            v[8 + j] = _mm512_shuffle_f32x4::<ODD>(a, b);
            v[12 + j] = _mm512_shuffle_f32x4::<ODD>(c, d);
            j += 1;
        }
    }

    #[inline(always)]
    unsafe fn i_load(p: *const i32) -> Self::I {
        _mm512_loadu_si512(p.cast())
    }
    #[inline(always)]
    unsafe fn i_store(p: *mut i32, v: Self::I) {
        _mm512_storeu_si512(p.cast(), v)
    }
    #[inline(always)]
    unsafe fn i_load_i8(p: *const i8) -> Self::I {
        _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))
    }
    #[inline(always)]
    unsafe fn i_store_i8(p: *mut i8, v: Self::I) {
        _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(v))
    }
    #[inline(always)]
    unsafe fn i_set1(x: i32) -> Self::I {
        _mm512_set1_epi32(x)
    }
    #[inline(always)]
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I {
        _mm512_add_epi32(a, b)
    }
    #[inline(always)]
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        _mm512_sub_epi32(a, b)
    }
    #[inline(always)]
    unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I {
        _mm512_and_si512(a, b)
    }
    #[inline(always)]
    unsafe fn i_or(a: Self::I, b: Self::I) -> Self::I {
        _mm512_or_si512(a, b)
    }
    #[inline(always)]
    unsafe fn i_shl(a: Self::I, n: i32) -> Self::I {
        _mm512_sll_epi32(a, _mm_cvtsi32_si128(n))
    }
    #[inline(always)]
    unsafe fn i_shr(a: Self::I, n: i32) -> Self::I {
        _mm512_srl_epi32(a, _mm_cvtsi32_si128(n))
    }
    #[inline(always)]
    unsafe fn i_gt(a: Self::I, b: Self::I) -> Self::M {
        _mm512_cmpgt_epi32_mask(a, b)
    }
    #[inline(always)]
    unsafe fn i_hsum(a: Self::I) -> i32 {
        _mm512_reduce_add_epi32(a)
    }
    #[inline(always)]
    unsafe fn i_to_f(a: Self::I) -> Self::F {
        _mm512_cvtepi32_ps(a)
    }
    #[inline(always)]
    unsafe fn i_bits(a: Self::I) -> Self::F {
        _mm512_castsi512_ps(a)
    }

    #[inline(always)]
    unsafe fn b_load(p: *const u8) -> Self::B {
        _mm512_loadu_si512(p.cast())
    }
    #[inline(always)]
    unsafe fn b_store(p: *mut u8, v: Self::B) {
        _mm512_storeu_si512(p.cast(), v)
    }
    #[inline(always)]
    unsafe fn b_lo(x: Self::B) -> Self::B {
        _mm512_and_si512(x, _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn b_hi(x: Self::B) -> Self::B {
        _mm512_and_si512(_mm512_srli_epi16::<4>(x), _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn b_merge(lo: Self::B, h: Self::B, from: i32, mask: u8) -> Self::B {
        // Bits that cross into the neighbouring byte of a 16-bit lane fall outside of the mask.
        let h = if from <= 4 {
            _mm512_sll_epi16(h, _mm_cvtsi32_si128(4 - from))
        } else {
            _mm512_srl_epi16(h, _mm_cvtsi32_si128(from - 4))
        };
        const OR_AND: i32 = 0xf8; // a | (b & c)
        _mm512_ternarylogic_epi32::<OR_AND>(lo, h, _mm512_set1_epi8(mask as i8))
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
        _mm512_dpbusd_epi32(d, w, _mm512_set1_epi32(a))
    }
    #[inline(always)]
    unsafe fn d_flush(d: Self::D) -> Self::D {
        d
    }
    #[inline(always)]
    unsafe fn d_end(d: Self::D) -> Self::I {
        d
    }

    #[inline(always)]
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output {
        run(kernel)
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
