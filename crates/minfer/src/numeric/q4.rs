//! Q4_0 and Q4_1: 32 values with four-bit codes and one f16 scale.
//!
//! Q4_0, 18 bytes: scale, 16 bytes of codes; `w = scale * (code - 8)`.
//! Q4_1, 20 bytes: scale, minimum, 16 bytes of codes; `w = scale * code + min`.

use half::f16;

use super::block::{SmallBlock, code, extreme, f16_at, inverse, nibbles, push_nibbles, range};

/// The fields of a Q4_0 block.
pub fn q4_0(block: &[u8; 18]) -> SmallBlock {
    SmallBlock {
        scale: f16_at(block, 0),
        min: f16::ZERO,
        codes: nibbles(&block[2..]),
    }
}

/// The fields of a Q4_1 block.
pub fn q4_1(block: &[u8; 20]) -> SmallBlock {
    SmallBlock {
        scale: f16_at(block, 0),
        min: f16_at(block, 2),
        codes: nibbles(&block[4..]),
    }
}

/// Appends the Q4_0 block of 32 finite values: the extreme value gets the code 0.
pub(super) fn encode_q4_0(x: &[f32; 32], out: &mut Vec<u8>) {
    let scale = extreme(x) / -8.0;
    let inv = inverse(scale);
    out.extend(f16::from_f32(scale).to_le_bytes());
    push_nibbles(&x.map(|v| code(v * inv + 8.5, 15)), out);
}

/// Appends the Q4_1 block of 32 finite values: codes span minimum to maximum.
pub(super) fn encode_q4_1(x: &[f32; 32], out: &mut Vec<u8>) {
    let (min, max) = range(x);
    let scale = (max - min) / 15.0;
    let inv = inverse(scale);
    out.extend(f16::from_f32(scale).to_le_bytes());
    out.extend(f16::from_f32(min).to_le_bytes());
    push_nibbles(&x.map(|v| code((v - min) * inv + 0.5, 15)), out);
}
