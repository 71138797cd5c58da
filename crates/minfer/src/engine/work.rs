//! How much a measurement computes and reads at least, counted on the graph.

use super::measure::Measure;
use super::{EngineOptions, Model};
use crate::graph::{
    Attention, ContextParams, Counts, Graph, GraphKind, GraphParams, Op, PAGE, WeightSet, WeightUse,
};
use crate::numeric::is_float;

/// What one run of a measurement's timed part takes, whoever computes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Operations of products with quantized weights (a multiplication and an addition are two).
    pub int8_ops: u64,
    /// Operations of products with F32, F16 and BF16 weights.
    pub f32_ops: u64,
    /// Operations of attention's two products.
    pub attention_ops: u64,
    /// Bytes of weights that are read, once a forward pass; of tables that are only looked up, the rows.
    pub weight_bytes: u64,
    /// Forward passes.
    pub passes: u64,
    /// Bytes of KV that are read, once a sequence and forward pass: positions that its rows see.
    pub kv_bytes: u64,
}

impl Work {
    /// Of one repetition of `m` on a model, in an engine with these options.
    pub fn of(model: &Model, m: &Measure, options: &EngineOptions) -> Work {
        let context = ContextParams {
            type_k: options.type_k,
            type_v: options.type_v,
            pages_full: 1,
            pages_windowed: 1,
            max_seqs: 1,
            pages_per_seq: 1,
            fuse: false,
        };
        // Its topology is the same for all row counts; these are counted.
        let graph = model.arch().build(&GraphParams {
            n_tokens: 1,
            n_out: 1,
            kind: GraphKind::Logits,
            context,
            weights_version: 0,
        });
        let count = Count {
            graph: &graph,
            weights: model.weights(),
        };
        let mut work = Work::default();
        let end = m.depth + m.n_prompt;
        for start in (m.depth..end).step_by(options.n_batch.max(1)) {
            let rows = options.n_batch.min(end - start);
            let out = usize::from(start + rows == end);
            for _ in 0..m.n_seqs {
                count.pass(&mut work, 1, start, Counts { tokens: rows, out });
            }
        }
        for position in end..end + m.n_gen {
            let (tokens, out) = (m.n_seqs, m.n_seqs);
            count.pass(&mut work, m.n_seqs, position, Counts { tokens, out });
        }
        work
    }
}

struct Count<'a> {
    graph: &'a Graph,
    weights: &'a WeightSet,
}

impl Count<'_> {
    /// Adds one forward pass of `n_seqs` sequences that share its rows evenly, the first row of each at `slot`.
    fn pass(&self, work: &mut Work, n_seqs: usize, slot: usize, counts: Counts) {
        work.passes += 1;
        for node in &self.graph.nodes {
            let rows = counts.rows(node.shape.rows) as u64;
            for id in node.op.weights() {
                let w = self.weights.get(id);
                work.weight_bytes += match w.usage {
                    WeightUse::Matrix if rows > 0 => w.data.bytes().len() as u64,
                    WeightUse::Vector if rows > 0 => 4 * w.cols() as u64,
                    WeightUse::Table => rows * (w.data.bytes().len() / w.rows()) as u64,
                    _ => 0,
                };
            }
            match &node.op {
                Op::MatMul(m) => {
                    for part in &m.parts {
                        let w = self.weights.get(part.weight);
                        let ops = 2 * rows * (part.rows * w.cols()) as u64;
                        match is_float(w.ty) {
                            true => work.f32_ops += ops,
                            false => work.int8_ops += ops,
                        }
                    }
                }
                Op::Attention(a) => {
                    // Asked rows are the last ones.
                    let each = counts.tokens / n_seqs;
                    let asked = rows as usize / n_seqs;
                    let first = slot + each - asked;
                    self.attention(work, a, first..slot + each, n_seqs as u64);
                }
                _ => {}
            }
        }
    }

    /// Adds the rows at these slots of each of `n_seqs` sequences.
    fn attention(
        &self,
        work: &mut Work,
        a: &Attention,
        slots: std::ops::Range<usize>,
        n_seqs: u64,
    ) {
        let seen = |slot: usize| a.window.map_or(slot + 1, |w| w.min(slot + 1));
        let positions: usize = slots.clone().map(seen).sum();
        work.attention_ops += 4 * n_seqs * (positions * a.n_head * a.head_dim) as u64;
        if let Some(last) = slots.clone().last() {
            let read = last + 1 - (slots.start + 1 - seen(slots.start));
            let context = &self.graph.params.context;
            let bytes = [context.type_k, context.type_v].map(|t| t.head_bytes(a.head_dim) / PAGE);
            let bytes = bytes[0] + bytes[1];
            work.kv_bytes += n_seqs * (read * a.n_head_kv * bytes) as u64;
        }
    }
}
