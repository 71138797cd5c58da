//! Elementary functions in f64 that give the same bits on every platform.
//!
//! The C library's differ between platforms in their last bit, and everything here feeds tables whose
//! bits are part of the engine's promise. So these use nothing but IEEE additions, multiplications,
//! divisions and rounding to an integer, in a fixed order (no FMA: without the instruction it would be a
//! call). Errors are below 2 units in the last place. They are for tables, not for inner loops.
//!
//! Series are the Taylor series (after Cody-Waite reductions to |r| <= pi/4, |r| <= ln(2)/2 and
//! |s| <= 0.172), long enough that what is cut off is below 2^-58.

/// ln 2 in two parts; the first has 32 bits, so that its product with an exponent is exact.
const LN2_HI: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN2_LO: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// pi/2 in four parts; the first three have 22 bits, so that products with a 31-bit integer are exact.
const PIO2: [f64; 4] = [
    f64::from_bits(0x3ff9_21fb_0000_0000),
    f64::from_bits(0x3e95_110b_0000_0000),
    f64::from_bits(0x3d31_8469_8000_0000),
    f64::from_bits(0x3ba3_198a_2e03_7073),
];

/// The largest |x| that [`sin_cos`] takes: any i32 position at any frequency up to 1 is below it.
pub const MAX_ANGLE: f64 = 3.3e9;

/// a + b as the rounded sum and its error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// a * b as the rounded product and its error (Dekker); both must be far from overflow.
fn two_prod(a: f64, b: f64) -> (f64, f64) {
    let split = |x: f64| {
        let t = x * 134_217_729.0; // 2^27 + 1
        let hi = t - (t - x);
        (hi, x - hi)
    };
    let p = a * b;
    let ((ah, al), (bh, bl)) = (split(a), split(b));
    (p, ((ah * bh - p) + ah * bl + al * bh) + al * bl)
}

/// The polynomial c[0] + c[1] x + c[2] x^2 + … by Horner's rule.
fn poly(x: f64, c: &[f64]) -> f64 {
    c.iter().rev().fold(0.0, |acc, c| acc * x + c)
}

/// 2^k for -1022 <= k <= 1023.
fn pow2(k: i64) -> f64 {
    f64::from_bits(((k + 1023) as u64) << 52)
}

/// exp(hi + lo) with |lo| far below |hi|.
fn exp_pair(hi: f64, lo: f64) -> f64 {
    if hi.is_nan() {
        return hi;
    }
    if hi > 709.8 {
        return f64::INFINITY;
    }
    if hi < -745.2 {
        return 0.0;
    }
    let k = (hi * std::f64::consts::LOG2_E).round_ties_even();
    let (r, e) = two_sum(hi - k * LN2_HI, -(k * LN2_LO));
    let (r, e) = two_sum(r, e + lo); // `lo` may be larger than the rounding of r
    const C: [f64; 12] = [
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40320.0,
        1.0 / 362_880.0,
        1.0 / 3_628_800.0,
        1.0 / 39_916_800.0,
        1.0 / 479_001_600.0,
        1.0 / 6_227_020_800.0,
    ];
    let y = 1.0 + (r + (e + r * r * poly(r, &C)));
    // In two steps, as 2^k alone may be out of range where the result is not.
    let k = k as i64;
    y * pow2(k / 2) * pow2(k - k / 2)
}

/// ln x as a sum of two f64, good to about 2^-58; x must be positive, finite and not subnormal.
fn ln_pair(x: f64) -> (f64, f64) {
    let bits = x.to_bits();
    let mut k = ((bits >> 52) as i64) - 1023;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        k += 1;
    }
    // ln m = 2 atanh(s), s = (m - 1) / (m + 1) kept as a pair.
    let f = m - 1.0;
    let (d, d_lo) = two_sum(m, 1.0);
    let s = f / d;
    let (p, p_lo) = two_prod(s, d);
    let s_lo = (((f - p) - p_lo) - s * d_lo) / d;
    let z = s * s;
    const C: [f64; 11] = [
        1.0 / 3.0,
        1.0 / 5.0,
        1.0 / 7.0,
        1.0 / 9.0,
        1.0 / 11.0,
        1.0 / 13.0,
        1.0 / 15.0,
        1.0 / 17.0,
        1.0 / 19.0,
        1.0 / 21.0,
        1.0 / 23.0,
    ];
    let (s, tail) = two_sum(s, s * z * poly(z, &C) + s_lo);
    let k = k as f64;
    let (hi, e) = two_sum(k * LN2_HI, 2.0 * s);
    two_sum(hi, e + (2.0 * tail + k * LN2_LO))
}

/// e^x.
pub fn exp(x: f64) -> f64 {
    exp_pair(x, 0.0)
}

/// The natural logarithm; NaN below 0, -inf at 0.
pub fn ln(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x <= 0.0 {
        return if x == 0.0 {
            f64::NEG_INFINITY
        } else {
            f64::NAN
        };
    }
    if x < f64::MIN_POSITIVE {
        let (hi, lo) = ln_pair(x * pow2(54));
        return (hi - 54.0 * LN2_HI) + (lo - 54.0 * LN2_LO);
    }
    ln_pair(x).0
}

/// base^y for a positive, finite, normal base; NaN for others.
pub fn powf(base: f64, y: f64) -> f64 {
    if y == 0.0 {
        return 1.0;
    }
    if !(f64::MIN_POSITIVE..f64::INFINITY).contains(&base) || y.is_nan() {
        return f64::NAN;
    }
    let (hi, lo) = ln_pair(base);
    if (y * hi).abs() > 800.0 {
        return exp_pair(y * hi, 0.0); // out of range either way
    }
    let (p, e) = two_prod(y, hi);
    exp_pair(p, e + y * lo)
}

