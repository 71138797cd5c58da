//! Memory for packed weights and activations: aligned to cache lines, written by several threads.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes of a cache line, and the alignment of every [`AlignedBuffer`].
pub const LINE: usize = 64;

/// Zeroed bytes that begin at a cache line. Shared by threads through raw pointers: who writes must own the
/// range for that time.
#[derive(Debug)]
pub struct AlignedBuffer {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: plain bytes owned by this value. Writing through `&self` is only possible through `as_mut_ptr`,
// whose users promise to own the range they write (see their own SAFETY lines).
unsafe impl Send for AlignedBuffer {}
// SAFETY: as for Send.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `len` zero bytes. Ends the process, as Rust's own collections do, when there is no memory.
    pub fn zeroed(len: usize) -> AlignedBuffer {
        AlignedBuffer::try_zeroed(len).unwrap_or_else(|| handle_alloc_error(Self::layout(len)))
    }

    /// `len` zero bytes; `None` when there is no memory.
    pub fn try_zeroed(len: usize) -> Option<AlignedBuffer> {
        if len == 0 {
            let ptr = NonNull::dangling();
            return Some(AlignedBuffer { ptr, len });
        }
        let layout = Layout::from_size_align(len, LINE).ok()?;
        // SAFETY: the layout is not empty.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(AlignedBuffer { ptr, len })
    }

    /// All bytes, while nobody else uses them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `ptr` is valid for `len` bytes (for none it dangles), and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, LINE).expect("a buffer of less than isize::MAX bytes")
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte, for reading.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// The first byte, for writing ranges that no other thread uses at that time.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
        }
    }
}
