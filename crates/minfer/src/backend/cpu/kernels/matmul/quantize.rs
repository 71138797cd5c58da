//! Writing activations into tiles: quantized as `numeric::quantize_block` defines, or as f32.

use std::ops::Range;

use super::tiles::{ActKind, ActTiles, Tile, TilePlaces};
use crate::backend::cpu::rows::Rows;
use crate::lanes::{Kernel, LANES, Lanes, Machine};

/// RMS norm applied on the way: the value is `(x * scale[token]) * weight[k]`, in this order, as the norm
/// itself computes it.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// 1 / rms of each token's row.
    pub scale: &'a [f32],
    /// The norm's weights, one a k.
    pub weight: &'a [f32],
}

/// Writes all columns of `tiles`, on this thread: those of a `[tokens][k]` slice.
///
/// # Panics
/// If a slice is too short.
pub fn fill(machine: Machine, tiles: &mut ActTiles, x: &[f32], norm: Option<Norm<'_>>) {
    let (blocks, rows) = (0..tiles.blocks(), Rows::reading(x, tiles.k(), tiles.k()));
    // SAFETY: `tiles` is borrowed mutably, `x` is borrowed.
    unsafe {
        match tiles.kind() {
            ActKind::Q8 => quantize(machine, tiles, rows, norm, blocks),
            ActKind::F32 => interleave(machine, tiles, rows, norm, blocks),
        }
    }
}

/// Quantizes k-blocks `blocks` of all columns into `tiles`. Threads should share the blocks, never the
/// columns of a tile: those lie in the same cache lines.
///
/// # Safety
/// No other thread reads or writes these blocks of `tiles`, or writes `rows`, meanwhile.
///
/// # Panics
/// If the tiles are not quantized ones, or a slice is too short.
pub unsafe fn quantize(
    machine: Machine,
    tiles: &ActTiles,
    rows: Rows,
    norm: Option<Norm<'_>>,
    blocks: Range<usize>,
) {
    assert_eq!(tiles.kind(), ActKind::Q8, "tiles of another kind");
    check(tiles, &rows, &norm, &blocks);
    // SAFETY: lengths are checked; the blocks are the caller's.
    unsafe {
        machine.run(Quantize {
            tiles,
            rows,
            norm,
            blocks,
        })
    }
}

/// Copies k-blocks `blocks` (of 32 values; the last may be shorter) of all columns into f32 `tiles`.
///
/// # Safety
/// No other thread reads or writes these blocks of `tiles`, or writes `rows`, meanwhile.
///
/// # Panics
/// If the tiles are quantized ones, or a slice is too short.
pub unsafe fn interleave(
    machine: Machine,
    tiles: &ActTiles,
    rows: Rows,
    norm: Option<Norm<'_>>,
    blocks: Range<usize>,
) {
    assert_eq!(tiles.kind(), ActKind::F32, "tiles of another kind");
    check(tiles, &rows, &norm, &blocks);
    // SAFETY: lengths are checked; the blocks are the caller's.
    unsafe {
        machine.run(Interleave {
            tiles,
            rows,
            norm,
            blocks,
        })
    }
}

fn check(tiles: &ActTiles, rows: &Rows, norm: &Option<Norm<'_>>, blocks: &Range<usize>) {
    rows.check("activations", tiles.tokens(), tiles.k());
    assert!(
        blocks.end <= tiles.blocks(),
        "blocks {blocks:?} of {}",
        tiles.blocks()
    );
    if let Some(n) = norm {
        assert!(
            n.scale.len() >= tiles.tokens(),
            "{} norm scales",
            n.scale.len()
        );
        assert!(
            n.weight.len() >= tiles.k(),
            "{} norm weights",
            n.weight.len()
        );
    }
}

struct Interleave<'a> {
    tiles: &'a ActTiles,
    rows: Rows,
    norm: Option<Norm<'a>>,
    blocks: Range<usize>,
}

impl Kernel for Interleave<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for &tile in self.tiles.tiles() {
            for b in self.blocks.clone() {
                // SAFETY: `b` is in the tile, and `check` has seen the rows' lengths.
                unsafe {
                    match tile.width {
                        12 => self.block::<L, 12>(tile, b),
                        4 => self.block::<L, 4>(tile, b),
                        2 => self.block::<L, 2>(tile, b),
                        _ => self.block::<L, 1>(tile, b),
                    }
                }
            }
        }
    }
}

impl Interleave<'_> {
    /// One block of all N columns: rows first, then turned.
    ///
    /// # Safety
    /// `b` is a block of `tile`, which has N columns; as for [`Lanes`].
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // plain indices unroll; iterators would be closures
    unsafe fn block<L: Lanes, const N: usize>(&self, tile: Tile, b: usize) {
        let n = (self.tiles.k() - 32 * b).min(32);
        let mut x = [[0.0f32; 32]; N];
        // SAFETY: lengths were checked for all tokens and k at the entry; nobody writes the rows; the block
        // of the tile is the caller's.
        unsafe {
            for c in 0..N {
                self.row::<L>(&mut x[c], tile.first + c, b, n);
            }
            let mut out = self.tiles.tile_mut(tile).cast::<f32>().add(32 * b * N);
            for k in 0..n {
                for c in 0..N {
                    *out.add(c) = x[c][k];
                }
                out = out.add(N);
            }
        }
    }

    /// The `n` values of block `b` of a token, with the norm.
    ///
    /// # Safety
    /// As for `block`.
    #[inline(always)]
    unsafe fn row<L: Lanes>(&self, out: &mut [f32; 32], token: usize, b: usize, n: usize) {
        // SAFETY: the caller's.
        unsafe {
            let x = self.rows.at_unchecked(token, 32 * b);
            if n < 32 {
                for (i, out) in out.iter_mut().enumerate().take(n) {
                    let x = *x.add(i);
                    *out = self
                        .norm
                        .map_or(x, |m| x * m.scale[token] * m.weight[32 * b + i]);
                }
                return;
            }
            let mut v = [L::f_load(x), L::f_load(x.add(LANES))];
            if let Some(norm) = &self.norm {
                v = normed::<L>(v, norm, token, b);
            }
            L::f_store(out.as_mut_ptr(), v[0]);
            L::f_store(out.as_mut_ptr().add(LANES), v[1]);
        }
    }
}

