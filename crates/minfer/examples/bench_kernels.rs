//! Speed of the CPU's matrix products on one thread, as shares of what the machine can do at best:
//! one column (decode) against reading memory, 2 to 8 columns against one, many columns (prefill)
//! against the integer dot product's peak.
//!
//!     cargo run --release -p minfer --example bench_kernels [MACHINE [TYPE]]

use std::time::{Duration, Instant};

use minfer::backend::cpu::kernels::matmul::{ActKind, ActTiles, Rows, Scratch, fill, matmul};
use minfer::backend::cpu::kernels::probe::{int8_peak, read_bandwidth};
use minfer::backend::cpu::pack::{PackedLayout, PackedMatrix, pack_strips};
use minfer::lanes::Machine;
use minfer::numeric::{GgmlType, RUNNABLE, is_float};

/// Columns of the weights.
const K: usize = 2048;
/// Bytes of the matrix that decode streams.
const STREAM: usize = 64 << 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let machine = match args.first() {
        Some(name) => Machine::from_name(name).unwrap_or_else(|e| exit(&e.to_string())),
        None => Machine::detect(),
    };
    let only = args
        .get(1)
        .map(|n| GgmlType::from_name(n).unwrap_or_else(|| exit(&format!("no type is called {n}"))));
    let peak = int8_peak(machine, Duration::from_millis(200));
    let memory = vec![1u8; STREAM];
    println!(
        "{}: int8 peak {:.0} Gop/s, one thread",
        machine.name(),
        peak / 1e9
    );
    for ty in RUNNABLE
        .into_iter()
        .filter(|t| only.is_none_or(|o| o == *t))
    {
        let read = read_bandwidth(machine, &memory, 8);
        bench(machine, ty, peak, read);
    }
}

fn exit(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

fn bench(machine: Machine, ty: GgmlType, peak: f64, read: f64) {
    let row_bytes = ty.row_bytes(K).expect("whole blocks");
    let big = matrix(ty, (STREAM / row_bytes).next_multiple_of(32));
    let bytes = big.layout().bytes() as f64;
    let one = seconds(machine, &big, 1);
    let share = 100.0 * bytes / one / read;
    print!(
        "{:5} decode {:5.1} GB/s ({share:3.0} %)",
        ty.name(),
        bytes / one / 1e9
    );
    for n in [2, 4, 8] {
        print!("  x{n}: {:.1}", n as f64 * one / seconds(machine, &big, n));
    }
    let small = matrix(ty, 512);
    print!("  pack {:.0} MB/s", pack_speed(ty) / 1e6);
    for n in [16, 32, 64, 512] {
        let ops = 2.0 * (small.layout().rows * K * n) as f64 / seconds(machine, &small, n);
        match is_float(ty) {
            true => print!("  {n}: {:.0} Gflop/s", ops / 1e9),
            false => print!(
                "  {n}: {:.0} Gop/s ({:.0} %)",
                ops / 1e9,
                100.0 * ops / peak
            ),
        }
    }
    println!();
}

/// A matrix of some rows repeated.
fn matrix(ty: GgmlType, rows: usize) -> PackedMatrix {
    let layout = PackedLayout::new(ty, rows, K).expect("a type that can be run");
    let mut seed = 1u64;
    let src: Vec<u8> = (0..layout.source_of(0..1).len())
        .map(|_| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 56) as u8 & 0x3b // scales stay finite
        })
        .collect();
    let strip = PackedMatrix::pack(
        PackedLayout {
            rows: layout.strip_rows(),
            ..layout
        },
        &src,
    );
    let mut m = PackedMatrix::zeroed(layout);
    let mut first = strip;
    for s in 0..layout.strips() {
        m.strips_mut(s..s + 1)
            .copy_from_slice(first.strips_mut(0..1));
    }
    m
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

/// The best time of a product with `n` columns: other work on the machine only ever adds to it.
fn seconds(machine: Machine, w: &PackedMatrix, n: usize) -> f64 {
    let x: Vec<f32> = (0..n * K)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.01)
        .collect();
    let mut acts = ActTiles::new();
    acts.reset(machine, ActKind::of(w.layout().ty), n, K);
    fill(machine, &mut acts, Rows { x: &x, stride: K }, None);
    let mut out = vec![0.0; n * w.layout().rows];
    let mut scratch = Scratch::new();
    let run = |out: &mut [f32], scratch: &mut Scratch| {
        let start = Instant::now();
        matmul(machine, w, &acts, out, scratch);
        start.elapsed().as_secs_f64()
    };
    (0..15)
        .map(|_| run(&mut out, &mut scratch))
        .fold(f64::INFINITY, f64::min)
}
