//! The differential op test: every operator, format and shape, fused and not, on every lane machine
//! and on several threads equals the scalar machine on one thread bit for bit, and that is close to
//! the f64 meaning (`graph::reference`).

use std::sync::Arc;

use super::CpuBackend;
use crate::graph::reference::{Decoded, Reference};
use crate::graph::{
    Activation, Attention, Backend, BatchInputs, Builder, ContextParams, Graph, GraphKind,
    GraphParams, Input, KvPart, KvType, LayerKind, MatPart, NodeId, NodeRange, Norm, PAGE,
    RopeKind, RopeScaling, RopeTable, Scheduler, SchedulerOptions, Weight, WeightId, WeightSet,
    WeightUse, capacity_class,
};
use crate::lanes::Machine;
use crate::lanes::tests::machines;
use crate::numeric::test_rng::Rng;
use crate::numeric::{GgmlType, RUNNABLE, decode_row, encode_row, is_encodable, is_float};

/// Enough positions for three attention segments.
const SLOTS: usize = 640;

/// Weights of a case.
struct Weights {
    set: WeightSet,
    rng: Rng,
}

impl Weights {
    fn new(seed: u64) -> Weights {
        Weights {
            set: WeightSet::new(),
            rng: Rng::new(seed),
        }
    }

    fn push(&mut self, ty: GgmlType, dims: &[usize], usage: WeightUse) -> WeightId {
        let (cols, rows) = (dims[0], dims.get(1).copied().unwrap_or(1));
        let mut bytes = Vec::new();
        for _ in 0..rows {
            let row = self.rng.vec(cols, 1.0);
            match is_encodable(ty) {
                true => encode_row(ty, &row, &mut bytes).unwrap(),
                false => self.random_k_blocks(ty, cols, &mut bytes),
            }
        }
        let (name, dims) = (format!("{ty} {dims:?}"), dims.to_vec());
        self.set.push(Weight {
            name,
            ty,
            dims,
            usage,
            data: Arc::new(bytes),
        })
    }

    /// Random bytes with sane scales.
    fn random_k_blocks(&mut self, ty: GgmlType, cols: usize, out: &mut Vec<u8>) {
        let small = half::f16::from_f32(2e-3).to_le_bytes();
        for _ in 0..cols / ty.block_len() {
            let start = out.len();
            out.extend((0..ty.block_bytes()).map(|_| self.rng.next() as u8));
            let block = &mut out[start..];
            let places: &[usize] = if ty == GgmlType::Q6_K {
                &[208]
            } else {
                &[0, 2]
            };
            for at in places {
                block[*at..at + 2].copy_from_slice(&small);
            }
        }
    }

    fn table(&mut self, ty: GgmlType, rows: usize, cols: usize) -> WeightId {
        self.push(ty, &[cols, rows], WeightUse::Table)
    }

    fn vector(&mut self, n: usize) -> WeightId {
        self.push(GgmlType::F32, &[n], WeightUse::Vector)
    }

    fn part(&mut self, ty: GgmlType, rows: usize, cols: usize, bias: bool) -> MatPart {
        let weight = self.push(ty, &[cols, rows], WeightUse::Matrix);
        MatPart {
            weight,
            bias: bias.then(|| self.vector(rows)),
            rows,
        }
    }
}

/// A weight's values.
fn decode(weight: &Weight) -> Vec<f32> {
    let mut out = vec![0.0; weight.rows() * weight.cols()];
    decode_row(weight.ty, weight.data.bytes(), &mut out).unwrap();
    out
}

/// A graph to run: what is built, on how many tokens.
struct Case<'a> {
    name: String,
    weights: &'a Weights,
    tokens: usize,
    kv: KvType,
    /// Slot of the first token, and what was stored before is stored by an earlier pass.
    build: &'a dyn Fn(&mut Builder) -> NodeId,
    /// Largest difference from the f64 meaning, over the largest value.
    tolerance: f64,
}

