//! Rows inside a buffer that several threads of a region work on at once.
//!
//! The graph's allocator says who may touch what when, and the plan puts barriers between; a slice
//! handed out here is valid only under that promise.

use super::buffer::AlignedBuffer;

/// Rows of 4-byte elements inside a buffer, shared by the threads of a region.
#[derive(Clone, Copy)]
pub struct Rows {
    ptr: *mut f32,
    stride: usize,
    /// Rows in use.
    pub rows: usize,
    /// Elements a row.
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

    /// Elements from the first of the first row to one past the last of the last.
    pub fn len(&self) -> usize {
        if self.rows == 0 {
            0
        } else {
            (self.rows - 1) * self.stride + self.cols
        }
    }

    /// All of them in one slice, what lies between the rows included.
    ///
    /// # Safety
    /// As for [`Rows::row`], for everything from the first to the last element.
    pub unsafe fn all<'a>(&self) -> &'a [f32] {
        // SAFETY: inside the buffer (checked by `new`); not written meanwhile (caller).
        unsafe { std::slice::from_raw_parts(self.ptr, self.len()) }
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
    /// Nobody writes it while the slice lives (the plan's barriers).
    pub unsafe fn row<'a>(&self, r: usize) -> &'a [f32] {
        assert!(r < self.rows);
        // SAFETY: inside the buffer (checked by `new`); not written meanwhile (caller).
        unsafe { std::slice::from_raw_parts(self.ptr.add(r * self.stride), self.cols) }
    }

    /// Row `r`, to write.
    ///
    /// # Safety
    /// This thread alone touches it while the slice lives (its share between two barriers).
    pub unsafe fn row_mut<'a>(&self, r: usize) -> &'a mut [f32] {
        assert!(r < self.rows);
        // SAFETY: inside the buffer (checked by `new`); exclusive (caller).
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
