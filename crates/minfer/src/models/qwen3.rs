//! `qwen3`: like `qwen2` without biases, with a head width of its own and a norm of each Q and K head.

use super::blocks::{Ends, PlainLayer};
use super::{Architecture, HParams, Loader, ModelError};
use crate::graph::{Builder, Graph, GraphParams, RopeKind, RopeTable};

/// A Qwen3.
pub struct Qwen3 {
    h: HParams,
    ends: Ends,
    rope: RopeTable,
    layers: Vec<PlainLayer>,
}

impl Qwen3 {
    /// Finds its weights.
    pub fn load(l: &mut Loader) -> Result<Qwen3, ModelError> {
        let h = HParams::read(l)?;
        let ends = Ends::load(l, &h)?;
        let rope = h.rope_table(None);
        let mut layers = Vec::with_capacity(h.n_layer);
        for il in 0..h.n_layer {
            let mut layer = PlainLayer::load(l, &h, il, RopeKind::Halves)?;
            layer.attn.load_head_norms(l, &h)?;
            layers.push(layer);
        }
        Ok(Qwen3 {
            h,
            ends,
            rope,
            layers,
        })
    }
}

impl Architecture for Qwen3 {
    fn hparams(&self) -> &HParams {
        &self.h
    }

    fn build(&self, params: &GraphParams) -> Graph {
        let mut b = Builder::new(*params);
        let mut x = self.ends.embed(&mut b);
        let angles = b.rope_table("rope", self.rope);
        for (il, layer) in self.layers.iter().enumerate() {
            x = layer.build(&mut b, x, angles, il + 1 == self.layers.len());
        }
        let logits = self.ends.logits(&mut b, x);
        b.finish(logits)
    }
}
