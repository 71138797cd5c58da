//! Packed weights: rows interleaved so that a lane is a row and one load feeds sixteen of them.
//!
//! A *strip* is what a kernel streams: 16 rows of a quantized type, 32 of F32, F16 or BF16. Rows are padded
//! to whole strips with zeros. A strip holds as many bytes as its rows do in the file:
//!
//! - floats: for each k, 32 values;
//! - 32-value types, for each block: 16 scales, 16 minimums (Q4_1, Q5_1), 64 bytes of fifth bits (Q5_0,
//!   Q5_1), 256 bytes of nibbles (Q8_0: 512 bytes of w + 128);
//! - Q4_K, Q5_K, for each superblock: 16 d, 16 dmin, three vectors of i32 lanes with sixteen 6-bit fields a
//!   row (8 scales, then 8 minimums), and for each sub-block: 64 bytes of fifth bits (Q5_K), 256 of nibbles;
//! - Q6_K, for each superblock: 16 d, 16 x 16 scales, and for each sub-block 256 bytes of nibbles and 128 of
//!   two-bit fields.
//!
//! A code's place in a sub-block: weight k = 4 j + x of row r is byte 4 r + x of vector j. Nibble vector j
//! holds vector j in its low and vector j + 4 in its high halves; bit j of the fifth bits belongs to vector
//! j; field j % 4 of two-bit vector j / 4 to vector j.

mod blocks;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod unpack;
mod words;

pub use stream::pack_all;

use std::ops::Range;

use super::buffer::AlignedBuffer;
use crate::numeric::{GgmlType, NumericError, QuantFormat, is_float, is_runnable};

/// Shape and sizes of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedLayout {
    /// The weights' type in the file.
    pub ty: GgmlType,
    /// Rows, without padding: outputs of the product.
    pub rows: usize,
    /// Columns: inputs of the product.
    pub cols: usize,
}

impl PackedLayout {
    /// Of no weights.
    const NOTHING: PackedLayout = PackedLayout {
        ty: GgmlType::F32,
        rows: 0,
        cols: 0,
    };

    /// The layout of a `rows` x `cols` matrix. Refuses types that can't be run and rows that are no whole
    /// number of blocks.
    pub fn new(ty: GgmlType, rows: usize, cols: usize) -> Result<PackedLayout, NumericError> {
        if !is_runnable(ty) {
            return Err(NumericError::NotRunnable { ty });
        }
        match ty.row_bytes(cols) {
            Some(_) => Ok(PackedLayout { ty, rows, cols }),
            None => Err(NumericError::PartBlock { ty, values: cols }),
        }
    }

    /// Rows of one strip: 16, or 32 for floats.
    pub fn strip_rows(&self) -> usize {
        if is_float(self.ty) { 32 } else { 16 }
    }

    /// Strips of the matrix.
    pub fn strips(&self) -> usize {
        self.rows.div_ceil(self.strip_rows())
    }

    /// Bytes of a row in the file.
    pub fn row_bytes(&self) -> usize {
        self.cols / self.ty.block_len() * self.ty.block_bytes()
    }

    /// Bytes of a packed strip.
    pub fn strip_bytes(&self) -> usize {
        self.strip_rows() * self.row_bytes()
    }

    /// Bytes of the packed matrix.
    pub fn bytes(&self) -> usize {
        self.strips() * self.strip_bytes()
    }

    /// The same, `None` for more than there are addresses: every matrix that exists was asked this.
    fn checked_bytes(&self) -> Option<usize> {
        let strip = self
            .ty
            .row_bytes(self.cols)?
            .checked_mul(self.strip_rows())?;
        self.strips().checked_mul(strip)
    }

    /// The rows of these strips that exist.
    pub fn rows_of(&self, strips: Range<usize>) -> Range<usize> {
        let row = |s: usize| (s * self.strip_rows()).min(self.rows);
        row(strips.start)..row(strips.end)
    }

    /// Where the rows of these strips lie in the tensor's bytes.
    pub fn source_of(&self, strips: Range<usize>) -> Range<usize> {
        let rows = self.rows_of(strips);
        rows.start * self.row_bytes()..rows.end * self.row_bytes()
    }
}

/// Packs strips: `src` are the bytes at [`PackedLayout::source_of`] `strips`, `dst` the strips themselves.
/// Strips are independent, so threads may pack different ones, and `src` may be streamed.
///
/// # Panics
/// If a length is not what the layout says.
pub fn pack_strips(layout: &PackedLayout, strips: Range<usize>, src: &[u8], dst: &mut [u8]) {
    assert!(
        strips.end <= layout.strips(),
        "strips {strips:?} of {}",
        layout.strips()
    );
    assert_eq!(
        src.len(),
        layout.source_of(strips.clone()).len(),
        "source bytes"
    );
    assert_eq!(
        dst.len(),
        strips.len() * layout.strip_bytes(),
        "packed bytes"
    );
    if layout.cols == 0 {
        return;
    }
    let strip_src = layout.strip_rows() * layout.row_bytes();
    for (dst, src) in dst
        .chunks_exact_mut(layout.strip_bytes())
        .zip(src.chunks(strip_src))
    {
        match QuantFormat::of(layout.ty) {
            Some(format) => blocks::pack_quantized(format, src, layout.row_bytes(), dst),
            None if layout.ty == GgmlType::F32 => pack_floats::<4>(src, layout.row_bytes(), dst),
            None => pack_floats::<2>(src, layout.row_bytes(), dst),
        }
    }
}

