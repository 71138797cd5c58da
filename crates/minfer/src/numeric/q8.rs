//! Q8_0: 32 values with one f16 scale and signed bytes; 34 bytes: scale, 32 bytes.
//!
//! Here codes are the stored bytes + 128, as in every other format unsigned; `w = scale * (code - 128)`.

use half::f16;

use super::block::{SmallBlock, extreme, f16_at, inverse};

/// The fields of a Q8_0 block.
pub fn q8_0(block: &[u8; 34]) -> SmallBlock {
    let codes = std::array::from_fn(|i| block[2 + i] ^ 0x80);
    SmallBlock {
        scale: f16_at(block, 0),
        min: f16::ZERO,
        codes,
    }
}

/// Appends the Q8_0 block of 32 finite values, rounded half away from zero.
pub(super) fn encode_q8_0(x: &[f32; 32], out: &mut Vec<u8>) {
    let scale = extreme(x).abs() / 127.0;
    let inv = inverse(scale);
    out.extend(f16::from_f32(scale).to_le_bytes());
    out.extend(x.map(|v| {
        let q = v * inv;
        // An inverse that overflowed: the scale is 0 in f16, the code has no weight.
        if q.is_finite() {
            q.round() as i8 as u8
        } else {
            0
        }
    }));
}
