//! What a block of quantized weights means: one shape for all formats.
//!
//! Every format here is, for 32 weights, `w = scale * (code - zero)`, some with `+ min`. The formats
//! differ only in how they store codes, scales and minimums.

use half::f16;

use super::{GgmlType, k_quants, q4, q5, q6_k, q8};

/// How the codes of a quantized type are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantFormat {
    /// The type.
    pub ty: GgmlType,
    /// Bits of a code: codes are `0..1 << bits`.
    pub bits: u32,
    /// The code that means zero (before the minimum).
    pub zero: i32,
    /// Whether a sub-block of 32 has a minimum, added to every weight.
    pub has_min: bool,
    /// Whether a sub-block of 32 has two scales, one for 16 weights each.
    pub half_scales: bool,
}

impl QuantFormat {
    /// The format of a quantized type that can be run; `None` for float types and all others.
    pub const fn of(ty: GgmlType) -> Option<QuantFormat> {
        let (bits, zero, has_min, half_scales) = match ty {
            GgmlType::Q4_0 => (4, 8, false, false),
            GgmlType::Q4_1 | GgmlType::Q4_K => (4, 0, true, false),
            GgmlType::Q5_0 => (5, 16, false, false),
            GgmlType::Q5_1 | GgmlType::Q5_K => (5, 0, true, false),
            GgmlType::Q6_K => (6, 32, false, true),
            GgmlType::Q8_0 => (8, 128, false, false),
            _ => return None,
        };
        Some(QuantFormat {
            ty,
            bits,
            zero,
            has_min,
            half_scales,
        })
    }

    /// Sub-blocks of 32 values in one block: 1 or 8.
    pub fn sub_blocks(self) -> usize {
        self.ty.block_len() / 32
    }
}

/// A block of 32 values with one scale, as the file stores it: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallBlock {
    /// The scale.
    pub scale: f16,
    /// The minimum (Q4_1, Q5_1); 0 in the other formats, which have none.
    pub min: f16,
    /// Unsigned codes in the order of the weights (Q8_0: the stored value + 128).
    pub codes: [u8; 32],
}

/// The meaning of 32 weights: `w[i] = scale[i / 16] * (codes[i] - zero) + min`.
///
/// Scales and minimums are exact: products of an f16 and an integer of at most 8 bits fit f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubBlock {
    /// Unsigned codes in the order of the weights.
    pub codes: [u8; 32],
    /// The code that means zero: the format's [`QuantFormat::zero`].
    pub zero: i32,
    /// Scales of the first and the second 16 weights; equal unless the format has half scales.
    pub scale: [f32; 2],
    /// What is added to every weight (K-quants: `-(dmin * m)`); `None` if the format has no minimums.
    pub min: Option<f32>,
}

impl SubBlock {
    /// The 32 weights.
    pub fn weights(&self) -> [f32; 32] {
        std::array::from_fn(|i| {
            let product = self.scale[i / 16] * (i32::from(self.codes[i]) - self.zero) as f32;
            // No `+ 0.0` for formats without minimums: it would turn -0 into 0.
            self.min.map_or(product, |min| product + min)
        })
    }
}

impl SmallBlock {
    /// The meaning of this block in `format`, one of the types of 32 values.
    pub fn sub_block(&self, format: QuantFormat) -> SubBlock {
        let scale = self.scale.to_f32();
        let min = format.has_min.then(|| self.min.to_f32());
        SubBlock {
            codes: self.codes,
            zero: format.zero,
            scale: [scale, scale],
            min,
        }
    }
}

/// Calls `f(index, sub_block)` for each 32 weights of a row, in order.
///
/// `bytes` are whole blocks of `format.ty`; bytes after the last whole block are not read.
pub fn for_each_sub_block(format: QuantFormat, bytes: &[u8], mut f: impl FnMut(usize, &SubBlock)) {
    match format.ty {
        GgmlType::Q4_0 => small(format, bytes, q4::q4_0, f),
        GgmlType::Q4_1 => small(format, bytes, q4::q4_1, f),
        GgmlType::Q5_0 => small(format, bytes, q5::q5_0, f),
        GgmlType::Q5_1 => small(format, bytes, q5::q5_1, f),
        GgmlType::Q8_0 => small(format, bytes, q8::q8_0, f),
        GgmlType::Q4_K => blocks(bytes).enumerate().for_each(|(i, block)| {
            let block = k_quants::q4_k(block);
            (0..8).for_each(|b| f(8 * i + b, &block.sub_block(b)));
        }),
        GgmlType::Q5_K => blocks(bytes).enumerate().for_each(|(i, block)| {
            let block = k_quants::q5_k(block);
            (0..8).for_each(|b| f(8 * i + b, &block.sub_block(b)));
        }),
        GgmlType::Q6_K => blocks(bytes).enumerate().for_each(|(i, block)| {
            let block = q6_k::q6_k(block);
            (0..8).for_each(|b| f(8 * i + b, &block.sub_block(b)));
        }),
        // `QuantFormat::of` makes no other.
        other => unreachable!("{other} is no quantized format"),
    }
}

fn small<const N: usize>(
    format: QuantFormat,
    bytes: &[u8],
    unpack: impl Fn(&[u8; N]) -> SmallBlock,
    mut f: impl FnMut(usize, &SubBlock),
) {
    blocks(bytes)
        .enumerate()
        .for_each(|(i, block)| f(i, &unpack(block).sub_block(format)));
}

/// The whole blocks of `N` elements in `x`.
pub(super) fn blocks<T, const N: usize>(x: &[T]) -> impl Iterator<Item = &[T; N]> {
    x.chunks_exact(N).filter_map(|block| block.try_into().ok())
}

/// A little-endian f16 at byte `at` of a block.
pub(super) fn f16_at(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// The 32 four-bit codes of 16 bytes: first all low halves, then all high ones.
pub(super) fn nibbles(bytes: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| {
        if i < 16 {
            bytes[i] & 15
        } else {
            bytes[i - 16] >> 4
        }
    })
}

/// The inverse of [`nibbles`]; only the low four bits of each code are kept.
pub(super) fn push_nibbles(codes: &[u8; 32], out: &mut Vec<u8>) {
    out.extend((0..16).map(|i| (codes[i] & 15) | (codes[i + 16] << 4)));
}

/// The value of greatest magnitude (with its sign, the first of equals) in a block.
pub(super) fn extreme(x: &[f32; 32]) -> f32 {
    x.iter()
        .fold(x[0], |best, &v| if v.abs() > best.abs() { v } else { best })
}

/// The least and the greatest value of a block.
pub(super) fn range(x: &[f32; 32]) -> (f32, f32) {
    x.iter().fold((x[0], x[0]), |(lo, hi), &v| {
        (if v < lo { v } else { lo }, if v > hi { v } else { hi })
    })
}

/// `1 / d`, and 0 for 0: what codes are computed with.
pub(super) fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// A code from its real value: truncated, at most `top`. A scale whose inverse overflows gives
/// values that are not finite; their code is 0 (the scale is 0 in f16, so it has no weight).
pub(super) fn code(value: f32, top: u8) -> u8 {
    if value.is_finite() {
        (value as u8).min(top)
    } else {
        0
    }
}