/// One strip of floats: `[k][32]` values of `N` bytes; rows that `src` lacks are zero.
fn pack_floats<const N: usize>(src: &[u8], row_bytes: usize, dst: &mut [u8]) {
    /// Values of a row that are read one after the other: their places stay in the nearest cache.
    const PIECE: usize = 64;
    if src.len() < 32 * row_bytes {
        dst.fill(0);
    }
    let (vectors, _) = dst.as_chunks_mut::<N>().0.as_chunks_mut::<32>();
    for (p, outs) in vectors.chunks_mut(PIECE).enumerate() {
        for (r, row) in src.chunks_exact(row_bytes).enumerate() {
            let (row, _) = row[p * PIECE * N..].as_chunks::<N>();
            for (value, out) in row.iter().zip(&mut *outs) {
                out[r & 31] = *value;
            }
        }
    }
}

/// A matrix of weights, packed.
#[derive(Debug)]
pub struct PackedMatrix {
    layout: PackedLayout,
    data: AlignedBuffer,
}

impl Default for PackedMatrix {
    /// No weights.
    fn default() -> PackedMatrix {
        PackedMatrix {
            layout: PackedLayout::NOTHING,
            data: AlignedBuffer::empty(),
        }
    }
}

impl PackedMatrix {
    /// Room for a matrix; all weights are zero until packed. `None` when there is no memory.
    pub fn try_zeroed(layout: PackedLayout) -> Option<PackedMatrix> {
        let data = AlignedBuffer::try_among_weights(layout.checked_bytes()?)?;
        Some(PackedMatrix { layout, data })
    }

    /// Makes it a matrix of this layout, whose weights are whatever lies there until packed; keeps its memory
    /// if that is large enough. False when there is no memory: it is as it was.
    #[must_use]
    pub fn reset(&mut self, layout: PackedLayout) -> bool {
        let room = layout.checked_bytes().is_some_and(|n| self.reserve(n));
        if room {
            self.layout = layout;
        }
        room
    }

    /// Makes room for [`PackedMatrix::reset`] with so many bytes; its weights are gone. False when there is no
    /// memory: it is as it was.
    #[must_use]
    pub fn reserve(&mut self, bytes: usize) -> bool {
        let room = self.data.grow(bytes);
        if room {
            self.layout = PackedLayout::NOTHING;
        }
        room
    }

    /// As [`PackedMatrix::try_zeroed`].
    ///
    /// # Panics
    /// When there is no memory.
    pub fn zeroed(layout: PackedLayout) -> PackedMatrix {
        PackedMatrix::try_zeroed(layout).expect("memory for a matrix")
    }

    /// Packs a whole matrix from its row-major bytes in the file, on this thread.
    pub fn pack(layout: PackedLayout, src: &[u8]) -> PackedMatrix {
        let mut m = PackedMatrix::zeroed(layout);
        let strips = 0..layout.strips();
        pack_strips(&layout, strips.clone(), src, m.strips_mut(strips));
        m
    }

    /// Shape and sizes.
    pub fn layout(&self) -> &PackedLayout {
        &self.layout
    }

    /// The bytes of these strips, for [`pack_strips`].
    pub fn strips_mut(&mut self, strips: Range<usize>) -> &mut [u8] {
        // SAFETY: `&mut self`, so nobody else uses the range; checked in `strips_shared_mut`.
        unsafe { self.strips_shared_mut(strips) }
    }

    /// The bytes of these strips, for packing from several threads.
    ///
    /// # Safety
    /// No other thread uses any of these strips while the slice lives.
    #[allow(clippy::mut_from_ref)] // the strips' owner is the caller's choice, as stated
    pub unsafe fn strips_shared_mut(&self, strips: Range<usize>) -> &mut [u8] {
        assert!(strips.start <= strips.end && strips.end <= self.layout.strips());
        let bytes = self.layout.strip_bytes();
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe {
            let first = self.data.as_mut_ptr().add(strips.start * bytes);
            std::slice::from_raw_parts_mut(first, strips.len() * bytes)
        }
    }

    /// The first byte of a strip. Kernels check their ranges at the entry: here nothing is read.
    pub fn strip(&self, s: usize) -> *const u8 {
        debug_assert!(s < self.layout.strips());
        let offset = s.wrapping_mul(self.layout.strip_bytes());
        self.data.as_ptr().wrapping_add(offset)
    }

    /// Writes row `row` as f32 to `out` (`cols` values): packing lost nothing if these are the bits that the
    /// row in the file decodes to.
    ///
    /// # Panics
    /// If there is no such row, or `out` has another length.
    #[cfg(test)]
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        assert!(
            row < self.layout.rows && out.len() == self.layout.cols,
            "row {row} of {:?}",
            self.layout
        );
        if out.is_empty() {
            return;
        }
        let (ty, n) = (self.layout.ty, self.layout.strip_rows());
        // SAFETY: a strip's bytes; nobody writes a matrix that is in use.
        let strip =
            unsafe { std::slice::from_raw_parts(self.strip(row / n), self.layout.strip_bytes()) };
        if let Some(format) = QuantFormat::of(ty) {
            return unpack::decode_row(format, strip, row % n, out);
        }
        let size = ty.block_bytes();
        let bytes: Vec<u8> = (0..out.len())
            .flat_map(|k| strip[(32 * k + row % n) * size..][..size].iter().copied())
            .collect();
        crate::numeric::decode_row(ty, &bytes, out).expect("lengths belong together");
    }
}
