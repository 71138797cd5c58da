//! The identity of a graph: equal params, identical topology.

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
}

impl KvType {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
        }
    }
}

impl std::str::FromStr for KvType {
    type Err = String;
    fn from_str(s: &str) -> Result<KvType, String> {
        match s {
            "f32" => Ok(KvType::F32),
            "f16" => Ok(KvType::F16),
            _ => Err(format!(
                "unknown KV cache type '{s}': this build has f32 and f16"
            )),
        }
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

/// What a graph computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphKind {
    /// Logits of the asked rows.
    Logits,
}

/// The identity of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphParams {
    /// Token rows, a capacity class ([`capacity_class`]).
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
