//! Every format, shape, width and machine against the scalar products of `numeric`, bit for bit.

use super::*;
use crate::backend::cpu::kernels::testing::assert_same_bits;
use crate::backend::cpu::pack::tests::random_rows;
use crate::backend::cpu::pack::{PackedLayout, PackedMatrix};
use crate::backend::cpu::rows::Rows;
use crate::graph::Activation;
use crate::lanes::Machine;
use crate::lanes::tests::machines;
use crate::numeric::test_rng::Rng;
use crate::numeric::{GgmlType, QuantizedRow, RUNNABLE, dot_float, dot_quantized, is_float};

/// A matrix in the file's form and packed.
struct Matrix {
    ty: GgmlType,
    bytes: Vec<u8>,
    packed: PackedMatrix,
}

fn matrix(ty: GgmlType, rows: usize, cols: usize, seed: u64) -> Matrix {
    let bytes = random_rows(ty, rows, cols, seed);
    let packed = PackedMatrix::pack(PackedLayout::new(ty, rows, cols).unwrap(), &bytes);
    Matrix { ty, bytes, packed }
}

/// Activations with a wide range, zeros and a block of zeros among them.
fn activations(tokens: usize, k: usize, seed: u64) -> Vec<f32> {
    let mut r = Rng::new(seed);
    let mut x = r.vec(tokens * k, 3.0);
    for (i, v) in x.iter_mut().enumerate() {
        if i % 7 == 3 {
            *v *= 1e-3;
        }
        if i % 11 == 5 || (i / 32) % 9 == 4 {
            *v = 0.0;
        }
    }
    x
}

/// `[token][row]` by the scalar meaning.
fn reference(m: &Matrix, x: &[f32]) -> Vec<f32> {
    let layout = m.packed.layout();
    let mut out = Vec::new();
    for x in x.chunks_exact(layout.cols) {
        let q = (!is_float(m.ty)).then(|| QuantizedRow::new(x).unwrap());
        for row in m.bytes.chunks_exact(layout.row_bytes()) {
            out.push(match &q {
                Some(q) => dot_quantized(m.ty, row, q).unwrap(),
                None => dot_float(m.ty, row, x).unwrap(),
            });
        }
    }
    out
}

/// Tiles of all of `x`, written in two parts.
fn tiles(machine: Machine, ty: GgmlType, x: &[f32], k: usize, norm: Option<Norm<'_>>) -> ActTiles {
    let mut t = ActTiles::new();
    assert!(t.reset(machine, ActKind::of(ty), x.len() / k, k));
    let rows = Rows::reading(x, k, k);
    for blocks in [t.blocks() / 2..t.blocks(), 0..t.blocks() / 2] {
        // SAFETY: no other thread has `t`.
        unsafe {
            match t.kind() {
                ActKind::Q8 => quantize(machine, &t, rows, norm, blocks),
                ActKind::F32 => interleave(machine, &t, rows, norm, blocks),
            }
        }
    }
    t
}

/// The product by the kernels, in two ranges of strips.
fn product(machine: Machine, m: &PackedMatrix, t: &ActTiles, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let (rows, strips) = (m.layout().rows, m.layout().strips());
    let mut out = vec![f32::NAN; rows * t.tokens()];
    let shared = Rows::of(&mut out, rows, rows);
    let mut scratch = Scratch::new();
    for range in [strips / 2..strips, 0..strips / 2] {
        // SAFETY: one thread; `out` outlives the call.
        unsafe { matmul_strips(machine, m, range, t, epilogue, shared, &mut scratch) }
    }
    out
}

/// Shapes: rows beside whole strips, odd numbers of blocks, floats of several pieces.
fn shapes(ty: GgmlType) -> Vec<(usize, usize)> {
    let block = ty.block_len();
    match block {
        1 => vec![(1, 1), (33, 50), (70, 96), (40, 600)],
        _ => vec![
            (1, block),
            (16, 3 * block),
            (39, 2 * block),
            (80, 5 * block),
        ],
    }
}

fn check_products(ty: GgmlType) {
    for (i, (rows, k)) in shapes(ty).into_iter().enumerate() {
        let m = matrix(ty, rows, k, i as u64 + 3);
        let most = activations(43, k, 17);
        let want = reference(&m, &most);
        for tokens in (1..=13).chain([17, 23, 32, 33, 43]) {
            let x = &most[..tokens * k];
            for machine in machines() {
                let t = tiles(machine, ty, x, k, None);
                let got = product(machine, &m.packed, &t, &Epilogue::default());
                let what = format!("{} {ty} {rows} x {k}, {tokens} columns", machine.name());
                assert_same_bits(&got, &want[..tokens * rows], &what);
            }
        }
    }
}

