//! Memory for packed weights and activations: aligned to cache lines, written by several threads.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapMut;

/// Bytes of a cache line, and the alignment of every [`AlignedBuffer`].
pub const LINE: usize = 64;

/// Bytes of a huge page. Large buffers begin at one and ask for them: where the processor's address
/// tables are nested (virtual machines), reading is twice as fast.
const HUGE: usize = 2 << 20;

/// From so many bytes on, a buffer is fresh pages that exist once they are touched: a KV region is as
/// large as its context, and most of it may never be used. The heap would write zeros to all of it.
const MAPPED: usize = 128 << 10;

/// Bytes of a mapping that the weights of a model share.
const CHUNK: usize = 64 << 20;

/// How far each KV region lies from the one before: a fortieth of a huge page, in whole lines.
const STAGGER: usize = HUGE / 40 / LINE * LINE;

/// Large KV regions that share a mapping.
const REGIONS: usize = 8;

/// Zeroed bytes that begin at a cache line. Shared by threads through raw pointers: who writes must own the
/// range for that time.
#[derive(Debug)]
pub struct AlignedBuffer {
    ptr: NonNull<u8>,
    len: usize,
    /// What holds it, unless it is on the heap.
    chunk: Option<Arc<Chunk>>,
}

// SAFETY: plain bytes owned by this value. Writing through `&self` is only possible through `as_mut_ptr`,
// whose users promise to own the range they write (see their own SAFETY lines).
unsafe impl Send for AlignedBuffer {}
// SAFETY: as for Send.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// No bytes.
    pub const fn empty() -> AlignedBuffer {
        AlignedBuffer {
            ptr: NonNull::<u64>::dangling().cast(),
            len: 0,
            chunk: None,
        }
    }

    /// Makes room for `len` bytes; what it held is gone if it has to grow. False when there is no memory:
    /// the buffer is as it was.
    #[must_use]
    pub fn grow(&mut self, len: usize) -> bool {
        if self.len < len {
            let Some(larger) = AlignedBuffer::try_zeroed(len) else {
                return false;
            };
            *self = larger;
        }
        true
    }

    /// `len` zero bytes; `None` when there is no memory.
    pub fn try_zeroed(len: usize) -> Option<AlignedBuffer> {
        if len == 0 {
            return Some(AlignedBuffer::empty());
        }
        let layout = Layout::from_size_align(len, LINE).ok()?;
        if len >= MAPPED {
            return Some(Chunk::map(len)?.part(0, len));
        }
        // SAFETY: the layout is not empty.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let chunk = None;
        Some(AlignedBuffer { ptr, len, chunk })
    }

    /// `len` zero bytes that live as long as their neighbours: weights of one model lie together, so that
    /// small matrices are on huge pages as well. Not for what comes and goes: the memory is given back
    /// when the last buffer of a mapping is dropped. `None` when there is no memory.
    pub fn try_among_weights(len: usize) -> Option<AlignedBuffer> {
        static LAST: Mutex<Neighbours> = Mutex::new(Neighbours::new());
        if len > CHUNK / 2 {
            return AlignedBuffer::try_zeroed(len);
        }
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        last.take(len, 0, CHUNK)
    }

    /// All bytes, while nobody else uses them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `ptr` is valid for `len` bytes (for none it dangles), and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// The first `n` f32 values, while nobody else uses them.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn floats_mut(&mut self, n: usize) -> &mut [f32] {
        assert!(4 * n <= self.len, "{n} values in {} bytes", self.len);
        // SAFETY: so long (just checked) and aligned to lines (for none the pointer dangles, not null); every
        // bit pattern is an f32; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.cast().as_ptr(), n) }
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

impl Default for AlignedBuffer {
    fn default() -> AlignedBuffer {
        AlignedBuffer::empty()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.len > 0 && self.chunk.is_none() {
            // SAFETY: allocated in `try_zeroed` with this layout.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
        }
    }
}

/// Buffers that lie side by side in mappings, as long as one of a mapping is alive.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// The mapping that was filled last, its bytes, and how many of them are taken.
    last: Weak<Chunk>,
    size: usize,
    used: usize,
    /// Buffers so far.
    n: usize,
}

impl Neighbours {
    const fn new() -> Neighbours {
        Neighbours {
            last: Weak::new(),
            size: 0,
            used: 0,
            n: 0,
        }
    }

    /// `len` zero bytes for a KV region; `None` when there is no memory.
    ///
    /// Regions lie side by side, so that short ones are on huge pages as well, and each at another place of its
    /// huge page: all layers come to the same page of the cache at once, and if all regions then came to a new huge
    /// page, one step would wait for the system to clear a hundred of them.
    pub fn try_zeroed(&mut self, len: usize) -> Option<AlignedBuffer> {
        let mapping = CHUNK.max(REGIONS.saturating_mul(len.saturating_add(STAGGER)));
        self.take(len, STAGGER, mapping)
    }

