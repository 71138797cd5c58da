//! A model of two layers with everything that real ones have: grouped heads, a sliding window, QK
//! norms, biases, gated feed-forward, asked rows.

use std::sync::Arc;

use crate::graph::*;
use crate::numeric::GgmlType;
use crate::numeric::test_rng::Rng;

pub const N_VOCAB: usize = 23;
const WIDTH: usize = 16;
const FF: usize = 24;
const HEADS: usize = 4;
const HEADS_KV: usize = 2;
const HEAD: usize = 4;

const ROPE: RopeTable = RopeTable {
    n_dims: HEAD,
    freq_base: 10_000.0,
    scaling: RopeScaling::None,
    freq_factors: None,
    turn_only: false,
};

pub struct Layer {
    attn_norm: WeightId,
    q: MatPart,
    k: MatPart,
    v: MatPart,
    out: MatPart,
    k_norm: WeightId,
    ffn_norm: WeightId,
    gate: MatPart,
    up: MatPart,
    down: MatPart,
}

pub struct Toy {
    pub weights: WeightSet,
    embed: WeightId,
    layers: Vec<Layer>,
    norm: WeightId,
    head: MatPart,
}

pub fn weight(
    set: &mut WeightSet,
    random: &mut Rng,
    name: &str,
    dims: &[usize],
    usage: WeightUse,
) -> WeightId {
    let n: usize = dims.iter().product();
    let bytes: Vec<u8> = (0..n)
        .flat_map(|_| (random.unit() * 0.5).to_le_bytes())
        .collect();
    set.push(Weight {
        name: name.to_string(),
        ty: GgmlType::F32,
        dims: dims.to_vec(),
        usage,
        data: Arc::new(bytes),
    })
}

impl Toy {
    pub fn new() -> Toy {
        let (mut set, mut random) = (WeightSet::new(), Rng::new(7));
        let (set, random) = (&mut set, &mut random);
        let embed = weight(
            set,
            random,
            "token_embd.weight",
            &[WIDTH, N_VOCAB],
            WeightUse::Table,
        );
        let layers = (0..2).map(|l| Layer::new(set, random, l)).collect();
        let norm = weight(
            set,
            random,
            "output_norm.weight",
            &[WIDTH],
            WeightUse::Vector,
        );
        let head = part(set, random, "output.weight", WIDTH, N_VOCAB, false);
        Toy {
            weights: set.clone(),
            embed,
            layers,
            norm,
            head,
        }
    }

    pub fn build(&self, params: &GraphParams) -> Graph {
        if params.kind == GraphKind::KvShift {
            return shift(params);
        }
        let b = &mut Builder::new(*params);
        let ids = b.input(Input::TokenIds);
        let mut x = b.get_rows("embed", self.embed, ids, WIDTH);
        x = b.scale("embed_scaled", x, 1.5);
        let table = b.rope_table("rope", ROPE);
        for (l, layer) in self.layers.iter().enumerate() {
            b.set_layer(Some(l));
            x = layer.attend(b, x, table, l);
            if l == 1 {
                let rows = b.input(Input::OutRows);
                x = b.select_rows("asked", x, rows);
            }
            x = layer.feed_forward(b, x);
        }
        b.set_layer(None);
        let normed = b.rms_norm("output_norm", x, norm(self.norm, WIDTH));
        let result = match params.kind {
            GraphKind::Embeddings => normed,
            _ => b.matmul("logits", normed, self.head),
        };
        std::mem::replace(b, Builder::new(*params)).finish(result)
    }
}

/// Keys of both layers turned.
fn shift(params: &GraphParams) -> Graph {
    let mut b = Builder::new(*params);
    let turn_only = RopeTable {
        turn_only: true,
        ..ROPE
    };
    let angles = b.rope_table("angles", turn_only);
    let shifts = [0, 1].map(|l| {
        b.set_layer(Some(l));
        b.kv_shift("k_shift", angles, RopeKind::Interleaved, &spec(l))
    });
    b.finish(shifts[1])
}

fn spec(l: usize) -> Attention {
    let windowed = l == 1;
    Attention {
        layer: l,
        n_head: HEADS,
        n_head_kv: HEADS_KV,
        head_dim: HEAD,
        scale: 0.5,
        window: windowed.then_some(3),
        kind: match windowed {
            true => LayerKind::Windowed,
            false => LayerKind::Full,
        },
    }
}

fn norm(weight: WeightId, group: usize) -> Norm {
    Norm {
        weight,
        eps: 1e-5,
        group,
    }
}

fn part(
    set: &mut WeightSet,
    random: &mut Rng,
    name: &str,
    cols: usize,
    rows: usize,
    biased: bool,
) -> MatPart {
    let matrix = weight(set, random, name, &[cols, rows], WeightUse::Matrix);
    let bias = name.replace("weight", "bias");
    let bias = biased.then(|| weight(set, random, &bias, &[rows], WeightUse::Vector));
    MatPart {
        weight: matrix,
        bias,
        rows,
    }
}