macro_rules! products {
    ($($name:ident: $ty:ident,)*) => {
        $(#[test] fn $name() { check_products(GgmlType::$ty); })*

        #[test]
        fn every_type_has_a_test() {
            assert_eq!([$(GgmlType::$ty),*], RUNNABLE);
        }
    };
}

products! {
    f32_products: F32,
    f16_products: F16,
    bf16_products: BF16,
    q4_0_products: Q4_0,
    q4_1_products: Q4_1,
    q5_0_products: Q5_0,
    q5_1_products: Q5_1,
    q8_0_products: Q8_0,
    q4_k_products: Q4_K,
    q5_k_products: Q5_K,
    q6_k_products: Q6_K,
}

/// Codes and activations at their extremes: sums that would saturate 16 bits anywhere show here.
#[test]
fn extremes_do_not_saturate() {
    for ty in RUNNABLE.into_iter().filter(|ty| !is_float(*ty)) {
        let (rows, k) = (16, ty.block_len());
        for fill in [0xffu8, 0x80, 0x7f, 0x00] {
            let mut m = matrix(ty, rows, k, 5);
            let one = half::f16::ONE.to_le_bytes();
            for block in m.bytes.chunks_exact_mut(ty.block_bytes()) {
                block.fill(fill);
                let at = if ty == GgmlType::Q6_K { 208 } else { 0 };
                block[at..][..2].copy_from_slice(&one);
                if matches!(
                    ty,
                    GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K
                ) {
                    block[2..4].copy_from_slice(&one);
                }
            }
            m.packed = PackedMatrix::pack(*m.packed.layout(), &m.bytes);
            for sign in [1.0, -1.0] {
                let x = vec![sign * 127.0; 20 * k];
                let want = reference(&m, &x);
                for machine in machines() {
                    let t = tiles(machine, ty, &x, k, None);
                    let got = product(machine, &m.packed, &t, &Epilogue::default());
                    assert_same_bits(&got, &want, &format!("{} {ty} {fill:#x}", machine.name()));
                }
            }
        }
    }
}

#[test]
fn epilogues_are_the_separate_operations() {
    for ty in [GgmlType::Q4_K, GgmlType::F16] {
        let (rows, k) = (55, 512);
        let m = matrix(ty, rows, k, 9);
        for tokens in [1, 5, 21] {
            let x = activations(tokens, k, 4);
            let (bias, mut residual) = (
                Rng::new(1).vec(rows, 1.0),
                Rng::new(2).vec(rows * tokens, 1.0),
            );
            let mut want = reference(&m, &x);
            for (i, v) in want.iter_mut().enumerate() {
                *v = (*v + bias[i % rows]) + residual[i];
            }
            for machine in machines() {
                let t = tiles(machine, ty, &x, k, None);
                let shared = Rows::of(&mut residual, rows, rows);
                let epilogue = Epilogue {
                    bias: Some(&bias),
                    residual: Some(shared),
                };
                let got = product(machine, &m.packed, &t, &epilogue);
                assert_same_bits(&got, &want, &format!("{} {ty} {tokens}", machine.name()));
            }
            // In place: the residual's rows are the output's.
            let t = tiles(Machine::detect(), ty, &x, k, None);
            let shared = Rows::of(&mut residual, rows, rows);
            let epilogue = Epilogue {
                bias: Some(&bias),
                residual: Some(shared),
            };
            let strips = 0..m.packed.layout().strips();
            let mut scratch = Scratch::new();
            // SAFETY: one thread; `residual` outlives the call.
            unsafe {
                matmul_strips(
                    Machine::detect(),
                    &m.packed,
                    strips,
                    &t,
                    &epilogue,
                    shared,
                    &mut scratch,
                )
            }
            assert_same_bits(&residual, &want, "in place");
        }
    }
}

#[test]
fn gated_units_are_the_separate_operations() {
    use crate::backend::cpu::kernels::elementwise::{geglu, swiglu};
    let (rows, k) = (45, 256);
    for (gate_ty, up_ty) in [
        (GgmlType::Q6_K, GgmlType::Q4_0),
        (GgmlType::F32, GgmlType::BF16),
    ] {
        let (gate, up) = (matrix(gate_ty, rows, k, 1), matrix(up_ty, rows, k, 2));
        for tokens in [1, 7, 19] {
            let x = activations(tokens, k, 8);
            let (g, u) = (reference(&gate, &x), reference(&up, &x));
            for glu in [Activation::Silu, Activation::Gelu] {
                let mut want = vec![0.0; g.len()];
                let separate = if glu == Activation::Silu {
                    swiglu
                } else {
                    geglu
                };
                // SAFETY: all three have this length.
                unsafe {
                    separate(
                        Machine::scalar(),
                        g.as_ptr(),
                        u.as_ptr(),
                        want.as_mut_ptr(),
                        g.len(),
                    )
                };
                for machine in machines() {
                    let t = tiles(machine, gate_ty, &x, k, None);
                    let mut out = vec![f32::NAN; rows * tokens];
                    let shared = Rows::of(&mut out, rows, rows);
                    let (strips, mut scratch) = (0..gate.packed.layout().strips(), Scratch::new());
                    let (gate, up) = (&gate.packed, &up.packed);
                    // SAFETY: one thread; `out` outlives the call.
                    unsafe { glu_strips(machine, gate, up, glu, strips, &t, shared, &mut scratch) }
                    assert_same_bits(&out, &want, &format!("{} {glu:?} {tokens}", machine.name()));
                }
            }
        }
    }
}

/// The tiles hold what `numeric` says, norm included: seen through products with the identity.
#[test]
fn quantized_tiles_are_the_reference_rows() {
    let k = 96;
    let mut x = activations(25, k, 3);
    x[5] = f32::NAN;
    x[k + 40] = f32::INFINITY;
    x[2 * k + 70] = f32::NEG_INFINITY;
    x[3 * k..3 * k + 32].fill(f32::from_bits(190)); // a scale below the normal numbers
    x[4 * k..5 * k].fill(-f32::MAX);
    let weight = Rng::new(6).vec(k, 2.0);
    let scale: Vec<f32> = (0..25).map(|t| 0.3 + t as f32 * 0.01).collect();
    let normed: Vec<f32> = x
        .iter()
        .enumerate()
        .map(|(i, v)| v * scale[i / k] * weight[i % k])
        .collect();
    for machine in machines() {
        for tokens in [1, 3, 8, 25] {
            let norm = Norm {
                scale: &scale,
                weight: &weight,
            };
            for (norm, values) in [(None, &x), (Some(norm), &normed)] {
                let t = tiles(machine, GgmlType::Q8_0, &x[..tokens * k], k, norm);
                for token in 0..tokens {
                    let row = QuantizedRow::new(&values[token * k..][..k]).unwrap();
                    for (b, want) in row.blocks.iter().enumerate() {
                        let got = t.block(token, b);
                        assert_eq!(
                            (got.q, got.half_sums),
                            (want.q, want.half_sums),
                            "{}",
                            machine.name()
                        );
                        assert!(
                            got.d.to_bits() == want.d.to_bits()
                                || got.d.is_nan() && want.d.is_nan()
                        );
                    }
                }
            }
        }
    }
}

/// Quotients in and around the middle of two codes, where a product with the reciprocal rounds elsewhere.
#[test]
fn codes_are_those_of_the_division_near_the_middle_too() {
    let (k, tokens) = (32, 400);
    let mut rng = Rng::new(31);
    let mut x = vec![0.0; tokens * k];
    for row in x.chunks_exact_mut(k) {
        let amax = (1.5 + rng.unit()) * 10f32.powi((rng.next() % 13) as i32 - 6);
        let d = amax / 127.0;
        for v in row.iter_mut() {
            let middle = ((rng.below(254) as f32 - 126.5) * d).to_bits();
            *v = f32::from_bits(middle + rng.below(5) as u32 - 2);
        }
        row[rng.below(k)] = amax;
    }
    for machine in machines() {
        let t = tiles(machine, GgmlType::Q8_0, &x, k, None);
        for (token, row) in x.chunks_exact(k).enumerate() {
            let want = &QuantizedRow::new(row).unwrap().blocks[0];
            let got = t.block(token, 0);
            assert_eq!((got.q, got.d), (want.q, want.d), "{}", machine.name());
        }
    }
}

/// Float tiles hold the normed rows, a last part of a block included: seen through the product.
#[test]
fn float_tiles_are_the_normed_rows() {
    for (k, tokens) in [(50, 33), (96, 14), (7, 3)] {
        let x = activations(tokens, k, 12);
        let weight = Rng::new(6).vec(k, 2.0);
        let scale: Vec<f32> = (0..tokens).map(|t| 0.3 + t as f32 * 0.01).collect();
        let normed: Vec<f32> = x
            .iter()
            .enumerate()
            .map(|(i, v)| v * scale[i / k] * weight[i % k])
            .collect();
        let m = matrix(GgmlType::F32, 40, k, 2);
        let want = reference(&m, &normed);
        for machine in machines() {
            let norm = Norm {
                scale: &scale,
                weight: &weight,
            };
            let t = tiles(machine, GgmlType::F32, &x, k, Some(norm));
            let got = product(machine, &m.packed, &t, &Epilogue::default());
            assert_same_bits(&got, &want, &format!("{} {k} {tokens}", machine.name()));
        }
    }
}

#[test]
#[should_panic(expected = "activations of another kind")]
fn float_activations_are_refused_for_quantized_weights() {
    let m = matrix(GgmlType::Q8_0, 16, 32, 1);
    let t = tiles(Machine::scalar(), GgmlType::F32, &[1.0; 32], 32, None);
    product(Machine::scalar(), &m.packed, &t, &Epilogue::default());
}

#[test]
fn without_memory_there_are_no_columns() {
    let mut t = ActTiles::new();
    assert!(t.reset(Machine::scalar(), ActKind::F32, 1, 64));
    assert!(!t.reset(Machine::scalar(), ActKind::F32, 1, 1 << 58));
    assert_eq!((t.tokens(), t.tiles().len()), (0, 0));
    assert!(t.reset(Machine::scalar(), ActKind::F32, 1, 64));
    assert_eq!(t.tokens(), 1);
    assert!(!Scratch::new().reserve(1 << 60));
}
