//! Kinds of graphs beside the one that gives logits, on the tiny models of every architecture.

mod tiny;

use std::sync::Arc;

use minfer::backend;
use minfer::engine::Model;
use minfer::graph::{
    BatchInputs, ContextParams, GraphKind, GraphParams, KvType, Scheduler, SchedulerOptions,
    capacity_class,
};

/// Pages of the one sequence, by kind of layer: on both sides of a group of eight.
const FULL: [i32; 2] = [7, 8];
const WINDOWED: [i32; 2] = [9, 3];

/// A model that runs one pass after the other.
struct Passes {
    s: Scheduler,
    model: Arc<Model>,
    kv: KvType,
}

impl Passes {
    fn new(model: Arc<Model>, kv: KvType) -> Passes {
        let backends = backend::create(None, Some(2), None, true).unwrap();
        let mut s = Scheduler::new(backends, SchedulerOptions::default());
        s.load_weights(model.weights(), &mut |_, _| {}).unwrap();
        Passes { s, model, kv }
    }

    fn forward(&mut self, kind: GraphKind, inputs: &BatchInputs<'_>) {
        let counts = inputs.counts();
        let params = GraphParams {
            n_tokens: capacity_class(counts.tokens),
            n_out: capacity_class(counts.out),
            kind,
            context: ContextParams {
                type_k: self.kv,
                type_v: self.kv,
                pages_full: 10,
                pages_windowed: 10,
                max_seqs: 1,
                pages_per_seq: 2,
                fuse: true,
            },
            weights_version: 0,
        };
        let arch = self.model.arch();
        self.s
            .forward(&params, &|p| arch.build(p), inputs, None)
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// Runs tokens from slot `first` on, at positions that are `moved` further. What every row gives, each
    /// `cols` values.
    fn run(
        &mut self,
        kind: GraphKind,
        (tokens, first, moved): (&[u32], i32, i32),
        cols: usize,
    ) -> Vec<f32> {
        let n = tokens.len();
        let ids: Vec<i32> = tokens.iter().map(|t| *t as i32).collect();
        let slots: Vec<i32> = (first..first + n as i32).collect();
        let positions: Vec<i32> = slots.iter().map(|s| s + moved).collect();
        let rows: Vec<i32> = (0..n as i32).collect();
        let inputs = BatchInputs {
            token_ids: &ids,
            positions: &positions,
            slots: &slots,
            row_seq: &vec![0; n],
            out_rows: &rows,
            page_table_full: &FULL,
            page_table_windowed: &WINDOWED,
            ..BatchInputs::default()
        };
        self.forward(kind, &inputs);
        let mut out = vec![0.0; n * cols];
        self.s.read_output(0..n, &mut out).unwrap();
        out
    }
}

/// The largest difference, over the range of what is wanted.
fn off(got: &[f64], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let (low, high) = want
        .iter()
        .fold((f32::MAX, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
    let off = want.iter().zip(got).map(|(w, g)| (f64::from(*w) - g).abs());
    // By total order, which puts a NaN above all.
    off.max_by(f64::total_cmp).unwrap() / f64::from(high - low)
}

/// The head, `[n_vocab][n_embd]`.
fn head(model: &Model) -> Vec<f32> {
    let by_name = |name: &str| model.weights().iter().find(|(_, w)| w.name == name);
    let found = by_name("output.weight").or_else(|| by_name("token_embd.weight"));
    let bytes = found.expect("a head").1.data.bytes().chunks_exact(4);
    bytes
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// Beside llama.cpp (xtask/golden/tiny_embeddings.py) as they are, beside `transformers` by its logits: the head has
/// more rows than a hidden state has values, so a hidden state with their logits is theirs.
#[test]
fn hidden_states_are_those_of_llama_cpp_and_of_transformers() {
    for name in tiny::NAMES {
        let model = tiny::model(name);
        let (head, n_embd) = (head(&model), model.hparams().n_embd);
        assert!(head.len() / n_embd > n_embd, "{name}: the head tells");
        let mut passes = Passes::new(model, KvType::F32);
        let want = tiny::golden(name);
        let (mut got, mut states) = (Vec::with_capacity(want.len()), Vec::new());
        for prompt in tiny::prompts() {
            let hidden = passes.run(GraphKind::Embeddings, (&prompt, 0, 0), n_embd);
            states.extend(hidden.iter().map(|x| f64::from(*x)));
            for x in hidden.chunks_exact(n_embd) {
                let logit = |row: &[f32]| -> f64 {
                    let products = row.iter().zip(x);
                    products.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
                };
                got.extend(head.chunks_exact(n_embd).map(logit));
            }
        }
        let worst = off(&got, &want);
        assert!(worst <= 1e-4, "{name}: logits off by {worst} of the range");
        let worst = off(&states, &tiny::golden_embeddings(name));
        // llama.cpp looks GELU up in a table of f16 values.
        let tolerance = if name == "gemma3" { 1e-3 } else { 1e-4 };
        assert!(worst <= tolerance, "{name}: off by {worst} of the range");
        println!("{name}: hidden states off by {worst:.1e} of their range");
    }
}

/// RoPE knows distances alone: 40 positions, run 100 further on and moved back where they lie, are the prompt.
#[test]
fn a_sequence_whose_keys_were_turned_goes_on_as_if_it_had_always_been_there() {
    let by = 100;
    let prompt = &tiny::prompts()[9];
    for name in tiny::NAMES {
        for (kv, tolerance) in [
            (KvType::F32, 1e-4),
            (KvType::F16, 3e-3),
            (KvType::Q8_0, 3e-2),
        ] {
            let model = tiny::model(name);
            let (n_vocab, head_dim) = (model.hparams().n_vocab, model.hparams().head_dim);
            if head_dim % kv.block() != 0 {
                continue; // refused by name, which is tested elsewhere
            }
            let (before, last) = prompt.split_at(prompt.len() - 1);
            let slot = before.len() as i32;
            let mut plain = Passes::new(model.clone(), kv);
            plain.run(GraphKind::Logits, (before, 0, 0), n_vocab);
            let want = plain.run(GraphKind::Logits, (last, slot, 0), n_vocab);
            let mut moved = Passes::new(model, kv);
            moved.run(GraphKind::Logits, (before, 0, by), n_vocab);
            // The window of the windowed layers is 8: nobody sees their first page any more.
            let inputs = BatchInputs {
                positions: &[-by, -by],
                pages_full: &FULL,
                pages_windowed: &[-1, WINDOWED[1]],
                ..BatchInputs::default()
            };
            let go_on = |passes: &mut Passes| {
                let got = passes.run(GraphKind::Logits, (last, slot, 0), n_vocab);
                let got: Vec<f64> = got.into_iter().map(f64::from).collect();
                off(&got, &want)
            };
            let worst = go_on(&mut moved);
            assert!(worst > 2.0 * tolerance, "{name}, {kv:?}: it matters");
            moved.forward(GraphKind::KvShift, &inputs);
            let worst = go_on(&mut moved);
            assert!(worst <= tolerance, "{name}, {kv:?}: off by {worst}");
        }
    }
}
