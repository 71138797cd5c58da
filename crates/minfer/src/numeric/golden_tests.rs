//! Against the PyPI package `gguf` and numpy (`xtask/golden/numeric.py` makes the files), and the
//! reference products against f64.

use super::*;

macro_rules! golden {
    ($name:expr) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/numeric/",
            $name
        ))
        .as_slice()
    };
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Type, random blocks, their values.
fn decoded() -> [(GgmlType, &'static [u8], &'static [u8]); 11] {
    macro_rules! row {
        ($ty:ident, $name:literal) => {
            (
                GgmlType::$ty,
                golden!(concat!($name, ".blocks")),
                golden!(concat!($name, ".values")),
            )
        };
    }
    [
        row!(F32, "f32"),
        row!(F16, "f16"),
        row!(BF16, "bf16"),
        row!(Q4_0, "q4_0"),
        row!(Q4_1, "q4_1"),
        row!(Q5_0, "q5_0"),
        row!(Q5_1, "q5_1"),
        row!(Q8_0, "q8_0"),
        row!(Q4_K, "q4_k"),
        row!(Q5_K, "q5_k"),
        row!(Q6_K, "q6_k"),
    ]
}

#[test]
fn decodes_bit_for_bit_as_gguf_does() {
    assert_eq!(decoded().map(|r| r.0), RUNNABLE);
    for (ty, blocks, values) in decoded() {
        let expected = f32s(values);
        let mut out = vec![0.0; expected.len()];
        decode_row(ty, blocks, &mut out).unwrap();
        assert!(expected.len() >= 512);
        assert_eq!(bits(&out), bits(&expected), "{ty}");
    }
}

#[test]
fn encodes_byte_for_byte_as_gguf_does() {
    let x = f32s(golden!("encode.values"));
    let cases = [
        (GgmlType::F32, golden!("f32.encoded")),
        (GgmlType::F16, golden!("f16.encoded")),
        (GgmlType::BF16, golden!("bf16.encoded")),
        (GgmlType::Q4_0, golden!("q4_0.encoded")),
        (GgmlType::Q4_1, golden!("q4_1.encoded")),
        (GgmlType::Q5_0, golden!("q5_0.encoded")),
        (GgmlType::Q5_1, golden!("q5_1.encoded")),
        (GgmlType::Q8_0, golden!("q8_0.encoded")),
    ];
    for (ty, expected) in cases {
        let mut out = Vec::new();
        encode_row(ty, &x, &mut out).unwrap();
        assert_eq!(out.len(), expected.len(), "{ty}");
        for (i, (ours, theirs)) in out
            .chunks(ty.block_bytes())
            .zip(expected.chunks(ty.block_bytes()))
            .enumerate()
        {
            assert_eq!(
                ours,
                theirs,
                "{ty}, block {i}: {:?}",
                &x[i * ty.block_len()..][..ty.block_len()]
            );
        }
    }
}

#[test]
fn quantizes_activations_as_numpy_does() {
    let row = QuantizedRow::new(&f32s(golden!("activations.values"))).unwrap();
    let d: Vec<f32> = row.blocks.iter().map(|b| b.d).collect();
    assert_eq!(bits(&d), bits(&f32s(golden!("activations.d"))));
    let q: Vec<u8> = row
        .blocks
        .iter()
        .flat_map(|b| b.q.map(|v| v as u8))
        .collect();
    assert_eq!(q, golden!("activations.q"));
    let sums: Vec<u8> = row
        .blocks
        .iter()
        .flat_map(|b| b.half_sums)
        .flat_map(i32::to_le_bytes)
        .collect();
    assert_eq!(sums, golden!("activations.sums"));
}

/// Row `r` of 512 activations of moderate size.
fn activations(r: usize) -> Vec<f32> {
    (0..512)
        .map(|i| ((i * 37 + r * 101) as f32).sin() * (1.0 + (i % 7) as f32))
        .collect()
}

#[test]
fn reference_products_are_close_to_f64() {
    for (ty, blocks, _) in decoded() {
        let bytes = ty.row_bytes(512).unwrap();
        for (r, weights) in blocks.chunks_exact(bytes).enumerate() {
            let mut w = vec![0.0; 512];
            decode_row(ty, weights, &mut w).unwrap();
            let x = activations(r);
            let row = QuantizedRow::new(&x).unwrap();
            let (ours, x) = if is_float(ty) {
                // Only magnitudes whose products stay finite in f32.
                let limit = |v: &f32| if v.abs() < 1e30 { *v } else { 0.0 };
                w = w.iter().map(limit).collect();
                let mut bytes = Vec::new();
                encode_row(ty, &w, &mut bytes).unwrap();
                (dot_float(ty, &bytes, &x).unwrap(), x)
            } else {
                let back = row
                    .blocks
                    .iter()
                    .flat_map(|b| b.q.map(|q| b.d * f32::from(q)));
                (dot_quantized(ty, weights, &row).unwrap(), back.collect())
            };
            let terms = || w.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            let (exact, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
            assert!(
                (f64::from(ours) - exact).abs() <= 2e-6 * size,
                "{ty} row {r}: {ours} {exact} {size}"
            );
        }
    }
}

#[test]
fn products_with_what_is_not_finite_are_nan() {
    let mut x = activations(0);
    x[300] = f32::INFINITY;
    let row = QuantizedRow::new(&x).unwrap();
    for (ty, blocks, _) in decoded().into_iter().filter(|r| !is_float(r.0)) {
        let weights = &blocks[..ty.row_bytes(512).unwrap()];
        assert!(dot_quantized(ty, weights, &row).unwrap().is_nan(), "{ty}");
    }
}

/// The contract's order of operations, by hand on one block of each kind.
#[test]
fn order_of_operations_is_the_contract() {
    let x: Vec<f32> = activations(3)[..256].to_vec();
    let row = QuantizedRow::new(&x).unwrap();
    let dot = |codes: &[u8], q: &[i8], zero: i32| -> f32 {
        codes
            .iter()
            .zip(q)
            .map(|(c, q)| (i32::from(*c) - zero) * i32::from(*q))
            .sum::<i32>() as f32
    };

    let block: [u8; 20] = golden!("q4_1.blocks")[20 * 25..][..20].try_into().unwrap();
    let (w, a) = (q4_1(&block), &row.blocks[0]);
    let t = dot(&w.codes, &a.q, 0) * w.scale.to_f32();
    let expected = w
        .min
        .to_f32()
        .mul_add(a.d * a.sum() as f32, t.mul_add(a.d, 0.0));
    let one = QuantizedRow { blocks: vec![*a] };
    assert_eq!(
        dot_quantized(GgmlType::Q4_1, &block, &one)
            .unwrap()
            .to_bits(),
        expected.to_bits()
    );

    let block: [u8; 210] = golden!("q6_k.blocks")[210 * 7..][..210].try_into().unwrap();
    let w = q6_k(&block);
    let mut acc = 0.0f32;
    for (b, a) in row.blocks.iter().enumerate() {
        let scale = |g: usize| w.d.to_f32() * f32::from(w.scales[g]);
        let first = dot(&w.codes[32 * b..][..16], &a.q[..16], 32) * scale(2 * b);
        let t = dot(&w.codes[32 * b + 16..][..16], &a.q[16..], 32).mul_add(scale(2 * b + 1), first);
        acc = t.mul_add(a.d, acc);
    }
    assert_eq!(
        dot_quantized(GgmlType::Q6_K, &block, &row)
            .unwrap()
            .to_bits(),
        acc.to_bits()
    );
}
