//! Attention over pages.

use super::super::{Attention, PAGE};
use super::Matrix;

/// The region row of a sequence's slot.
pub(super) fn region_row(table: &Matrix, seq: usize, slot: usize) -> usize {
    table.index_at(seq, slot / PAGE) * PAGE + slot % PAGE
}

/// Sources as of [`super::super::Op::Attention`]: q, K, V, slots, row sequences, page table.
/// A row at slot `s` sees the slots `s - window + 1 ..= s`, or `0..=s` without a window.
pub(super) fn attention(spec: &Attention, srcs: &[&Matrix]) -> Matrix {
    let [q, k, v, slots, seqs, table] = srcs else {
        panic!("attention has six sources")
    };
    let d = spec.head_dim;
    let heads_a_group = spec.n_head / spec.n_head_kv;
    let mut out = Matrix::zeros(q.rows, spec.n_head * d);
    for r in 0..q.rows {
        let (slot, seq) = (slots.index_at(r, 0), seqs.index_at(r, 0));
        let first = spec.window.map_or(0, |w| (slot + 1).saturating_sub(w));
        let seen: Vec<usize> = (first..=slot).map(|s| region_row(table, seq, s)).collect();
        for head in 0..spec.n_head {
            let kv = head / heads_a_group * d;
            let query = &q.row(r)[head * d..][..d];
            let scores: Vec<f64> = seen
                .iter()
                .map(|&s| {
                    let key = &k.row(s)[kv..][..d];
                    let dot: f64 = query.iter().zip(key).map(|(a, b)| a * b).sum();
                    dot * f64::from(spec.scale)
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for c in 0..d {
                let mixed: f64 = seen
                    .iter()
                    .zip(&weights)
                    .map(|(&s, w)| w * v.at(s, kv + c))
                    .sum();
                out.data[r * out.cols + head * d + c] = mixed / sum;
            }
        }
    }
    out
}
