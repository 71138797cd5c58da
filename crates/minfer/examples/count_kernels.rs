//! Each kernel of the CPU backend once, small, on one thread: what `cargo xtask counts` counts the
//! instructions of.
//!
//!     cargo run --release -p minfer --example count_kernels MACHINE
//!
//! Prints, for each counted call in order, the kernel's name and, behind a tab, how many vectors of 16 it
//! works on: multiply-adds of products and of attention, values of everything else.

#[path = "common/kv.rs"]
mod kv;
#[path = "common/matrix.rs"]
mod matrix;

use std::hint::black_box;

use kv::Kv;
use matrix::{activations, matrix, values};
use memmap2::MmapMut;
use minfer::backend::cpu::kernels::attention::{self, merge, segments, tile};
use minfer::backend::cpu::kernels::elementwise::{add, glu, to_f16};
use minfer::backend::cpu::kernels::kv::{StoreArgs, kv_store};
use minfer::backend::cpu::kernels::matmul::{
    ActKind, ActTiles, Norm, Scratch, fill, glu_strips, matmul,
};
use minfer::backend::cpu::kernels::norm::{rms_norm, rms_scale};
use minfer::backend::cpu::kernels::rope::rope_row;
use minfer::backend::cpu::rows::Rows;
use minfer::graph::{Activation, KvPart, KvType, PAGE, RopeKind};
use minfer::lanes::{LANES, Machine, scan};
use minfer::numeric::{GgmlType, RUNNABLE};

/// Columns and rows of weights: so many that what a call costs once is a small share.
const K: usize = 1024;
const ROWS: usize = 128;
/// Attention of a tile of four query heads on one KV head, at the end of two segments.
const HEAD_DIM: usize = 64;
const GROUP: usize = 4;
const CONTEXT: usize = 512;
/// A tile's tokens in prefill.
const TILE: usize = 12;
/// Values of one pass of elementwise kernels.
const N: usize = 4096;

fn main() {
    let Some(name) = std::env::args().nth(1) else {
        exit("usage: count_kernels MACHINE")
    };
    let machine = Machine::from_name(&name).unwrap_or_else(|e| exit(&e.to_string()));
    for ty in RUNNABLE {
        // A decode step, some rows at once, and a prefill, which has other kernels.
        for columns in [1, 4, 64] {
            product(machine, ty, columns);
        }
    }
    gated_product(machine, Activation::Silu, "silu");
    gated_product(machine, Activation::Gelu, "gelu");
    activation_tiles(machine);
    norms(machine);
    for ty in KvType::ALL {
        decode(machine, ty);
        prefill(machine, ty);
        store(machine, KvPart::K, ty);
        store(machine, KvPart::V, ty);
    }
    ropes(machine);
    elementwise(machine);
    if machine == Machine::detect() {
        scans();
    }
}

fn exit(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

/// Does `work` twice; the second time counts, since the first makes room and finds out what the CPU has.
fn count(name: &str, values: usize, mut work: impl FnMut()) {
    work();
    counted_call(&mut work);
    println!("{name}\t{}", values / LANES);
}

/// Where instructions are counted. callgrind is told this name, which a compiler may mangle as it likes otherwise.
// SAFETY: nothing else has the name.
#[unsafe(no_mangle)]
#[inline(never)]
fn counted_call(work: &mut dyn FnMut()) {
    work();
    // Something to come back for: a jump into `work` would not be seen to end here.
    black_box(work);
}

fn product(machine: Machine, ty: GgmlType, columns: usize) {
    let w = matrix(ty, ROWS, K);
    let acts = activations(machine, ty, columns, K);
    let mut out = vec![0.0; columns * ROWS];
    let mut scratch = Scratch::new();
    let name = format!("product {} x{columns}", ty.name());
    count(&name, columns * ROWS * K, || {
        matmul(machine, &w, &acts, &mut out, &mut scratch);
    });
}

fn gated_product(machine: Machine, act: Activation, name: &str) {
    let columns = 4;
    let (gate, up) = (
        matrix(GgmlType::Q4_0, ROWS, K),
        matrix(GgmlType::Q4_0, ROWS, K),
    );
    let acts = activations(machine, GgmlType::Q4_0, columns, K);
    let mut out = vec![0.0; columns * ROWS];
    let mut scratch = Scratch::new();
    let strips = 0..gate.layout().strips();
    let name = format!("product Q4_0 {name} x{columns}");
    count(&name, 2 * columns * ROWS * K, || {
        let out = Rows::of(&mut out, ROWS, ROWS);
        // SAFETY: everything is this thread's own.
        unsafe {
            glu_strips(
                machine,
                &gate,
                &up,
                act,
                strips.clone(),
                &acts,
                out,
                &mut scratch,
            )
        }
    });
}

fn activation_tiles(machine: Machine) {
    let columns = 4;
    let (x, weight) = (values(columns, K), values(1, K));
    for (kind, name) in [(ActKind::Q8, "quantize"), (ActKind::F32, "interleave")] {
        let mut acts = ActTiles::new();
        assert!(acts.reset(machine, kind, columns, K), "memory for tiles");
        count(name, columns * K, || fill(machine, &mut acts, &x, None));
        let norm = Norm {
            scale: &[0.5; 4],
            weight: &weight,
        };
        count(&format!("norm and {name}"), columns * K, || {
            fill(machine, &mut acts, &x, Some(norm));
        });
    }
}

fn norms(machine: Machine) {
    let (x, weight, mut out) = (values(4, K), values(1, K), vec![0.0; 4 * K]);
    count("norm", 4 * K, || {
        rms_norm(machine, &x, &weight, 1e-5, &mut out);
    });
    count("norm scale", 4 * K, || {
        black_box(rms_scale(machine, &x, 1e-5));
    });
}

/// Random regions of one sequence, its pages in order; attention to them by tokens `slots`.
struct Cache {
    ty: KvType,
    k: MmapMut,
    v: MmapMut,
    pages: Vec<i32>,
}

impl Cache {
    fn new(ty: KvType) -> Cache {
        let pages = CONTEXT / PAGE;
        let region = |seed| {
            let mut map =
                MmapMut::map_anon(pages * ty.head_bytes(HEAD_DIM)).expect("memory for a region");
            kv::fill(&mut map, seed);
            map
        };
        Cache {
            ty,
            k: region(1),
            v: region(2),
            pages: (0..pages as i32).collect(),
        }
    }

    fn kv(&self) -> Kv<'_> {
        Kv {
            types: (self.ty, self.ty),
            k: &self.k,
            v: &self.v,
            page_table: &self.pages,
            pages_per_seq: self.pages.len(),
        }
    }
}

