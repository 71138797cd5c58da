//! F32, F16 and BF16 rows, little-endian.

use half::{bf16, f16};

use super::block::blocks;

/// The values of an F32 row; `bytes` holds four a value.
pub(super) fn f32_row(bytes: &[u8]) -> impl Iterator<Item = f32> {
    blocks(bytes).map(|b| f32::from_le_bytes(*b))
}

/// The values of an F16 row; `bytes` holds two a value.
pub(super) fn f16_row(bytes: &[u8]) -> impl Iterator<Item = f32> {
    blocks(bytes).map(|b| f16::from_le_bytes(*b).to_f32())
}

/// The values of a BF16 row; `bytes` holds two a value.
pub(super) fn bf16_row(bytes: &[u8]) -> impl Iterator<Item = f32> {
    blocks(bytes).map(|b| bf16::from_le_bytes(*b).to_f32())
}

/// Appends values as F32.
pub(super) fn encode_f32(x: &[f32], out: &mut Vec<u8>) {
    out.extend(x.iter().flat_map(|v| v.to_le_bytes()));
}

/// Appends values as F16, rounded half to even; beyond 65504 they become infinite.
pub(super) fn encode_f16(x: &[f32], out: &mut Vec<u8>) {
    out.extend(x.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()));
}

/// Appends values as BF16, rounded half to even; a NaN stays one (made quiet).
pub(super) fn encode_bf16(x: &[f32], out: &mut Vec<u8>) {
    out.extend(x.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()));
}
