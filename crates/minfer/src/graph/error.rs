//! What can go wrong between a graph and its backends.

use super::{BackendError, KvPart, KvRegion, LayerKind};

/// A failure of the graph room; every variant names what and which value.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// No registered backend can run a node (or, for attention, a layer's stores and attention together).
    #[error(
        "no backend can run {op} '{name}' (node {node}{layer}) on {tensors}; asked: {backends}"
    )]
    NoBackend {
        /// Node index.
        node: usize,
        /// Node name.
        name: &'static str,
        /// Operator name.
        op: &'static str,
        /// `, layer 3`, or empty.
        layer: String,
        /// The tensors it reads, quoted; `activations only` when none.
        tensors: String,
        /// The backends that were asked.
        backends: String,
    },
    /// No registered backend takes a weight.
    #[error("no backend takes tensor '{tensor}': {reasons}")]
    NoWeightBackend {
        /// Tensor name.
        tensor: String,
        /// Each backend's own reason.
        reasons: String,
    },
    /// Weights were loaded twice into one scheduler.
    #[error("weights are already loaded: a scheduler serves one model")]
    WeightsLoaded,
    /// What is asked does not fit the memory budget; nothing was allocated.
    #[error(
        "needs {need} bytes (weights {weights}, KV {kv}, buffers {buffers}) but the memory budget is \
         {budget} bytes: a smaller context, a smaller batch or a smaller KV type needs less"
    )]
    Budget {
        /// Bytes in all.
        need: usize,
        /// Bytes allowed.
        budget: usize,
        /// Of them, weights.
        weights: usize,
        /// Of them, KV regions.
        kv: usize,
        /// Of them, activations and inputs.
        buffers: usize,
    },
    /// A graph asks for a KV region of another shape than the one that exists; regions never grow.
    #[error("layer {layer} {part:?}: the KV region is {had:?} and cannot become {asked:?}")]
    KvChanged {
        /// Layer.
        layer: usize,
        /// Region.
        part: KvPart,
        /// What exists.
        had: KvRegion,
        /// What is asked for.
        asked: KvRegion,
    },
    /// KV pages are asked for before there are any.
    #[error(
        "there are no KV regions yet: they are made with the first graph of a forward pass \
         (`Scheduler::prepare`)"
    )]
    NoKv,
    /// A page that does not exist.
    #[error("page {page} of the {} layers: there are {pages} pages", kind.name())]
    KvPage {
        /// Kind of layers.
        kind: LayerKind,
        /// Page asked for.
        page: u32,
        /// Pages there are; 0 for a model without such layers.
        pages: usize,
    },
    /// A page's bytes are not as many as a page has.
    #[error("a page of the {} layers has {want} bytes, not {got}", kind.name())]
    KvBytes {
        /// Kind of layers.
        kind: LayerKind,
        /// Bytes of a page ([`Scheduler::kv_page_bytes`](super::Scheduler::kv_page_bytes)).
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// A batch's inputs do not fit the graph.
    #[error("input {input}: {reason}")]
    Input {
        /// Which input.
        input: &'static str,
        /// Why not, with the values.
        reason: String,
    },
    /// An output was asked for before anything ran, or more of it than there is.
    #[error("output: {0}")]
    Output(String),
    /// A backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}
