//! The phases of attention in one segment, on lanes: scores, softmax, merge ([`values`](super::values)
//! come between).
//!
//! Arithmetic is that of the contract in the parent module. Register tiles only decide which rows and
//! lanes are computed side by side, never the order within one.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use std::ops::Range;

use crate::graph::{PAGE, SEGMENT};
use crate::lanes::{Kernel, LANES, Lanes, math};

/// Elements from row to row of scores: a segment and a line more, so that rows fall into different sets
/// of the cache.
pub const SCORE_STRIDE: usize = SEGMENT + LANES;

/// One page as a tile sees it.
#[derive(Clone)]
pub struct Block {
    /// Keys of this head.
    pub k: *const u8,
    /// Values of this head.
    pub v: *const u8,
    /// What to prefetch while the keys are read.
    pub k_next: *const u8,
    /// What to prefetch while the values are read.
    pub v_next: *const u8,
    /// Its first slot, counted from the segment's.
    pub column: usize,
    /// Positions of the page that some row sees.
    pub positions: Range<usize>,
}

impl Block {
    /// A placeholder.
    pub const EMPTY: Block = Block {
        k: std::ptr::null(),
        v: std::ptr::null(),
        k_next: std::ptr::null(),
        v_next: std::ptr::null(),
        column: 0,
        positions: 0..0,
    };
}

/// What the rows of a tile see of one segment: tokens at consecutive slots, `group` rows each.
#[derive(Clone, Copy)]
pub struct Sight {
    /// Rows of a token: they see the same slots.
    pub group: usize,
    /// One past the slot of the first token.
    pub end: usize,
    /// Slots seen, the token's own included.
    pub window: Option<usize>,
    /// The segment's first slot.
    pub base: usize,
}

impl Sight {
    /// The slots of the segment that a token sees, counted from its first; empty if none.
    #[inline(always)]
    pub fn of_token(&self, token: usize) -> Range<usize> {
        let end = self.end + token;
        let start = self.window.map_or(0, |w| end.saturating_sub(w));
        let start = start.max(self.base) - self.base;
        start..end.min(self.base + SEGMENT).max(self.base) - self.base
    }

    /// The positions of a page that some of `n` rows from `r` on see; empty if none.
    #[inline(always)]
    pub fn of_rows(&self, r: usize, n: usize, page: &Block) -> Range<usize> {
        let first = self.of_token(r / self.group).start;
        let end = self.of_token((r + n - 1) / self.group).end;
        let p = &page.positions;
        let start = p.start.max(first.saturating_sub(page.column));
        start..p.end.min(end.saturating_sub(page.column)).max(start)
    }
}

/// A partial result: maxima, sums and weighted values of a tile's rows.
#[derive(Clone, Copy)]
pub struct Part {
    /// `[rows][head_dim]`.
    pub o: *mut f32,
    /// `[rows]`; -inf where nothing is visible.
    pub m: *mut f32,
    /// `[rows]`; 0 where nothing is visible.
    pub l: *mut f32,
}

impl Part {
    /// In a slice of `rows * (head_dim + 2)` values.
    pub fn new(slice: &mut [f32], rows: usize, head_dim: usize) -> Part {
        assert!(slice.len() >= rows * (head_dim + 2));
        // SAFETY: just checked.
        unsafe { Part::at(slice.as_mut_ptr(), rows, head_dim) }
    }

    /// At a pointer.
    ///
    /// # Safety
    /// There is room for `rows * (head_dim + 2)` values.
    pub unsafe fn at(p: *mut f32, rows: usize, head_dim: usize) -> Part {
        let m = p.add(rows * head_dim);
        Part {
            o: p,
            m,
            l: m.add(rows),
        }
    }
}

/// Element types of K regions of plain numbers.
pub trait Elem: Copy {
    /// Sixteen of them as f32.
    ///
    /// # Safety
    /// They can be read; as [`Lanes`] asks.
    unsafe fn load<L: Lanes>(p: *const Self) -> L::F;
}