fn decode(machine: Machine, ty: KvType) {
    let cache = Cache::new(ty);
    let (width, slots) = (GROUP * HEAD_DIM, [CONTEXT as i32 - 1]);
    let (q, mut out) = (values(1, width), vec![0.0f32; width]);
    let args = cache.kv().args(&q, &slots, &[0], HEAD_DIM, GROUP);
    let all = args.segments(&(0..1));
    let mut partials = vec![0.0; all.len() * args.partial_len(&(0..1))];
    let mut scratch = attention::Scratch::new();
    let name = format!("attention {} decode", ty.name());
    count(&name, 2 * CONTEXT * width, || {
        let (all, to) = (all.clone(), out.as_mut_ptr());
        // SAFETY: the table has a page, and the regions numbers, for every slot.
        unsafe {
            segments(machine, &args, 0, 0..1, all, &mut scratch, &mut partials);
            merge(machine, &args, 0, 0..1, &mut partials, to, width);
        }
    });
}

fn prefill(machine: Machine, ty: KvType) {
    let cache = Cache::new(ty);
    let width = GROUP * HEAD_DIM;
    let slots: Vec<i32> = (CONTEXT - TILE..CONTEXT).map(|s| s as i32).collect();
    let (q, mut out) = (values(TILE, width), vec![0.0f32; TILE * width]);
    let args = cache.kv().args(&q, &slots, &[0; TILE], HEAD_DIM, GROUP);
    let rows = args.tile_from(0, TILE);
    assert_eq!(rows, 0..TILE, "one tile");
    let mut scratch = attention::Scratch::new();
    let seen: usize = slots.iter().map(|s| *s as usize + 1).sum();
    let name = format!("attention {} prefill", ty.name());
    count(&name, 2 * seen * width, || {
        let (rows, to) = (rows.clone(), out.as_mut_ptr());
        // SAFETY: the table has a page, and the regions numbers, for every slot.
        unsafe { tile(machine, &args, 0, rows, &mut scratch, to, width) };
    });
}

fn store(machine: Machine, part: KvPart, ty: KvType) {
    let mut cache = Cache::new(ty);
    let x = values(PAGE, HEAD_DIM);
    let slots: Vec<i32> = (0..PAGE as i32).collect();
    let args = StoreArgs {
        part,
        ty,
        n_head_kv: 1,
        head_dim: HEAD_DIM,
        x: x.as_ptr(),
        x_stride: HEAD_DIM,
        slots: &slots,
        row_seq: &[0; PAGE],
        page_table: &cache.pages,
        pages_per_seq: cache.pages.len(),
        region: cache.k.as_mut_ptr(),
    };
    let what = match part {
        KvPart::K => format!("store K {}", ty.name()),
        KvPart::V => format!("store V {}", ty.name()),
    };
    for (rows, name) in [(PAGE, what.clone()), (1, what + " one row")] {
        count(&name, rows * HEAD_DIM, || {
            // SAFETY: `x` has a page's rows, and the region that page, each slot once.
            unsafe { kv_store(machine, &args, 0..rows) };
        });
    }
}

fn ropes(machine: Machine) {
    let (mut row, table) = (values(1, N), vec![0.7; HEAD_DIM]);
    for (kind, name) in [
        (RopeKind::Halves, "rope halves"),
        (RopeKind::Interleaved, "rope interleaved"),
    ] {
        count(name, N, || {
            rope_row(machine, kind, &mut row, HEAD_DIM, &table);
        });
    }
}

fn elementwise(machine: Machine) {
    let (a, b, mut out, mut half) = (values(1, N), values(1, N), vec![0.0; N], vec![0; N]);
    let (from, with, to) = (a.as_ptr(), b.as_ptr(), out.as_mut_ptr());
    count("add", N, || {
        // SAFETY: three slices of N values.
        unsafe { add(machine, from, with, to, N) };
    });
    for (act, name) in [(Activation::Silu, "silu"), (Activation::Gelu, "gelu")] {
        count(name, N, || {
            // SAFETY: three slices of N values.
            unsafe { glu(machine, act, from, with, to, N) };
        });
    }
    count("to f16", N, || to_f16(machine, &a, &mut half));
}

/// Passes over logits, which know the CPU's fastest machine only.
fn scans() {
    let x = values(1, N);
    count("scan maximum", N, || {
        black_box(scan::max(&x));
    });
    count("scan finite", N, || {
        black_box(scan::first_non_finite(&x));
    });
    count("scan above", N, || {
        black_box(scan::group_above(&x, 0, 1e9));
    });
    count("scan sum of exp", N, || {
        black_box(scan::sum_exp(&x, 0.5));
    });
}
