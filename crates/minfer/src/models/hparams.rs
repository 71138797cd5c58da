//! Hyper-parameters as GGUF's metadata gives them, under the architecture's prefix.

use super::loader::{Loader, ModelError};
use crate::graph::{Norm, RopeScaling, RopeTable, WeightId};

/// The numbers every architecture here needs.
#[derive(Clone, Debug, PartialEq)]
pub struct HParams {
    /// `general.architecture`.
    pub arch: String,
    /// `block_count`.
    pub n_layer: usize,
    /// `embedding_length`.
    pub n_embd: usize,
    /// `feed_forward_length`.
    pub n_ff: usize,
    /// `attention.head_count`.
    pub n_head: usize,
    /// `attention.head_count_kv`; as many as heads where the file gives none.
    pub n_head_kv: usize,
    /// `attention.key_length` (K and V alike); `n_embd / n_head` where the file gives none.
    pub head_dim: usize,
    /// Rows of the embedding table.
    pub n_vocab: usize,
    /// `context_length`: what the model was trained for.
    pub n_ctx_train: usize,
    /// `attention.layer_norm_rms_epsilon`.
    pub rms_eps: f32,
    /// `rope.dimension_count`; the head's width where the file gives none.
    pub rope_dims: usize,
    /// `rope.freq_base`; 10,000 where the file gives none.
    pub rope_freq_base: f32,
    /// `rope.scaling.*`.
    pub rope_scaling: RopeScaling,
    /// `attention.sliding_window`, for families that have one.
    pub sliding_window: Option<usize>,
}

impl HParams {
    /// Reads and cross-checks them.
    pub fn read(l: &Loader) -> Result<HParams, ModelError> {
        let n_embd = l.size("embedding_length")?;
        let n_head = l.size("attention.head_count")?;
        let n_head_kv = l.size_or("attention.head_count_kv", n_head)?;
        let head_dim = l.size_or("attention.key_length", n_embd / n_head)?;
        let value_dim = l.size_or("attention.value_length", head_dim)?;
        let h = HParams {
            arch: l.architecture().to_owned(),
            n_layer: l.size("block_count")?,
            n_embd,
            n_ff: l.size("feed_forward_length")?,
            n_head,
            n_head_kv,
            head_dim,
            n_vocab: l.table_rows("token_embd.weight")?,
            n_ctx_train: l.size("context_length")?,
            rms_eps: l.float("attention.layer_norm_rms_epsilon")?,
            rope_dims: l.size_or("rope.dimension_count", head_dim)?,
            rope_freq_base: l.float_or("rope.freq_base", 10_000.0)?,
            rope_scaling: read_scaling(l)?,
            sliding_window: l.optional_size("attention.sliding_window")?,
        };
        if value_dim != head_dim {
            return Err(l.bad(
                "attention.value_length",
                value_dim,
                format!("must equal the key length {head_dim}"),
            ));
        }
        if head_dim % 16 != 0 {
            return Err(l.bad("attention.key_length", head_dim, "must be a multiple of 16"));
        }
        if n_head % n_head_kv != 0 {
            return Err(l.bad(
                "attention.head_count_kv",
                n_head_kv,
                format!("must divide the head count {n_head}"),
            ));
        }
        if h.rope_dims % 2 != 0 || h.rope_dims > head_dim {
            return Err(l.bad(
                "rope.dimension_count",
                h.rope_dims,
                format!("must be even and at most {head_dim}"),
            ));
        }
        if !(h.rms_eps > 0.0 && h.rms_eps < 1.0) {
            return Err(l.bad(
                "attention.layer_norm_rms_epsilon",
                h.rms_eps,
                "must lie between 0 and 1",
            ));
        }
        if !(h.rope_freq_base.is_finite() && h.rope_freq_base >= 1.0) {
            return Err(l.bad("rope.freq_base", h.rope_freq_base, "must be at least 1"));
        }
        refuse_experts(l)?;
        Ok(h)
    }

    /// The model's own table of angles.
    pub fn rope_table(&self, freq_factors: Option<WeightId>) -> RopeTable {
        RopeTable {
            n_dims: self.rope_dims,
            freq_base: self.rope_freq_base,
            scaling: self.rope_scaling,
            freq_factors,
        }
    }

    /// A whole-row norm with the model's epsilon.
    pub fn norm(&self, weight: WeightId) -> Norm {
        Norm {
            weight,
            eps: self.rms_eps,
            group: self.n_embd,
        }
    }

    /// A norm of each head with the model's epsilon.
    pub fn head_norm(&self, weight: WeightId) -> Norm {
        Norm {
            weight,
            eps: self.rms_eps,
            group: self.head_dim,
        }
    }
}

fn refuse_experts(l: &Loader) -> Result<(), ModelError> {
    match l.optional_size("expert_count")? {
        Some(n) if n > 0 => Err(l.bad(
            "expert_count",
            n,
            "mixture-of-experts models are planned, not there yet",
        )),
        _ => Ok(()),
    }
}

/// `rope.scaling.*`: none, linear, YaRN. Names and defaults are llama.cpp's.
fn read_scaling(l: &Loader) -> Result<RopeScaling, ModelError> {
    let kind = l.optional_text("rope.scaling.type")?;
    // Old files give only `rope.scale_linear`.
    let old = l.float_or("rope.scale_linear", 0.0)?;
    let factor = l.float_or("rope.scaling.factor", old)?;
    let check = |factor: f32| match factor.is_finite() && factor >= 1.0 {
        true => Ok(factor),
        false => Err(l.bad("rope.scaling.factor", factor, "must be at least 1")),
    };
    match kind.as_deref() {
        None | Some("linear") if factor == 0.0 => Ok(RopeScaling::None),
        None | Some("linear") => match check(factor)? {
            1.0 => Ok(RopeScaling::None),
            factor => Ok(RopeScaling::Linear { factor }),
        },
        Some("none") => Ok(RopeScaling::None),
        Some("yarn") => Ok(RopeScaling::Yarn {
            factor: check(factor)?,
            n_ctx_orig: l.size_or(
                "rope.scaling.original_context_length",
                l.size("context_length")?,
            )? as u32,
            ext_factor: l.float_or("rope.scaling.yarn_ext_factor", 1.0)?,
            attn_factor: l.float_or(
                "rope.scaling.yarn_attn_factor",
                l.float_or("rope.scaling.attn_factor", 1.0)?,
            )?,
            beta_fast: l.float_or("rope.scaling.yarn_beta_fast", 32.0)?,
            beta_slow: l.float_or("rope.scaling.yarn_beta_slow", 1.0)?,
        }),
        Some(other) => Err(l.bad(
            "rope.scaling.type",
            other,
            "this build has none, linear and yarn",
        )),
    }
}
