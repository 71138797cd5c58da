//! The way back from packed strips, in plain words: what the tests hold the packing against.

use half::f16;

use crate::numeric::{GgmlType, QuantFormat, SubBlock};

/// Where the parts of a packed (super)block lie.
pub struct BlockPlaces {
    /// Bytes of the packed superblock.
    pub bytes: usize,
    /// The first sub-block's codes.
    pub first: usize,
    /// From one sub-block's codes to the next one's.
    pub step: usize,
    /// Within a sub-block's codes: the nibbles (or bytes).
    pub nibbles: usize,
    /// Within a sub-block's codes: bits above the nibbles.
    pub high: usize,
}

/// The places in a strip of this format.
pub fn places(format: QuantFormat) -> BlockPlaces {
    let (first, step, nibbles, high) = match format.ty {
        GgmlType::Q4_1 => (64, 256, 0, 0),
        GgmlType::Q5_0 => (32, 320, 64, 0),
        GgmlType::Q5_1 => (64, 320, 64, 0),
        GgmlType::Q8_0 => (32, 512, 0, 0),
        GgmlType::Q4_K => (256, 256, 0, 0),
        GgmlType::Q5_K => (256, 320, 64, 0),
        GgmlType::Q6_K => (288, 384, 0, 256),
        _ => (32, 256, 0, 0), // Q4_0
    };
    BlockPlaces {
        bytes: first + format.sub_blocks() * step,
        first,
        step,
        nibbles,
        high,
    }
}

/// Row `r` of a packed strip as f32.
pub fn decode_row(format: QuantFormat, strip: &[u8], r: usize, out: &mut [f32]) {
    let at = places(format);
    let blocks = strip
        .chunks_exact(at.bytes)
        .zip(out.chunks_exact_mut(32 * format.sub_blocks()));
    for (block, out) in blocks {
        for (b, out) in out.chunks_exact_mut(32).enumerate() {
            let codes = codes(format, &block[at.first + b * at.step..], r, &at);
            let (scale, min) = scales(format, block, r, b);
            let sub = SubBlock {
                codes,
                zero: format.zero,
                scale,
                min,
            };
            out.copy_from_slice(&sub.weights());
        }
    }
}

/// The 32 codes of row `r` of a packed sub-block.
fn codes(format: QuantFormat, sub: &[u8], r: usize, at: &BlockPlaces) -> [u8; 32] {
    std::array::from_fn(|k| {
        let (j, byte) = (k / 4, 4 * r + k % 4);
        if format.bits == 8 {
            return sub[64 * j + byte];
        }
        let low = sub[at.nibbles + 64 * (j % 4) + byte] >> (4 * (j / 4)) & 15;
        match format.bits {
            5 => low | (sub[byte] >> j & 1) << 4,
            6 => low | (sub[at.high + 64 * (j / 4) + byte] >> (2 * (j % 4)) & 3) << 4,
            _ => low,
        }
    })
}

/// The scales and the minimum of row `r` in sub-block `b`.
fn scales(format: QuantFormat, block: &[u8], r: usize, b: usize) -> ([f32; 2], Option<f32>) {
    let half = |at: usize| f16::from_le_bytes([block[at + 2 * r], block[at + 2 * r + 1]]).to_f32();
    if format.sub_blocks() == 1 {
        return ([half(0); 2], format.has_min.then(|| half(32)));
    }
    if format.half_scales {
        let scale = |g: usize| half(0) * f32::from(block[32 + 16 * g + r] as i8);
        return ([scale(2 * b), scale(2 * b + 1)], None);
    }
    let word = |w: usize| {
        let at = 64 + 64 * w + 4 * r;
        u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
    };
    let field = |f: usize| match f {
        0..15 => word(f / 5) >> (6 * (f % 5)) & 63,
        _ => (0..3).fold(0, |v, w| v | word(w) >> 30 << (2 * w)),
    };
    let min = -(half(32) * field(8 + b) as f32);
    ([half(0) * field(b) as f32; 2], Some(min))
}