impl Layer {
    fn new(set: &mut WeightSet, random: &mut Rng, l: usize) -> Layer {
        let name = |what: &str| format!("blk.{l}.{what}.weight");
        let (q, kv) = (HEADS * HEAD, HEADS_KV * HEAD);
        let mut vector =
            |what: &str, n: usize| weight(set, random, &name(what), &[n], WeightUse::Vector);
        let attn_norm = vector("attn_norm", WIDTH);
        let k_norm = vector("attn_k_norm", HEAD);
        let ffn_norm = vector("ffn_norm", WIDTH);
        let mut matrix = |what: &str, cols: usize, rows: usize, biased: bool| {
            part(set, random, &name(what), cols, rows, biased)
        };
        Layer {
            attn_norm,
            q: matrix("attn_q", WIDTH, q, true),
            k: matrix("attn_k", WIDTH, kv, true),
            v: matrix("attn_v", WIDTH, kv, false),
            out: matrix("attn_output", q, WIDTH, false),
            k_norm,
            ffn_norm,
            gate: matrix("ffn_gate", WIDTH, FF, false),
            up: matrix("ffn_up", WIDTH, FF, false),
            down: matrix("ffn_down", FF, WIDTH, false),
        }
    }

    fn attend(&self, b: &mut Builder, x: NodeId, table: NodeId, l: usize) -> NodeId {
        let spec = spec(l);
        let normed = b.rms_norm("attn_norm", x, norm(self.attn_norm, WIDTH));
        let q = b.matmul("q", normed, self.q);
        let k = b.matmul("k", normed, self.k);
        let v = b.matmul("v", normed, self.v);
        let k = b.rms_norm("k_norm", k, norm(self.k_norm, HEAD));
        let q = b.rope("q_rope", q, table, RopeKind::Halves, HEAD);
        let k = b.rope("k_rope", k, table, RopeKind::Interleaved, HEAD);
        let k = b.kv_store("k_store", k, KvPart::K, &spec);
        let v = b.kv_store("v_store", v, KvPart::V, &spec);
        let at = (b.input(Input::Slots), b.input(Input::RowSeq));
        let mixed = b.attention("attention", [q, k, v], at, spec);
        let out = b.matmul("attn_out", mixed, self.out);
        b.add("attn_residual", out, x)
    }

    fn feed_forward(&self, b: &mut Builder, x: NodeId) -> NodeId {
        let normed = b.rms_norm("ffn_norm", x, norm(self.ffn_norm, WIDTH));
        let gate = b.matmul("gate", normed, self.gate);
        let up = b.matmul("up", normed, self.up);
        let gate = b.act("gate_act", Activation::Silu, gate);
        let gated = b.mul("gated", gate, up);
        let down = b.matmul("down", gated, self.down);
        b.add("ffn_residual", x, down)
    }
}

pub fn context(fuse: bool) -> ContextParams {
    ContextParams {
        type_k: KvType::F32,
        type_v: KvType::F16,
        pages_full: 5,
        pages_windowed: 4,
        max_seqs: 3,
        pages_per_seq: 3,
        fuse,
    }
}

pub fn params(n_tokens: usize, n_out: usize, fuse: bool) -> GraphParams {
    GraphParams {
        n_tokens: capacity_class(n_tokens),
        n_out: capacity_class(n_out),
        kind: GraphKind::Logits,
        context: context(fuse),
        weights_version: 1,
    }
}

/// An owned batch.
#[derive(Clone, Default)]
pub struct Batch {
    pub ids: Vec<i32>,
    pub positions: Vec<i32>,
    pub slots: Vec<i32>,
    pub seqs: Vec<i32>,
    pub out: Vec<i32>,
    pub full: Vec<i32>,
    pub windowed: Vec<i32>,
}

impl Batch {
    /// Rows of `(sequence, slot)`, all asked for. Pages lie out of order on purpose.
    pub fn of(rows: &[(i32, i32)]) -> Batch {
        Batch {
            ids: rows
                .iter()
                .map(|r| (r.0 * 5 + r.1 * 3) % N_VOCAB as i32)
                .collect(),
            positions: rows.iter().map(|r| r.1).collect(),
            slots: rows.iter().map(|r| r.1).collect(),
            seqs: rows.iter().map(|r| r.0).collect(),
            out: (0..rows.len() as i32).collect(),
            full: vec![4, 1, 0, 2, 3, 0],
            windowed: vec![2, 0, 0, 1, 3, 0],
        }
    }

    pub fn inputs(&self) -> BatchInputs<'_> {
        BatchInputs {
            token_ids: &self.ids,
            positions: &self.positions,
            slots: &self.slots,
            row_seq: &self.seqs,
            out_rows: &self.out,
            page_table_full: &self.full,
            page_table_windowed: &self.windowed,
            ..BatchInputs::default()
        }
    }
}
