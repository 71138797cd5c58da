//! Packing the quantized types: the places that the module above describes.

use half::f16;

use crate::numeric::{self, GgmlType, QuantFormat};

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