impl Case<'_> {
    fn params(&self, fuse: bool) -> GraphParams {
        let pages = SLOTS / PAGE;
        GraphParams {
            n_tokens: capacity_class(self.tokens),
            n_out: capacity_class(self.tokens.div_ceil(2)),
            kind: GraphKind::Logits,
            context: ContextParams {
                type_k: self.kv,
                type_v: self.kv,
                pages_full: pages,
                pages_windowed: pages,
                max_seqs: 1,
                pages_per_seq: pages,
                fuse,
            },
            weights_version: 0,
        }
    }

    fn graph(&self, params: &GraphParams) -> Graph {
        let mut b = Builder::new(*params);
        b.set_layer(Some(0));
        let out = (self.build)(&mut b);
        b.finish(out)
    }

    /// Calls `f` with the inputs: tokens in order, pages in no order, every second row asked for.
    fn with_inputs<T>(&self, f: impl FnOnce(&BatchInputs<'_>) -> T) -> T {
        let n = self.tokens as i32;
        let pages = (SLOTS / PAGE) as i32;
        let (ids, seq) = ((0..n).collect::<Vec<_>>(), vec![0; self.tokens]);
        let out: Vec<i32> = (0..n).step_by(2).collect();
        let table: Vec<i32> = (0..pages).map(|p| (p * 7 + 3) % pages).collect();
        f(&BatchInputs {
            token_ids: &ids,
            positions: &ids,
            slots: &ids,
            row_seq: &seq,
            out_rows: &out,
            page_table_full: &table,
            page_table_windowed: &table,
            ..BatchInputs::default()
        })
    }

    fn run(&self, machine: Machine, threads: usize, fuse: bool, pack: bool) -> Vec<f32> {
        let backend = CpuBackend::with_machine(machine, threads)
            .unwrap()
            .packing(pack);
        let mut s = Scheduler::new(vec![Box::new(backend)], SchedulerOptions::default());
        s.load_weights(&self.weights.set, &mut |_, _| {}).unwrap();
        let params = self.params(fuse);
        let graph = self.graph(&params);
        let shape = graph.node(graph.outputs[0]).shape;
        self.with_inputs(|inputs| {
            s.forward(&params, &|p| self.graph(p), inputs, None)
                .unwrap();
            let rows = match shape.rows {
                crate::graph::Rows::Out => inputs.out_rows.len(),
                _ => self.tokens,
            };
            let mut out = vec![0.0; rows * shape.cols];
            s.read_output(0..rows, &mut out).unwrap();
            out
        })
    }

    fn check(&self) {
        let want = self.run(Machine::scalar(), 1, false, true);
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for machine in machines() {
            let ways = [
                (1, true, true),
                (2, false, true),
                (3, true, true),
                (2, true, false),
            ];
            for (threads, fuse, pack) in ways {
                let got = self.run(machine, threads, fuse, pack);
                let name = format!(
                    "{}: {}, {threads} threads, fuse {fuse}, pack {pack}",
                    self.name,
                    machine.name()
                );
                assert!(
                    bits(&got) == bits(&want),
                    "{name}: other bits than the scalar machine"
                );
            }
        }
        self.check_meaning(&want);
    }

    fn check_meaning(&self, got: &[f32]) {
        let graph = self.graph(&self.params(false));
        let mut reference = Reference::new(Decoded::new(&self.weights.set, &decode));
        let all = self.with_inputs(|inputs| reference.run(&graph, inputs));
        let want = &all[graph.outputs[0].index()].data[..got.len()];
        let largest = want.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
        for (i, (w, g)) in want.iter().zip(got).enumerate() {
            let off = (w - f64::from(*g)).abs() / largest;
            assert!(
                off <= self.tolerance,
                "{}: value {i} is {g}, means {w} ({off:.1e} of {largest})",
                self.name
            );
        }
    }
}

/// How far a product may be from f64: rounding alone, or quantized activations.
fn tolerance(ty: GgmlType) -> f64 {
    if is_float(ty) { 2e-6 } else { 3e-2 }
}

fn check(
    name: String,
    weights: &Weights,
    tokens: usize,
    tolerance: f64,
    build: &dyn Fn(&mut Builder) -> NodeId,
) {
    Case {
        name,
        weights,
        tokens,
        kv: KvType::F16,
        build,
        tolerance,
    }
    .check();
}

/// A table of activations, one row a token.
fn source(w: &mut Weights, cols: usize) -> impl Fn(&mut Builder) -> NodeId + use<> {
    let table = w.table(GgmlType::F32, SLOTS, cols);
    move |b| {
        let ids = b.input(Input::TokenIds);
        b.get_rows("x", table, ids, cols)
    }
}

#[test]
fn get_rows_of_every_format_and_selected_rows() {
    for ty in RUNNABLE {
        let mut w = Weights::new(1);
        let table = w.table(ty, 9, 512);
        check(format!("get_rows {ty}"), &w, 9, 1e-7, &|b| {
            let ids = b.input(Input::TokenIds);
            let x = b.get_rows("x", table, ids, 512);
            let rows = b.input(Input::OutRows);
            b.select_rows("asked", x, rows)
        });
    }
}

