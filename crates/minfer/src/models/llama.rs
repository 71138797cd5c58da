//! `llama`: Llama 1-3, SmolLM, Mistral, TinyLlama and kin. Interleaved RoPE (the converter permutes
//! Q and K so), SwiGLU, Llama 3's frequency factors where the file carries them.

use super::blocks::{Ends, PlainLayer};
use super::{Architecture, HParams, Loader, ModelError};
use crate::graph::{Builder, Graph, GraphParams, RopeKind, RopeTable};

/// A llama.
pub struct Llama {
    h: HParams,
    ends: Ends,
    rope: RopeTable,
    layers: Vec<PlainLayer>,
}

impl Llama {
    /// Finds its weights.
    pub fn load(l: &mut Loader) -> Result<Llama, ModelError> {
        let h = HParams::read(l)?;
        let ends = Ends::load(l, &h)?;
        let rope = h.rope_table(l.optional_vector("rope_freqs.weight", h.rope_dims / 2)?);
        let layers = (0..h.n_layer)
            .map(|il| PlainLayer::load(l, &h, il, RopeKind::Interleaved))
            .collect::<Result<_, _>>()?;
        Ok(Llama {
            h,
            ends,
            rope,
            layers,
        })
    }
}

impl Architecture for Llama {
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