/// Block `b` of a token's row, normed.
///
/// # Safety
/// The norm has the token and the block; as for [`Lanes`].
#[inline(always)]
unsafe fn normed<L: Lanes>(v: [L::F; 2], norm: &Norm<'_>, token: usize, b: usize) -> [L::F; 2] {
    // SAFETY: the caller's.
    unsafe {
        let scale = L::f_set1(norm.scale[token]);
        let w = norm.weight.as_ptr().add(32 * b);
        [
            L::f_mul(L::f_mul(v[0], scale), L::f_load(w)),
            L::f_mul(L::f_mul(v[1], scale), L::f_load(w.add(LANES))),
        ]
    }
}

struct Quantize<'a> {
    tiles: &'a ActTiles,
    rows: Rows,
    norm: Option<Norm<'a>>,
    blocks: Range<usize>,
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for &tile in self.tiles.tiles() {
            for b in self.blocks.clone() {
                for c in 0..tile.width {
                    // SAFETY: `b` and `c` are in the tile, and `check` has seen the rows' lengths.
                    unsafe { self.block::<L>(tile, b, c) }
                }
            }
        }
    }
}

impl Quantize<'_> {
    /// One block of one column.
    ///
    /// # Safety
    /// `b` is a block of `tile`, `c` a column of it; as for [`Lanes`].
    #[inline(always)]
    unsafe fn block<L: Lanes>(&self, tile: Tile, b: usize, c: usize) {
        let token = tile.first + c;
        // SAFETY: lengths were checked for all tokens and k at the entry; nobody writes the rows.
        unsafe {
            let x = self.rows.at_unchecked(token, 32 * b);
            let mut v = [L::f_load(x), L::f_load(x.add(LANES))];
            if let Some(norm) = &self.norm {
                v = normed::<L>(v, norm, token, b);
            }
            let codes = codes::<L>(v);
            let places = TilePlaces::new(tile.width);
            let out = self.tiles.tile_mut(tile).add(b * places.bytes);
            store(&codes, &places, out, tile.width, c);
        }
    }
}

/// A quantized block, as [`crate::numeric::ActBlock`].
pub(in crate::backend::cpu::kernels) struct Codes {
    /// Codes, four a word.
    pub q: [i32; 8],
    /// Scale.
    pub d: f32,
    /// Sums of the codes of the first and the second 16.
    pub half_sums: [i32; 2],
}

/// Quantizes 32 values.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(in crate::backend::cpu::kernels) unsafe fn codes<L: Lanes>(v: [L::F; 2]) -> Codes {
    let none = Codes {
        q: [0; 8],
        d: 0.0,
        half_sums: [0; 2],
    };
    // SAFETY: the caller's.
    unsafe {
        // What is not below infinity (NaN included) becomes infinity, which the maximum can't lose.
        let inf = L::f_set1(f32::INFINITY);
        let a = [L::f_abs(v[0]), L::f_abs(v[1])];
        let a0 = L::f_select(L::f_gt(inf, a[0]), a[0], inf);
        let a1 = L::f_select(L::f_gt(inf, a[1]), a[1], inf);
        let amax = L::f_hmax(L::f_max(a0, a1));
        if amax == f32::INFINITY {
            return Codes {
                d: f32::NAN,
                ..none
            };
        }
        let d = amax / 127.0;
        if d < f32::MIN_POSITIVE {
            return none;
        }
        let scale = L::f_set1(d);
        let q0 = L::f_to_i(L::f_div(v[0], scale));
        let q1 = L::f_to_i(L::f_div(v[1], scale));
        let mut q = [0i32; 8];
        let bytes = q.as_mut_ptr().cast::<i8>();
        L::i_store_i8(bytes, q0);
        L::i_store_i8(bytes.add(LANES), q1);
        Codes {
            q,
            d,
            half_sums: [L::i_hsum(q0), L::i_hsum(q1)],
        }
    }
}

/// Writes column `c` of a block of `n` columns.
///
/// # Safety
/// `out` points to a block of a tile of `n` columns, `c < n`.
#[inline(always)]
unsafe fn store(codes: &Codes, places: &TilePlaces, out: *mut u8, n: usize, c: usize) {
    let sum = codes.half_sums[0] + codes.half_sums[1];
    // SAFETY: all places are within the block; tiles are aligned to cache lines and all parts to 4 bytes.
    unsafe {
        for (j, q) in codes.q.iter().enumerate() {
            *out.cast::<i32>().add(j * n + c) = *q;
        }
        *out.add(places.scale).cast::<f32>().add(c) = codes.d;
        *out.add(places.scaled_sum).cast::<f32>().add(c) = codes.d * sum as f32;
        *out.add(places.half_sums[0]).cast::<i32>().add(c) = -codes.half_sums[0];
        *out.add(places.half_sums[1]).cast::<i32>().add(c) = -codes.half_sums[1];
        *out.add(places.sum).cast::<i32>().add(c) = -sum;
    }
}
