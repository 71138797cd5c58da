//! Operators, each with its whole payload, so that graphs can be compared structurally.
//!
//! Activations are matrices `[rows][cols]` of f32, one row a token, rows contiguous unless a
//! [`Op::View`] says otherwise. Sources are listed in the order given at each operator.

use super::{KvType, WeightId};

/// What the host fills in before a graph runs. Data, never structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Token ids, i32 `[tokens]`.
    TokenIds,
    /// RoPE positions, i32 `[tokens]`.
    Positions,
    /// Place of each row in its sequence's KV (absolute slot; page = slot / 32), i32 `[tokens]`.
    Slots,
    /// Which line of the page table each row uses, i32 `[tokens]`.
    RowSeq,
    /// Which token rows are asked for, i32 `[out]`.
    OutRows,
    /// The pages of every sequence for one kind of layer, i32 `[max_seqs][pages_per_seq]`.
    PageTable(LayerKind),
    /// The page that each row of a [`GraphKind::KvShift`](super::GraphKind::KvShift) graph turns in layers of
    /// one kind, i32 `[tokens]`; -1 for none.
    Pages(LayerKind),
}

/// Kinds of attention layers: each kind has page lists of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Sees every earlier position.
    Full,
    /// Sees a sliding window.
    Windowed,
}

impl LayerKind {
    /// Both, full layers first.
    pub const ALL: [LayerKind; 2] = [LayerKind::Full, LayerKind::Windowed];

    /// `full` or `windowed`.
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::Full => "full",
            LayerKind::Windowed => "windowed",
        }
    }
}

/// The two persistent regions of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KvPart {
    /// Keys.
    K,
    /// Values.
    V,
}

/// Activation functions of gated feed-forward layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// The tanh form of GELU.
    Gelu,
}

/// How RoPE pairs the channels of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeKind {
    /// Channel `2i` with `2i + 1` (llama).
    Interleaved,
    /// Channel `i` with `i + n_dims / 2` (neox: qwen2, qwen3, gemma3).
    Halves,
}

/// How RoPE's frequencies are stretched beyond the trained context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// As trained.
    None,
    /// Every position divided by `factor`.
    Linear {
        /// The stretch, `>= 1`.
        factor: f32,
    },
    /// YaRN: interpolate low frequencies, keep high ones, blend between.
    Yarn {
        /// The stretch, `>= 1`.
        factor: f32,
        /// Trained context length.
        n_ctx_orig: u32,
        /// Extrapolation mix (1 in released models).
        ext_factor: f32,
        /// Multiplies cos and sin on top of YaRN's own magnitude correction.
        attn_factor: f32,
        /// Rotations above which a channel is left as trained.
        beta_fast: f32,
        /// Rotations below which a channel is interpolated.
        beta_slow: f32,
    },
}

/// The parameters of a table of angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeTable {
    /// Rotated channels of a head (even).
    pub n_dims: usize,
    /// `theta`: channel pair `i` turns by `pos * theta^(-2i / n_dims)`.
    pub freq_base: f32,
    /// Stretching.
    pub scaling: RopeScaling,
    /// Divisors of the frequencies, f32 `[n_dims / 2]` (Llama 3's `rope_freqs.weight`).
    pub freq_factors: Option<WeightId>,
    /// Cos and sin of the angles alone, without YaRN's magnitude: what turns keys that carry it already.
    pub turn_only: bool,
}

/// Root-mean-square norm in front of something: `x * (1 / rms) * weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// f32 `[group]`.
    pub weight: WeightId,
    /// Added to the mean square.
    pub eps: f32,
    /// Channels normalised together: the row's width, or a head's for QK norms.
    pub group: usize,
}

/// One weight matrix of a [`MatMul`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatPart {
    /// Matrix, `[rows][cols]` in memory, GGUF dims `[cols, rows]`.
    pub weight: WeightId,
    /// Added to the product, f32 `[rows]`.
    pub bias: Option<WeightId>,
    /// Output channels.
    pub rows: usize,
}

/// Matrix products that share their activations. Plain as built: one part and nothing else;
/// `fuse` fills in the rest where a backend claims it. Same bits either way on the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// One output after the other in a row; with `glu`, exactly gate then up.
    pub parts: Vec<MatPart>,
    /// Applied to the source first.
    pub norm: Option<Norm>,
    /// Output is `act(gate) * up`, as wide as one part.
    pub glu: Option<Activation>,
    /// The last source is added to the result.
    pub residual: bool,
}

/// Grouped-query attention over pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Layer, which names the regions.
    pub layer: usize,
    /// Query heads.
    pub n_head: usize,
    /// KV heads; `n_head` is a multiple.
    pub n_head_kv: usize,
    /// Channels of a head (K and V alike).
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Positions seen, the row's own included; `None` sees all.
    pub window: Option<usize>,
    /// Whose page table.
    pub kind: LayerKind,
}

