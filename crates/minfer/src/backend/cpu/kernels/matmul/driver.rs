//! Matrix products over strips of packed weights, with what follows them (bias, residual, gated unit).
//!
//! A thread is given a range of strips and computes their rows for all columns. The same value comes out
//! whichever tile, path or machine computes it.

// The preconditions are stated at the public functions, which check lengths.
#![allow(unsafe_op_in_unsafe_fn)]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::dispatch::{direct_product, float_product, panel_product, unpack};
use super::float::Ahead;
use super::tiles::{ActKind, ActTiles, Tile, direct_columns};
use crate::backend::cpu::buffer::AlignedBuffer;
use crate::backend::cpu::pack::PackedMatrix;
use crate::backend::cpu::rows::Rows;
use crate::graph::Activation;
use crate::lanes::{FAR_AHEAD, Kernel, LANES, Lanes, Machine, math};
use crate::numeric::GgmlType;

/// What is done with a product before it is stored: the same f32 operations, in the same order, as separate
/// nodes would do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Added first: one value a row.
    pub bias: Option<&'a [f32]>,
    /// Added then. May be the very rows that the result goes to.
    pub residual: Option<Rows>,
}

/// A thread's own memory for unpacked strips, and for sums of floats on their way.
#[derive(Debug, Default)]
pub struct Scratch {
    panels: AlignedBuffer,
}

impl Scratch {
    /// None yet.
    pub const fn new() -> Scratch {
        Scratch {
            panels: AlignedBuffer::empty(),
        }
    }

    /// Bytes that a product with so many columns of `k` values needs.
    pub fn bytes(machine: Machine, kind: ActKind, tokens: usize, k: usize) -> usize {
        match kind {
            ActKind::Q8 if tokens > direct_columns(machine).min(DIRECT_HALVES) => {
                2 * MAX_GROUP * panel_bytes(k)
            }
            ActKind::F32 if in_pieces(tokens, k) => 2 * tokens * FLOAT_SUMS,
            _ => 0,
        }
    }

    /// Makes room, so that no product that needs at most so many bytes allocates. False when there is no
    /// memory.
    #[must_use]
    pub fn reserve(&mut self, bytes: usize) -> bool {
        self.panels.grow(bytes)
    }
}

/// `out[token][row] = epilogue(w[row] . x[token])` for the rows of `strips` and all columns of `acts`.
///
/// # Safety
/// No other thread writes `w` or `acts`, or uses these rows of `out` or of the residual, meanwhile; their
/// memory is valid.
///
/// # Panics
/// If `acts` has other columns or another kind than `w` takes, or `out`, bias or residual is too short; or if
/// `scratch` has to grow ([`Scratch::reserve`]) and there is no memory.
pub unsafe fn matmul_strips(
    machine: Machine,
    w: &PackedMatrix,
    strips: Range<usize>,
    acts: &ActTiles,
    epilogue: &Epilogue<'_>,
    out: Rows,
    scratch: &mut Scratch,
) {
    let rows = w.layout().rows;
    if let Some(bias) = epilogue.bias {
        assert!(bias.len() >= rows, "{} biases for {rows} rows", bias.len());
    }
    if let Some(residual) = &epilogue.residual {
        residual.check("residual", acts.tokens(), rows);
    }
    let job = Job {
        weights: [w, w],
        glu: None,
        strips,
        acts,
        epilogue,
        out,
        panels: std::ptr::null_mut(),
    };
    job.start(machine, scratch);
}

/// `out[token][row] = w[row] . x[token]`, all of it on this thread; `out` is `[tokens][rows]`.
///
/// # Panics
/// As for [`matmul_strips`].
pub fn matmul(
    machine: Machine,
    w: &PackedMatrix,
    acts: &ActTiles,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let (strips, rows) = (0..w.layout().strips(), w.layout().rows);
    let out = Rows::of(out, rows, rows);
    // SAFETY: `out` is borrowed mutably and nothing else is written.
    unsafe { matmul_strips(machine, w, strips, acts, &Epilogue::default(), out, scratch) }
}

