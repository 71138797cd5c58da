//! `llama`: Llama 1-3, SmolLM, Mistral, TinyLlama and kin: a plain decoder with interleaved RoPE (the
//! converter permutes Q and K so) and Llama 3's frequency factors where the file carries them.

use super::blocks::{Ends, PlainLayer};
use super::plain::Plain;
use super::{HParams, Loader, ModelError};
use crate::graph::RopeKind;

/// Finds a llama's weights.
pub fn load(l: &mut Loader) -> Result<Plain, ModelError> {
    let h = HParams::read(l)?;
    let ends = Ends::load(l, &h)?;
    let factors = l.optional_vector("rope_freqs.weight", h.rope_dims / 2)?;
    let layer = |il| PlainLayer::load(l, &h, il, RopeKind::Interleaved);
    let layers = (0..h.n_layer).map(layer).collect::<Result<_, _>>()?;
    let rope = h.rope_table(factors);
    Ok(Plain {
        h,
        ends,
        rope,
        layers,
    })
}