impl Elem for u16 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const u16) -> L::F {
        L::f_load_f16(p)
    }
}

impl Elem for f32 {
    #[inline(always)]
    unsafe fn load<L: Lanes>(p: *const f32) -> L::F {
        L::f_load(p)
    }
}

/// Prefetches the lines of `bytes` bytes at `p`, which may lie outside of any memory: what is read ahead
/// may be of another part than what is read, and longer.
#[inline(always)]
pub(super) unsafe fn prefetch<L: Lanes>(p: *const u8, bytes: usize) {
    let mut i = 0;
    while i < bytes {
        L::prefetch(p.wrapping_add(i));
        i += 64;
    }
}

/// The next rows to take of `left`, at most `most`, so that the tiles are alike.
#[inline(always)]
pub(super) fn share(left: usize, most: usize) -> usize {
    left.div_ceil(left.div_ceil(most))
}

/// Scores of a tile's rows in the pages of a segment, unscaled and unmasked. Where a row sees nothing of a page,
/// its scores there may stay unwritten.
pub struct Scores<'a, T> {
    q: *const f32,
    rows: usize,
    head_dim: usize,
    blocks: &'a [Block],
    sight: Sight,
    scores: *mut f32,
    elem: std::marker::PhantomData<T>,
}

impl<'a, T> Scores<'a, T> {
    /// `q` is `[head_dim][rows]`, `scores` `[rows][SCORE_STRIDE]`.
    pub fn new(
        q: *const f32,
        rows: usize,
        head_dim: usize,
        (blocks, sight): (&'a [Block], Sight),
        scores: *mut f32,
    ) -> Self {
        Scores {
            q,
            rows,
            head_dim,
            blocks,
            sight,
            scores,
            elem: std::marker::PhantomData,
        }
    }
}

/// Calls a register tile's function for `n` rows and a width: `by_rows!(n, f[L, T], 2, (args), 1 2 3)`
/// becomes `f::<L, T, ROWS, 2>(args)`.
macro_rules! by_rows {
    (@ $f:ident [$($ty:ident),*] $rows:literal $width:literal $args:tt) => {
        $f::<$($ty,)* $rows, $width> $args
    };
    ($n:expr, $f:ident $types:tt, $width:literal, $args:tt, $($rows:literal)*) => {
        match $n {
            $($rows => by_rows!(@ $f $types $rows $width $args),)*
            _ => unreachable!("more rows than a register tile has"),
        }
    };
}
pub(super) use by_rows;

impl<T: Elem> Kernel for Scores<'_, T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for b in self.blocks {
            let mut r = 0;
            while r < self.rows {
                let (q, k) = (self.q.add(r), b.k.cast::<T>());
                let s = self.scores.add(r * SCORE_STRIDE + b.column);
                let (ldq, hd) = (self.rows, self.head_dim);
                let n = share(self.rows - r, if L::WIDE { 12 } else { 6 });
                if self.sight.of_rows(r, n, b).is_empty() {
                    // Nothing to see for these rows.
                } else if L::WIDE {
                    by_rows!(n, dots[L, T], 2, (q, ldq, hd, k, s, b.k_next), 1 2 3 4 5 6 7 8 9 10 11 12);
                } else {
                    by_rows!(n, dots[L, T], 1, (q, ldq, hd, k, s, b.k_next), 1 2 3 4 5 6);
                }
                r += n;
            }
        }
    }
}