#[test]
fn elementwise_and_norms() {
    for (tokens, cols) in [(1, 64), (3, 80), (17, 96), (5, 576)] {
        let mut w = Weights::new(2);
        let (x, y) = (source(&mut w, cols), source(&mut w, cols));
        let (row, head) = (w.vector(cols), w.vector(16));
        let norm = |weight, group| Norm {
            weight,
            eps: 1e-5,
            group,
        };
        check(
            format!("elementwise {tokens} x {cols}"),
            &w,
            tokens,
            2e-6,
            &|b| {
                let (x, y) = (x(b), y(b));
                let s = b.scale("scale", x, 1.7);
                let a = b.add("add", s, y);
                let n = b.rms_norm("norm", a, norm(row, cols));
                let h = b.rms_norm("head norm", n, norm(head, 16));
                let g = b.act("gelu", Activation::Gelu, h);
                let g = b.mul("mul", g, y);
                let u = b.act("silu", Activation::Silu, g);
                b.mul("glu", u, a)
            },
        );
    }
}

/// Products of one format with bias, a group of three, a norm in front, a residual behind, a gated unit.
fn products(ty: GgmlType, tokens: usize, cols: usize) {
    let mut w = Weights::new(3);
    let x = source(&mut w, cols);
    let (q, k, v) = (
        w.part(ty, 48, cols, true),
        w.part(ty, 17, cols, false),
        w.part(ty, 31, cols, true),
    );
    let norm = Norm {
        weight: w.vector(cols),
        eps: 1e-6,
        group: cols,
    };
    let (gate, up) = (w.part(ty, 40, cols, false), w.part(ty, 40, cols, false));
    let back = w.part(ty, cols, cols, false);
    let name = |what: &str| format!("{what} {ty} {tokens} x {cols}");
    check(name("group"), &w, tokens, tolerance(ty), &|b| {
        let x = x(b);
        let n = b.rms_norm("norm", x, norm);
        let (q, k) = (b.matmul("q", n, q), b.matmul("k", n, k));
        let v = b.matmul("v", n, v);
        // All three reach the output, each through its own view.
        let k16 = b.view("k16", k, 1, 16);
        let q16 = b.view("q16", q, 32, 16);
        let v16 = b.view("v16", v, 15, 16);
        let a = b.add("q + k", q16, k16);
        b.add("+ v", a, v16)
    });
    check(name("residual"), &w, tokens, tolerance(ty), &|b| {
        let x = x(b);
        let y = b.matmul("y", x, back);
        b.add("y + x", y, x)
    });
    for act in [Activation::Silu, Activation::Gelu] {
        check(name("gated"), &w, tokens, 2.0 * tolerance(ty), &|b| {
            let x = x(b);
            let n = b.rms_norm("norm", x, norm);
            let (g, u) = (b.matmul("gate", n, gate), b.matmul("up", n, up));
            let g = b.act("act", act, g);
            b.mul("glu", g, u)
        });
    }
}

macro_rules! product_tests {
    ($($name:ident: $ty:ident,)*) => {
        $(#[test]
        fn $name() {
            let ty = GgmlType::$ty;
            let cols = if ty.block_len() == 256 { 512 } else { 96 };
            for tokens in [1, 2, 3, 8, 21] {
                products(ty, tokens, cols);
            }
        })*

        #[test]
        fn every_runnable_type_has_its_products() {
            let tested = [$(GgmlType::$ty),*];
            assert_eq!(RUNNABLE.len(), tested.len());
            for ty in RUNNABLE {
                assert!(tested.contains(&ty), "{ty} has no test of its products");
            }
        }
    };
}

product_tests! {
    products_f32: F32, products_f16: F16, products_bf16: BF16,
    products_q4_0: Q4_0, products_q4_1: Q4_1, products_q5_0: Q5_0, products_q5_1: Q5_1, products_q8_0: Q8_0,
    products_q4_k: Q4_K, products_q5_k: Q5_K, products_q6_k: Q6_K,
}

