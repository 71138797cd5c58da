//! Blocks that several architectures share. A block takes at most four parameters.

use super::hparams::HParams;
use super::loader::{Loader, ModelError};
use crate::graph::{
    Activation, Attention, Builder, Graph, GraphKind, Input, KvPart, LayerKind, MatPart, NodeId,
    Norm, RopeKind, RopeTable, WeightId,
};

/// Embedding table, final norm and head.
pub struct Ends {
    embd: WeightId,
    n_embd: usize,
    norm: Norm,
    head: MatPart,
}

impl Ends {
    /// `token_embd`, `output_norm`, and `output` or, where the file has none, the embedding again.
    pub fn load(l: &mut Loader, h: &HParams) -> Result<Ends, ModelError> {
        let embd = l.table("token_embd.weight", h.n_vocab, h.n_embd)?;
        let norm = h.norm(l.vector("output_norm.weight", h.n_embd)?);
        let head = if l.has("output.weight") {
            "output"
        } else {
            "token_embd"
        };
        let head = l.matrix(head, h.n_vocab, h.n_embd)?;
        Ok(Ends {
            embd,
            n_embd: h.n_embd,
            norm,
            head,
        })
    }

    /// Token ids to the residual stream.
    pub fn embed(&self, b: &mut Builder) -> NodeId {
        let ids = b.input(Input::TokenIds);
        b.get_rows("inp_embd", self.embd, ids, self.n_embd)
    }

    /// The residual stream (asked rows only) to what the graph is for: logits, or the normed stream itself.
    pub fn result(&self, b: &mut Builder, x: NodeId) -> NodeId {
        b.set_layer(None);
        let x = b.rms_norm("result_norm", x, self.norm);
        match b.params().kind {
            GraphKind::Embeddings => x,
            _ => b.matmul("result_output", x, self.head),
        }
    }
}

/// The weights of one attention block.
pub struct AttentionBlock {
    q: MatPart,
    k: MatPart,
    v: MatPart,
    out: MatPart,
    /// Norm of each query head (qwen3, gemma3).
    pub q_norm: Option<Norm>,
    /// Norm of each key head.
    pub k_norm: Option<Norm>,
    /// RoPE's pairing.
    pub rope: RopeKind,
    /// The attention itself.
    pub spec: Attention,
}

impl AttentionBlock {
    /// `blk.N.attn_{q,k,v,output}`; scale `1 / sqrt(head_dim)`, full attention.
    pub fn load(
        l: &mut Loader,
        h: &HParams,
        layer: usize,
        rope: RopeKind,
    ) -> Result<AttentionBlock, ModelError> {
        let (n_q, n_kv) = (h.n_head * h.head_dim, h.n_head_kv * h.head_dim);
        let name = |part: &str| format!("blk.{layer}.attn_{part}");
        Ok(AttentionBlock {
            q: l.matrix(&name("q"), n_q, h.n_embd)?,
            k: l.matrix(&name("k"), n_kv, h.n_embd)?,
            v: l.matrix(&name("v"), n_kv, h.n_embd)?,
            out: l.matrix(&name("output"), h.n_embd, n_q)?,
            q_norm: None,
            k_norm: None,
            rope,
            spec: Attention {
                layer,
                n_head: h.n_head,
                n_head_kv: h.n_head_kv,
                head_dim: h.head_dim,
                scale: 1.0 / (h.head_dim as f32).sqrt(),
                window: None,
                kind: LayerKind::Full,
            },
        })
    }

    /// `blk.N.attn_{q,k}_norm`.
    pub fn load_head_norms(&mut self, l: &mut Loader, h: &HParams) -> Result<(), ModelError> {
        let il = self.spec.layer;
        self.q_norm =
            Some(h.head_norm(l.vector(&format!("blk.{il}.attn_q_norm.weight"), h.head_dim)?));
        self.k_norm =
            Some(h.head_norm(l.vector(&format!("blk.{il}.attn_k_norm.weight"), h.head_dim)?));
        Ok(())
    }

    /// Normed input to the block's output. In the last layer (`last`) only the asked rows get
    /// past the KV stores.
    pub fn build(&self, b: &mut Builder, x: NodeId, angles: NodeId, last: bool) -> NodeId {
        let s = &self.spec;
        let q = b.matmul("q", x, self.q);
        let k = b.matmul("k", x, self.k);
        let v = b.matmul("v", x, self.v);
        let q = self.q_norm.map_or(q, |n| b.rms_norm("q_norm", q, n));
        let k = self.k_norm.map_or(k, |n| b.rms_norm("k_norm", k, n));
        let q = b.rope("q_rope", q, angles, self.rope, s.head_dim);
        let k = b.rope("k_rope", k, angles, self.rope, s.head_dim);
        let k = b.kv_store("k_store", k, KvPart::K, s);
        let v = b.kv_store("v_store", v, KvPart::V, s);
        let q = asked_rows(b, q, last);
        let slots = b.input(Input::Slots);
        let seqs = b.input(Input::RowSeq);
        let at = (asked_rows(b, slots, last), asked_rows(b, seqs, last));
        let a = b.attention("attn", [q, k, v], at, *s);
        b.matmul("attn_out", a, self.out)
    }
}

