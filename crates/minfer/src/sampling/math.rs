//! `exp` and `ln` of our own: the C library's differ between machines. Only additions, multiplications, divisions and bit
//! operations, which IEEE 754 fixes, in one order.

/// Values handled side by side where a pass goes over the whole vocabulary.
pub(super) const LANES: usize = 16;

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

/// The largest value; minus infinity for an empty slice. NaN must not occur.
pub(super) fn max(values: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (b, x) in best.iter_mut().zip(chunk) {
            *b = if *x > *b { *x } else { *b };
        }
    }
    best.iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a })
}

/// The largest logit of the candidates; minus infinity if there is none.
pub(super) fn max_logit(candidates: &[super::Candidate]) -> f32 {
    candidates.iter().fold(
        f32::NEG_INFINITY,
        |a, c| if c.logit > a { c.logit } else { a },
    )
}

/// The sum of e^(x - max) over all values: blocks of 64 x 16 lanes in f32, blocks and lanes in f64, in order.
#[inline(never)]
pub(super) fn sum_exp(values: &[f32], max: f32) -> f64 {
    let mut total = 0.0;
    let mut exps = [0.0f32; 64 * LANES];
    for block in values.chunks(64 * LANES) {
        // One plain loop for the exponentials, so that the compiler makes vectors of it.
        for (e, x) in exps.iter_mut().zip(block) {
            *e = exp(*x - max);
        }
        let mut lanes = [0.0f32; LANES];
        let (chunks, rest) = exps[..block.len()].as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, e) in lanes.iter_mut().zip(chunk) {
                *lane += e;
            }
        }
        total += lanes.iter().chain(rest).map(|x| f64::from(*x)).sum::<f64>();
    }
    total
}

/// The first value that is not finite.
pub(super) fn first_non_finite(values: &[f32]) -> Option<(usize, f32)> {
    const MASK: u32 = 0x7f80_0000;
    let (blocks, rest) = values.as_chunks::<64>();
    let bad = |block: &[f32; 64]| {
        block
            .iter()
            .fold(0u32, |any, x| any | u32::from(x.to_bits() & MASK == MASK))
            != 0
    };
    let skip = blocks
        .iter()
        .position(bad)
        .map_or(values.len() - rest.len(), |i| i * 64);
    let found = values[skip..].iter().position(|x| !x.is_finite())?;
    Some((skip + found, values[skip + found]))
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

    #[test]
    fn the_sum_is_close_to_the_true_value() {
        let values: Vec<f32> = (0..5000)
            .map(|i| -((i * 7919 % 5000) as f32) * 0.01)
            .collect();
        let want: f64 = values.iter().map(|x| f64::from(*x).exp()).sum();
        assert!((sum_exp(&values, 0.0) / want - 1.0).abs() < 1e-6);
        assert_eq!(max(&values), 0.0);
    }

    #[test]
    fn the_first_non_finite_value_is_found() {
        let mut values = vec![1.0f32; 1000];
        assert_eq!(first_non_finite(&values), None);
        values[999] = f32::INFINITY;
        assert_eq!(first_non_finite(&values), Some((999, f32::INFINITY)));
        values[130] = f32::NAN;
        assert_eq!(first_non_finite(&values).unwrap().0, 130);
    }
}
