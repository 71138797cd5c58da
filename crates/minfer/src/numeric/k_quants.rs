//! Q4_K and Q5_K: 256 values in eight sub-blocks of 32, each with a six-bit scale and minimum.
//!
//! Q4_K, 144 bytes: d, dmin (f16), 12 bytes of scales and minimums, 128 bytes of four-bit codes.
//! Q5_K, 176 bytes: the same with 32 bytes of fifth bits before the low bits.
//! `w = d * scale * code - dmin * min`. Sub-blocks 2i and 2i+1 share 32 bytes of codes: the low and
//! the high halves.

use half::f16;

use super::block::{SubBlock, f16_at};

/// The fields of a Q4_K or Q5_K block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KBlock {
    /// Scale of the scales.
    pub d: f16,
    /// Scale of the minimums.
    pub dmin: f16,
    /// Six-bit scales of the eight sub-blocks.
    pub scales: [u8; 8],
    /// Six-bit minimums of the eight sub-blocks.
    pub mins: [u8; 8],
    /// Codes in the order of the weights: sub-block b is `codes[32 * b..][..32]`.
    pub codes: [u8; 256],
}

impl KBlock {
    /// The meaning of sub-block `b` (`0..8`).
    pub fn sub_block(&self, b: usize) -> SubBlock {
        let scale = self.d.to_f32() * f32::from(self.scales[b]);
        let min = -(self.dmin.to_f32() * f32::from(self.mins[b]));
        let codes = std::array::from_fn(|i| self.codes[32 * b + i]);
        SubBlock {
            codes,
            zero: 0,
            scale: [scale, scale],
            min: Some(min),
        }
    }
}

/// The fields of a Q4_K block.
pub fn q4_k(block: &[u8; 144]) -> KBlock {
    k_block(block, |i| low_four(&block[16..], i))
}

/// The fields of a Q5_K block.
pub fn q5_k(block: &[u8; 176]) -> KBlock {
    // Bit b of byte j is the fifth bit of weight j of sub-block b.
    k_block(block, |i| {
        low_four(&block[48..], i) | (block[16 + i % 32] >> (i / 32) & 1) << 4
    })
}

fn k_block(block: &[u8], code: impl Fn(usize) -> u8) -> KBlock {
    let (scales, mins) = unpack_k_scales(&std::array::from_fn(|i| block[4 + i]));
    let codes = std::array::from_fn(code);
    KBlock {
        d: f16_at(block, 0),
        dmin: f16_at(block, 2),
        scales,
        mins,
        codes,
    }
}

/// Low four bits of weight `i` of 256.
fn low_four(bytes: &[u8], i: usize) -> u8 {
    let (pair, in_pair) = (i / 64, i % 64);
    bytes[32 * pair + in_pair % 32] >> (4 * (in_pair / 32)) & 15
}

/// The eight scales and the eight minimums (six bits each) in the 12 bytes of a Q4_K or Q5_K block.
///
/// The first four of each lie in the low six bits of bytes 0-3 and 4-7; the last four have their low
/// four bits in bytes 8-11 and their two high bits above those of the first.
pub fn unpack_k_scales(bytes: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let mut scales = [0; 8];
    let mut mins = [0; 8];
    for i in 0..4 {
        scales[i] = bytes[i] & 63;
        mins[i] = bytes[4 + i] & 63;
        scales[4 + i] = (bytes[8 + i] & 15) | (bytes[i] >> 6) << 4;
        mins[4 + i] = (bytes[8 + i] >> 4) | (bytes[4 + i] >> 6) << 4;
    }
    (scales, mins)
}