/// The graph that turns kept keys ([`GraphKind::KvShift`]): those of each layer
/// by the angles of its own table. Keys are kept turned and normed, so nothing else of a layer matters.
pub fn shift<'a>(
    mut b: Builder,
    layers: impl Iterator<Item = (&'a AttentionBlock, RopeTable)>,
) -> Graph {
    let mut tables: Vec<(RopeTable, NodeId)> = Vec::new();
    let mut last = None;
    for (attn, table) in layers {
        let known = tables.iter().find(|t| t.0 == table).map(|t| t.1);
        let angles = known.unwrap_or_else(|| {
            let turn_only = RopeTable {
                turn_only: true,
                ..table
            };
            let angles = b.rope_table("shift_angles", turn_only);
            tables.push((table, angles));
            angles
        });
        b.set_layer(Some(attn.spec.layer));
        last = Some(b.kv_shift("k_shift", angles, attn.rope, &attn.spec));
    }
    b.finish(last.expect("a model has a layer"))
}

/// In the last layer, the rows whose logits are asked for; elsewhere all.
pub fn asked_rows(b: &mut Builder, x: NodeId, last: bool) -> NodeId {
    if !last {
        return x;
    }
    let rows = b.input(Input::OutRows);
    b.select_rows("asked_rows", x, rows)
}

/// The weights of one gated feed-forward block.
pub struct FeedForward {
    gate: MatPart,
    up: MatPart,
    down: MatPart,
    act: Activation,
}

impl FeedForward {
    /// `blk.N.ffn_{gate,up,down}`.
    pub fn load(
        l: &mut Loader,
        h: &HParams,
        layer: usize,
        act: Activation,
    ) -> Result<FeedForward, ModelError> {
        let name = |part: &str| format!("blk.{layer}.ffn_{part}");
        Ok(FeedForward {
            gate: l.matrix(&name("gate"), h.n_ff, h.n_embd)?,
            up: l.matrix(&name("up"), h.n_ff, h.n_embd)?,
            down: l.matrix(&name("down"), h.n_embd, h.n_ff)?,
            act,
        })
    }

    /// `down(act(gate(x)) * up(x))`.
    pub fn build(&self, b: &mut Builder, x: NodeId) -> NodeId {
        let gate = b.matmul("ffn_gate", x, self.gate);
        let up = b.matmul("ffn_up", x, self.up);
        let gate = b.act("ffn_act", self.act, gate);
        let x = b.mul("ffn_glu", gate, up);
        b.matmul("ffn_down", x, self.down)
    }
}

/// A layer of the plain kind: pre-norms, attention, feed-forward, two residuals.
pub struct PlainLayer {
    attn_norm: Norm,
    /// The attention block.
    pub attn: AttentionBlock,
    ffn_norm: Norm,
    ffn: FeedForward,
}

impl PlainLayer {
    /// `blk.N.*` with SwiGLU.
    pub fn load(
        l: &mut Loader,
        h: &HParams,
        layer: usize,
        rope: RopeKind,
    ) -> Result<PlainLayer, ModelError> {
        let norm = |l: &mut Loader, name: &str| {
            Ok::<_, ModelError>(h.norm(l.vector(&format!("blk.{layer}.{name}.weight"), h.n_embd)?))
        };
        Ok(PlainLayer {
            attn_norm: norm(l, "attn_norm")?,
            attn: AttentionBlock::load(l, h, layer, rope)?,
            ffn_norm: norm(l, "ffn_norm")?,
            ffn: FeedForward::load(l, h, layer, Activation::Silu)?,
        })
    }

    /// The residual stream through the layer.
    pub fn build(&self, b: &mut Builder, x: NodeId, angles: NodeId, last: bool) -> NodeId {
        b.set_layer(Some(self.attn.spec.layer));
        let n = b.rms_norm("attn_norm", x, self.attn_norm);
        let a = self.attn.build(b, n, angles, last);
        let x = asked_rows(b, x, last);
        let x = b.add("ffn_inp", a, x);
        let n = b.rms_norm("ffn_norm", x, self.ffn_norm);
        let f = self.ffn.build(b, n);
        b.add("l_out", f, x)
    }
}
