//! What the products need to know of a packed format: how to get codes, scales and minimums of 16 rows.
//!
//! The places are those of `pack`. [`Panel`] is a format of its own: unpacked strips that one kernel
//! multiplies with many columns, whatever format they came from.

// Each method reads a packed strip as `Format` describes; the preconditions are stated there once.
#![allow(unsafe_op_in_unsafe_fn)]
#![allow(clippy::missing_safety_doc)]

use crate::lanes::Lanes;

/// f32 values that [`Format::head`] may leave for a superblock.
pub const HEAD: usize = 256;

/// A packed format: superblocks of [`Format::BLOCKS`] blocks of 32 values of 16 rows.
///
/// # Safety
/// In all methods `p` points to a whole superblock ([`Format::BYTES`]), `head` to [`HEAD`] values that
/// `head` has written for it, `b` is a block in it and `j < 8`; and as for [`Lanes`].
pub trait Format: 'static {
    /// Bits of a code.
    const BITS: usize;
    /// The code that means zero is 2 to this power; none: zero itself.
    const ZERO_LOG2: Option<i32>;
    /// Whether blocks have minimums.
    const MIN: bool = false;
    /// Whether a block has a scale for each half.
    const HALF: bool = false;
    /// Blocks of 32 in a superblock.
    const BLOCKS: usize = 1;
    /// Bytes of a superblock.
    const BYTES: usize;
    /// The format of its unpacked strips.
    type Panel: Format;

    /// Decodes what a superblock's blocks share.
    #[inline(always)]
    unsafe fn head<L: Lanes>(_p: *const u8, _head: *mut f32) {}
    /// Codes of weights 4 j .. 4 j + 4 of block `b`.
    unsafe fn codes<L: Lanes>(p: *const u8, b: usize, j: usize) -> L::B;
    /// Scales of a half (0 unless [`Format::HALF`]) of block `b`.
    unsafe fn scale<L: Lanes>(p: *const u8, head: *const f32, b: usize, half: usize) -> L::F;
    /// Minimums of block `b`.
    #[inline(always)]
    unsafe fn min<L: Lanes>(_p: *const u8, _head: *const f32, _b: usize) -> L::F {
        L::f_zero()
    }
}

/// Vector `j` of eight from four vectors of nibbles.
#[inline(always)]
unsafe fn nibbles<L: Lanes>(p: *const u8, j: usize) -> L::B {
    let v = L::b_load(p.add(64 * (j & 3)));
    if j < 4 { L::b_lo(v) } else { L::b_hi(v) }
}

/// Vector `j` of five-bit codes: a vector of fifth bits, then nibbles.
#[inline(always)]
unsafe fn five_bits<L: Lanes>(p: *const u8, j: usize) -> L::B {
    L::b_merge(nibbles::<L>(p.add(64), j), L::b_load(p), j as i32, 16)
}

/// Defines a format of 32-value blocks: f16 scales first, then f16 minimums if it has them.
macro_rules! small_format {
    ($name:ident, $bits:expr, $zero:expr, $min:expr, $bytes:expr, $kind:expr, $codes:expr) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        pub struct $name;
        impl Format for $name {
            const BITS: usize = $bits;
            const ZERO_LOG2: Option<i32> = $zero;
            const MIN: bool = $min;
            const BYTES: usize = $bytes;
            type Panel = Panel<$bits, $kind>;

            #[inline(always)]
            unsafe fn codes<L: Lanes>(p: *const u8, _b: usize, j: usize) -> L::B {
                $codes(p.add(if $min { 64 } else { 32 }), j)
            }
            #[inline(always)]
            unsafe fn scale<L: Lanes>(
                p: *const u8,
                _head: *const f32,
                _b: usize,
                _half: usize,
            ) -> L::F {
                L::f_load_f16(p.cast())
            }
            #[inline(always)]
            unsafe fn min<L: Lanes>(p: *const u8, _head: *const f32, _b: usize) -> L::F {
                L::f_load_f16(p.add(32).cast())
            }
        }
    };
}

/// [`Panel`] kinds: one scale; a scale and a minimum; two half scales.
const SCALE: usize = 0;
const SCALE_MIN: usize = 1;
const HALF_SCALES: usize = 2;

small_format!(Q4_0, 4, Some(3), false, 288, SCALE, nibbles::<L>);
small_format!(Q4_1, 4, None, true, 320, SCALE_MIN, nibbles::<L>);
small_format!(Q5_0, 5, Some(4), false, 352, SCALE, five_bits::<L>);
small_format!(Q5_1, 5, None, true, 384, SCALE_MIN, five_bits::<L>);
small_format!(Q8_0, 8, Some(7), false, 544, SCALE, whole_bytes::<L>);

/// Vector `j` of 8-bit codes.
#[inline(always)]
unsafe fn whole_bytes<L: Lanes>(p: *const u8, j: usize) -> L::B {
    L::b_load(p.add(64 * j))
}

