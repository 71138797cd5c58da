//! Weights and activations of no particular numbers, for programs that run the products alone.

use minfer::backend::cpu::kernels::matmul::{ActKind, ActTiles, fill};
use minfer::backend::cpu::pack::{PackedLayout, PackedMatrix};
use minfer::lanes::Machine;
use minfer::numeric::GgmlType;

/// A matrix of `rows` rows of `k` weights: some rows repeated.
pub fn matrix(ty: GgmlType, rows: usize, k: usize) -> PackedMatrix {
    let layout = PackedLayout::new(ty, rows, k).expect("a type that can be run");
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

/// `n` columns of `k` values.
pub fn values(n: usize, k: usize) -> Vec<f32> {
    (0..n * k)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.01)
        .collect()
}

/// The same as products with weights of type `ty` read them.
pub fn activations(machine: Machine, ty: GgmlType, n: usize, k: usize) -> ActTiles {
    let mut acts = ActTiles::new();
    assert!(acts.reset(machine, ActKind::of(ty), n, k));
    fill(machine, &mut acts, &values(n, k), None);
    acts
}
