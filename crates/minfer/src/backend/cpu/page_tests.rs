//! Tests of KV pages on the CPU: their bytes, copies of them, and keys turned in place, against what the
//! formats mean in plain loops.

use std::sync::Arc;

use super::CpuBackend;
use super::kernels::rope::RopeFreqs;
use super::kernels::shift::load_key;
use crate::graph::{
    Attention, BatchInputs, Builder, ContextParams, Graph, GraphKind, GraphParams, Input, KvPart,
    KvType, LayerKind, PAGE, RopeKind, RopeScaling, RopeTable, Scheduler, SchedulerOptions, Weight,
    WeightId, WeightSet, WeightUse, capacity_class,
};
use crate::lanes::Machine;
use crate::lanes::tests::machines;
use crate::numeric::test_rng::Rng;
use crate::numeric::{GgmlType, encode_row, quantize_kv_block};

const HEADS: usize = 3;
const HEAD: usize = 64;
const WIDTH: usize = HEADS * HEAD;
/// Three groups of eight pages, the last one in part.
const PAGES: usize = 20;
/// Layers 0 and 2 are full, layer 1 is windowed.
const LAYERS: usize = 3;

const YARN: RopeScaling = RopeScaling::Yarn {
    factor: 4.0,
    n_ctx_orig: 64,
    ext_factor: 1.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
};

/// What is stored, and how it is turned.
#[derive(Clone, Copy, Debug)]
struct Kept {
    ty: KvType,
    rope: RopeKind,
    table: RopeTable,
}

impl Kept {
    fn new(ty: KvType, rope: RopeKind, scaling: RopeScaling) -> Kept {
        let table = RopeTable {
            n_dims: 48,
            freq_base: 1e4,
            scaling,
            freq_factors: None,
            turn_only: false,
        };
        Kept { ty, rope, table }
    }

    fn params(&self, kind: GraphKind, rows: usize) -> GraphParams {
        GraphParams {
            n_tokens: capacity_class(rows),
            n_out: 1,
            kind,
            context: ContextParams {
                type_k: self.ty,
                type_v: self.ty,
                pages_full: PAGES,
                pages_windowed: PAGES - 1,
                max_seqs: 1,
                pages_per_seq: 2,
                fuse: true,
            },
            weights_version: 0,
        }
    }

    /// Each layer stores its columns of the token's row, turned as K and plain as V; or turns its keys.
    fn build(&self, params: &GraphParams) -> Graph {
        let mut b = Builder::new(*params);
        let turn_only = params.kind == GraphKind::KvShift;
        let table = RopeTable {
            turn_only,
            ..self.table
        };
        let angles = b.rope_table("angles", table);
        let mut last = angles;
        for layer in 0..LAYERS {
            let spec = Attention {
                layer,
                n_head: HEADS,
                n_head_kv: HEADS,
                head_dim: HEAD,
                scale: 1.0,
                window: None,
                kind: kind_of(layer),
            };
            b.set_layer(Some(layer));
            if turn_only {
                last = b.kv_shift("shift", angles, self.rope, &spec);
                continue;
            }
            let ids = b.input(Input::TokenIds);
            let x = b.get_rows("x", WeightId(0), ids, LAYERS * WIDTH);
            let x = b.view("own", x, layer * WIDTH, WIDTH);
            let k = b.rope("k", x, angles, self.rope, HEAD);
            b.kv_store("k store", k, KvPart::K, &spec);
            last = b.kv_store("v store", x, KvPart::V, &spec);
        }
        b.finish(last)
    }
}

fn kind_of(layer: usize) -> LayerKind {
    match layer {
        1 => LayerKind::Windowed,
        _ => LayerKind::Full,
    }
}

/// A scheduler, and the values that tokens are rows of.
struct Bench {
    s: Scheduler,
    kept: Kept,
    values: Vec<f32>,
}