/// Scales, then negated minimums, of the eight blocks of a Q4_K or Q5_K superblock.
#[inline(always)]
unsafe fn k_head<L: Lanes>(p: *const u8, head: *mut f32) {
    let d = L::f_load_f16(p.cast());
    let dmin = L::f_neg(L::f_load_f16(p.add(32).cast()));
    let words = p.add(64).cast::<i32>();
    let words = [
        L::i_load(words),
        L::i_load(words.add(16)),
        L::i_load(words.add(32)),
    ];
    let mut f = 0;
    while f < 16 {
        let field = if f < 15 {
            L::i_and(L::i_shr(words[f / 5], (f % 5 * 6) as i32), L::i_set1(63))
        } else {
            let high = L::i_shl(L::i_shr(words[2], 30), 4);
            let middle = L::i_shl(L::i_shr(words[1], 30), 2);
            L::i_or(L::i_shr(words[0], 30), L::i_or(middle, high))
        };
        let d = if f < 8 { d } else { dmin };
        L::f_store(head.add(16 * f), L::f_mul(d, L::i_to_f(field)));
        f += 1;
    }
}

/// Defines Q4_K and Q5_K.
macro_rules! k_format {
    ($name:ident, $bits:expr, $bytes:expr, $step:expr, $codes:expr) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[allow(non_camel_case_types)]
        pub struct $name;
        impl Format for $name {
            const BITS: usize = $bits;
            const ZERO_LOG2: Option<i32> = None;
            const MIN: bool = true;
            const BLOCKS: usize = 8;
            const BYTES: usize = $bytes;
            type Panel = Panel<$bits, SCALE_MIN>;

            #[inline(always)]
            unsafe fn head<L: Lanes>(p: *const u8, head: *mut f32) {
                k_head::<L>(p, head)
            }
            #[inline(always)]
            unsafe fn codes<L: Lanes>(p: *const u8, b: usize, j: usize) -> L::B {
                $codes(p.add(256 + $step * b), j)
            }
            #[inline(always)]
            unsafe fn scale<L: Lanes>(
                _p: *const u8,
                head: *const f32,
                b: usize,
                _half: usize,
            ) -> L::F {
                L::f_load(head.add(16 * b))
            }
            #[inline(always)]
            unsafe fn min<L: Lanes>(_p: *const u8, head: *const f32, b: usize) -> L::F {
                L::f_load(head.add(128 + 16 * b))
            }
        }
    };
}

k_format!(Q4_K, 4, 2304, 256, nibbles::<L>);
k_format!(Q5_K, 5, 2816, 320, five_bits::<L>);

/// `Q6_K`.
#[allow(non_camel_case_types)]
pub struct Q6_K;

impl Format for Q6_K {
    const BITS: usize = 6;
    const ZERO_LOG2: Option<i32> = Some(5);
    const HALF: bool = true;
    const BLOCKS: usize = 8;
    const BYTES: usize = 3360;
    type Panel = Panel<6, HALF_SCALES>;

    #[inline(always)]
    unsafe fn head<L: Lanes>(p: *const u8, head: *mut f32) {
        let d = L::f_load_f16(p.cast());
        let scales = p.add(32).cast::<i8>();
        let mut g = 0;
        while g < 16 {
            let scale = L::i_to_f(L::i_load_i8(scales.add(16 * g)));
            L::f_store(head.add(16 * g), L::f_mul(d, scale));
            g += 1;
        }
    }
    #[inline(always)]
    unsafe fn codes<L: Lanes>(p: *const u8, b: usize, j: usize) -> L::B {
        let p = p.add(288 + 384 * b);
        let high = L::b_load(p.add(256 + 64 * (j >> 2)));
        L::b_merge(nibbles::<L>(p, j), high, 2 * (j & 3) as i32, 48)
    }
    #[inline(always)]
    unsafe fn scale<L: Lanes>(_p: *const u8, head: *const f32, b: usize, half: usize) -> L::F {
        L::f_load(head.add(32 * b + 16 * half))
    }
}

/// Unpacked blocks: f32 scales (and minimums, or second half scales), then 512 bytes of codes.
pub struct Panel<const BITS: usize, const KIND: usize>;

impl<const BITS: usize, const KIND: usize> Format for Panel<BITS, KIND> {
    const BITS: usize = BITS;
    const ZERO_LOG2: Option<i32> = match (BITS, KIND) {
        (_, SCALE_MIN) => None,
        (4, _) => Some(3),
        (5, _) => Some(4),
        (6, _) => Some(5),
        _ => Some(7),
    };
    const MIN: bool = KIND == SCALE_MIN;
    const HALF: bool = KIND == HALF_SCALES;
    const BYTES: usize = if KIND == SCALE { 576 } else { 640 };
    type Panel = Self;

    #[inline(always)]
    unsafe fn codes<L: Lanes>(p: *const u8, _b: usize, j: usize) -> L::B {
        L::b_load(p.add(Self::BYTES - 512 + 64 * j))
    }
    #[inline(always)]
    unsafe fn scale<L: Lanes>(p: *const u8, _head: *const f32, _b: usize, half: usize) -> L::F {
        L::f_load(p.cast::<f32>().add(16 * half))
    }
    #[inline(always)]
    unsafe fn min<L: Lanes>(p: *const u8, _head: *const f32, _b: usize) -> L::F {
        L::f_load(p.cast::<f32>().add(16))
    }
}
