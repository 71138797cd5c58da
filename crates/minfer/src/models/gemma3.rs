//! `gemma3`: Gemma 3 text models. Scaled embeddings, norms before and after each block, a norm of
//! each Q and K head, GeGLU, five windowed layers (own RoPE base) to one full layer.
//! The norms' `1 + w` is folded into the file's weights by its converter.

use super::blocks::{AttentionBlock, Ends, FeedForward, asked_rows, shift};
use super::hparams::freq_base;
use super::{Architecture, HParams, Loader, ModelError};
use crate::graph::{
    Activation, Builder, Graph, GraphKind, GraphParams, LayerKind, NodeId, Norm, RopeKind,
    RopeScaling, RopeTable,
};

/// Every sixth layer sees everything.
const PATTERN: usize = 6;
/// RoPE base of windowed layers; the files do not carry it.
const LOCAL_FREQ_BASE: f32 = 10_000.0;
/// The 27B, told by its layers, scales scores by the width a head would have of `n_embd`.
const LAYERS_27B: usize = 62;

struct Layer {
    attn_norm: Norm,
    attn: AttentionBlock,
    attn_post_norm: Norm,
    ffn_norm: Norm,
    ffn: FeedForward,
    ffn_post_norm: Norm,
}

/// A Gemma 3.
pub struct Gemma3 {
    h: HParams,
    ends: Ends,
    layers: Vec<Layer>,
    rope_full: RopeTable,
    rope_windowed: RopeTable,
}

impl Gemma3 {
    /// Finds its weights.
    pub fn load(l: &mut Loader) -> Result<Gemma3, ModelError> {
        let h = HParams::read_windowed(l)?;
        let ends = Ends::load(l, &h)?;
        let layers = (0..h.n_layer)
            .map(|il| Layer::load(l, &h, il))
            .collect::<Result<_, _>>()?;
        let rope_full = h.rope_table(None);
        let rope_windowed = RopeTable {
            freq_base: freq_base(l, "rope.freq_base_swa", LOCAL_FREQ_BASE)?,
            scaling: RopeScaling::None,
            ..rope_full
        };
        Ok(Gemma3 {
            h,
            ends,
            layers,
            rope_full,
            rope_windowed,
        })
    }

    /// The angles of a layer.
    fn table(&self, layer: &Layer) -> RopeTable {
        match layer.attn.spec.window {
            Some(_) => self.rope_windowed,
            None => self.rope_full,
        }
    }
}

impl Layer {
    fn load(l: &mut Loader, h: &HParams, il: usize) -> Result<Layer, ModelError> {
        let mut attn = AttentionBlock::load(l, h, il, RopeKind::Halves)?;
        attn.load_head_norms(l, h)?;
        let period = l.single_size_or("attention.sliding_window_pattern", PATTERN)?;
        if let Some(window) = h.sliding_window.filter(|_| il % period < period - 1) {
            attn.spec.window = Some(window);
            attn.spec.kind = LayerKind::Windowed;
        }
        if h.n_layer == LAYERS_27B {
            attn.spec.scale = 1.0 / ((h.n_embd / h.n_head) as f32).sqrt();
        }
        let mut norm = |name: &str| {
            Ok::<_, ModelError>(h.norm(l.vector(&format!("blk.{il}.{name}.weight"), h.n_embd)?))
        };
        Ok(Layer {
            attn_norm: norm("attn_norm")?,
            attn_post_norm: norm("post_attention_norm")?,
            ffn_norm: norm("ffn_norm")?,
            ffn_post_norm: norm("post_ffw_norm")?,
            attn,
            ffn: FeedForward::load(l, h, il, Activation::Gelu)?,
        })
    }

    fn build(&self, b: &mut Builder, x: NodeId, angles: NodeId, last: bool) -> NodeId {
        b.set_layer(Some(self.attn.spec.layer));
        let n = b.rms_norm("attn_norm", x, self.attn_norm);
        let a = self.attn.build(b, n, angles, last);
        let a = b.rms_norm("attn_post_norm", a, self.attn_post_norm);
        let x = asked_rows(b, x, last);
        let x = b.add("sa_out", a, x);
        let n = b.rms_norm("ffn_norm", x, self.ffn_norm);
        let f = self.ffn.build(b, n);
        let f = b.rms_norm("ffn_post_norm", f, self.ffn_post_norm);
        b.add("l_out", f, x)
    }
}

impl Architecture for Gemma3 {
    fn hparams(&self) -> &HParams {
        &self.h
    }

    fn build(&self, params: &GraphParams) -> Graph {
        let mut b = Builder::new(*params);
        if params.kind == GraphKind::KvShift {
            return shift(b, self.layers.iter().map(|l| (&l.attn, self.table(l))));
        }
        let x = self.ends.embed(&mut b);
        let mut x = b.scale("inp_scaled", x, (self.h.n_embd as f32).sqrt());
        let full = b.rope_table("rope_full", self.rope_full);
        let windowed = b.rope_table("rope_windowed", self.rope_windowed);
        for (il, layer) in self.layers.iter().enumerate() {
            let angles = if layer.attn.spec.window.is_some() {
                windowed
            } else {
                full
            };
            x = layer.build(&mut b, x, angles, il + 1 == self.layers.len());
        }
        let result = self.ends.result(&mut b, x);
        b.finish(result)
    }
}