impl Bench {
    fn new(machine: Machine, threads: usize, kept: Kept) -> Bench {
        let values = Rng::new(5).vec(2 * PAGE * LAYERS * WIDTH, 4.0);
        let mut bytes = Vec::new();
        encode_row(GgmlType::F32, &values, &mut bytes).unwrap();
        let mut set = WeightSet::new();
        set.push(Weight {
            name: "x".into(),
            ty: GgmlType::F32,
            dims: vec![LAYERS * WIDTH, 2 * PAGE],
            usage: WeightUse::Table,
            data: Arc::new(bytes),
        });
        let backend = CpuBackend::with_machine(machine, threads).unwrap();
        let mut s = Scheduler::new(vec![Box::new(backend)], SchedulerOptions::default());
        s.load_weights(&set, &mut |_, _| {}).unwrap();
        Bench { s, kept, values }
    }

    /// Stores 64 tokens in two pages of every layer, at positions from `first` on.
    fn store(&mut self, first: i32, pages: [i32; 2]) {
        let n = 2 * PAGE as i32;
        let (ids, seq): (Vec<i32>, Vec<i32>) = ((0..n).collect(), vec![0; n as usize]);
        let positions: Vec<i32> = (first..first + n).collect();
        let inputs = BatchInputs {
            token_ids: &ids,
            positions: &positions,
            slots: &ids,
            row_seq: &seq,
            page_table_full: &pages,
            page_table_windowed: &pages,
            ..BatchInputs::default()
        };
        let (kept, p) = (self.kept, self.kept.params(GraphKind::Logits, 2 * PAGE));
        self.s
            .forward(&p, &|p| kept.build(p), &inputs, None)
            .unwrap();
    }

    /// Turns pages of the full and of the windowed layers.
    fn shift(&mut self, [deltas, full, windowed]: [&[i32]; 3]) {
        let inputs = BatchInputs {
            positions: deltas,
            pages_full: full,
            pages_windowed: windowed,
            ..BatchInputs::default()
        };
        let (kept, p) = (
            self.kept,
            self.kept.params(GraphKind::KvShift, deltas.len()),
        );
        self.s
            .forward(&p, &|p| kept.build(p), &inputs, None)
            .unwrap();
    }

    fn page(&mut self, kind: LayerKind, page: u32) -> Vec<u8> {
        let mut out = Vec::new();
        self.s.kv_read(kind, page, &mut out).unwrap();
        out
    }

    /// All pages of all layers.
    fn all(&mut self) -> Vec<Vec<u8>> {
        let full = (0..PAGES as u32).map(|p| (LayerKind::Full, p));
        let windowed = (0..PAGES as u32 - 1).map(|p| (LayerKind::Windowed, p));
        let pages: Vec<_> = full.chain(windowed).collect();
        pages.into_iter().map(|(k, p)| self.page(k, p)).collect()
    }

    /// The values of a stored page in a layer: `[32 positions][WIDTH]`, keys at positions from `first` on.
    fn meant(&self, layer: usize, part: KvPart, page: usize, first: i32) -> Vec<f32> {
        let mut out = Vec::new();
        let freqs = RopeFreqs::new(&self.kept.table, None);
        let mut angles = vec![0.0; self.kept.table.n_dims];
        for t in 0..PAGE {
            let row = (page * PAGE + t) * LAYERS * WIDTH + layer * WIDTH;
            let mut row = self.values[row..][..WIDTH].to_vec();
            if part == KvPart::K {
                freqs.fill_row(first + (page * PAGE + t) as i32, &mut angles);
                row.chunks_exact_mut(HEAD)
                    .for_each(|head| turn(self.kept.rope, head, &angles));
            }
            out.extend(row);
        }
        out
    }
}

/// A head turned by a row of angles: what the kernels' contract says, in plain f32.
fn turn(rope: RopeKind, head: &mut [f32], angles: &[f32]) {
    let half = angles.len() / 2;
    for i in 0..half {
        let (a, b) = match rope {
            RopeKind::Interleaved => (2 * i, 2 * i + 1),
            RopeKind::Halves => (i, i + half),
        };
        let (x, y, cos, sin) = (head[a], head[b], angles[i], angles[half + i]);
        head[a] = x.mul_add(cos, -(y * sin));
        head[b] = y.mul_add(cos, x * sin);
    }
}

