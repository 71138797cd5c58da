//! `qwen2`: Qwen2 and Qwen2.5. RoPE pairs halves, Q, K and V carry biases (found by name), SwiGLU.

use super::blocks::{Ends, PlainLayer};
use super::{Architecture, HParams, Loader, ModelError};
use crate::graph::{Builder, Graph, GraphParams, RopeKind, RopeTable};

/// A Qwen2.
pub struct Qwen2 {
    h: HParams,
    ends: Ends,
    rope: RopeTable,
    layers: Vec<PlainLayer>,
}

impl Qwen2 {
    /// Finds its weights.
    pub fn load(l: &mut Loader) -> Result<Qwen2, ModelError> {
        let h = HParams::read(l)?;
        let ends = Ends::load(l, &h)?;
        let rope = h.rope_table(None);
        let layers = (0..h.n_layer)
            .map(|il| PlainLayer::load(l, &h, il, RopeKind::Halves))
            .collect::<Result<_, _>>()?;
        Ok(Qwen2 {
            h,
            ends,
            rope,
            layers,
        })
    }
}

impl Architecture for Qwen2 {
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