/// `R` rows against a page, `V` vectors of positions at a time.
#[inline(always)]
unsafe fn dots<L: Lanes, T: Elem, const R: usize, const V: usize>(
    q: *const f32,
    ldq: usize,
    head_dim: usize,
    k: *const T,
    s: *mut f32,
    next: *const u8,
) {
    let size = size_of::<T>();
    let mut v = 0;
    while v < PAGE {
        let mut acc = [[L::f_zero(); R]; V];
        let mut d = 0;
        while d < head_dim {
            prefetch::<L>(next.wrapping_add((d * PAGE + v) * size), V * LANES * size);
            let mut keys = [L::f_zero(); V];
            let mut j = 0;
            while j < V {
                keys[j] = T::load::<L>(k.add(d * PAGE + v + j * LANES));
                j += 1;
            }
            let mut r = 0;
            while r < R {
                let x = L::f_set1(*q.add(d * ldq + r));
                let mut j = 0;
                while j < V {
                    acc[j][r] = L::f_fma(keys[j], x, acc[j][r]);
                    j += 1;
                }
                r += 1;
            }
            d += 1;
        }
        let mut r = 0;
        while r < R {
            let mut j = 0;
            while j < V {
                L::f_store(s.add(r * SCORE_STRIDE + v + j * LANES), acc[j][r]);
                j += 1;
            }
            r += 1;
        }
        v += V * LANES;
    }
}

/// Scores into weights, in place, with each row's maximum and sum.
pub struct Softmax {
    /// `[rows][SCORE_STRIDE]`, a row a token and head of the group.
    pub scores: *mut f32,
    /// Tokens of the tile.
    pub tokens: usize,
    /// What they see.
    pub sight: Sight,
    /// Slots that the tile's blocks have, counted from the segment's first: weights are written for all of them.
    pub columns: Range<usize>,
    /// Multiplies the scores.
    pub scale: f32,
    /// Where maximum and sum go.
    pub part: Part,
}

impl Kernel for Softmax {
    type Output = ();
    /// All maxima first: a row's horizontal maximum takes long, and other rows' fill the time.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let group = self.sight.group;
        let mut t = 0;
        while t < self.tokens {
            let visible = self.sight.of_token(t);
            let mut r = t * group;
            while r < (t + 1) * group {
                let s = self.scores.add(r * SCORE_STRIDE);
                *self.part.m.add(r) = maximum::<L>(s, &visible, self.scale);
                r += 1;
            }
            t += 1;
        }
        let mut t = 0;
        while t < self.tokens {
            let visible = self.sight.of_token(t);
            let mut seen = self.columns.start..self.columns.start;
            if !visible.is_empty() {
                seen = around(&visible);
            }
            let mut r = t * group;
            while r < (t + 1) * group {
                let s = self.scores.add(r * SCORE_STRIDE);
                let m = *self.part.m.add(r);
                *self.part.l.add(r) = weights::<L>(s, &visible, &seen, self.scale, m);
                zero::<L>(s, self.columns.start, seen.start);
                zero::<L>(s, seen.end, self.columns.end);
                r += 1;
            }
            t += 1;
        }
    }
}

/// The whole vectors around some columns.
#[inline(always)]
fn around(visible: &Range<usize>) -> Range<usize> {
    visible.start / LANES * LANES..visible.end.next_multiple_of(LANES)
}

/// Zeros in columns `from..to`, whole vectors.
#[inline(always)]
unsafe fn zero<L: Lanes>(s: *mut f32, from: usize, to: usize) {
    let mut i = from;
    while i < to {
        L::f_store(s.add(i), L::f_zero());
        i += LANES;
    }
}

