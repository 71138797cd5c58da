//! Rows inside a buffer that several threads of a region work on at once.
//!
//! The graph's allocator says who may touch what when, and the plan puts barriers between; a slice
//! handed out here is valid only under that promise.

use super::buffer::AlignedBuffer;

/// Rows of 4-byte elements in memory that the threads of a region share, each its own part. A place:
/// whoever reads or writes through it promises that the part is theirs.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    ptr: *mut f32,
    stride: usize,
    /// Rows in use: as many as there are, or fewer.
    pub rows: usize,
    /// Elements a row: as many as there are, or fewer.
    pub cols: usize,
}

// SAFETY: the plan gives each thread its own part between two barriers.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// `rows` rows of `cols` elements, `stride` apart, from element `offset` of the buffer.
    ///
    /// # Panics
    /// If they do not lie inside the buffer.
    pub fn new(
        buffer: &AlignedBuffer,
        offset: usize,
        stride: usize,
        rows: usize,
        cols: usize,
    ) -> Rows {
        let end = if rows == 0 {
            0
        } else {
            offset + (rows - 1) * stride + cols
        };
        assert!(end * 4 <= buffer.len(), "rows past the end of their buffer");
        let ptr = buffer.as_mut_ptr().cast::<f32>().wrapping_add(offset);
        Rows {
            ptr,
            stride,
            rows,
            cols,
        }
    }

    /// The rows of `cols` elements in a slice, which must stay borrowed while they are used.
    pub fn of(values: &mut [f32], stride: usize, cols: usize) -> Rows {
        Rows::within(values.as_mut_ptr(), values.len(), stride, cols)
    }

    /// The same of a slice that is only read.
    pub fn reading(values: &[f32], stride: usize, cols: usize) -> Rows {
        Rows::within(values.as_ptr().cast_mut(), values.len(), stride, cols)
    }

    fn within(ptr: *mut f32, len: usize, stride: usize, cols: usize) -> Rows {
        let rows = match len.checked_sub(cols) {
            Some(rest) => rest / stride.max(1) + 1,
            None => 0,
        };
        Rows {
            ptr,
            stride,
            rows,
            cols,
        }
    }

    /// That there are at least so many rows and columns.
    ///
    /// # Panics
    /// If there are fewer; `what` they are is told.
    pub fn check(&self, what: &str, rows: usize, cols: usize) {
        assert!(
            rows == 0 || rows <= self.rows && cols <= self.cols,
            "{what}: {rows} rows of {cols} in {} of {}",
            self.rows,
            self.cols
        );
    }

    /// Element `c` of row `r`.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn at(&self, r: usize, c: usize) -> *mut f32 {
        assert!(r < self.rows && c < self.cols);
        self.ptr.wrapping_add(r * self.stride + c)
    }

    /// The first element; row `r` starts `r * stride()` further.
    pub fn as_ptr(&self) -> *mut f32 {
        self.ptr
    }

    /// Element `c` of row `r`, unchecked.
    ///
    /// # Safety
    /// There is such an element ([`Rows::check`]).
    #[inline(always)]
    pub unsafe fn at_unchecked(&self, r: usize, c: usize) -> *mut f32 {
        // SAFETY: inside the memory that `check` has seen (caller).
        unsafe { self.ptr.add(r * self.stride + c) }
    }

    /// All elements as integers, where nothing lies between the rows.
    ///
    /// # Safety
    /// As for [`Rows::row`], for all rows.
    ///
    /// # Panics
    /// If something lies between.
    pub unsafe fn dense_i32<'a>(&self) -> &'a [i32] {
        assert!(
            self.rows < 2 || self.stride == self.cols,
            "rows of {} elements lie {} apart",
            self.cols,
            self.stride
        );
        // SAFETY: inside what the rows were made of (`new`, `within`), dense, there and not written (caller); i32 and
        // f32 have one size and alignment, and every bit pattern is an i32.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.rows * self.cols) }
    }

    /// Columns `first..first + cols` of every row.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn columns(&self, first: usize, cols: usize) -> Rows {
        assert!(first + cols <= self.cols);
        Rows {
            ptr: self.ptr.wrapping_add(first),
            cols,
            ..*self
        }
    }

    /// Elements from row to row.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Row `r`.
    ///
    /// # Safety
    /// Its memory is there and nobody writes it while the slice lives (the plan's barriers).
    pub unsafe fn row<'a>(&self, r: usize) -> &'a [f32] {
        assert!(r < self.rows);
        // SAFETY: inside what the rows were made of (`new`, `within`); there and not written (caller).
        unsafe { std::slice::from_raw_parts(self.ptr.add(r * self.stride), self.cols) }
    }

    /// Row `r`, to write.
    ///
    /// # Safety
    /// Its memory is there and this thread alone touches it while the slice lives (its share between two
    /// barriers).
    pub unsafe fn row_mut<'a>(&self, r: usize) -> &'a mut [f32] {
        assert!(r < self.rows);
        // SAFETY: inside what the rows were made of (`new`, `within`); there and exclusive (caller).
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(r * self.stride), self.cols) }
    }

    /// Row `r` as integers.
    ///
    /// # Safety
    /// As for [`Rows::row`].
    pub unsafe fn row_i32<'a>(&self, r: usize) -> &'a [i32] {
        // SAFETY: the caller's.
        let row = unsafe { self.row(r) };
        // SAFETY: i32 and f32 have one size and alignment, and every bit pattern is an i32.
        unsafe { std::slice::from_raw_parts(row.as_ptr().cast(), row.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_as_many_rows_as_fit() {
        let values = [0.0; 11];
        let rows = |stride, cols| Rows::reading(&values, stride, cols).rows;
        assert_eq!(
            [rows(4, 4), rows(4, 3), rows(8, 4), rows(4, 12)],
            [2, 3, 1, 0]
        );
        let r = Rows::reading(&values, 4, 3);
        r.check("x", 3, 3);
        r.check("x", 0, 99);
        for (n, cols) in [(4, 3), (3, 4)] {
            assert!(std::panic::catch_unwind(|| r.check("x", n, cols)).is_err());
        }
    }

    #[test]
    #[should_panic(expected = "lie 3 apart")]
    fn rows_with_gaps_are_no_slice() {
        let mut buffer = AlignedBuffer::try_zeroed(64).unwrap();
        buffer.bytes_mut()[..4].copy_from_slice(&7i32.to_le_bytes());
        // SAFETY: nobody writes the buffer.
        let dense = unsafe { Rows::new(&buffer, 0, 2, 3, 2).dense_i32() };
        assert_eq!(dense, [7, 0, 0, 0, 0, 0]);
        // SAFETY: as above.
        unsafe { Rows::new(&buffer, 0, 3, 3, 2).dense_i32() };
    }
}
