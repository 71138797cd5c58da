//! The scalar products of one weight row with one row of activations: the numeric contract.
//!
//! The order of operations here is what every kernel does, so all agree bit for bit; `fma` is a
//! multiplication and addition with one rounding ([`f32::mul_add`]).

use super::activations::{ActBlock, QuantizedRow};
use super::block::{QuantFormat, SubBlock, for_each_sub_block};
use super::row::{check_row, is_float};
use super::{GgmlType, NumericError, decode_row};

/// The product of a quantized weight row (`bytes`, of `ty`) with quantized activations.
///
/// For each 32 values in order, with `i` the exact integer sum of `(code - zero) * q`:
///
/// ```text
/// t   = f32(i) * scale                            one scale
/// t   = fma(f32(i2), scale2, f32(i1) * scale1)    two half scales (Q6_K)
/// acc = fma(t, da, acc)
/// acc = fma(min, da * f32(sum of q), acc)         formats with minimums
/// ```
///
/// `acc` starts at 0. The weight's scale is `d * sc` in K-quants, its minimum `-(dmin * m)`. Refuses
/// types that are not quantized or can't be run, and rows whose lengths don't belong together.
pub fn dot_quantized(
    ty: GgmlType,
    bytes: &[u8],
    activations: &QuantizedRow,
) -> Result<f32, NumericError> {
    let format = QuantFormat::of(ty).ok_or(NumericError::NotRunnable { ty })?;
    check_row(ty, bytes, activations.values())?;
    let mut acc = 0.0;
    for_each_sub_block(format, bytes, |b, weights| {
        acc = step(format, weights, &activations.blocks[b], acc)
    });
    Ok(acc)
}

/// `acc` after one block of 32.
fn step(format: QuantFormat, w: &SubBlock, a: &ActBlock, acc: f32) -> f32 {
    // Starting at -zero * sum and adding code * q is how kernels do it: the same integer.
    let partial = |from: usize| {
        let start = -w.zero * a.half_sums[from / 16];
        (from..from + 16).fold(start, |i, k| i + i32::from(w.codes[k]) * i32::from(a.q[k]))
    };
    let t = if format.half_scales {
        (partial(16) as f32).mul_add(w.scale[1], partial(0) as f32 * w.scale[0])
    } else {
        (partial(0) + partial(16)) as f32 * w.scale[0]
    };
    let acc = t.mul_add(a.d, acc);
    match w.min {
        Some(min) => min.mul_add(a.d * a.sum() as f32, acc),
        None => acc,
    }
}

/// The product of an F32, F16 or BF16 weight row with f32 activations: `acc = fma(w, x, acc)`, values
/// in order, `acc` starts at 0.
///
/// Refuses other types, and bytes of another length than `x.len()` weights take.
pub fn dot_float(ty: GgmlType, bytes: &[u8], x: &[f32]) -> Result<f32, NumericError> {
    if !is_float(ty) {
        return Err(NumericError::NotRunnable { ty });
    }
    let mut weights = vec![0.0; x.len()];
    decode_row(ty, bytes, &mut weights)?;
    Ok(weights
        .iter()
        .zip(x)
        .fold(0.0, |acc: f32, (w, x)| w.mul_add(*x, acc)))
}
