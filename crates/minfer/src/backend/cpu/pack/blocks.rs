//! Packing the quantized types into the places that the module above describes.

use super::words::{
    FOUR, HIGH, LOW, fields_of, fifth_bits, transpose_bits, transpose_pairs, words,
};
use crate::numeric::{GgmlType, QuantFormat};

/// Packed bytes that are written for one row after the other before going on: they stay in the nearest cache, and
/// a row is read in pieces of a few lines.
const PIECE: usize = 8 << 10;

/// Packs the rows of one strip (fewer than 16 at the end of a matrix: the others are zero weights).
///
/// The file's bytes are moved as words of four: its nibbles, fifth bits and fields lie differently, but no code
/// is ever taken out alone.
pub fn pack_quantized(format: QuantFormat, src: &[u8], row_bytes: usize, dst: &mut [u8]) {
    let strip = Strip {
        src,
        row_bytes,
        dst,
    };
    match format.ty {
        GgmlType::Q4_0 => strip.pack::<18, 288>(q4_0),
        GgmlType::Q4_1 => strip.pack::<20, 320>(q4_1),
        GgmlType::Q5_0 => strip.pack::<22, 352>(q5_0),
        GgmlType::Q5_1 => strip.pack::<24, 384>(q5_1),
        GgmlType::Q8_0 => strip.pack::<34, 544>(q8_0),
        GgmlType::Q4_K => strip.pack::<144, 2304>(q4_k),
        GgmlType::Q5_K => strip.pack::<176, 2816>(q5_k),
        _ => strip.pack::<210, 3360>(q6_k),
    }
}

/// The rows of a strip in the file, and where they go.
struct Strip<'a> {
    src: &'a [u8],
    row_bytes: usize,
    dst: &'a mut [u8],
}

impl Strip<'_> {
    /// Packs blocks of `N` bytes into superblocks of `M` bytes for sixteen rows.
    #[inline(always)]
    fn pack<const N: usize, const M: usize>(self, block: impl Fn(&[u8; N], usize, &mut [u8; M])) {
        let rows = self.src.len() / self.row_bytes;
        if rows < 16 {
            self.dst.fill(0);
        }
        let (blocks, _) = self.dst.as_chunks_mut::<M>();
        let piece = PIECE.div_ceil(M);
        for (p, outs) in blocks.chunks_mut(piece).enumerate() {
            for (r, row) in self.src.chunks_exact(self.row_bytes).enumerate() {
                let (row, _) = row[p * piece * N..].as_chunks::<N>();
                for (from, out) in row.iter().zip(&mut *outs) {
                    block(from, r & 15, out);
                }
            }
        }
    }
}

fn q4_0(block: &[u8; 18], r: usize, out: &mut [u8; 288]) {
    copy::<2>(block, 0, out, 2 * r);
    put(&words::<4>(block, 2), r, out, 32);
}

fn q4_1(block: &[u8; 20], r: usize, out: &mut [u8; 320]) {
    copy::<2>(block, 0, out, 2 * r);
    copy::<2>(block, 2, out, 32 + 2 * r);
    put(&words::<4>(block, 4), r, out, 64);
}

fn q5_0(block: &[u8; 22], r: usize, out: &mut [u8; 352]) {
    copy::<2>(block, 0, out, 2 * r);
    put(&words::<1>(block, 2).map(fifth_bits), r, out, 32);
    put(&words::<4>(block, 6), r, out, 96);
}

fn q5_1(block: &[u8; 24], r: usize, out: &mut [u8; 384]) {
    copy::<2>(block, 0, out, 2 * r);
    copy::<2>(block, 2, out, 32 + 2 * r);
    put(&words::<1>(block, 4).map(fifth_bits), r, out, 64);
    put(&words::<4>(block, 8), r, out, 128);
}

fn q8_0(block: &[u8; 34], r: usize, out: &mut [u8; 544]) {
    copy::<2>(block, 0, out, 2 * r);
    // From -128..128 to 0..256.
    put(&words::<8>(block, 2).map(|w| w ^ 0x8080_8080), r, out, 32);
}

fn q4_k(block: &[u8; 144], r: usize, out: &mut [u8; 2304]) {
    put_k_scales(block, r, out);
    for pair in 0..4 {
        let w = words::<8>(block, 16 + 32 * pair);
        put_two(&w, r, out, 256 + 512 * pair, 256);
    }
}

fn q5_k(block: &[u8; 176], r: usize, out: &mut [u8; 2816]) {
    put_k_scales(block, r, out);
    // Bit b of byte 4 j + x belongs to sub-block b; there it is bit j of byte x.
    let high = transpose_bits(words(block, 16));
    for (b, word) in high.into_iter().enumerate() {
        put(&[word], r, out, 256 + 320 * b);
    }
    for pair in 0..4 {
        let w = words::<8>(block, 48 + 32 * pair);
        put_two(&w, r, out, 320 + 640 * pair, 320);
    }
}

fn q6_k(block: &[u8; 210], r: usize, out: &mut [u8; 3360]) {
    copy::<2>(block, 208, out, 2 * r);
    for g in 0..16 {
        out[32 + 16 * g + r] = block[192 + g];
    }
    // Each half of 128 weights is four sub-blocks; the first shares its bytes with the third.
    for half in 0..2 {
        let first = 288 + 1536 * half;
        for s in 0..2 {
            let w = words::<8>(block, 64 * half + 32 * s);
            put_two(&w, r, out, first + 384 * s, 768);
        }
        for v in 0..2 {
            // Field s of byte 4 j + x belongs to sub-block s; there it is field j of byte x.
            let high = transpose_pairs(words(block, 128 + 32 * half + 16 * v));
            for (s, word) in high.into_iter().enumerate() {
                put(&[word], r, out, first + 384 * s + 256 + 64 * v);
            }
        }
    }
}

/// `d`, `dmin` and the sixteen fields of a Q4_K or Q5_K block.
#[inline(always)]
fn put_k_scales<const N: usize, const M: usize>(block: &[u8; N], r: usize, out: &mut [u8; M]) {
    copy::<2>(block, 0, out, 2 * r);
    copy::<2>(block, 2, out, 32 + 2 * r);
    put(&fields_of(words(block, 4)), r, out, 64);
}

/// Two sub-blocks whose codes are the low and the high nibbles of 32 bytes; the second lies `step` after the first.
#[inline(always)]
fn put_two<const M: usize>(w: &[u32; 8], r: usize, out: &mut [u8; M], at: usize, step: usize) {
    for j in 0..4 {
        let (a, b) = (w[j], w[j + 4]);
        put(&[a & LOW | (b & LOW) << 4], r, out, at + 64 * j);
        put(&[a >> 4 & LOW | b & HIGH], r, out, at + step + 64 * j);
    }
}

/// Words of row `r`: word j goes to the vector at `at + 64 * j`.
#[inline(always)]
fn put<const N: usize, const M: usize>(w: &[u32; N], r: usize, out: &mut [u8; M], at: usize) {
    for (j, word) in w.iter().enumerate() {
        out[at + 64 * j + FOUR * r..][..FOUR].copy_from_slice(&word.to_le_bytes());
    }
}

/// `N` bytes as they are.
#[inline(always)]
fn copy<const N: usize>(block: &[u8], from: usize, out: &mut [u8], to: usize) {
    out[to..to + N].copy_from_slice(&block[from..from + N]);
}