/// Bytes of one layer's K or V page of these values, `[32][WIDTH]`: the order that files keep.
fn encode(ty: KvType, part: KvPart, values: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    let at = |head: usize, t: usize, c: usize| values[t * WIDTH + head * HEAD + c];
    for head in 0..HEADS {
        if ty == KvType::Q8_0 {
            let block = |t: usize, b: usize| {
                let x: [f32; 32] = std::array::from_fn(|i| at(head, t, 32 * b + i));
                quantize_kv_block(&x)
            };
            let scales = |out: &mut Vec<u8>, b: usize| {
                (0..PAGE).for_each(|t| out.extend(block(t, b).0.to_le_bytes()));
            };
            let codes =
                |out: &mut Vec<u8>, t: usize, b: usize, first: usize, n: usize, sign: u8| {
                    let q = block(t, b).1;
                    out.extend(q[first..first + n].iter().map(|q| *q as u8 ^ sign));
                };
            if part == KvPart::K {
                for b in 0..HEAD / 32 {
                    scales(&mut out, b);
                    for word in 0..8 {
                        (0..PAGE).for_each(|t| codes(&mut out, t, b, 4 * word, 4, 0x80));
                    }
                }
            } else {
                (0..HEAD / 32).for_each(|b| scales(&mut out, b));
                for t in 0..PAGE {
                    (0..HEAD / 32).for_each(|b| codes(&mut out, t, b, 0, 32, 0));
                }
            }
            continue;
        }
        for i in 0..PAGE * HEAD {
            let x = match part {
                KvPart::K => at(head, i % PAGE, i / PAGE),
                KvPart::V => at(head, i / HEAD, i % HEAD),
            };
            match ty {
                KvType::F32 => out.extend(x.to_le_bytes()),
                _ => out.extend(half::f16::from_f32(x).to_le_bytes()),
            }
        }
    }
    out
}

/// The keys of one layer's K page, `[32][WIDTH]`.
fn decode_keys(ty: KvType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; PAGE * WIDTH];
    for (head, part) in bytes.chunks_exact(ty.head_bytes(HEAD)).enumerate() {
        for t in 0..PAGE {
            let to = &mut out[t * WIDTH + head * HEAD..][..HEAD];
            // SAFETY: a head's part of a K page, and a head.
            unsafe { load_key(ty, part.as_ptr(), t, to) };
        }
    }
    out
}

#[test]
fn a_page_s_bytes_are_those_that_files_keep_wherever_it_lies() {
    for ty in KvType::ALL {
        let kept = Kept::new(ty, RopeKind::Halves, RopeScaling::None);
        let mut bench = Bench::new(Machine::scalar(), 1, kept);
        bench.store(9, [7, 16]);
        for (kind, layers) in [(LayerKind::Full, &[0, 2][..]), (LayerKind::Windowed, &[1])] {
            for (i, page) in [7, 16].into_iter().enumerate() {
                let parts = layers
                    .iter()
                    .flat_map(|l| [(*l, KvPart::K), (*l, KvPart::V)]);
                let want: Vec<u8> = parts
                    .flat_map(|(l, part)| encode(ty, part, &bench.meant(l, part, i, 9)))
                    .collect();
                assert_eq!(bench.s.kv_page_bytes(kind), want.len());
                assert!(bench.page(kind, page) == want, "{ty:?} {kind:?} {page}");
            }
        }
        let saved = [7, 16].map(|p| bench.page(LayerKind::Full, p));
        for machine in machines() {
            let mut other = Bench::new(machine, 3, kept);
            other.store(9, [18, 0]);
            let there = [18, 0].map(|p| other.page(LayerKind::Full, p));
            assert!(there == saved, "{ty:?} on {}", machine.name());
            // Written back, elsewhere.
            for (page, bytes) in [(8, &saved[1]), (19, &saved[0])] {
                other.s.kv_write(LayerKind::Full, page, bytes).unwrap();
                assert!(other.page(LayerKind::Full, page) == *bytes);
            }
        }
    }
}

