//! Speed of the CPU's matrix products on one thread, as shares of what the machine can do at best:
//! one column (decode) against reading memory, 2 to 8 columns against one, many columns (prefill)
//! against the peak of the integer dot product, or of f32 multiply-adds.
//!
//!     cargo run --release -p minfer --example bench_kernels [MACHINE [TYPE]]

#[path = "common/matrix.rs"]
mod matrix;

use std::time::{Duration, Instant};

use matrix::{activations, matrix};
use minfer::backend::cpu::kernels::matmul::{Scratch, matmul};
use minfer::backend::cpu::kernels::probe::{f32_peak, int8_peak, read_bandwidth};
use minfer::backend::cpu::pack::{PackedLayout, PackedMatrix, pack_strips};
use minfer::lanes::Machine;
use minfer::numeric::{GgmlType, RUNNABLE, is_float};

/// Columns of the weights.
const K: usize = 2048;
/// Decode streams this many bytes, in pieces that are timed one by one: a piece is short enough to run
/// undisturbed on a busy machine, and all of them are larger than the caches.
const PIECE: usize = 2 << 20;
const PIECES: usize = 48;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let machine = match args.first() {
        Some(name) => Machine::from_name(name).unwrap_or_else(|e| exit(&e.to_string())),
        None => Machine::detect(),
    };
    let only = args
        .get(1)
        .map(|n| GgmlType::from_name(n).unwrap_or_else(|| exit(&format!("no type is called {n}"))));
    let time = Duration::from_millis(200);
    let (int8, f32) = (int8_peak(machine, time), f32_peak(machine, time));
    println!(
        "{}: int8 peak {:.0} Gop/s, f32 peak {:.0} Gflop/s, one thread",
        machine.name(),
        int8 / 1e9,
        f32 / 1e9
    );
    for ty in RUNNABLE
        .into_iter()
        .filter(|t| only.is_none_or(|o| o == *t))
    {
        bench(machine, ty, if is_float(ty) { f32 } else { int8 });
    }
}

fn exit(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

fn bench(machine: Machine, ty: GgmlType, peak: f64) {
    let rows = PIECE / ty.row_bytes(K).expect("whole blocks") / 32 * 32;
    let mut pieces: Vec<PackedMatrix> = (0..PIECES).map(|_| matrix(ty, rows, K)).collect();
    let read = (0..2).flat_map(|_| 0..PIECES).map(|i| {
        let strips = 0..pieces[i].layout().strips();
        read_bandwidth(machine, pieces[i].strips_mut(strips))
    });
    let read = median(read.collect::<Vec<_>>());
    let bytes = pieces[0].layout().bytes() as f64;
    let one = median(seconds(machine, &pieces, 1, 2));
    print!(
        "{:5} read {:.1} GB/s, decode {:.1} ({:.0} %)",
        ty.name(),
        read / 1e9,
        bytes / one / 1e9,
        100.0 * bytes / one / read
    );
    for n in [2, 4, 8] {
        print!(
            "  x{n}: {:.1}",
            n as f64 * one / median(seconds(machine, &pieces, n, 1))
        );
    }
    print!("  pack {:.0} MB/s", pack_speed(ty) / 1e6);
    for (n, rows) in [(16, 512), (32, 512), (64, 256), (512, 64)] {
        let small = [matrix(ty, rows, K)];
        let best = seconds(machine, &small, n, 30)
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        let ops = 2.0 * (rows * K * n) as f64 / best;
        let unit = if is_float(ty) { "Gflop/s" } else { "Gop/s" };
        let share = 100.0 * ops / peak;
        print!("  {n}: {:.0} {unit} ({share:.0} %)", ops / 1e9);
    }
    println!();
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut v: Vec<f64> = values.into_iter().collect();
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

/// Bytes a second that one thread packs.
fn pack_speed(ty: GgmlType) -> f64 {
    let layout = PackedLayout::new(ty, 512, K).expect("a type that can be run");
    let src = vec![1u8; layout.source_of(0..layout.strips()).len()];
    let mut m = PackedMatrix::zeroed(layout);
    let mut run = || {
        let start = Instant::now();
        pack_strips(
            &layout,
            0..layout.strips(),
            &src,
            m.strips_mut(0..layout.strips()),
        );
        start.elapsed().as_secs_f64()
    };
    src.len() as f64 / (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Times of the products of each matrix with `n` columns, all matrices in turn, `rounds` times.
fn seconds(machine: Machine, matrices: &[PackedMatrix], n: usize, rounds: usize) -> Vec<f64> {
    let layout = matrices[0].layout();
    let acts = activations(machine, layout.ty, n, K);
    let mut out = vec![0.0; n * layout.rows];
    let mut scratch = Scratch::new();
    let mut times = Vec::new();
    for w in (0..rounds).flat_map(|_| matrices) {
        let start = Instant::now();
        matmul(machine, w, &acts, &mut out, &mut scratch);
        times.push(start.elapsed().as_secs_f64());
    }
    times
}
