//! Q5_0 and Q5_1: 32 values with five-bit codes and one f16 scale.
//!
//! Q5_0, 22 bytes: scale, 32 fifth bits (little-endian, bit i of weight i), 16 bytes of low four
//! bits; `w = scale * (code - 16)`.
//! Q5_1, 24 bytes: scale, minimum, fifth bits, low bits; `w = scale * code + min`.

use half::f16;

use super::block::{SmallBlock, code, extreme, f16_at, inverse, nibbles, push_nibbles, range};

/// The fields of a Q5_0 block.
pub fn q5_0(block: &[u8; 22]) -> SmallBlock {
    SmallBlock {
        scale: f16_at(block, 0),
        min: f16::ZERO,
        codes: five_bits(&block[2..]),
    }
}

/// The fields of a Q5_1 block.
pub fn q5_1(block: &[u8; 24]) -> SmallBlock {
    SmallBlock {
        scale: f16_at(block, 0),
        min: f16_at(block, 2),
        codes: five_bits(&block[4..]),
    }
}

/// Codes from 4 bytes of fifth bits and 16 bytes of low bits.
fn five_bits(bytes: &[u8]) -> [u8; 32] {
    let low = nibbles(&bytes[4..]);
    std::array::from_fn(|i| low[i] | (bytes[i / 8] >> (i % 8) & 1) << 4)
}

fn push_five_bits(codes: &[u8; 32], out: &mut Vec<u8>) {
    let high = (0..32).fold(0u32, |bits, i| bits | u32::from(codes[i] >> 4) << i);
    out.extend(high.to_le_bytes());
    push_nibbles(codes, out);
}

/// Appends the Q5_0 block of 32 finite values: the extreme value gets the code 0.
pub(super) fn encode_q5_0(x: &[f32; 32], out: &mut Vec<u8>) {
    let scale = extreme(x) / -16.0;
    let inv = inverse(scale);
    out.extend(f16::from_f32(scale).to_le_bytes());
    push_five_bits(&x.map(|v| code(v * inv + 16.5, 31)), out);
}

/// Appends the Q5_1 block of 32 finite values: codes span minimum to maximum.
pub(super) fn encode_q5_1(x: &[f32; 32], out: &mut Vec<u8>) {
    let (min, max) = range(x);
    let scale = (max - min) / 31.0;
    let inv = inverse(scale);
    out.extend(f16::from_f32(scale).to_le_bytes());
    out.extend(f16::from_f32(min).to_le_bytes());
    push_five_bits(&x.map(|v| code((v - min) * inv + 0.5, 31)), out);
}
