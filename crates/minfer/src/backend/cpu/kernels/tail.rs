//! Vectors cut short: the last 1 to 15 elements of a row.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use crate::lanes::{LANES, Lanes};

/// `n <= 16` elements at `p`, the other lanes +0.
///
/// # Safety
/// `n` elements can be read at `p`; as [`Lanes`] asks.
#[inline(always)]
pub unsafe fn load_part<L: Lanes>(p: *const f32, n: usize) -> L::F {
    let mut buf = [0.0f32; LANES];
    std::ptr::copy_nonoverlapping(p, buf.as_mut_ptr(), n);
    L::f_load(buf.as_ptr())
}

/// The first `n <= 16` lanes to `p`.
///
/// # Safety
/// `n` elements can be written at `p`; as [`Lanes`] asks.
#[inline(always)]
pub unsafe fn store_part<L: Lanes>(p: *mut f32, n: usize, v: L::F) {
    let mut buf = [0.0f32; LANES];
    L::f_store(buf.as_mut_ptr(), v);
    std::ptr::copy_nonoverlapping(buf.as_ptr(), p, n);
}