/// RoPE, stores and attention of one shape.
fn attention(
    heads: (usize, usize),
    head_dim: usize,
    window: Option<usize>,
    rope: RopeKind,
    kv: KvType,
) {
    let (n_head, n_head_kv) = heads;
    let (nq, nkv) = (n_head * head_dim, n_head_kv * head_dim);
    let mut w = Weights::new(4);
    let x = source(&mut w, nq + 2 * nkv);
    let scaling = RopeScaling::Yarn {
        factor: 4.0,
        n_ctx_orig: 64,
        ext_factor: 1.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
    };
    let table = RopeTable {
        n_dims: head_dim - head_dim / 4,
        freq_base: 1e4,
        scaling,
        freq_factors: None,
        turn_only: false,
    };
    let kind = if window.is_some() {
        LayerKind::Windowed
    } else {
        LayerKind::Full
    };
    let spec = Attention {
        layer: 0,
        n_head,
        n_head_kv,
        head_dim,
        scale: 1.0 / (head_dim as f32).sqrt(),
        window,
        kind,
    };
    let build = |b: &mut Builder| {
        let x = x(b);
        let angles = b.rope_table("angles", table);
        let (q, k, v) = (
            b.view("q", x, 0, nq),
            b.view("k", x, nq, nkv),
            b.view("v", x, nq + nkv, nkv),
        );
        let (q, k) = (
            b.rope("q rope", q, angles, rope, head_dim),
            b.rope("k rope", k, angles, rope, head_dim),
        );
        let (k, v) = (
            b.kv_store("k store", k, KvPart::K, &spec),
            b.kv_store("v store", v, KvPart::V, &spec),
        );
        let rows = b.input(Input::OutRows);
        let q = b.select_rows("asked q", q, rows);
        let (slots, seqs) = (b.input(Input::Slots), b.input(Input::RowSeq));
        let at = (
            b.select_rows("slots", slots, rows),
            b.select_rows("seqs", seqs, rows),
        );
        b.attention("attention", [q, k, v], at, spec)
    };
    for tokens in [1, 5, 70, 600] {
        let name = format!(
            "attention {n_head}/{n_head_kv} x {head_dim}, window {window:?}, {kv:?}, {tokens} tokens"
        );
        Case {
            name,
            weights: &w,
            tokens,
            kv,
            build: &build,
            // The reference does not quantize queries.
            tolerance: if kv == KvType::Q8_0 { 2e-2 } else { 1e-5 },
        }
        .check();
    }
}

#[test]
fn a_region_of_part_blocks_is_refused() {
    let head_dim = 48;
    let mut w = Weights::new(5);
    let x = source(&mut w, head_dim);
    let spec = Attention {
        layer: 0,
        n_head: 1,
        n_head_kv: 1,
        head_dim,
        scale: 1.0,
        window: None,
        kind: LayerKind::Full,
    };
    let build = |b: &mut Builder| {
        let x = x(b);
        let k = b.kv_store("k store", x, KvPart::K, &spec);
        let v = b.kv_store("v store", x, KvPart::V, &spec);
        let at = (b.input(Input::Slots), b.input(Input::RowSeq));
        b.attention("attention", [x, k, v], at, spec)
    };
    for (kv, good) in [(KvType::F16, true), (KvType::Q8_0, false)] {
        let case = Case {
            name: "part blocks".into(),
            weights: &w,
            tokens: 1,
            kv,
            build: &build,
            tolerance: 0.0,
        };
        let backend = CpuBackend::with_machine(Machine::scalar(), 1).unwrap();
        let mut s = Scheduler::new(vec![Box::new(backend)], SchedulerOptions::default());
        s.load_weights(&w.set, &mut |_, _| {}).unwrap();
        let error = s.prepare(&case.params(true), &|p| case.graph(p)).err();
        let error = error.map(|e| e.to_string());
        assert_eq!(error.is_none(), good, "{error:?}");
        if let Some(text) = error {
            let named = text.contains("'k store'") && text.contains("q8_0 of heads of 48");
            assert!(named, "{text}");
        }
    }
}

#[test]
fn steps_go_with_their_graph() {
    let mut backend = CpuBackend::with_machine(Machine::scalar(), 1).unwrap();
    let nodes = NodeRange { start: 0, end: 1 };
    for (uid, many) in [(1, false), (1, true), (2, false), (2, true)] {
        backend
            .plans
            .insert((uid, nodes, (false, many)), Vec::new());
    }
    backend.forget(1);
    assert_eq!(backend.plans.len(), 2);
    assert!(backend.plans.keys().all(|key| key.0 == 2));
}

#[test]
fn attention_full_q8_0_halves() {
    attention((6, 2), 64, None, RopeKind::Halves, KvType::Q8_0);
}

#[test]
fn attention_windowed_q8_0_interleaved() {
    attention((7, 1), 96, Some(100), RopeKind::Interleaved, KvType::Q8_0);
}

#[test]
fn attention_full_f16_interleaved() {
    attention((6, 2), 64, None, RopeKind::Interleaved, KvType::F16);
}

#[test]
fn attention_windowed_f32_halves() {
    attention((4, 1), 32, Some(100), RopeKind::Halves, KvType::F32);
}

#[test]
fn attention_wide_heads_f16_halves() {
    attention((2, 2), 80, Some(40), RopeKind::Halves, KvType::F16);
}