/// An operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Filled by the host. No sources.
    Input(Input),
    /// Rows of an embedding table. Sources: token ids.
    GetRows {
        /// Table `[n_vocab][cols]`, any format that can be decoded.
        weight: WeightId,
    },
    /// Rows of an activation (f32 or i32). Sources: values, row numbers.
    SelectRows,
    /// `x * factor`. Sources: x.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// Root-mean-square norm. Sources: x.
    RmsNorm(Norm),
    /// Matrix product(s). Sources: x, and with `residual` what is added.
    MatMul(MatMul),
    /// Columns `offset..offset + cols` of a row-major source, not copied. Sources: x.
    View {
        /// First column.
        offset: usize,
    },
    /// Angles: cos then sin, f32 `[tokens][n_dims]` (`n_dims / 2` each). Sources: positions.
    RopeTable(RopeTable),
    /// Rotates each head's first `n_dims` channels. In place where the allocator can. Sources: x, table.
    Rope {
        /// Pairing.
        kind: RopeKind,
        /// Channels of a head.
        head_dim: usize,
        /// Rotated channels.
        n_dims: usize,
    },
    /// Writes rows into a layer's region; the node's output is the region. Sources: x, slots,
    /// row sequences, page table.
    KvStore {
        /// Layer.
        layer: usize,
        /// Which region.
        part: KvPart,
        /// Its format.
        ty: KvType,
        /// KV heads.
        n_head_kv: usize,
        /// Channels of a head.
        head_dim: usize,
        /// Whose pages.
        kind: LayerKind,
    },
    /// Turns the keys of whole pages where they lie, each page (a row) by its own angle, and keeps them in their
    /// format again; the node's output is the layer's K region. Sources: table of angles
    /// ([`RopeTable::turn_only`]), pages (-1: that row turns nothing). No page comes twice.
    KvShift {
        /// Layer.
        layer: usize,
        /// The region's format.
        ty: KvType,
        /// KV heads.
        n_head_kv: usize,
        /// Channels of a head.
        head_dim: usize,
        /// Pairing.
        rope: RopeKind,
        /// Turned channels of a head.
        n_dims: usize,
        /// Whose pages.
        kind: LayerKind,
    },
    /// Attention. Sources: q, K store, V store, slots (of q's rows), row sequences (of q's rows),
    /// page table.
    Attention(Attention),
    /// `a + b`. In place on `a` where the allocator can. Sources: a, b.
    Add,
    /// `a * b`. Sources: a, b.
    Mul,
    /// An activation function. In place where the allocator can. Sources: x.
    Act(Activation),
    /// `act(gate) * up`: what `fuse` makes of `Mul(Act(gate), up)`. Sources: gate, up.
    Glu(Activation),
}

impl Op {
    /// A short name for exports and profiles.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::GetRows { .. } => "get_rows",
            Op::SelectRows => "select_rows",
            Op::Scale { .. } => "scale",
            Op::RmsNorm(_) => "rms_norm",
            Op::MatMul(_) => "matmul",
            Op::View { .. } => "view",
            Op::RopeTable(_) => "rope_table",
            Op::Rope { .. } => "rope",
            Op::KvStore { .. } => "kv_store",
            Op::KvShift { .. } => "kv_shift",
            Op::Attention(_) => "attention",
            Op::Add => "add",
            Op::Mul => "mul",
            Op::Act(_) => "act",
            Op::Glu(_) => "glu",
        }
    }

    /// The region that the operator writes to: layer and part.
    pub fn region(&self) -> Option<(usize, KvPart)> {
        match self {
            Op::KvStore { layer, part, .. } => Some((*layer, *part)),
            Op::KvShift { layer, .. } => Some((*layer, KvPart::K)),
            _ => None,
        }
    }

    /// The source whose buffer the output may take over, if any.
    pub fn in_place_source(&self) -> Option<usize> {
        match self {
            Op::Rope { .. } | Op::Add | Op::Act(_) | Op::Scale { .. } => Some(0),
            _ => None,
        }
    }

    /// Every weight the operator reads, in payload order.
    pub fn weights(&self) -> Vec<WeightId> {
        let mut out = Vec::new();
        match self {
            Op::GetRows { weight } => out.push(*weight),
            Op::RmsNorm(n) => out.push(n.weight),
            Op::RopeTable(t) => out.extend(t.freq_factors),
            Op::MatMul(m) => {
                out.extend(m.norm.map(|n| n.weight));
                for p in &m.parts {
                    out.push(p.weight);
                    out.extend(p.bias);
                }
            }
            _ => {}
        }
        out
    }
}