    /// `len` zero bytes, `apart` from the one before, in a mapping of at least `size` bytes.
    fn take(&mut self, len: usize, apart: usize, size: usize) -> Option<AlignedBuffer> {
        if len == 0 {
            return Some(AlignedBuffer::empty());
        }
        let (chunk, at) = match self.last.upgrade() {
            Some(chunk) if self.size - self.used >= len.checked_add(apart)? => {
                (chunk, self.used + apart)
            }
            _ => {
                let at = self.n * apart % HUGE;
                let Some(chunk) = Chunk::map(size.checked_add(at)?) else {
                    return AlignedBuffer::try_zeroed(len);
                };
                self.size = size + at;
                (chunk, at)
            }
        };
        self.n += 1;
        self.last = Arc::downgrade(&chunk);
        self.used = (at + len).next_multiple_of(LINE).min(self.size);
        Some(chunk.part(at, len))
    }
}

/// Fresh pages, zero and not there until they are touched.
#[derive(Debug)]
struct Chunk {
    /// Owns the pages; only used through `first`.
    _mapping: MmapMut,
    /// The first huge page.
    first: AtomicPtr<u8>,
}

impl Chunk {
    /// `len` bytes.
    fn map(len: usize) -> Option<Arc<Chunk>> {
        let mut mapping = MmapMut::map_anon(len.checked_add(HUGE)?).ok()?;
        let offset = mapping.as_ptr().align_offset(HUGE);
        #[cfg(target_os = "linux")]
        {
            // Whole huge pages only: a buffer takes no more memory than its own size.
            let whole = len / HUGE * HUGE;
            let advice = memmap2::Advice::HugePage;
            if whole > 0
                && let Err(e) = mapping.advise_range(advice, offset, whole)
            {
                tracing::debug!("madvise(HUGEPAGE) was refused: {e}");
            }
        }
        let first = AtomicPtr::new(mapping[offset..].as_mut_ptr());
        Some(Arc::new(Chunk {
            _mapping: mapping,
            first,
        }))
    }

    /// `len` bytes from `from` on, which no other buffer has.
    fn part(self: Arc<Chunk>, from: usize, len: usize) -> AlignedBuffer {
        let first = self.first.load(Ordering::Relaxed).wrapping_add(from);
        let ptr = NonNull::new(first).expect("a mapping is not at address 0");
        AlignedBuffer {
            ptr,
            len,
            chunk: Some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_and_aligned_whatever_holds_them() {
        for len in [
            0,
            1,
            63,
            4096,
            MAPPED - 1,
            MAPPED,
            HUGE - 1,
            HUGE,
            3 * HUGE + 5,
        ] {
            let mut b = AlignedBuffer::try_zeroed(len).unwrap();
            assert_eq!((b.len(), b.bytes_mut().len()), (len, len));
            assert!(b.bytes_mut().iter().all(|x| *x == 0));
            assert!(len == 0 || b.as_ptr().align_offset(LINE) == 0);
            b.bytes_mut().fill(7);
            drop(b);
        }
        assert!(AlignedBuffer::try_zeroed(usize::MAX).is_none());
        assert!(AlignedBuffer::try_zeroed(isize::MAX as usize - 4096).is_none());
        let mut b = AlignedBuffer::empty();
        assert!(b.grow(100) && b.grow(50) && b.len() == 100);
        b.bytes_mut().fill(7);
        assert!(!b.grow(1 << 60) && b.len() == 100 && b.bytes_mut()[99] == 7);
    }

    #[test]
    fn regions_lie_side_by_side_at_different_places_of_their_huge_pages() {
        for len in [1, 4096, 3 * HUGE / 4, 2 * HUGE, 40 * HUGE] {
            let mut regions = Neighbours::default();
            let mut all: Vec<_> = (0..20).map(|_| regions.try_zeroed(len).unwrap()).collect();
            for (i, b) in all.iter_mut().enumerate() {
                assert_eq!((b.len(), b.as_ptr().align_offset(LINE)), (len, 0));
                let ends =
                    [0, len - 1].map(|at| std::mem::replace(&mut b.bytes_mut()[at], i as u8));
                assert!(len == 1 || ends == [0, 0], "zero at first");
            }
            for (i, b) in all.iter_mut().enumerate() {
                assert_eq!(b.bytes_mut()[len - 1], i as u8, "buffers overlap");
            }
            let mut places: Vec<_> = all.iter().map(|b| b.as_ptr() as usize % HUGE).collect();
            places.sort();
            places.dedup();
            assert_eq!(places.len(), all.len(), "regions of {len} bytes");
        }
        assert!(Neighbours::default().try_zeroed(usize::MAX).is_none());
    }

    #[test]
    fn weights_lie_together_and_are_zero_again_after_all_were_dropped() {
        for _ in 0..2 {
            let sizes = [100, 3000, CHUNK / 2, CHUNK / 2 - 64, 200, CHUNK];
            let mut all: Vec<_> = sizes
                .map(|n| AlignedBuffer::try_among_weights(n).unwrap())
                .into();
            for (i, b) in all.iter_mut().enumerate() {
                assert_eq!((b.len(), b.as_ptr().align_offset(LINE)), (sizes[i], 0));
                assert!(b.bytes_mut().iter().all(|x| *x == 0));
                b.bytes_mut().fill(i as u8 + 1);
            }
            for (i, b) in all.iter_mut().enumerate() {
                assert!(
                    b.bytes_mut().iter().all(|x| *x == i as u8 + 1),
                    "buffers overlap"
                );
            }
        }
    }
}