/// `out[token][row] = glu(gate[row] . x[token]) * (up[row] . x[token])` for the rows of `strips` and all columns.
///
/// # Safety
/// As for [`matmul_strips`].
///
/// # Panics
/// As for [`matmul_strips`], and if the two matrices differ in shape or one is of floats and one is not.
pub unsafe fn glu_strips(
    machine: Machine,
    gate: &PackedMatrix,
    up: &PackedMatrix,
    glu: Activation,
    strips: Range<usize>,
    acts: &ActTiles,
    out: Rows,
    scratch: &mut Scratch,
) {
    let (g, u) = (gate.layout(), up.layout());
    let same = (g.rows, g.cols, g.strip_rows()) == (u.rows, u.cols, u.strip_rows());
    assert!(same, "gate {g:?} and up {u:?} don't belong together");
    let epilogue = &Epilogue::default();
    let panels = std::ptr::null_mut();
    let job = Job {
        weights: [gate, up],
        glu: Some(glu),
        strips,
        acts,
        epilogue,
        out,
        panels,
    };
    job.start(machine, scratch);
}

/// The most rows (in vectors of 16) and columns that one kernel computes.
const MAX_GROUP: usize = 2;
const MAX_WIDTH: usize = 12;

/// One kernel's results, `[columns][group][16]`.
#[repr(align(64))]
struct Sums([MaybeUninit<f32>; MAX_GROUP * LANES * MAX_WIDTH]);

/// The arguments of both functions above.
struct Job<'a> {
    weights: [&'a PackedMatrix; 2],
    glu: Option<Activation>,
    strips: Range<usize>,
    acts: &'a ActTiles,
    epilogue: &'a Epilogue<'a>,
    out: Rows,
    panels: *mut u8,
}

