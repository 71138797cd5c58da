//! `exp` and `ln` of our own: the C library's differ between machines. Only additions, multiplications, divisions and bit
//! operations, which IEEE 754 fixes, in one order.

const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits

/// e^x for x <= 0, 2 ulp or so; 0 below -87 (e^-87 is near the smallest normal number).
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let clamped = if x < -87.0 { -87.0 } else { x };
    let rounded = clamped * std::f32::consts::LOG2_E + SHIFT;
    let n = rounded - SHIFT;
    // ln 2 in two parts, the first with few bits, so that n * it is exact.
    let r = (clamped - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5.0e-1;
    let y = p * (r * r) + r + 1.0;
    let scale = f32::from_bits((rounded.to_bits().wrapping_add(127) & 0x1ff) << 23);
    if x < -87.0 { 0.0 } else { y * scale }
}

/// ln(x) for a positive normal x, to about 1e-15.
pub(super) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) as i64) - 1023;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    // ln m = 2 atanh(s), |s| < 0.172: s + s^3/3 + s^5/5 + …
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let mut sum = 0.0;
    for k in (0..11).rev() {
        sum = sum * s2 + 1.0 / f64::from(2 * k + 1);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * sum
}

/// e^x, to about 1e-15; 0 below -708 (near the smallest normal number), infinity above 709. NaN gives NaN.
pub(super) fn exp64(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < -708.0 {
        return 0.0;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    let shift = 6_755_399_441_055_744.0; // 1.5 * 2^52, as `SHIFT`
    let rounded = x * std::f64::consts::LOG2_E + shift;
    let n = rounded - shift;
    // ln 2 in two parts, the first with 21 bits.
    let r = (x - n * 0.693_147_182_464_599_6) - n * -1.904_654_299_957_768e-9;
    let mut sum = 1.0;
    for k in (1..=14).rev() {
        sum = sum * r / f64::from(k) + 1.0;
    }
    sum * f64::from_bits((rounded.to_bits().wrapping_add(1023) & 0x7ff) << 52)
}

/// x^y for 0 <= x <= 1 and y >= 0; 1 for 0^0.
pub(super) fn power(x: f64, y: f64) -> f64 {
    match (x, y) {
        (_, 0.0) => 1.0,
        (0.0, _) => 0.0,
        _ => exp64(y * ln(x)),
    }
}

/// The largest logit of the candidates; minus infinity if there is none.
pub(super) fn max_logit(candidates: &[super::Candidate]) -> f32 {
    candidates.iter().fold(
        f32::NEG_INFINITY,
        |a, c| if c.logit > a { c.logit } else { a },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_true_value() {
        let mut worst = 0.0f64;
        for i in 0..=870_000 {
            let x = -(i as f32) * 1e-4;
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 2.0e-7, "{worst:e}");
        assert_eq!(
            (exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)),
            (1.0, 0.0, 0.0)
        );
    }

    #[test]
    fn exp64_is_close_to_the_true_value() {
        for i in -70_800..=70_900 {
            let x = f64::from(i) * 1e-2;
            let off = (exp64(x) - x.exp()).abs() / x.exp();
            assert!(off < 2e-15, "{x}: {off:e}");
        }
        assert_eq!((exp64(0.0), exp64(-800.0)), (1.0, 0.0));
        assert_eq!(exp64(710.0), f64::INFINITY);
        assert!(exp64(f64::NAN).is_nan());
    }

    #[test]
    fn powers_are_close_to_the_true_value() {
        for x in [1e-9f64, 0.1, 0.5, 0.99, 1.0] {
            for y in [0.0, 0.3, 1.0, 7.5] {
                assert!((power(x, y) - x.powf(y)).abs() < 1e-14, "{x}^{y}");
            }
        }
        assert_eq!((power(0.0, 0.0), power(0.0, 0.5)), (1.0, 0.0));
    }

    #[test]
    fn ln_is_close_to_the_true_value() {
        for i in 1..100_000 {
            let x = f64::from(i) * 1e-2 + 1e-9 * f64::from(i);
            assert!(
                (ln(x) - x.ln()).abs() < 4e-15 * x.ln().abs().max(1.0),
                "{x}: {} {}",
                ln(x),
                x.ln()
            );
        }
        assert!((ln(1e-300) - 1e-300f64.ln()).abs() < 1e-12);
    }
}
