//! The identity of a graph: equal params, identical topology.

use super::LayerKind;

/// Positions in a KV page.
pub const PAGE: usize = 32;
/// Positions in an attention segment: eight pages at absolute slots.
pub const SEGMENT: usize = 256;

/// How K or V is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// Blocks of 32 channels: signed bytes and one 16-bit scale
    /// ([`quantize_kv_block`](crate::numeric::quantize_kv_block)).
    Q8_0,
}

impl KvType {
    /// All of them.
    pub const ALL: [KvType; 3] = [KvType::F32, KvType::F16, KvType::Q8_0];

    /// Channels of a block: a head has a multiple of it.
    pub fn block(self) -> usize {
        match self {
            KvType::F32 | KvType::F16 => 1,
            KvType::Q8_0 => 32,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
            KvType::Q8_0 => 34,
        }
    }

    /// Bytes of one head's part of a page.
    ///
    /// # Panics
    /// If `head_dim` is not a multiple of [`KvType::block`].
    pub fn head_bytes(self, head_dim: usize) -> usize {
        assert!(
            head_dim % self.block() == 0,
            "{} needs a head_dim that is a multiple of {}, not {head_dim}",
            self.name(),
            self.block()
        );
        PAGE * (head_dim / self.block()) * self.block_bytes()
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        }
    }
}

impl std::str::FromStr for KvType {
    type Err = String;
    fn from_str(s: &str) -> Result<KvType, String> {
        let known = KvType::ALL.into_iter().find(|t| t.name() == s);
        known
            .ok_or_else(|| format!("unknown KV cache type '{s}': this build has f32, f16 and q8_0"))
    }
}

/// What stays the same for the life of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextParams {
    /// Format of K.
    pub type_k: KvType,
    /// Format of V.
    pub type_v: KvType,
    /// Pages of each full layer's regions.
    pub pages_full: usize,
    /// Pages of each windowed layer's regions.
    pub pages_windowed: usize,
    /// Sequences a batch can hold: lines of a page table.
    pub max_seqs: usize,
    /// Pages a sequence can have: columns of a page table.
    pub pages_per_seq: usize,
    /// Whether fusion may happen.
    pub fuse: bool,
}

impl ContextParams {
    /// Pages of each region of the layers of a kind.
    pub fn pages(&self, kind: LayerKind) -> usize {
        match kind {
            LayerKind::Full => self.pages_full,
            LayerKind::Windowed => self.pages_windowed,
        }
    }
}

/// What a graph computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphKind {
    /// Logits of the asked rows.
    Logits,
    /// The hidden state of the asked rows behind the last norm, `[out][n_embd]`: what embeddings are made of.
    Embeddings,
    /// No forward pass: the kept keys of whole pages are turned to other positions. Its rows are pages, and the
    /// position of a row is by how much its page's positions change.
    KvShift,
}

impl GraphKind {
    /// `logits`, `embeddings`, `kv-shift`.
    pub fn name(self) -> &'static str {
        match self {
            GraphKind::Logits => "logits",
            GraphKind::Embeddings => "embeddings",
            GraphKind::KvShift => "kv-shift",
        }
    }
}

/// The identity of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphParams {
    /// Token rows (of a [`GraphKind::KvShift`] graph: pages), a capacity class ([`capacity_class`]).
    pub n_tokens: usize,
    /// Output rows, a capacity class.
    pub n_out: usize,
    /// What is computed.
    pub kind: GraphKind,
    /// The context.
    pub context: ContextParams,
    /// Counts up whenever weights change.
    pub weights_version: u64,
}

/// The smallest capacity class (1, 2, 4, 8, …) that holds `n` rows; 1 for none.
pub fn capacity_class(n: usize) -> usize {
    n.max(1).next_power_of_two()
}
