//! Matrix products over strips of packed weights, with what follows them (bias, residual, gated unit).
//!
//! A thread is given a range of strips and computes their rows for all columns. The same value comes out
//! whichever tile, path or machine computes it.

// The preconditions are stated at the public functions, which check lengths.
#![allow(unsafe_op_in_unsafe_fn)]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::dispatch::{direct_product, float_product, panel_product, unpack};
use super::tiles::{ActKind, ActTiles, Tile};
use crate::backend::cpu::buffer::AlignedBuffer;
use crate::backend::cpu::pack::PackedMatrix;
use crate::lanes::{Kernel, LANES, Lanes, Machine, math};

/// Rows of f32 that several threads use at once, each its own part: token t's row begins at value
/// t * stride.
#[derive(Clone, Copy, Debug)]
pub struct SharedRows {
    ptr: *mut f32,
    len: usize,
    stride: usize,
}

// SAFETY: a place in memory; whoever reads or writes through it promises (in `matmul_strips`) that the part
// is theirs.
unsafe impl Send for SharedRows {}
// SAFETY: as for Send.
unsafe impl Sync for SharedRows {}

impl SharedRows {
    /// The rows in this slice, which must stay borrowed while they are used.
    pub fn new(rows: &mut [f32], stride: usize) -> SharedRows {
        SharedRows {
            ptr: rows.as_mut_ptr(),
            len: rows.len(),
            stride,
        }
    }

    /// The rows in `len` values at `ptr`, which must be valid while they are used.
    pub fn from_raw(ptr: *mut f32, len: usize, stride: usize) -> SharedRows {
        SharedRows { ptr, len, stride }
    }

    fn check(&self, what: &str, tokens: usize, rows: usize) {
        assert!(
            tokens == 0 || (tokens - 1) * self.stride + rows <= self.len,
            "{what}: {tokens} rows of {rows} with stride {} in {} values",
            self.stride,
            self.len
        );
    }

    /// # Safety
    /// `token` and `row` are within what `check` has seen.
    #[inline(always)]
    unsafe fn at(&self, token: usize, row: usize) -> *mut f32 {
        self.ptr.add(token * self.stride + row)
    }
}

/// What is done with a product before it is stored: the same f32 operations, in the same order, as separate
/// nodes would do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Added first: one value a row.
    pub bias: Option<&'a [f32]>,
    /// Added then. May be the very rows that the result goes to.
    pub residual: Option<SharedRows>,
}

/// The activation of a gated unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glu {
    /// silu(gate) * up.
    Silu,
    /// gelu(gate) * up, the tanh form.
    Gelu,
}

/// A thread's own memory for unpacked strips; grows as needed.
#[derive(Debug)]
pub struct Scratch {
    panels: AlignedBuffer,
}

impl Scratch {
    /// None yet.
    pub fn new() -> Scratch {
        Scratch {
            panels: AlignedBuffer::zeroed(0),
        }
    }

    fn reserve(&mut self, bytes: usize) -> *mut u8 {
        if self.panels.len() < bytes {
            self.panels = AlignedBuffer::zeroed(bytes);
        }
        self.panels.as_mut_ptr()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// `out[token][row] = epilogue(w[row] . x[token])` for the rows of `strips` and all columns of `acts`.
///
/// # Safety
/// No other thread writes `w` or `acts`, or uses these rows of `out` or of the residual, meanwhile; their
/// memory is valid.
///
/// # Panics
/// If `acts` has other columns or another kind than `w` takes, or `out`, bias or residual is too short.
pub unsafe fn matmul_strips(
    machine: Machine,
    w: &PackedMatrix,
    strips: Range<usize>,
    acts: &ActTiles,
    epilogue: &Epilogue<'_>,
    out: SharedRows,
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
    let out = SharedRows::new(out, rows);
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
    glu: Glu,
    strips: Range<usize>,
    acts: &ActTiles,
    out: SharedRows,
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
    glu: Option<Glu>,
    strips: Range<usize>,
    acts: &'a ActTiles,
    epilogue: &'a Epilogue<'a>,
    out: SharedRows,
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
        if self.acts.kind() == ActKind::Q8 && !self.acts.direct() {
            self.panels = scratch.reserve(2 * MAX_GROUP * panel_bytes(layout.cols));
        }
        machine.run(self)
    }

    /// How many matrices there are.
    #[inline(always)]
    fn matrices(&self) -> usize {
        if self.glu.is_some() { 2 } else { 1 }
    }

    /// All columns of float strips.
    #[inline(always)]
    unsafe fn floats<L: Lanes>(&self) {
        let mut sums = [const { Sums([MaybeUninit::uninit(); _]) }; 2];
        for s in self.strips.clone() {
            for &tile in self.acts.tiles() {
                for m in 0..self.matrices() {
                    let (w, sums) = (self.weights[m], sums[m].0.as_mut_ptr().cast());
                    float_product::<L>(w, s, tile.width, self.acts.tile(tile), sums);
                }
                self.finish::<L>(2 * s, 2, tile, &mut sums);
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
                    direct_product::<L>(w, s, tile.width, self.acts.tile(tile), sums);
                }
                self.finish::<L>(s, 1, tile, &mut sums);
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
                for m in 0..self.matrices() {
                    let (w, sums) = (self.weights[m], sums[m].0.as_mut_ptr().cast());
                    panel_product::<L>(w, panel(m), second, tile.width, self.acts.tile(tile), sums);
                }
                self.finish::<L>(s, group, tile, &mut sums);
            }
            s += group;
        }
    }

    /// Applies the epilogue to `group` vectors of 16 rows from vector `first` on, and stores them.
    #[inline(always)]
    unsafe fn finish<L: Lanes>(
        &self,
        first: usize,
        group: usize,
        tile: Tile,
        sums: &mut [Sums; 2],
    ) {
        let layout = self.weights[0].layout();
        let end = layout.rows.min(self.strips.end * layout.strip_rows());
        for c in 0..tile.width {
            for r in 0..group {
                let row = LANES * (first + r);
                if row >= end {
                    continue;
                }
                let at = LANES * (c * group + r);
                let result = sums[0].0.as_mut_ptr().cast::<f32>().add(at);
                let mut v = L::f_load(result);
                if let Some(glu) = self.glu {
                    let up = L::f_load(sums[1].0.as_ptr().cast::<f32>().add(at));
                    let gate = match glu {
                        Glu::Silu => math::silu::<L>(v),
                        Glu::Gelu => math::gelu::<L>(v),
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
            v = L::f_add(v, L::f_load(residual.at(token, row)));
        }
        L::f_store(self.out.at(token, row), v);
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
                v += *residual.at(token, row);
            }
            *self.out.at(token, row) = v;
        }
    }
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        match (self.acts.kind(), self.acts.direct()) {
            (ActKind::F32, _) => self.floats::<L>(),
            (ActKind::Q8, true) => self.direct::<L>(),
            (ActKind::Q8, false) => self.panels::<L>(),
        }
    }
}

/// Room for a panel of `cols` columns of any format.
fn panel_bytes(cols: usize) -> usize {
    cols / 32 * 640
}