/// `x` where column `i + lane` is visible, else `other`.
#[inline(always)]
unsafe fn mask<L: Lanes>(x: L::F, i: usize, visible: &Range<usize>, other: L::F) -> L::F {
    if i >= visible.start && i + LANES <= visible.end {
        return x;
    }
    const IOTA: [i32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let column = L::i_add(L::i_load(IOTA.as_ptr()), L::i_set1(i as i32));
    let x = L::f_select(L::i_gt(L::i_set1(visible.end as i32), column), x, other);
    L::f_select(L::i_gt(L::i_set1(visible.start as i32), column), other, x)
}

/// The greatest of a row's visible scores, scaled; -inf if there is none.
#[inline(always)]
unsafe fn maximum<L: Lanes>(s: *const f32, visible: &Range<usize>, scale: f32) -> f32 {
    if visible.is_empty() {
        return f32::NEG_INFINITY;
    }
    let (scale, seen) = (L::f_set1(scale), around(visible));
    let never = L::f_set1(f32::NEG_INFINITY);
    let mut max = never;
    let mut i = seen.start;
    while i < seen.end {
        let x = L::f_mul(L::f_load(s.add(i)), scale);
        max = L::f_max(max, mask::<L>(x, i, visible, never));
        i += LANES;
    }
    L::f_hmax(max)
}

/// One row's scores over the whole vectors `seen` around its visible columns into weights; their sum.
#[inline(always)]
unsafe fn weights<L: Lanes>(
    s: *mut f32,
    visible: &Range<usize>,
    seen: &Range<usize>,
    scale: f32,
    m: f32,
) -> f32 {
    let (scale, max) = (L::f_set1(scale), L::f_set1(m));
    let mut sum = L::f_zero();
    let mut i = seen.start;
    while i < seen.end {
        let x = L::f_mul(L::f_load(s.add(i)), scale);
        let p = math::exp::<L>(L::f_sub(x, max));
        let p = mask::<L>(p, i, visible, L::f_zero());
        L::f_store(s.add(i), p);
        sum = L::f_add(sum, p);
        i += LANES;
    }
    L::f_hsum(sum)
}

/// A segment's partial result into the running one.
pub struct Merge {
    into: Part,
    from: Option<Part>,
    rows: usize,
    head_dim: usize,
}

impl Merge {
    /// The first segment, which already lies in `into`.
    pub fn first(into: Part, rows: usize, head_dim: usize) -> Merge {
        Merge {
            into,
            from: None,
            rows,
            head_dim,
        }
    }

    /// A later one.
    pub fn later(into: Part, from: Part, rows: usize, head_dim: usize) -> Merge {
        Merge {
            into,
            from: Some(from),
            rows,
            head_dim,
        }
    }
}

impl Kernel for Merge {
    type Output = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (into, from) = (self.into, self.from.unwrap_or(self.into));
        let mut r = 0;
        while r < self.rows {
            let (o, new) = (into.o.add(r * self.head_dim), from.o.add(r * self.head_dim));
            let (m, l) = (into.m.add(r), into.l.add(r));
            let (new_m, new_l) = (*from.m.add(r), *from.l.add(r));
            if new_l == 0.0 {
                // Nothing visible in this segment.
            } else if self.from.is_none() || *l == 0.0 {
                (*m, *l) = (new_m, new_l);
                copy::<L>(o, new, self.head_dim);
            } else {
                let n = if new_m > *m { new_m } else { *m };
                let mut e = [0.0; LANES];
                (e[0], e[1]) = (*m - n, new_m - n);
                L::f_store(e.as_mut_ptr(), math::exp::<L>(L::f_load(e.as_ptr())));
                (*m, *l) = (n, new_l.mul_add(e[1], *l * e[0]));
                blend::<L>(o, new, self.head_dim, e[0], e[1]);
            }
            r += 1;
        }
    }
}

/// `o = new + 0`.
#[inline(always)]
unsafe fn copy<L: Lanes>(o: *mut f32, new: *const f32, n: usize) {
    let mut c = 0;
    while c < n {
        L::f_store(o.add(c), L::f_add(L::f_load(new.add(c)), L::f_zero()));
        c += LANES;
    }
}

/// `o = fma(new + 0, b, o * a)`.
#[inline(always)]
unsafe fn blend<L: Lanes>(o: *mut f32, new: *const f32, n: usize, a: f32, b: f32) {
    let (a, b) = (L::f_set1(a), L::f_set1(b));
    let mut c = 0;
    while c < n {
        let new = L::f_add(L::f_load(new.add(c)), L::f_zero());
        L::f_store(o.add(c), L::f_fma(new, b, L::f_mul(L::f_load(o.add(c)), a)));
        c += LANES;
    }
}
