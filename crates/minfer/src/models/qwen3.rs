//! `qwen3`: a plain decoder as `qwen2`, with a head width of its own and a norm of each Q and K head.

use super::blocks::{Ends, PlainLayer};
use super::plain::Plain;
use super::{HParams, Loader, ModelError};
use crate::graph::RopeKind;

/// Finds a Qwen3's weights.
pub fn load(l: &mut Loader) -> Result<Plain, ModelError> {
    let h = HParams::read(l)?;
    let ends = Ends::load(l, &h)?;
    let mut layers = Vec::with_capacity(h.n_layer);
    for il in 0..h.n_layer {
        let mut layer = PlainLayer::load(l, &h, il, RopeKind::Halves)?;
        layer.attn.load_head_norms(l, &h)?;
        layers.push(layer);
    }
    let rope = h.rope_table(None);
    Ok(Plain {
        h,
        ends,
        rope,
        layers,
    })
}
