//! The 16-lane machine: one trait, several instruction sets, equal bits.
//!
//! A kernel is written once, generic over [`Lanes`]: sixteen f32 lanes, sixteen i32 lanes, sixty-four bytes
//! and an exact integer dot product. [`Machine`] says which implementations this CPU has and runs a
//! [`Kernel`] on one of them; the kernel's body is inlined into a function compiled with that instruction
//! set. Every implementation does the same operations in the same order, so results agree bit for bit:
//! minimum and maximum are compare + select, nothing is estimated, FMA is fused everywhere, horizontal
//! sums have a fixed tree, and the integer product never rounds or saturates.

#[cfg(target_endian = "big")]
compile_error!("bytes within a 32-bit lane are taken in little-endian order");

mod machine;
pub mod math;
mod scalar;
pub mod scan;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use machine::kernel;
pub use machine::{Isa, Kernel, Machine, MachineError};
pub use scalar::Scalar;

/// Lanes of an f32 or i32 vector.
pub const LANES: usize = 16;

/// How far ahead of a stream [`Lanes::ask_ahead`] begins to ask, in bytes.
pub const FAR_AHEAD: usize = 12288;

/// One instruction set seen as a machine of sixteen lanes.
///
/// `F` holds 16 f32, `I` 16 i32, `B` 64 u8, `M` 16 truth values, and `D` is the accumulator of the integer
/// dot product. NaNs keep being NaN, with an unspecified payload; all other results are specified to the bit.
///
/// # Safety
/// Every method needs a CPU that has the implementation's instructions, and the caller to be compiled with
/// them (a [`Kernel`] run by [`Machine::run`] is): only then does the method inline. Pointers must be valid
/// for the 16 (or, for `b_`, 64) elements that are read or written; no alignment is needed.
#[allow(clippy::missing_safety_doc)] // stated once, above, for all methods
pub trait Lanes: Copy + 'static {
    /// 16 f32.
    type F: Copy;
    /// 16 i32.
    type I: Copy;
    /// 64 u8.
    type B: Copy;
    /// 16 truth values.
    type M: Copy;
    /// Accumulator of the integer dot product: 16 exact sums, and what is not yet folded into them.
    type D: Copy;

    /// Whether there are 32 registers of 16 lanes (elsewhere about half that room): kernels choose their
    /// tile by it.
    const WIDE: bool;
    /// Columns of the widest product tile of a machine that is not [`Lanes::WIDE`]: 3 or 4.
    const NARROW: usize;
    /// Whether an accumulator that starts at zero is cheaper, its start value added to the sums at the end:
    /// where steps are gathered elsewhere first, a start value would only hold registers.
    const LATE_START: bool;
    /// `d_step` on 8-bit weights takes w - 128 instead of w, so that the sum needs no start value.
    const SIGNED8: bool;

    /// 16 f32 from memory.
    unsafe fn f_load(p: *const f32) -> Self::F;
    /// 16 f32 to memory.
    unsafe fn f_store(p: *mut f32, v: Self::F);
    /// `x` in every lane.
    unsafe fn f_set1(x: f32) -> Self::F;
    /// a + b.
    unsafe fn f_add(a: Self::F, b: Self::F) -> Self::F;
    /// a - b.
    unsafe fn f_sub(a: Self::F, b: Self::F) -> Self::F;
    /// a * b.
    unsafe fn f_mul(a: Self::F, b: Self::F) -> Self::F;
    /// a / b, correctly rounded.
    unsafe fn f_div(a: Self::F, b: Self::F) -> Self::F;
    /// a * b + c, rounded once.
    unsafe fn f_fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The square root, correctly rounded.
    unsafe fn f_sqrt(a: Self::F) -> Self::F;
    /// a > b ? a : b (so b where either is NaN, and for zeros of either sign).
    unsafe fn f_max(a: Self::F, b: Self::F) -> Self::F;
    /// a < b ? a : b (so b where either is NaN, and for zeros of either sign).
    unsafe fn f_min(a: Self::F, b: Self::F) -> Self::F;
    /// a > b; false where either is NaN.
    unsafe fn f_gt(a: Self::F, b: Self::F) -> Self::M;
    /// m ? a : b.
    unsafe fn f_select(m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// 16 values of IEEE half precision, exactly.
    unsafe fn f_load_f16(p: *const u16) -> Self::F;
    /// 16 values of bfloat16, exactly.
    unsafe fn f_load_bf16(p: *const u16) -> Self::F;
    /// To IEEE half precision, round half to even; too large becomes infinite.
    unsafe fn f_store_f16(p: *mut u16, v: Self::F);
    /// The sum of all lanes as a tree: lanes l and l + 8 first, then l and l + 4, l + 2, l + 1.
    unsafe fn f_hsum(a: Self::F) -> f32;
    /// The maximum of all lanes by [`Lanes::f_max`], in the tree of [`Lanes::f_hsum`].
    unsafe fn f_hmax(a: Self::F) -> f32;
    /// To the nearest integer, half to even; |a| must be below 2^31.
    unsafe fn f_to_i(a: Self::F) -> Self::I;
    /// The same bits as integers.
    unsafe fn f_bits(a: Self::F) -> Self::I;
    /// Sixteen vectors turned: lane l of vector v becomes lane v of vector l.
    unsafe fn f_turn(v: &mut [Self::F; LANES]);

    /// 16 i32 from memory.
    unsafe fn i_load(p: *const i32) -> Self::I;
    /// 16 i32 to memory.
    unsafe fn i_store(p: *mut i32, v: Self::I);
    /// 16 i8 from memory, sign-extended.
    unsafe fn i_load_i8(p: *const i8) -> Self::I;
    /// The low byte of each lane to memory: 16 bytes.
    unsafe fn i_store_i8(p: *mut i8, v: Self::I);
    /// `x` in every lane.
    unsafe fn i_set1(x: i32) -> Self::I;
    /// a + b, wrapping.
    unsafe fn i_add(a: Self::I, b: Self::I) -> Self::I;
    /// a - b, wrapping.
    unsafe fn i_sub(a: Self::I, b: Self::I) -> Self::I;
    /// a & b.
    unsafe fn i_and(a: Self::I, b: Self::I) -> Self::I;
    /// a | b.
    unsafe fn i_or(a: Self::I, b: Self::I) -> Self::I;
    /// a << n, 0 <= n < 32.
    unsafe fn i_shl(a: Self::I, n: i32) -> Self::I;
    /// a >> n filled with zeros, 0 <= n < 32.
    unsafe fn i_shr(a: Self::I, n: i32) -> Self::I;
    /// a > b.
    unsafe fn i_gt(a: Self::I, b: Self::I) -> Self::M;
    /// The wrapping sum of all lanes.
    unsafe fn i_hsum(a: Self::I) -> i32;
    /// To f32, round half to even.
    unsafe fn i_to_f(a: Self::I) -> Self::F;
    /// The same bits as f32.
    unsafe fn i_bits(a: Self::I) -> Self::F;

    /// 64 bytes from memory.
    unsafe fn b_load(p: *const u8) -> Self::B;
    /// 64 bytes to memory.
    unsafe fn b_store(p: *mut u8, v: Self::B);
    /// The low four bits of each byte.
    unsafe fn b_lo(x: Self::B) -> Self::B;
    /// The high four bits of each byte, moved down.
    unsafe fn b_hi(x: Self::B) -> Self::B;
    /// lo | (h with bit `from` moved to bit 4) & mask, 0 <= from < 8; the mask takes bits that were in the
    /// same byte only.
    unsafe fn b_merge(lo: Self::B, h: Self::B, from: i32, mask: u8) -> Self::B;

    /// Steps that `d_step` may take on weights of `bits` bits before a `d_flush`.
    fn steps(bits: usize) -> usize;
    /// An accumulator that starts at these sums.
    unsafe fn d_new(start: Self::I) -> Self::D;
    /// Adds, in lane l, the four products of bytes 4l..4l+4 of `w` with the four i8 in `a` (low byte first).
    /// Weights are unsigned, of `bits` bits (4, 5, 6 or 8; see [`Lanes::SIGNED8`]); no byte of `a` is -128.
    unsafe fn d_step(bits: usize, d: Self::D, w: Self::B, a: i32) -> Self::D;
    /// Folds the steps since the last flush into the sums.
    unsafe fn d_flush(d: Self::D) -> Self::D;
    /// The sums; steps not flushed are not in them.
    unsafe fn d_end(d: Self::D) -> Self::I;

    /// Runs a kernel as a function of its own, compiled for this machine: for a kernel that calls another
    /// one without inlining it.
    ///
    /// # Safety
    /// As for [`Kernel::run`].
    unsafe fn call<K: Kernel>(kernel: K) -> K::Output;

    /// Asks for the cache line at `p`, which need not be valid.
    #[inline(always)]
    unsafe fn prefetch(_p: *const u8) {}

    /// The same, but only into the second cache: more of these can be under way at a time.
    #[inline(always)]
    unsafe fn prefetch_far(_p: *const u8) {}

    /// Asks for the lines that a stream of reads from memory, now at `p`, comes to. In two steps: from afar into
    /// the second cache, which has room for the many lines that a thread's whole bandwidth keeps under way, and
    /// from there into the first. Without `far`, when the stream ends before, only the second step. Both
    /// distances are measured (`examples/bench_kernels.rs`).
    #[inline(always)]
    unsafe fn ask_ahead(p: *const u8, far: bool) {
        // SAFETY: the caller's, passed on; nothing is loaded.
        unsafe {
            Self::prefetch(p.wrapping_add(4096));
            if far {
                Self::prefetch_far(p.wrapping_add(FAR_AHEAD));
            }
        }
    }
    /// Sixteen values at `at` of each of sixteen rows, turned: a vector for each of the values.
    #[inline(always)]
    unsafe fn f_load_turned(rows: &[*const f32; LANES], at: usize) -> [Self::F; LANES] {
        // SAFETY: the caller's, passed on: all sixteen values of each row can be read.
        unsafe {
            let mut v = [Self::f_zero(); LANES];
            let mut i = 0;
            while i < LANES {
                v[i] = Self::f_load(rows[i].add(at));
                i += 1;
            }
            Self::f_turn(&mut v);
            v
        }
    }
    /// +0 in every lane.
    #[inline(always)]
    unsafe fn f_zero() -> Self::F {
        // SAFETY: the caller's, passed on.
        unsafe { Self::f_set1(0.0) }
    }
    /// The sign turned over, also of zeros.
    #[inline(always)]
    unsafe fn f_neg(a: Self::F) -> Self::F {
        // SAFETY: the caller's, passed on.
        unsafe { Self::f_sub(Self::f_set1(-0.0), a) }
    }
    /// |a|.
    #[inline(always)]
    unsafe fn f_abs(a: Self::F) -> Self::F {
        // SAFETY: the caller's, passed on.
        unsafe { Self::i_bits(Self::i_and(Self::f_bits(a), Self::i_set1(0x7fff_ffff))) }
    }
}
