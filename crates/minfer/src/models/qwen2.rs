//! `qwen2`: Qwen2 and Qwen2.5: a plain decoder whose RoPE pairs halves. Q, K and V carry biases, which
//! are found by name.

use super::blocks::{Ends, PlainLayer};
use super::plain::Plain;
use super::{HParams, Loader, ModelError};
use crate::graph::RopeKind;

/// Finds a Qwen2's weights.
pub fn load(l: &mut Loader) -> Result<Plain, ModelError> {
    let h = HParams::read(l)?;
    let ends = Ends::load(l, &h)?;
    let layer = |il| PlainLayer::load(l, &h, il, RopeKind::Halves);
    let layers = (0..h.n_layer).map(layer).collect::<Result<_, _>>()?;
    let rope = h.rope_table(None);
    Ok(Plain {
        h,
        ends,
        rope,
        layers,
    })
}
