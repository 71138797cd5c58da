//! Tests of attention: bits across machines, tiles, splits and row mixes; closeness to f64.

use super::super::kv::{StoreArgs, kv_store, region_bytes};
use super::super::testing::{assert_same_bits, on_machines};
use super::*;
use crate::graph::{KvPart, KvShape};
use crate::lanes::tests::machines;
use crate::numeric::test_rng::Rng;
use crate::numeric::{quantize_block, quantize_kv_block};

/// Heads and formats of a test.
#[derive(Clone, Copy)]
struct Shape {
    n_head: usize,
    n_head_kv: usize,
    head_dim: usize,
    k: KvType,
    v: KvType,
    window: Option<usize>,
}

const SMOL: Shape = Shape {
    n_head: 6,
    n_head_kv: 2,
    head_dim: 64,
    k: KvType::F16,
    v: KvType::F16,
    window: None,
};

/// Shapes that take every path: register tiles full and not, channel tails, formats, windows.
fn shapes() -> Vec<Shape> {
    let s = |n_head, n_head_kv, head_dim, k, v, window| Shape {
        n_head,
        n_head_kv,
        head_dim,
        k,
        v,
        window,
    };
    let (h, f, q) = (KvType::F16, KvType::F32, KvType::Q8_0);
    vec![
        SMOL,
        s(7, 1, 64, h, h, None),
        s(4, 1, 256, h, h, Some(100)),
        s(2, 2, 80, f, f, None),
        s(5, 1, 96, f, h, Some(33)),
        s(8, 1, 128, h, f, Some(1)),
        s(13, 1, 16, h, h, Some(300)),
        s(6, 2, 64, q, q, None),
        s(7, 1, 96, q, h, Some(100)),
        s(4, 1, 256, f, q, None),
        s(14, 2, 32, q, q, Some(40)),
        s(17, 1, 32, h, h, None),
    ]
}

/// A batch: sequences of some length whose pages are scattered, what was never written being NaN.
struct World {
    shape: Shape,
    lens: Vec<usize>,
    pages_per_seq: usize,
    table: Vec<i32>,
    k: Vec<u8>,
    v: Vec<u8>,
    /// What was stored, `[seq][slot][n_head_kv * head_dim]`.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

fn nan_region(shape: &KvShape) -> Vec<u8> {
    let one: &[u8] = match shape.ty {
        KvType::F16 | KvType::Q8_0 => &[0x00, 0x7e],
        KvType::F32 => &[0x00, 0x00, 0xc0, 0x7f],
    };
    one.repeat(region_bytes(shape) / one.len())
}

impl World {
    fn new(shape: Shape, lens: &[usize], seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let pages_per_seq = lens.iter().max().unwrap().div_ceil(PAGE) + 1;
        let pages = lens.len() * pages_per_seq;
        let mut order: Vec<i32> = (0..pages as i32).collect();
        for i in (1..pages).rev() {
            order.swap(i, rng.below(i + 1));
        }
        let mut table = vec![-1; pages];
        for (s, len) in lens.iter().enumerate() {
            for p in 0..len.div_ceil(PAGE) {
                table[s * pages_per_seq + p] = order[s * pages_per_seq + p];
            }
        }
        let region = |ty| KvShape {
            ty,
            pages,
            n_head_kv: shape.n_head_kv,
            head_dim: shape.head_dim,
        };
        let width = shape.n_head_kv * shape.head_dim;
        World {
            shape,
            lens: lens.to_vec(),
            pages_per_seq,
            table,
            k: nan_region(&region(shape.k)),
            v: nan_region(&region(shape.v)),
            keys: lens.iter().map(|n| rng.vec(n * width, 1.5)).collect(),
            values: lens.iter().map(|n| rng.vec(n * width, 2.0)).collect(),
        }
    }

    /// Writes slots `slots` of a sequence.
    fn store(&mut self, machine: Machine, seq: usize, slots: Range<usize>) {
        let width = self.shape.n_head_kv * self.shape.head_dim;
        let at: Vec<i32> = slots.clone().map(|s| s as i32).collect();
        let row_seq = vec![seq as i32; at.len()];
        let parts = [
            (
                KvPart::K,
                self.shape.k,
                &self.keys[seq],
                self.k.as_mut_ptr(),
            ),
            (
                KvPart::V,
                self.shape.v,
                &self.values[seq],
                self.v.as_mut_ptr(),
            ),
        ];
        for (part, ty, x, region) in parts {
            let args = StoreArgs {
                part,
                ty,
                n_head_kv: self.shape.n_head_kv,
                head_dim: self.shape.head_dim,
                x: x[slots.start * width..].as_ptr(),
                x_stride: width,
                slots: &at,
                row_seq: &row_seq,
                page_table: &self.table,
                pages_per_seq: self.pages_per_seq,
                region,
            };
            // SAFETY: the table has a page for every slot below the sequence's length.
            unsafe { kv_store(machine, &args, 0..at.len()) };
        }
    }

