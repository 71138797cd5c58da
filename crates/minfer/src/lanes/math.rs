//! Elementary functions on lanes: our own polynomials, one order of operations for every machine.
//!
//! The polynomials are those of Cephes' single precision functions (Moshier). Errors against f64, in units
//! in the last place of the exact result, are stated with each function and held by its test. NaN gives NaN.

// Each function's precondition is that of the lane methods it calls.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::missing_safety_doc)] // the precondition is stated at `Lanes`
#![allow(clippy::excessive_precision)] // the constants as published

use super::Lanes;

/// The polynomial with these coefficients, highest power first, by Horner's rule with FMA.
#[inline(always)]
unsafe fn polynomial<L: Lanes, const N: usize>(x: L::F, coefficients: [f32; N]) -> L::F {
    let mut p = L::f_set1(coefficients[0]);
    let mut i = 1;
    while i < N {
        p = L::f_fma(p, x, L::f_set1(coefficients[i]));
        i += 1;
    }
    p
}

/// e^x for x clamped to -87..=88 (so never zero, denormal or infinite). Error at most 1.5 ulp.
#[inline(always)]
pub unsafe fn exp<L: Lanes>(x: L::F) -> L::F {
    let x = L::f_min(L::f_set1(88.0), L::f_max(L::f_set1(-87.0), x));
    let i = L::f_to_i(L::f_mul(x, L::f_set1(std::f32::consts::LOG2_E)));
    let n = L::i_to_f(i);
    // ln 2 in two parts, the first exact in few bits.
    let r = L::f_fma(n, L::f_set1(-0.693359375), x);
    let r = L::f_fma(n, L::f_set1(2.12194440e-4), r);
    const C: [f32; 6] = [
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    ];
    let p = polynomial::<L, 6>(r, C);
    let y = L::f_add(L::f_fma(p, L::f_mul(r, r), r), L::f_set1(1.0));
    L::i_bits(L::i_add(L::f_bits(y), L::i_shl(i, 23)))
}

/// The natural logarithm; 0 gives -infinity, a negative x NaN, infinity itself. Error at most 1.5 ulp.
#[inline(always)]
pub unsafe fn ln<L: Lanes>(x: L::F) -> L::F {
    let tiny = L::f_gt(L::f_set1(f32::MIN_POSITIVE), x); // zero, denormal or negative
    let scaled = L::f_select(tiny, L::f_mul(x, L::f_set1(8_388_608.0)), x); // 2^23
    let bits = L::f_bits(scaled);
    // Exponent and mantissa such that the mantissa lies in sqrt(1/2) ..= sqrt(2).
    let shifted = L::i_sub(bits, L::i_set1(0x3f35_04f3));
    let exponent = L::i_sub(
        L::i_shr(L::i_add(shifted, L::i_set1(0x3f80_0000)), 23),
        L::i_set1(127),
    );
    let m = L::i_bits(L::i_sub(bits, L::i_shl(exponent, 23)));
    let e = L::i_to_f(exponent);
    let e = L::f_select(tiny, L::f_sub(e, L::f_set1(23.0)), e);
    const C: [f32; 9] = [
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    ];
    let r = L::f_sub(m, L::f_set1(1.0));
    let z = L::f_mul(r, r);
    let y = L::f_mul(L::f_mul(polynomial::<L, 9>(r, C), r), z);
    let y = L::f_fma(e, L::f_set1(-2.12194440e-4), y);
    let y = L::f_fma(z, L::f_set1(-0.5), y);
    let y = L::f_fma(e, L::f_set1(0.693359375), L::f_add(r, y));
    let zero = L::f_zero();
    let y = L::f_select(L::f_gt(x, zero), y, L::f_set1(f32::NEG_INFINITY));
    let y = L::f_select(L::f_gt(zero, x), L::f_set1(f32::NAN), y);
    // Infinity, and what compares with nothing.
    let finite = L::f_gt(L::f_set1(f32::INFINITY), x);
    L::f_select(finite, y, x)
}

/// The hyperbolic tangent. Error at most 2 ulp.
#[inline(always)]
pub unsafe fn tanh<L: Lanes>(x: L::F) -> L::F {
    let a = L::f_abs(x);
    const C: [f32; 5] = [
        -5.70498872745e-3,
        2.06390887954e-2,
        -5.37397155531e-2,
        1.33314422036e-1,
        -3.33332819422e-1,
    ];
    let z = L::f_mul(x, x);
    let small = L::f_fma(L::f_mul(polynomial::<L, 5>(z, C), z), x, x);
    let one = L::f_set1(1.0);
    let e = exp::<L>(L::f_add(a, a));
    let large = L::f_sub(one, L::f_div(L::f_set1(2.0), L::f_add(e, one)));
    let sign = L::i_and(L::f_bits(x), L::i_set1(i32::MIN));
    let large = L::i_bits(L::i_or(L::f_bits(large), sign));
    L::f_select(L::f_gt(a, L::f_set1(0.625)), large, small)
}

/// 1 / sqrt(x), each step correctly rounded.
#[inline(always)]
pub unsafe fn rsqrt<L: Lanes>(x: L::F) -> L::F {
    L::f_div(L::f_set1(1.0), L::f_sqrt(x))
}

/// The logistic function 1 / (1 + e^-x). Error at most 3 ulp where it is above e^-87.
#[inline(always)]
pub unsafe fn sigmoid<L: Lanes>(x: L::F) -> L::F {
    let one = L::f_set1(1.0);
    L::f_div(one, L::f_add(one, exp::<L>(L::f_neg(x))))
}

/// SiLU: x / (1 + e^-x). Error at most 3 ulp for x above -87.
#[inline(always)]
pub unsafe fn silu<L: Lanes>(x: L::F) -> L::F {
    L::f_div(x, L::f_add(L::f_set1(1.0), exp::<L>(L::f_neg(x))))
}

/// GELU in its tanh form: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). Absolute error at most
/// 2.5e-7 * max(1, |x|).
#[inline(always)]
pub unsafe fn gelu<L: Lanes>(x: L::F) -> L::F {
    const SQRT_2_OVER_PI: f32 = 0.797_884_56;
    let cubic = L::f_mul(L::f_mul(L::f_set1(0.044715), L::f_mul(x, x)), x);
    let inner = L::f_mul(L::f_set1(SQRT_2_OVER_PI), L::f_add(x, cubic));
    let half = L::f_mul(L::f_set1(0.5), x);
    L::f_fma(half, tanh::<L>(inner), half)
}
