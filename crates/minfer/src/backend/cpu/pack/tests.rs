//! Packed rows decode to what the file's rows decode to.

use super::*;
use crate::numeric::test_rng::Rng;
use crate::numeric::{RUNNABLE, decode_row};

/// Random bytes of whole blocks; f16 scales are made finite.
pub(crate) fn random_rows(ty: GgmlType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    let mut r = Rng::new(seed);
    let blocks = rows * cols / ty.block_len();
    if is_float(ty) {
        return (0..blocks)
            .flat_map(|_| {
                let x = r.unit();
                match ty {
                    GgmlType::F32 => x.to_le_bytes().to_vec(),
                    GgmlType::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
                    _ => half::bf16::from_f32(x).to_le_bytes().to_vec(),
                }
            })
            .collect();
    }
    let scales: &[usize] = match ty {
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q6_K => &[208],
        _ => &[0],
    };
    let mut out = Vec::new();
    for _ in 0..blocks {
        let mut block: Vec<u8> = (0..ty.block_bytes()).map(|_| r.next() as u8).collect();
        for &at in scales {
            block[at..][..2].copy_from_slice(&half::f16::from_f32(r.unit() * 0.1).to_le_bytes());
        }
        out.extend(block);
    }
    out
}

#[test]
fn packed_rows_decode_like_the_file() {
    for ty in RUNNABLE {
        for (rows, blocks) in [(1, 1), (16, 3), (37, 2), (70, 1)] {
            let cols = ty.block_len().max(5) * blocks;
            let layout = PackedLayout::new(ty, rows, cols).unwrap();
            let src = random_rows(ty, rows, cols, rows as u64);
            // Strip by strip, each from its own part of the source.
            let mut m = PackedMatrix::zeroed(layout);
            for s in (0..layout.strips()).rev() {
                let part = &src[layout.source_of(s..s + 1)];
                pack_strips(&layout, s..s + 1, part, m.strips_mut(s..s + 1));
            }
            let (mut got, mut want) = (vec![0.0; cols], vec![0.0; cols]);
            for (r, row) in src.chunks_exact(layout.row_bytes()).enumerate() {
                m.decode_row(r, &mut got);
                decode_row(ty, row, &mut want).unwrap();
                let same = got
                    .iter()
                    .zip(&want)
                    .all(|(g, w)| g.to_bits() == w.to_bits());
                assert!(same, "{ty} row {r} of {rows} x {cols}");
            }
        }
    }
}

#[test]
fn sizes_are_the_files() {
    for ty in RUNNABLE {
        let layout = PackedLayout::new(ty, 64, 512).unwrap();
        assert_eq!(layout.bytes(), 64 * ty.row_bytes(512).unwrap(), "{ty}");
        if let Some(format) = QuantFormat::of(ty) {
            assert_eq!(unpack::places(format).bytes, 16 * ty.block_bytes(), "{ty}");
        }
    }
    let error = PackedLayout::new(GgmlType::Q4_K, 16, 128).unwrap_err();
    assert!(error.to_string().contains("Q4_K"), "{error}");
    assert!(PackedLayout::new(GgmlType::Q2_K, 16, 256).is_err());
}

#[test]
fn a_matrix_larger_than_all_addresses_is_no_matrix() {
    for (rows, cols) in [(1 << 62, 4), (4, 1 << 61), (usize::MAX, 1)] {
        let layout = PackedLayout {
            ty: GgmlType::F32,
            rows,
            cols,
        };
        assert!(PackedMatrix::try_zeroed(layout).is_none(), "{layout:?}");
        assert!(!PackedMatrix::default().reset(layout), "{layout:?}");
    }
}
