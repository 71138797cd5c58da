//! Hyper-parameters as GGUF's metadata gives them, under the architecture's prefix.

use super::loader::{Loader, ModelError};
use crate::gguf::shown;
use crate::graph::{Norm, RopeScaling, RopeTable, WeightId};

const SLIDING_WINDOW: &str = "attention.sliding_window";

/// Numbers that other families' graphs use: key, values that change nothing, what they would do.
const OTHER_MATH: [(&str, &[f32], &str); 8] = [
    ("attention.scale", &[0.0], "a scale of scores"),
    ("attention.clamp_kqv", &[0.0], "clamped Q, K and V"),
    ("attention.max_alibi_bias", &[0.0], "ALiBi"),
    ("attn_logit_softcapping", &[0.0], "soft-capped scores"),
    ("final_logit_softcapping", &[0.0], "soft-capped logits"),
    ("logit_scale", &[0.0, 1.0], "scaled logits"),
    ("embedding_scale", &[0.0, 1.0], "a scale of embeddings"),
    ("residual_scale", &[0.0, 1.0], "scaled residuals"),
];

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
    /// `attention.sliding_window`, for families that have one; none where it is 0.
    pub sliding_window: Option<usize>,
}

impl HParams {
    /// Reads and cross-checks them, for a family whose layers see everything. A window that would
    /// hide something from them is refused; some files carry one that hides nothing.
    pub fn read(l: &Loader) -> Result<HParams, ModelError> {
        let h = HParams {
            sliding_window: None,
            ..HParams::read_windowed(l)?
        };
        match l.optional_size(SLIDING_WINDOW)? {
            Some(window) if (1..h.n_ctx_train).contains(&window) => Err(l.bad(
                SLIDING_WINDOW,
                window,
                format!(
                    "this architecture has no windowed layers here, and its context is {}",
                    h.n_ctx_train
                ),
            )),
            _ => Ok(h),
        }
    }

    /// Reads and cross-checks them, for a family with windowed layers.
    pub fn read_windowed(l: &Loader) -> Result<HParams, ModelError> {
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
            rope_freq_base: freq_base(l, "rope.freq_base", 10_000.0)?,
            rope_scaling: read_scaling(l)?,
            sliding_window: l.optional_size(SLIDING_WINDOW)?.filter(|w| *w > 0),
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
        refuse_experts(l)?;
        refuse_other_math(l, &h)?;
        Ok(h)
    }

    /// The model's own table of angles.
    pub fn rope_table(&self, freq_factors: Option<WeightId>) -> RopeTable {
        RopeTable {
            n_dims: self.rope_dims,
            freq_base: self.rope_freq_base,
            scaling: self.rope_scaling,
            freq_factors,
            turn_only: false,
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

/// A base of RoPE's frequencies, checked.
pub(super) fn freq_base(l: &Loader, name: &str, default: f32) -> Result<f32, ModelError> {
    match l.float_or(name, default)? {
        base if base >= 1.0 => Ok(base),
        base => Err(l.bad(name, base, "must be at least 1")),
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

/// Known keys that no architecture here follows are refused where following them would change the
/// result.
fn refuse_other_math(l: &Loader, h: &HParams) -> Result<(), ModelError> {
    for (key, harmless, what) in OTHER_MATH {
        let value = l.float_or(key, harmless[0])?;
        let usual = key == "attention.scale" && value == 1.0 / (h.head_dim as f32).sqrt();
        if !harmless.contains(&value) && !usual {
            return Err(l.bad(key, value, format!("{what}: not supported")));
        }
    }
    if !l.flag_or("attention.causal", true)? {
        let why = "models that see what comes later can't generate";
        return Err(l.bad("attention.causal", false, why));
    }
    if l.flag_or("use_parallel_residual", false)? {
        return Err(l.bad("use_parallel_residual", true, "not supported"));
    }
    Ok(())
}

/// `rope.scaling.*`, checked.
fn read_scaling(l: &Loader) -> Result<RopeScaling, ModelError> {
    let scaling = read_scaling_kind(l)?;
    let magnitude = l.float_or("rope.scaling.attn_factor", 1.0)?;
    if magnitude != 1.0 && !matches!(scaling, RopeScaling::Yarn { .. }) {
        let why = "supported only where rope.scaling.type is yarn";
        return Err(l.bad("rope.scaling.attn_factor", magnitude, why));
    }
    Ok(scaling)
}

/// None, linear or YaRN. Names and defaults are llama.cpp's.
fn read_scaling_kind(l: &Loader) -> Result<RopeScaling, ModelError> {
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
            attn_factor: l.float_or("rope.scaling.yarn_attn_factor", 1.0)?
                * l.float_or("rope.scaling.attn_factor", 1.0)?,
            beta_fast: l.float_or("rope.scaling.yarn_beta_fast", 32.0)?,
            beta_slow: l.float_or("rope.scaling.yarn_beta_slow", 1.0)?,
        }),
        Some(other) => Err(l.bad(
            "rope.scaling.type",
            shown(other),
            "this build has none, linear and yarn",
        )),
    }
}
