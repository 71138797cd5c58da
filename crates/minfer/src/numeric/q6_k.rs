//! Q6_K: 256 values in sixteen groups of 16, each with a signed eight-bit scale.
//!
//! 210 bytes: 128 bytes of low four bits, 64 bytes of high two bits, 16 scales (i8), d (f16);
//! `w = d * scale * (code - 32)`. In each half of 128 weights, low-bit bytes 0-31 and 32-63 hold
//! weights 0-63 in their low and 64-127 in their high halves; byte j of the high bits holds those of
//! weights j, 32+j, 64+j, 96+j, from the lowest.

use half::f16;

use super::block::{SubBlock, f16_at};

/// The fields of a Q6_K block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Q6KBlock {
    /// Scale of the scales.
    pub d: f16,
    /// Scales of the sixteen groups of 16 weights.
    pub scales: [i8; 16],
    /// Codes in the order of the weights.
    pub codes: [u8; 256],
}

impl Q6KBlock {
    /// The meaning of the 32 weights `32 * b..` (`b` in `0..8`): two groups.
    pub fn sub_block(&self, b: usize) -> SubBlock {
        let scale = |group: usize| self.d.to_f32() * f32::from(self.scales[group]);
        let codes = std::array::from_fn(|i| self.codes[32 * b + i]);
        SubBlock {
            codes,
            zero: 32,
            scale: [scale(2 * b), scale(2 * b + 1)],
            min: None,
        }
    }
}

/// The fields of a Q6_K block.
pub fn q6_k(block: &[u8; 210]) -> Q6KBlock {
    let code = |i: usize| {
        let (half, in_half) = (i / 128, i % 128);
        let low = block[64 * half + in_half % 64] >> (4 * (in_half / 64)) & 15;
        let high = block[128 + 32 * half + in_half % 32] >> (2 * (in_half / 32)) & 3;
        low | high << 4
    };
    Q6KBlock {
        d: f16_at(block, 208),
        scales: std::array::from_fn(|i| block[192 + i] as i8),
        codes: std::array::from_fn(code),
    }
}
