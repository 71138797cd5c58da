//! Activations as the products read them: tiles of a few columns (tokens), interleaved by k.
//!
//! A tile does not depend on the weights' format, so q, k and v of different formats share one quantization.
//! Quantized, for each block of 32 k: `[8 j][N columns][4 bytes]` codes, then N each of: scale d (f32),
//! d * sum (f32), and the negated sums (i32) of the first half, the second half and the whole block. For
//! float weights: `[k][N columns]` f32.

use crate::backend::cpu::buffer::{AlignedBuffer, LINE};
use crate::lanes::{Isa, Machine};

/// Where the parts of one block of a quantized tile of N columns lie, in bytes.
#[derive(Clone, Copy)]
pub struct TilePlaces {
    /// f32 scales.
    pub scale: usize,
    /// f32 scale * sum.
    pub scaled_sum: usize,
    /// i32 -sum of each half.
    pub half_sums: [usize; 2],
    /// i32 -sum.
    pub sum: usize,
    /// Bytes of the block.
    pub bytes: usize,
}

impl TilePlaces {
    /// For `n` columns.
    #[inline(always)]
    pub const fn new(n: usize) -> TilePlaces {
        TilePlaces {
            scale: 32 * n,
            scaled_sum: 36 * n,
            half_sums: [40 * n, 44 * n],
            sum: 48 * n,
            bytes: 52 * n,
        }
    }
}

/// Which activations a product takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// Quantized by 32, for quantized weights.
    Q8,
    /// As they are, for F32, F16 and BF16 weights.
    F32,
}

impl ActKind {
    /// What weights of this type are multiplied with.
    pub fn of(ty: crate::numeric::GgmlType) -> ActKind {
        if crate::numeric::is_float(ty) {
            ActKind::F32
        } else {
            ActKind::Q8
        }
    }
}

/// A tile: some neighbouring columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its first column (token).
    pub first: usize,
    /// Its number of columns.
    pub width: usize,
    /// Where it begins, in bytes.
    pub(super) offset: usize,
}

/// Up to how many columns products read packed strips directly; with more, unpacking strips into panels
/// pays (measured by the example `bench_kernels`).
pub(super) fn direct_columns(machine: Machine) -> usize {
    if machine.isa() == Isa::Avx512 { 32 } else { 8 }
}

/// All columns of one matrix of activations, in tiles whose widths the machine likes.
///
/// Written by [`quantize`](super::quantize::quantize) and [`interleave`](super::quantize::interleave), from
/// several threads, and read by the products.
#[derive(Debug)]
pub struct ActTiles {
    kind: ActKind,
    tokens: usize,
    k: usize,
    direct: bool,
    tiles: Vec<Tile>,
    data: AlignedBuffer,
}

impl ActTiles {
    /// No columns yet.
    pub fn new() -> ActTiles {
        let (kind, tiles) = (ActKind::F32, Vec::new());
        ActTiles {
            kind,
            tokens: 0,
            k: 0,
            direct: true,
            tiles,
            data: AlignedBuffer::empty(),
        }
    }

    /// Prepares for `tokens` columns of `k` values; what was written before is gone. Allocates only when
    /// the room grows. False when there is no memory: there are no columns then.
    ///
    /// # Panics
    /// If quantized columns are no whole number of blocks of 32.
    #[must_use]
    pub fn reset(&mut self, machine: Machine, kind: ActKind, tokens: usize, k: usize) -> bool {
        assert!(
            kind == ActKind::F32 || k % 32 == 0,
            "{k} activations are no whole blocks of 32"
        );
        (self.kind, self.tokens, self.k) = (kind, tokens, k);
        self.direct = tokens <= direct_columns(machine);
        self.tiles.clear();
        let tiles = &mut self.tiles;
        let bytes = Self::cut(machine, kind, tokens, k, |tile| tiles.push(tile));
        let room = self.reserve(bytes);
        if !room {
            self.tokens = 0;
            self.tiles.clear();
        }
        room
    }

    /// Bytes that [`ActTiles::reset`] needs room for.
    pub fn bytes(machine: Machine, kind: ActKind, tokens: usize, k: usize) -> usize {
        Self::cut(machine, kind, tokens, k, |_| {})
    }

