//! Packing (and unpacking) the quantized types: the places that the module above describes.

use half::f16;

use crate::numeric::{self, GgmlType, QuantFormat, SubBlock};

/// Where the parts of a packed (super)block lie.
pub struct BlockPlaces {
    /// Bytes of the packed superblock.
    pub bytes: usize,
    /// Sub-blocks of 32 in it.
    pub sub_blocks: usize,
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
    let sub_blocks = format.sub_blocks();
    BlockPlaces {
        bytes: first + sub_blocks * step,
        sub_blocks,
        first,
        step,
        nibbles,
        high,
    }
}

/// Packs the rows of one strip (fewer than 16 at the end of a matrix: the others are zero weights).
pub fn pack_quantized(format: QuantFormat, src: &[u8], row_bytes: usize, dst: &mut [u8]) {
    dst.fill(0);
    let block_bytes = format.ty.block_bytes();
    let places = places(format);
    for (r, row) in src.chunks_exact(row_bytes).enumerate() {
        let blocks = row
            .chunks_exact(block_bytes)
            .zip(dst.chunks_exact_mut(places.bytes));
        for (block, out) in blocks {
            pack_block(format, block, r, &places, out);
        }
    }
}

/// Packs one block of row `r`.
fn pack_block(format: QuantFormat, block: &[u8], r: usize, at: &BlockPlaces, out: &mut [u8]) {
    /// The block as an array; its length is the type's block size.
    fn whole<const N: usize>(block: &[u8]) -> &[u8; N] {
        block.try_into().expect("a whole block")
    }
    let small = match format.ty {
        GgmlType::Q4_0 => numeric::q4_0(whole(block)),
        GgmlType::Q4_1 => numeric::q4_1(whole(block)),
        GgmlType::Q5_0 => numeric::q5_0(whole(block)),
        GgmlType::Q5_1 => numeric::q5_1(whole(block)),
        GgmlType::Q8_0 => numeric::q8_0(whole(block)),
        GgmlType::Q4_K => return pack_k(&numeric::q4_k(whole(block)), false, r, at, out),
        GgmlType::Q5_K => return pack_k(&numeric::q5_k(whole(block)), true, r, at, out),
        _ => return pack_q6_k(&numeric::q6_k(whole(block)), r, at, out),
    };
    put_f16(out, 0, r, small.scale);
    if format.has_min {
        put_f16(out, 32, r, small.min);
    }
    let (out, words) = (&mut out[at.first..], words(&small.codes));
    if format.bits == 8 {
        return words
            .iter()
            .enumerate()
            .for_each(|(j, w)| put_word(out, 64 * j, r, *w));
    }
    put_nibbles(&mut out[at.nibbles..], r, &words);
    if format.bits == 5 {
        put_fifth_bits(out, r, &words);
    }
}

fn pack_k(block: &numeric::KBlock, fifth: bool, r: usize, at: &BlockPlaces, out: &mut [u8]) {
    put_f16(out, 0, r, block.d);
    put_f16(out, 32, r, block.dmin);
    let mut fields = [0u32; 3];
    for (f, field) in block.scales.iter().chain(&block.mins).enumerate() {
        let field = u32::from(*field);
        match f {
            0..15 => fields[f / 5] |= field << (6 * (f % 5)),
            // The sixteenth lies in the top two bits of each word.
            _ => (0..3).for_each(|w| fields[w] |= (field >> (2 * w) & 3) << 30),
        }
    }
    for (w, word) in fields.iter().enumerate() {
        put_word(out, 64 + 64 * w, r, *word);
    }
    for (b, codes) in block.codes.as_chunks::<32>().0.iter().enumerate() {
        let (out, words) = (&mut out[at.first + b * at.step..], words(codes));
        put_nibbles(&mut out[at.nibbles..], r, &words);
        if fifth {
            put_fifth_bits(out, r, &words);
        }
    }
}

fn pack_q6_k(block: &numeric::Q6KBlock, r: usize, at: &BlockPlaces, out: &mut [u8]) {
    put_f16(out, 0, r, block.d);
    for (g, scale) in block.scales.iter().enumerate() {
        out[32 + 16 * g + r] = *scale as u8;
    }
    for (b, codes) in block.codes.as_chunks::<32>().0.iter().enumerate() {
        let (out, words) = (&mut out[at.first + b * at.step..], words(codes));
        put_nibbles(out, r, &words);
        put_two_bits(&mut out[at.high..], r, &words);
    }
}

/// A scale of row `r` in the vector of sixteen at `at`.
fn put_f16(out: &mut [u8], at: usize, r: usize, value: f16) {
    out[at + 2 * r..][..2].copy_from_slice(&value.to_le_bytes());
}

/// 32 codes as words: word j holds codes 4 j .. 4 j + 4, the four bytes of row r in vector j.
fn words(codes: &[u8; 32]) -> [u32; 8] {
    std::array::from_fn(|j| {
        u32::from_le_bytes([
            codes[4 * j],
            codes[4 * j + 1],
            codes[4 * j + 2],
            codes[4 * j + 3],
        ])
    })
}

/// Four bytes of row `r` in the vector at `at`.
fn put_word(out: &mut [u8], at: usize, r: usize, word: u32) {
    out[at + 4 * r..][..4].copy_from_slice(&word.to_le_bytes());
}

/// Low four bits of 32 codes.
fn put_nibbles(out: &mut [u8], r: usize, w: &[u32; 8]) {
    const LOW: u32 = 0x0f0f_0f0f;
    for j in 0..4 {
        put_word(out, 64 * j, r, (w[j] & LOW) | (w[j + 4] & LOW) << 4);
    }
}

/// Fifth bits of 32 codes: bit j of byte x is that of code 4 j + x.
fn put_fifth_bits(out: &mut [u8], r: usize, w: &[u32; 8]) {
    let bits = (0..8).fold(0, |h, j| h | (w[j] >> 4 & 0x0101_0101) << j);
    put_word(out, 0, r, bits);
}

/// Bits 4 and 5 of 32 codes: field j % 4 of byte x of vector j / 4 is that of code 4 j + x.
fn put_two_bits(out: &mut [u8], r: usize, w: &[u32; 8]) {
    for v in 0..2 {
        let fields = (0..4).fold(0, |h, f| h | (w[4 * v + f] >> 4 & 0x0303_0303) << (2 * f));
        put_word(out, 64 * v, r, fields);
    }
}

/// Row `r` of a packed strip as f32.
pub fn decode_row(format: QuantFormat, strip: &[u8], r: usize, out: &mut [f32]) {
    let at = places(format);
    let blocks = strip
        .chunks_exact(at.bytes)
        .zip(out.chunks_exact_mut(32 * at.sub_blocks));
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
