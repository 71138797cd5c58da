//! Rows of any type to and from `f32`.

use super::block::{QuantFormat, blocks, for_each_sub_block};
use super::{GgmlType, NumericError, float, q4, q5, q8};

/// The types that this engine computes with.
pub const RUNNABLE: [GgmlType; 11] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::BF16,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q5_0,
    GgmlType::Q5_1,
    GgmlType::Q8_0,
    GgmlType::Q4_K,
    GgmlType::Q5_K,
    GgmlType::Q6_K,
];

/// Whether this engine computes with tensors of this type.
pub fn is_runnable(ty: GgmlType) -> bool {
    RUNNABLE.contains(&ty)
}

/// Whether the type is F32, F16 or BF16: such weights take `f32` activations.
pub fn is_float(ty: GgmlType) -> bool {
    matches!(ty, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16)
}

/// Whether [`encode_row`] knows the type.
pub fn is_encodable(ty: GgmlType) -> bool {
    is_runnable(ty) && ty.block_len() <= 32
}

pub(super) fn runnable_names() -> String {
    RUNNABLE.map(GgmlType::name).join(", ")
}

/// Decodes a row of `out.len()` values; bit for bit what the PyPI package `gguf` gives.
///
/// Refuses a type that can't be run, a row that is no whole number of blocks, and `bytes` of any
/// other length than the row takes. `out` is unchanged then.
pub fn decode_row(ty: GgmlType, bytes: &[u8], out: &mut [f32]) -> Result<(), NumericError> {
    check_row(ty, bytes, out.len())?;
    match ty {
        GgmlType::F32 => fill(out, float::f32_row(bytes)),
        GgmlType::F16 => fill(out, float::f16_row(bytes)),
        GgmlType::BF16 => fill(out, float::bf16_row(bytes)),
        _ => {
            let format = QuantFormat::of(ty).ok_or(NumericError::NotRunnable { ty })?;
            for_each_sub_block(format, bytes, |i, sub| {
                out[32 * i..][..32].copy_from_slice(&sub.weights())
            });
        }
    }
    Ok(())
}

/// Appends the bytes of a row in `ty` to `out`; byte for byte what the PyPI package `gguf` gives.
///
/// Refuses types without an encoder, a row that is no whole number of blocks, and in block types
/// values that are not finite. A block whose scale is beyond f16's range (65504) gets an infinite
/// scale, as `gguf` has it; F16 values beyond it become infinite. `out` is unchanged after an error.
pub fn encode_row(ty: GgmlType, x: &[f32], out: &mut Vec<u8>) -> Result<(), NumericError> {
    if !is_encodable(ty) {
        return Err(NumericError::NoEncoder { ty });
    }
    let bytes = ty.row_bytes(x.len()).ok_or(NumericError::PartBlock {
        ty,
        values: x.len(),
    })?;
    let bad = x.iter().position(|v| !v.is_finite());
    if let (false, Some(index)) = (is_float(ty), bad) {
        let value = x[index];
        return Err(NumericError::NotFinite { ty, index, value });
    }
    out.reserve(bytes);
    match ty {
        GgmlType::F32 => float::encode_f32(x, out),
        GgmlType::F16 => float::encode_f16(x, out),
        GgmlType::BF16 => float::encode_bf16(x, out),
        GgmlType::Q4_0 => encode_blocks(x, out, q4::encode_q4_0),
        GgmlType::Q4_1 => encode_blocks(x, out, q4::encode_q4_1),
        GgmlType::Q5_0 => encode_blocks(x, out, q5::encode_q5_0),
        GgmlType::Q5_1 => encode_blocks(x, out, q5::encode_q5_1),
        GgmlType::Q8_0 => encode_blocks(x, out, q8::encode_q8_0),
        _ => return Err(NumericError::NoEncoder { ty }),
    }
    Ok(())
}

fn encode_blocks(x: &[f32], out: &mut Vec<u8>, encode: fn(&[f32; 32], &mut Vec<u8>)) {
    blocks(x).for_each(|block| encode(block, out));
}

/// That `ty` can be run and that `values` of it take exactly `bytes`.
pub(super) fn check_row(ty: GgmlType, bytes: &[u8], values: usize) -> Result<(), NumericError> {
    if !is_runnable(ty) {
        return Err(NumericError::NotRunnable { ty });
    }
    let expected = ty
        .row_bytes(values)
        .ok_or(NumericError::PartBlock { ty, values })?;
    if bytes.len() != expected {
        return Err(NumericError::RowBytes {
            ty,
            values,
            expected,
            found: bytes.len(),
        });
    }
    Ok(())
}

fn fill(out: &mut [f32], values: impl Iterator<Item = f32>) {
    out.iter_mut().zip(values).for_each(|(o, v)| *o = v);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_types_and_lengths_by_name() {
        let mut out = [0.0; 32];
        let err = decode_row(GgmlType::Q3_K, &[], &mut out).unwrap_err();
        assert!(
            err.to_string()
                .starts_with("type Q3_K can't be run yet; these can: F32, F16,"),
            "{err}"
        );
        let err = decode_row(GgmlType::Q4_0, &[0; 17], &mut out).unwrap_err();
        assert_eq!(
            err.to_string(),
            "a Q4_0 row of 32 values takes 18 bytes, not 17"
        );
        let err = decode_row(GgmlType::Q4_K, &[0; 144], &mut out).unwrap_err();
        assert_eq!(
            err,
            NumericError::PartBlock {
                ty: GgmlType::Q4_K,
                values: 32
            }
        );
    }

    #[test]
    fn refuses_to_encode_what_has_no_code() {
        let mut out = vec![7];
        let mut x = [1.0; 32];
        x[5] = f32::NAN;
        let err = encode_row(GgmlType::Q8_0, &x, &mut out).unwrap_err();
        assert_eq!(
            err.to_string(),
            "value 5 of the row is NaN: Q8_0 can only hold finite values"
        );
        assert_eq!(
            encode_row(GgmlType::Q4_K, &[0.0; 256], &mut out),
            Err(NumericError::NoEncoder { ty: GgmlType::Q4_K })
        );
        assert_eq!(
            encode_row(GgmlType::Q4_1, &[0.0; 31], &mut out),
            Err(NumericError::PartBlock {
                ty: GgmlType::Q4_1,
                values: 31
            })
        );
        assert_eq!(out, [7]);
        encode_row(GgmlType::BF16, &x[5..6], &mut out).unwrap();
        let mut back = [0.0];
        decode_row(GgmlType::BF16, &out[1..], &mut back).unwrap();
        assert!(back[0].is_nan());
    }
}