#[test]
fn a_copy_is_one_page_of_one_kind_in_all_its_layers() {
    for ty in KvType::ALL {
        let mut bench = Bench::new(
            Machine::scalar(),
            2,
            Kept::new(ty, RopeKind::Halves, RopeScaling::None),
        );
        bench.store(0, [7, 16]);
        for (kind, from, to) in [
            (LayerKind::Full, 7, 8),
            (LayerKind::Full, 16, 19),
            (LayerKind::Windowed, 16, 0),
            (LayerKind::Windowed, 7, 6),
            (LayerKind::Full, 8, 8),
        ] {
            let mut want = bench.all();
            let first = if kind == LayerKind::Full { 0 } else { PAGES };
            want[first + to] = want[first + from].clone();
            assert!(want[first + to].iter().any(|b| *b != 0));
            bench.s.kv_copy(kind, from as u32, to as u32).unwrap();
            assert!(bench.all() == want, "{ty:?} {kind:?} {from} to {to}");
        }
    }
}

/// How far a key that was turned twice may be from one turned once, over the largest value.
fn tolerance(ty: KvType) -> f32 {
    match ty {
        KvType::F32 => 1e-6,
        KvType::F16 => 1.0 / 1024.0, // two roundings of half a unit each
        KvType::Q8_0 => 1.5 / 127.0, // each is off by half a step, and a turn mixes two channels
    }
}

fn turned(kept: Kept) {
    let what = format!("{kept:?}");
    let (from, to) = (1500, 476);
    let (deltas, full, windowed) = ([-1024, -1024, 3], [7, 16, -1], [16, -1, 7]);
    let mut bench = Bench::new(Machine::scalar(), 1, kept);
    bench.store(from, [7, 16]);
    let before = bench.all();
    bench.shift([&deltas, &full, &windowed]);
    let after = bench.all();
    // What it means: decoded, turned in f32, kept again.
    let freqs = RopeFreqs::new(
        &RopeTable {
            turn_only: true,
            ..kept.table
        },
        None,
    );
    let page_bytes = encode(kept.ty, KvPart::K, &[0.0; PAGE * WIDTH]).len();
    let mut angles = vec![0.0; kept.table.n_dims];
    let mut want = before.clone();
    for (row, delta) in deltas.into_iter().enumerate() {
        freqs.fill_row(delta, &mut angles);
        for (first, page) in [(0, full[row]), (PAGES, windowed[row])] {
            let Ok(page) = usize::try_from(page) else {
                continue;
            };
            for layer in want[first + page].chunks_exact_mut(2 * page_bytes) {
                let mut keys = decode_keys(kept.ty, &layer[..page_bytes]);
                let heads = keys.chunks_exact_mut(HEAD);
                heads.for_each(|head| turn(kept.rope, head, &angles));
                layer[..page_bytes].copy_from_slice(&encode(kept.ty, KvPart::K, &keys));
            }
        }
    }
    assert!(after == want, "{what}: other bytes than it means");
    // And that is close to keys that were stored there.
    for (i, page) in [7, 16].into_iter().enumerate() {
        let got = decode_keys(kept.ty, &after[page][..page_bytes]);
        let want = bench.meant(0, KvPart::K, i, to);
        let largest = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        for (g, w) in got.iter().zip(&want) {
            let off = (g - w).abs() / largest;
            assert!(off <= tolerance(kept.ty), "{what}: {g} for {w} ({off:e})");
        }
    }
    for machine in machines() {
        for threads in [1, 3] {
            let mut other = Bench::new(machine, threads, kept);
            other.store(from, [7, 16]);
            other.shift([&deltas, &full, &windowed]);
            let name = machine.name();
            assert!(other.all() == after, "{what}: {name}, {threads} threads");
        }
    }
    // No turn at all: the same bits.
    bench.shift([&[0, 0], &[7, 16], &[7, 16]]);
    assert!(bench.all() == after, "{what}: turned by nothing");
}

#[test]
fn turned_keys_are_those_of_the_other_position() {
    for ty in KvType::ALL {
        for rope in [RopeKind::Halves, RopeKind::Interleaved] {
            for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 2.0 }, YARN] {
                turned(Kept::new(ty, rope, scaling));
            }
        }
    }
}
