//! Counts what a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that ends may free its locals before it allocates for the last time.
    let _ = BYTES.try_with(|n| n.set(n.get() + bytes));
    let _ = CALLS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call goes to `System` unchanged; counting touches only this thread's cells and
// allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: `ptr` came from `System` through `alloc`; the rest is the caller's contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` through `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// What a piece of work asked of the allocator; memory that was freed again counts too.
#[derive(Debug)]
pub struct Spent {
    pub bytes: usize,
    pub calls: usize,
}

/// Runs `work` on this thread and counts its allocations.
pub fn spent<T>(work: impl FnOnce() -> T) -> (T, Spent) {
    let before = (BYTES.get(), CALLS.get());
    let out = work();
    (
        out,
        Spent {
            bytes: BYTES.get() - before.0,
            calls: CALLS.get() - before.1,
        },
    )
}

#[test]
fn allocations_are_counted() {
    let (v, s) = spent(|| Vec::<u8>::with_capacity(12345));
    assert_eq!((s.bytes, s.calls), (12345, 1));
    drop(v);
}
