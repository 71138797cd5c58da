//! Embeddings: the normed hidden state of every position, beside `transformers`.

mod tiny;

use minfer::backend;
use minfer::graph::{
    BatchInputs, ContextParams, GraphKind, GraphParams, KvType, PAGE, Scheduler, SchedulerOptions,
    capacity_class,
};

/// Hidden states of all positions of a prompt, `[positions][n_embd]`.
fn hidden(s: &mut Scheduler, model: &minfer::engine::Model, prompt: &[u32]) -> Vec<f32> {
    let n = prompt.len();
    let pages = n.div_ceil(PAGE);
    let params = GraphParams {
        n_tokens: capacity_class(n),
        n_out: capacity_class(n),
        kind: GraphKind::Embeddings,
        context: ContextParams {
            type_k: KvType::F32,
            type_v: KvType::F32,
            pages_full: 2,
            pages_windowed: 2,
            max_seqs: 1,
            pages_per_seq: 2,
            fuse: true,
        },
        weights_version: 0,
    };
    let ids: Vec<i32> = prompt.iter().map(|t| *t as i32).collect();
    let slots: Vec<i32> = (0..n as i32).collect();
    assert!(pages <= 2);
    let inputs = BatchInputs {
        token_ids: &ids,
        positions: &slots,
        slots: &slots,
        row_seq: &vec![0; n],
        out_rows: &slots,
        page_table_full: &[1, 0],
        page_table_windowed: &[0, 1],
        ..BatchInputs::default()
    };
    s.forward(&params, &|p| model.arch().build(p), &inputs, None)
        .unwrap_or_else(|e| panic!("{e}"));
    let mut out = vec![0.0; n * model.hparams().n_embd];
    s.read_output(0..n, &mut out).unwrap();
    out
}

/// The head, `[n_vocab][n_embd]`.
fn head(model: &minfer::engine::Model) -> Vec<f32> {
    let by_name = |name: &str| model.weights().iter().find(|(_, w)| w.name == name);
    let found = by_name("output.weight").or_else(|| by_name("token_embd.weight"));
    let bytes = found.expect("a head").1.data.bytes().chunks_exact(4);
    bytes
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// The head has more rows than the hidden state has values, so a hidden state with their logits is theirs.
#[test]
fn hidden_states_are_those_whose_logits_transformers_gives() {
    for name in tiny::NAMES {
        let model = tiny::model(name);
        let backends = backend::create(None, Some(2), None, true).unwrap();
        let mut s = Scheduler::new(backends, SchedulerOptions::default());
        s.load_weights(model.weights(), &mut |_, _| {}).unwrap();
        let (head, n_embd) = (head(&model), model.hparams().n_embd);
        assert!(head.len() / n_embd > n_embd, "{name}: the head tells");
        let want = tiny::golden(name);
        let mut got = Vec::with_capacity(want.len());
        for prompt in tiny::prompts() {
            for x in hidden(&mut s, &model, &prompt).chunks_exact(n_embd) {
                let logit = |row: &[f32]| -> f64 {
                    let products = row.iter().zip(x);
                    products.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
                };
                got.extend(head.chunks_exact(n_embd).map(logit));
            }
        }
        assert_eq!(got.len(), want.len(), "{name}");
        let range = want
            .iter()
            .fold((f32::MAX, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
        let range = f64::from(range.1 - range.0);
        let worst = want.iter().zip(&got);
        let worst = worst
            .map(|(w, g)| (f64::from(*w) - g).abs())
            .fold(0.0, f64::max);
        assert!(worst <= 1e-4 * range, "{name}: off by {worst} of {range}");
    }
}