    /// Makes room, so that no [`ActTiles::reset`] of at most so many bytes allocates; what was written
    /// before is gone. False when there is no memory.
    #[must_use]
    pub fn reserve(&mut self, bytes: usize) -> bool {
        self.data.grow(bytes)
    }

    /// Hands out the tiles in order; returns their bytes.
    fn cut(
        machine: Machine,
        kind: ActKind,
        tokens: usize,
        k: usize,
        mut each: impl FnMut(Tile),
    ) -> usize {
        let widths = widths(machine, kind, tokens <= direct_columns(machine));
        let (mut first, mut offset) = (0, 0);
        while first < tokens {
            let left = tokens - first;
            let width = widths.iter().copied().find(|w| *w <= left).unwrap_or(1);
            each(Tile {
                first,
                width,
                offset,
            });
            first += width;
            offset += Self::tile_bytes(kind, width, k);
        }
        offset
    }

    fn tile_bytes(kind: ActKind, width: usize, k: usize) -> usize {
        let bytes = match kind {
            ActKind::Q8 => k / 32 * TilePlaces::new(width).bytes,
            ActKind::F32 => 4 * k * width,
        };
        bytes.next_multiple_of(LINE)
    }

    /// Whether the columns are quantized.
    pub fn kind(&self) -> ActKind {
        self.kind
    }

    /// Columns.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Values of a column.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Blocks of 32 k, a last one of fewer included: the unit in which threads share the writing.
    pub fn blocks(&self) -> usize {
        self.k.div_ceil(32)
    }

    /// The tiles, in the order of their columns.
    pub(super) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// Whether products read packed strips directly.
    pub(super) fn direct(&self) -> bool {
        self.direct
    }

    /// Where `tile` begins.
    pub(super) fn tile(&self, tile: Tile) -> *const u8 {
        self.tile_mut(tile)
    }

    /// Block `b` of a column of quantized tiles, as `numeric` has it.
    #[cfg(test)]
    pub(super) fn block(&self, token: usize, b: usize) -> crate::numeric::ActBlock {
        let tile = self
            .tiles
            .iter()
            .find(|t| token < t.first + t.width)
            .expect("a column");
        let (n, c) = (tile.width, token - tile.first);
        let places = TilePlaces::new(n);
        let at = |from: usize| -> [u8; 4] {
            // SAFETY: within the block of a tile that `reset` made room for.
            unsafe { *self.tile(*tile).add(b * places.bytes + from + 4 * c).cast() }
        };
        let q = std::array::from_fn(|k| at(4 * n * (k / 4))[k % 4] as i8);
        let half_sums = places.half_sums.map(|from| -i32::from_le_bytes(at(from)));
        assert_eq!(
            -i32::from_le_bytes(at(places.sum)),
            half_sums[0] + half_sums[1]
        );
        let d = f32::from_le_bytes(at(places.scale));
        let scaled = f32::from_le_bytes(at(places.scaled_sum));
        assert!(d.is_nan() || scaled == d * (half_sums[0] + half_sums[1]) as f32);
        crate::numeric::ActBlock { q, d, half_sums }
    }

    /// Where `tile` begins, for writing blocks that no other thread uses.
    pub(super) fn tile_mut(&self, tile: Tile) -> *mut u8 {
        // SAFETY: `reset` made room for all its tiles.
        unsafe { self.data.as_mut_ptr().add(tile.offset) }
    }
}

impl Default for ActTiles {
    fn default() -> Self {
        Self::new()
    }
}

/// Widths of tiles for a machine, greatest first; each is an instance of the kernels, so they are few.
/// AVX-512 holds 1 x 8 or 2 x 6 sums of 16 lanes beside its operands (12 columns are computed in parts);
/// the others hold about half as much.
fn widths(machine: Machine, kind: ActKind, direct: bool) -> &'static [usize] {
    match (machine.isa(), kind, direct) {
        (Isa::Avx512, ActKind::Q8, true) => &[8, 4, 2, 1],
        (Isa::Avx512, ActKind::Q8, false) => &[12, 4, 2, 1],
        (Isa::Avx512, ActKind::F32, _) => &[12, 4, 2, 1],
        (Isa::Avx2 | Isa::AvxVnni, ActKind::Q8, _) => &[4, 2, 1],
        (_, ActKind::Q8, _) => &[3, 2, 1],
        (_, ActKind::F32, _) => &[2, 1],
    }
}