impl Job<'_> {
    /// Checks what both functions need, and runs.
    unsafe fn start(mut self, machine: Machine, scratch: &mut Scratch) {
        let layout = self.weights[0].layout();
        assert!(
            self.strips.end <= layout.strips(),
            "strips {:?} of {}",
            self.strips,
            layout.strips()
        );
        assert_eq!(self.acts.k(), layout.cols, "activations of another length");
        assert_eq!(
            self.acts.kind(),
            ActKind::of(layout.ty),
            "activations of another kind"
        );
        self.out.check("out", self.acts.tokens(), layout.rows);
        if self.strips.is_empty() || self.acts.tokens() == 0 {
            return;
        }
        let bytes = Scratch::bytes(machine, self.acts.kind(), self.acts.tokens(), layout.cols);
        assert!(scratch.reserve(bytes), "no memory for unpacked strips");
        self.panels = scratch.panels.as_mut_ptr();
        machine.run(self)
    }

    /// How many matrices there are.
    #[inline(always)]
    fn matrices(&self) -> usize {
        if self.glu.is_some() { 2 } else { 1 }
    }

    /// Whether what follows strip `s` is to be asked for from afar: in a large matrix, before its end. Small
    /// models' matrices often come from a cache, where asking twice only costs.
    #[inline(always)]
    fn far(&self, w: &PackedMatrix, s: usize) -> bool {
        let layout = w.layout();
        layout.bytes() > LARGE && (layout.strips() - s) * layout.strip_bytes() > FAR_AHEAD
    }

    /// All columns of float strips: k by pieces that stay in the first cache for all tiles. The sums wait
    /// in memory meanwhile, which changes no bit of them.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // one index of several arrays
    unsafe fn floats<L: Lanes>(&self) {
        let mut sums = [const { Sums([MaybeUninit::uninit(); _]) }; 2];
        let here = sums.each_mut().map(|s| s.0.as_mut_ptr().cast());
        let (k, tokens) = (self.acts.k(), self.acts.tokens());
        let waiting = in_pieces(tokens, k);
        let piece = if waiting { FLOAT_PIECE } else { k };
        for s in self.strips.clone() {
            let mut from = 0;
            loop {
                let ks = from..k.min(from + piece);
                for &tile in self.acts.tiles() {
                    let mut sums: [*mut f32; 2] = here;
                    for m in 0..self.matrices() {
                        if waiting {
                            let at = (m * tokens + tile.first) * FLOAT_SUMS;
                            sums[m] = self.panels.add(at).cast();
                        }
                        let (w, ks) = (self.weights[m], ks.clone());
                        let ahead = match self.far(w, s) {
                            _ if tile.first > 0 => Ahead::Not,
                            true => Ahead::Far,
                            false => Ahead::Near,
                        };
                        let acts = self.acts.tile(tile);
                        float_product::<L>(w, s, ks, tile.width, ahead, acts, sums[m]);
                    }
                    if ks.end == k {
                        self.finish::<L>(2 * s, 2, tile, sums);
                    }
                }
                if ks.end == k {
                    break;
                }
                from = ks.end;
            }
        }
    }

    /// All columns of quantized strips, multiplied as they are packed.
    #[inline(always)]
    unsafe fn direct<L: Lanes>(&self) {
        let mut sums = [const { Sums([MaybeUninit::uninit(); _]) }; 2];
        for s in self.strips.clone() {
            for &tile in self.acts.tiles() {
                for m in 0..self.matrices() {
                    let (w, sums) = (self.weights[m], sums[m].0.as_mut_ptr().cast());
                    let acts = self.acts.tile(tile);
                    direct_product::<L>(w, s, tile.width, self.far(w, s), acts, sums);
                }
                let sums = sums.each_mut().map(|s| s.0.as_mut_ptr().cast());
                self.finish::<L>(s, 1, tile, sums);
            }
        }
    }

    /// All columns of quantized strips, unpacked first.
    #[inline(always)]
    unsafe fn panels<L: Lanes>(&self) {
        let mut sums = [const { Sums([MaybeUninit::uninit(); _]) }; 2];
        let group = if L::WIDE { 2 } else { 1 };
        let stride = panel_bytes(self.acts.k());
        let panel = |m: usize| self.panels.wrapping_add(m * MAX_GROUP * stride);
        let mut s = self.strips.start;
        while s < self.strips.end {
            // The last strip of an odd number is computed twice; its copy is not stored.
            let second = if group == 2 && s + 1 < self.strips.end {
                stride
            } else {
                0
            };
            for m in 0..self.matrices() {
                unpack::<L>(self.weights[m], s, panel(m));
                if second > 0 {
                    unpack::<L>(self.weights[m], s + 1, panel(m).wrapping_add(second));
                }
            }
            for &tile in self.acts.tiles() {
                self.expect::<L>(s, tile);
                for m in 0..self.matrices() {
                    let (w, sums) = (self.weights[m], sums[m].0.as_mut_ptr().cast());
                    panel_product::<L>(w, panel(m), second, tile.width, self.acts.tile(tile), sums);
                }
                let sums = sums.each_mut().map(|s| s.0.as_mut_ptr().cast());
                self.finish::<L>(s, group, tile, sums);
            }
            s += group;
        }
    }

    /// Asks for the lines where the results of vectors of 16 rows from vector `first` on will go: rows of
    /// many columns are far apart, and their lines are in no near cache when the product is done.
    #[inline(always)]
    unsafe fn expect<L: Lanes>(&self, first: usize, tile: Tile) {
        for token in tile.first..tile.first + tile.width {
            let at = self
                .out
                .as_ptr()
                .wrapping_add(token * self.out.stride() + LANES * first);
            L::prefetch(at.cast());
            L::prefetch(at.wrapping_add(LANES).cast());
        }
    }

    /// Applies the epilogue to `group` vectors of 16 rows from vector `first` on, and stores them.
    #[inline(always)]
    unsafe fn finish<L: Lanes>(&self, first: usize, group: usize, tile: Tile, sums: [*mut f32; 2]) {
        let layout = self.weights[0].layout();
        let end = layout.rows.min(self.strips.end * layout.strip_rows());
        for c in 0..tile.width {
            for r in 0..group {
                let row = LANES * (first + r);
                if row >= end {
                    continue;
                }
                let at = LANES * (c * group + r);
                let result = sums[0].add(at);
                let mut v = L::f_load(result);
                if let Some(glu) = self.glu {
                    let up = L::f_load(sums[1].add(at));
                    let gate = match glu {
                        Activation::Silu => math::silu::<L>(v),
                        Activation::Gelu => math::gelu::<L>(v),
                    };
                    v = L::f_mul(gate, up);
                }
                let token = tile.first + c;
                if row + LANES <= end {
                    self.store::<L>(v, token, row);
                } else {
                    L::f_store(result, v);
                    self.store_part(result, token, row..end);
                }
            }
        }
    }

    /// Bias, residual and store of 16 rows.
    #[inline(always)]
    unsafe fn store<L: Lanes>(&self, mut v: L::F, token: usize, row: usize) {
        if let Some(bias) = self.epilogue.bias {
            v = L::f_add(v, L::f_load(bias.as_ptr().add(row)));
        }
        if let Some(residual) = &self.epilogue.residual {
            v = L::f_add(v, L::f_load(residual.at_unchecked(token, row)));
        }
        L::f_store(self.out.at_unchecked(token, row), v);
    }

    /// The same for the last rows of a matrix, one by one.
    #[inline(always)]
    unsafe fn store_part(&self, results: *const f32, token: usize, rows: Range<usize>) {
        for (i, row) in rows.enumerate() {
            let mut v = *results.add(i);
            if let Some(bias) = self.epilogue.bias {
                v += bias[row];
            }
            if let Some(residual) = &self.epilogue.residual {
                v += *residual.at_unchecked(token, row);
            }
            *self.out.at_unchecked(token, row) = v;
        }
    }
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let direct =
            self.acts.direct() && self.acts.tokens() <= direct_most(self.weights[0].layout().ty);
        match (self.acts.kind(), direct) {
            (ActKind::F32, _) => self.floats::<L>(),
            (ActKind::Q8, true) => self.direct::<L>(),
            (ActKind::Q8, false) => self.panels::<L>(),
        }
    }
}