    fn full(shape: Shape, lens: &[usize], seed: u64) -> World {
        let mut w = World::new(shape, lens, seed);
        for (s, len) in lens.iter().enumerate() {
            w.store(Machine::detect(), s, 0..*len);
        }
        w
    }

    /// A key or value as the region has it.
    fn stored(&self, part: KvPart, seq: usize, slot: usize, head: usize, c: usize) -> f64 {
        let (x, ty) = match part {
            KvPart::K => (&self.keys[seq], self.shape.k),
            KvPart::V => (&self.values[seq], self.shape.v),
        };
        let x = &x[(slot * self.shape.n_head_kv + head) * self.shape.head_dim..];
        match ty {
            KvType::F16 => half::f16::from_f32(x[c]).to_f64(),
            KvType::F32 => f64::from(x[c]),
            KvType::Q8_0 => {
                let (d, q) = quantize_kv_block(x[c / 32 * 32..].first_chunk().unwrap());
                f64::from(d) * f64::from(q[c % 32])
            }
        }
    }
}

/// Query rows of a batch.
struct Rows {
    q: Vec<f32>,
    slots: Vec<i32>,
    row_seq: Vec<i32>,
}

/// Queries whose content depends on nothing but sequence and slot.
fn rows(shape: &Shape, at: &[(usize, usize)]) -> Rows {
    let width = shape.n_head * shape.head_dim;
    let q = at
        .iter()
        .flat_map(|(seq, slot)| Rng::new((seq * 100_003 + slot + 1) as u64).vec(width, 1.5));
    Rows {
        q: q.collect(),
        slots: at.iter().map(|a| a.1 as i32).collect(),
        row_seq: at.iter().map(|a| a.0 as i32).collect(),
    }
}

fn args<'a>(w: &'a World, r: &'a Rows) -> AttnArgs<'a> {
    AttnArgs {
        q: r.q.as_ptr(),
        q_stride: w.shape.n_head * w.shape.head_dim,
        k: w.k.as_ptr(),
        v: w.v.as_ptr(),
        k_type: w.shape.k,
        v_type: w.shape.v,
        slots: &r.slots,
        row_seq: &r.row_seq,
        page_table: &w.table,
        pages_per_seq: w.pages_per_seq,
        n_head: w.shape.n_head,
        n_head_kv: w.shape.n_head_kv,
        head_dim: w.shape.head_dim,
        scale: 1.0 / (w.shape.head_dim as f32).sqrt(),
        window: w.shape.window,
    }
}

/// As a prefill: tiles of at most `most` rows.
fn prefill(machine: Machine, w: &World, at: &[(usize, usize)], most: usize) -> Vec<f32> {
    let r = rows(&w.shape, at);
    let a = args(w, &r);
    let mut out = vec![f32::NAN; r.q.len()];
    let mut scratch = Scratch::new();
    let mut start = 0;
    while start < at.len() {
        let tile_rows = a.tile_from(start, at.len().min(start.saturating_add(most)));
        start = tile_rows.end;
        for h in 0..a.n_head_kv {
            scratch.spoil(tile_rows.len() * a.group(), a.head_dim);
            // SAFETY: every slot that is seen was stored.
            unsafe {
                tile(
                    machine,
                    &a,
                    h,
                    tile_rows.clone(),
                    &mut scratch,
                    out.as_mut_ptr(),
                    a.q_stride,
                )
            };
        }
    }
    out
}

/// As a decode: partial results of `step` segments a call, then merged.
fn decode(machine: Machine, w: &World, at: &[(usize, usize)], step: usize) -> Vec<f32> {
    let r = rows(&w.shape, at);
    let a = args(w, &r);
    let mut out = vec![f32::NAN; r.q.len()];
    let mut start = 0;
    while start < at.len() {
        let rows = a.tile_from(start, at.len());
        start = rows.end;
        let (all, len) = (a.segments(&rows), a.partial_len(&rows));
        for h in 0..a.n_head_kv {
            let mut partials = vec![f32::NAN; all.len() * len];
            // The last range first: their order must not matter.
            for s in all.clone().step_by(step).rev() {
                let range = s..all.end.min(s + step);
                let out = &mut partials[(s - all.start) * len..];
                let mut scratch = Scratch::new();
                scratch.spoil(rows.len() * a.group(), a.head_dim);
                // SAFETY: every slot that is seen was stored.
                unsafe { segments(machine, &a, h, rows.clone(), range, &mut scratch, out) };
            }
            // SAFETY: `out` has every row.
            unsafe {
                merge(
                    machine,
                    &a,
                    h,
                    rows.clone(),
                    &mut partials,
                    out.as_mut_ptr(),
                    a.q_stride,
                )
            };
        }
    }
    out
}

/// One row in f64: every query head.
fn naive(w: &World, seq: usize, slot: usize) -> Vec<f64> {
    let s = &w.shape;
    let q = rows(s, &[(seq, slot)]).q;
    let q: Vec<f64> = match s.k {
        KvType::Q8_0 => {
            let blocks = q.as_chunks::<32>().0.iter().map(quantize_block);
            let values = blocks.flat_map(|b| b.q.map(|x| f64::from(x) * f64::from(b.d)));
            values.collect()
        }
        _ => q.into_iter().map(f64::from).collect(),
    };
    let first = s.window.map_or(0, |n| (slot + 1).saturating_sub(n));
    let mut out = Vec::new();
    for h in 0..s.n_head {
        let kv = h / (s.n_head / s.n_head_kv);
        let dot = |t: usize| -> f64 {
            let each =
                (0..s.head_dim).map(|d| q[h * s.head_dim + d] * w.stored(KvPart::K, seq, t, kv, d));
            each.sum::<f64>() / (s.head_dim as f64).sqrt()
        };
        let scores: Vec<f64> = (first..=slot).map(dot).collect();
        let m = scores.iter().cloned().fold(f64::NEG_INFINITY, f64::max);
        let l: f64 = scores.iter().map(|x| (x - m).exp()).sum();
        for c in 0..s.head_dim {
            let each = scores
                .iter()
                .enumerate()
                .map(|(i, x)| (x - m).exp() / l * w.stored(KvPart::V, seq, first + i, kv, c));
            out.push(each.sum());
        }
    }
    out
}

/// Rows of a sequence's whole prompt.
fn prompt(seq: usize, slots: Range<usize>) -> Vec<(usize, usize)> {
    slots.map(|s| (seq, s)).collect()
}

#[test]
fn close_to_f64_in_every_shape() {
    for (i, shape) in shapes().into_iter().enumerate() {
        let w = World::full(shape, &[600], i as u64 + 1);
        let at: Vec<_> = [0, 1, 31, 32, 255, 256, 257, 511, 512, 599]
            .map(|s| (0, s))
            .into();
        let out = prefill(Machine::detect(), &w, &at, usize::MAX);
        let width = shape.n_head * shape.head_dim;
        for (row, (seq, slot)) in at.iter().enumerate() {
            for (c, want) in naive(&w, *seq, *slot).iter().enumerate() {
                let got = f64::from(out[row * width + c]);
                assert!(
                    (got - want).abs() < 3e-6,
                    "shape {i} slot {slot} channel {c}: {got} {want}"
                );
            }
        }
    }
}

#[test]
fn close_to_f64_at_a_few_thousand_positions() {
    let w = World::full(SMOL, &[4000], 77);
    let out = decode(Machine::detect(), &w, &[(0, 3999)], 3);
    for (c, want) in naive(&w, 0, 3999).iter().enumerate() {
        assert!((f64::from(out[c]) - want).abs() < 2e-6, "channel {c}");
    }
}

#[test]
fn every_machine_gives_the_same_bits() {
    for (i, shape) in shapes().into_iter().enumerate() {
        let w = World::full(shape, &[300], i as u64 + 20);
        let at = prompt(0, 240..300);
        let whole = on_machines(|m| prefill(m, &w, &at, usize::MAX));
        assert!(whole.iter().all(|x| x.is_finite()), "shape {i}");
    }
}

#[test]
fn every_machine_stores_the_same_bytes() {
    for shape in shapes() {
        let of = |m: Machine| {
            let mut w = World::new(shape, &[70], 5);
            w.store(m, 0, 0..70);
            (w.k, w.v)
        };
        let want = of(Machine::scalar());
        for m in machines() {
            assert!(of(m) == want, "{}", m.name());
        }
    }
}

/// Sixteen keys in a row of a page are turned together: only those, wherever they begin.
#[test]
fn keys_stored_together_are_those_stored_one_by_one() {
    let runs: [&[(usize, Range<usize>)]; 6] = [
        &[(0, 0..40)],
        &[(0, 1..33)],
        &[(0, 16..33), (0, 40..50)],
        &[(0, 17..60)],
        &[(0, 0..8), (1, 8..16), (1, 18..40)],
        &[(1, 3..20), (0, 20..40)],
    ];
    for (i, run) in runs.iter().chain(&runs).enumerate() {
        let k = [KvType::F16, KvType::F32][i / runs.len()];
        let w = World::new(Shape { k, ..SMOL }, &[70, 40], 8);
        let (mut row_seq, mut slots) = (vec![], vec![]);
        for (seq, run) in *run {
            row_seq.extend(run.clone().map(|_| *seq as i32));
            slots.extend(run.clone().map(|s| s as i32));
        }
        let (n, stride) = (slots.len(), 2 * SMOL.head_dim + 16);
        let x = Rng::new(i as u64).vec(n * stride, 1.0);
        for machine in machines() {
            let stored = |step: usize| {
                let mut region = w.k.clone();
                let args = StoreArgs {
                    part: KvPart::K,
                    ty: k,
                    n_head_kv: SMOL.n_head_kv,
                    head_dim: SMOL.head_dim,
                    x: x.as_ptr(),
                    x_stride: stride,
                    slots: &slots,
                    row_seq: &row_seq,
                    page_table: &w.table,
                    pages_per_seq: w.pages_per_seq,
                    region: region.as_mut_ptr(),
                };
                for row in (0..n).step_by(step) {
                    // SAFETY: the table has a page for every slot below the sequences' lengths.
                    unsafe { kv_store(machine, &args, row..n.min(row + step)) };
                }
                region
            };
            assert!(stored(n) == stored(1), "{k:?}, {run:?}, {}", machine.name());
        }
    }
}

/// The layout of Q8_0 regions, which no other test would miss: stores and attention share it.
#[test]
fn quantized_pages_are_laid_out_as_written_down() {
    let shape = Shape {
        n_head: 1,
        n_head_kv: 1,
        ..shapes()[7]
    };
    let mut w = World::new(shape, &[PAGE], 3);
    w.store(Machine::detect(), 0, 0..PAGE);
    let page = w.table[0] as usize * 34 * 64;
    for (t, c) in [(0, 0), (1, 5), (31, 31), (7, 32), (30, 63)] {
        let block = |x: &[f32]| quantize_kv_block(x[64 * t + c / 32 * 32..].first_chunk().unwrap());
        let half = |at: &[u8]| half::f16::from_le_bytes([at[0], at[1]]);
        let (d, q) = block(&w.keys[0]);
        let k = &w.k[page + c / 32 * 1088..];
        assert_eq!(half(&k[2 * t..]), d);
        let code = k[64 + c % 32 / 4 * 128 + 4 * t + c % 4];
        assert_eq!(i32::from(code) - 128, i32::from(q[c % 32]));
        let (d, q) = block(&w.values[0]);
        let v = &w.v[page..];
        assert_eq!(half(&v[c / 32 * 64 + 2 * t..]), d);
        assert_eq!(v[128 + 64 * t + c] as i8, q[c % 32]);
    }
}

#[test]
#[should_panic(expected = "head_dim that is a multiple of 32, not 80")]
fn no_region_for_heads_that_are_no_whole_blocks() {
    let _ = region_bytes(&KvShape {
        ty: KvType::Q8_0,
        pages: 1,
        n_head_kv: 1,
        head_dim: 80,
    });
}

#[test]
fn a_row_has_the_same_bits_in_every_tile_split_and_mix() {
    let m = Machine::detect();
    for (i, shape) in shapes().into_iter().enumerate() {
        let w = World::full(shape, &[600, 90], i as u64 + 40);
        let width = shape.n_head * shape.head_dim;
        // Across the border of two segments.
        let from = 470;
        let a = prompt(0, from..600);
        let want = prefill(m, &w, &a, usize::MAX);
        for most in [1, 5, 7] {
            assert_same_bits(&prefill(m, &w, &a, most), &want, "smaller tiles");
        }
        for step in [1, 2] {
            assert_same_bits(
                &decode(m, &w, &a[90..], step),
                &want[90 * width..],
                "segments",
            );
        }
        // Prefill of one sequence, decode rows of another, and a gap, in one batch.
        let b = prompt(1, 0..90);
        let want_b = prefill(m, &w, &b, usize::MAX);
        let mix: Vec<_> = [&a[30..50], &b[89..], &a[50..53], &b[10..40], &a[3..4]].concat();
        let out = prefill(m, &w, &mix, usize::MAX);
        for (row, (seq, slot)) in mix.iter().enumerate() {
            let (all, first) = if *seq == 0 {
                (&want, from)
            } else {
                (&want_b, 0)
            };
            let (got, want) = (&out[row * width..], &all[(slot - first) * width..]);
            assert_same_bits(
                &got[..width],
                &want[..width],
                &format!("shape {i} {seq} {slot}"),
            );
        }
        assert_same_bits(&decode(m, &w, &mix, 1), &out, "mixed decode");
    }
}

#[test]
fn what_is_unwritten_or_later_has_no_effect() {
    let m = Machine::detect();
    for shape in shapes() {
        // Chunk by chunk, each attended before the next is stored (the rest is NaN).
        let mut w = World::new(shape, &[400], 9);
        let mut chunks = Vec::new();
        for (from, to) in [(0, 1), (1, 40), (40, 300), (300, 400)] {
            w.store(m, 0, from..to);
            chunks.extend(prefill(m, &w, &prompt(0, from..to), usize::MAX));
        }
        assert!(chunks.iter().all(|x| x.is_finite()));
        let whole = prefill(m, &w, &prompt(0, 0..400), usize::MAX);
        assert_same_bits(&chunks, &whole, "chunks");
    }
}

#[test]
fn pages_behind_the_window_are_not_needed() {
    let m = Machine::detect();
    let shape = Shape {
        window: Some(100),
        ..SMOL
    };
    let mut w = World::full(shape, &[700], 10);
    let at = prompt(0, 690..700);
    let want = prefill(m, &w, &at, usize::MAX);
    // The first slot seen is 690 + 1 - 100 = 591, in page 18: those before go away.
    w.table[..18].fill(-1);
    assert_same_bits(&prefill(m, &w, &at, usize::MAX), &want, "freed pages");
    assert_same_bits(&decode(m, &w, &at, 1), &want, "freed pages, by segments");
}

#[test]
fn an_underflow_to_negative_zero_leaves_no_trace() {
    let m = Machine::detect();
    let shape = Shape {
        k: KvType::F32,
        v: KvType::F32,
        ..SMOL
    };
    let mut w = World::new(shape, &[3], 12);
    let width = shape.n_head_kv * shape.head_dim;
    w.keys[0].fill(0.0); // equal weights
    w.values[0][..width].fill(0.0);
    w.values[0][width..2 * width].fill(-f32::from_bits(1));
    w.values[0][2 * width..].fill(1.0);
    // Slot 0 weighs more, so that slot 1's product is less than half of the smallest number.
    let q = rows(&shape, &[(0, 1)]).q;
    w.keys[0][0] = 100.0 * q[0].signum();
    w.keys[0][shape.head_dim] = 100.0 * q[shape.n_head / 2 * shape.head_dim].signum();
    w.store(m, 0, 0..3);
    let alone = prefill(m, &w, &[(0, 1)], usize::MAX);
    let beside = prefill(m, &w, &[(0, 1), (0, 2)], usize::MAX);
    assert_same_bits(&alone, &beside[..alone.len()], "beside a later row");
}

#[test]
fn tiles_are_whole_register_tiles_where_the_group_allows() {
    for (group, tokens) in [
        (1, 48),
        (2, 24),
        (3, 16),
        (4, 12),
        (7, 12),
        (8, 6),
        (16, 3),
        (71, 1),
    ] {
        assert_eq!(tile_tokens(group), tokens, "group {group}");
    }
    let w = World::full(SMOL, &[100], 2);
    let r = rows(&SMOL, &prompt(0, 0..40));
    let a = args(&w, &r);
    assert_eq!(a.tile_from(0, 40), 0..16);
    assert_eq!(a.tile_from(32, 40), 32..40);
    assert_eq!(w.lens, [100]);
}