/// (sin x, cos x), x in radians, |x| <= [`MAX_ANGLE`]; NaN beyond.
pub fn sin_cos(x: f64) -> (f64, f64) {
    if x.is_nan() || x.abs() > MAX_ANGLE {
        return (f64::NAN, f64::NAN);
    }
    let n = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let (r, lo) = reduce(x, n);
    let z = r * r;
    const S: [f64; 8] = [
        -1.0 / 6.0,
        1.0 / 120.0,
        -1.0 / 5040.0,
        1.0 / 362_880.0,
        -1.0 / 39_916_800.0,
        1.0 / 6_227_020_800.0,
        -1.0 / 1_307_674_368_000.0,
        1.0 / 355_687_428_096_000.0,
    ];
    const C: [f64; 8] = [
        1.0 / 24.0,
        -1.0 / 720.0,
        1.0 / 40320.0,
        -1.0 / 3_628_800.0,
        1.0 / 479_001_600.0,
        -1.0 / 87_178_291_200.0,
        1.0 / 20_922_789_888_000.0,
        -1.0 / 6_402_373_705_728_000.0,
    ];
    // sin(r + lo) = sin r + lo cos r and cos(r + lo) = cos r - lo sin r, to the accuracy needed.
    let sin = r + (r * z * poly(z, &S) + lo * (1.0 - 0.5 * z));
    let half = 0.5 * z;
    let w = 1.0 - half;
    let cos = w + (((1.0 - w) - half) + (z * z * poly(z, &C) - r * lo));
    match (n as i64) & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// x - n pi/2 as a pair, to about 2^-100 absolutely.
fn reduce(x: f64, n: f64) -> (f64, f64) {
    let r = x - n * PIO2[0]; // exact: the two are within a factor of two, or n is 0
    let (r, e1) = two_sum(r, -(n * PIO2[1]));
    let (r, e2) = two_sum(r, -(n * PIO2[2]));
    two_sum(r, (e1 + e2) - n * PIO2[3])
}

/// sin x, |x| <= [`MAX_ANGLE`] radians; NaN beyond.
pub fn sin(x: f64) -> f64 {
    sin_cos(x).0
}

/// cos x, |x| <= [`MAX_ANGLE`] radians; NaN beyond.
pub fn cos(x: f64) -> f64 {
    sin_cos(x).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed stream of numbers in 0..1.
    fn stream(seed: u64) -> impl FnMut() -> f64 {
        let mut s = seed;
        move || {
            s = s
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (s >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Within `ulps` units in the last place of the platform's own function.
    fn close(name: &str, x: f64, ours: f64, std: f64, ulps: f64) {
        let ulp = (std.abs() * f64::EPSILON / 2.0).max(f64::from_bits(1));
        let err = (ours - std).abs();
        assert!(
            err <= 2.0 * ulps * ulp,
            "{name}({x:e}) = {ours:e}, std {std:e}"
        );
    }

    #[test]
    fn exp_and_ln_are_within_two_ulps_of_std() {
        let mut r = stream(1);
        for _ in 0..30_000 {
            let x = (r() - 0.5) * 1400.0;
            close("exp", x, exp(x), x.exp(), 2.0);
            let x = (r() - 0.5) * 2.0;
            close("exp", x, exp(x), x.exp(), 2.0);
            let x = ((r() - 0.5) * 1400.0).exp();
            close("ln", x, ln(x), x.ln(), 2.0);
            let x = 0.5 + r() * 1.5;
            close("ln", x, ln(x), x.ln(), 2.0);
        }
    }

    #[test]
    fn powf_of_rope_bases_is_within_two_ulps_of_std() {
        for base in [10_000.0f64, 100_000.0, 500_000.0, 1e6, 1e7, 2.0, 0.37] {
            for n in [16usize, 64, 80, 96, 128, 256] {
                for i in 0..n / 2 {
                    let y = -((2 * i) as f64) / n as f64;
                    close("powf", y, powf(base, y), base.powf(y), 2.0);
                }
            }
        }
        assert_eq!(powf(3.0, 0.0), 1.0);
        assert!(powf(-1.0, 0.5).is_nan());
    }

    #[test]
    fn sin_and_cos_are_close_to_std_for_every_angle_of_a_position() {
        let mut r = stream(2);
        for scale in [1.0, 1e3, 1e6, 3.2e9] {
            for _ in 0..20_000 {
                let x = (r() - 0.5) * 2.0 * scale;
                close("sin", x, sin(x), x.sin(), 2.0);
                close("cos", x, cos(x), x.cos(), 2.0);
            }
        }
        // Where the reduction cancels most: the doubles nearest to multiples of pi/2.
        for n in 1..50_000 {
            let x = f64::from(n) * std::f64::consts::FRAC_PI_2;
            close("sin", x, sin(x), x.sin(), 2.0);
            close("cos", x, cos(x), x.cos(), 2.0);
        }
    }

    #[test]
    fn borders_are_those_of_ieee() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(710.0), f64::INFINITY);
        close("exp", -740.0, exp(-740.0), (-740.0f64).exp(), 2.0);
        assert!(exp(f64::NAN).is_nan() && ln(f64::NAN).is_nan() && ln(-1.0).is_nan());
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(0.0), f64::NEG_INFINITY);
        assert_eq!(ln(f64::INFINITY), f64::INFINITY);
        close("ln", 1e-310, ln(1e-310), 1e-310f64.ln(), 2.0);
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
        assert!(sin(f64::INFINITY).is_nan() && cos(4e9).is_nan());
    }
}