/// Bytes of a column's sums of a strip of floats.
const FLOAT_SUMS: usize = 4 * MAX_GROUP * LANES;
/// A matrix of more bytes is large. SmolLM2's are smaller, and 5 % slower with two steps from a last cache that
/// holds them; models of over 300 MB, 10-14 % faster, have mostly larger ones.
const LARGE: usize = 600 << 10;
/// Columns of float weights that are multiplied with all tiles before the next: 32 rows of them and a tile's
/// activations fit in the first cache together.
const FLOAT_PIECE: usize = 256;

/// Whether products of floats go through k by pieces: with several tiles, when a strip is no piece itself.
fn in_pieces(tokens: usize, k: usize) -> bool {
    tokens > MAX_WIDTH && k > FLOAT_PIECE
}

/// Room for a panel of `cols` columns of any format.
fn panel_bytes(cols: usize) -> usize {
    cols / 32 * 640
}

/// Up to how many columns Q6_K is multiplied as it is packed: a block costs it two conversions and scales, which
/// leave no room in registers for unpacking beside wide tiles (`bench_kernels`: at 32 columns 35 % of the peak,
/// 44 % from panels).
const DIRECT_HALVES: usize = 16;

/// The same of any type, where the machine allows it at all ([`direct_columns`]).
fn direct_most(ty: GgmlType) -> usize {
    match ty {
        GgmlType::Q6_K => DIRECT_HALVES,
        _ => usize::MAX,
    }
}
