//! How many pages an engine has, and whether they fit into memory.

use super::{EngineError, EngineOptions, Model};
use crate::graph::{
    ContextParams, Graph, GraphKind, GraphParams, Input, KvType, LayerKind, Op, PAGE, WeightUse,
};

/// The pages of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Pages of each full layer.
    pub full: usize,
    /// Pages of each windowed layer; 0 where there are none.
    pub windowed: usize,
    /// Pages that one sequence can have.
    pub pages_per_seq: usize,
    /// Bytes of all.
    pub bytes: u64,
}

impl Room {
    /// What the options ask for: `n_ctx` positions for each of `n_seqs` sequences, or as many pages as
    /// `kv_memory` holds.
    ///
    /// # Errors
    /// [`EngineError::KvMemory`] if not even one sequence fits into it.
    pub fn of(model: &Model, options: &EngineOptions) -> Result<Room, EngineError> {
        let pages_per_seq = options.n_ctx.div_ceil(PAGE);
        let all = pages_per_seq * options.n_seqs;
        let window = model.hparams().sliding_window;
        let page = |kind| page_bytes(model, options, kind);
        let (full_page, windowed_page) = (page(LayerKind::Full), page(LayerKind::Windowed));
        // A sequence has the window and a chunk; as much again is kept for those to come.
        let share = window.map_or(0, |w| 2 * ((w + options.n_batch) / PAGE + 2));
        let windowed_of = |full: usize| match window {
            None => 0,
            Some(_) if options.whole_windows => full,
            Some(_) => (share * options.n_seqs).max(pages_per_seq).min(full),
        };
        let bytes_of =
            |full: usize| full as u64 * full_page + windowed_of(full) as u64 * windowed_page;
        let full = match options.kv_memory {
            None => all,
            Some(limit) => {
                let need = bytes_of(pages_per_seq);
                if need > limit {
                    let n_ctx = options.n_ctx;
                    return Err(EngineError::KvMemory { need, limit, n_ctx });
                }
                // The largest that fits; bytes grow with pages.
                let (mut low, mut high) = (pages_per_seq, all);
                while low < high {
                    let middle = (low + high).div_ceil(2);
                    match bytes_of(middle) <= limit {
                        true => low = middle,
                        false => high = middle - 1,
                    }
                }
                low
            }
        };
        Ok(Room {
            full,
            windowed: windowed_of(full),
            pages_per_seq,
            bytes: bytes_of(full),
        })
    }

    /// What graphs know of it.
    pub fn context(&self, options: &EngineOptions) -> ContextParams {
        ContextParams {
            type_k: options.type_k,
            type_v: options.type_v,
            pages_full: self.full,
            pages_windowed: self.windowed,
            max_seqs: options.n_seqs,
            pages_per_seq: self.pages_per_seq,
            fuse: options.fuse,
        }
    }
}

/// Bytes of a page in all layers of a kind, K and V.
fn page_bytes(model: &Model, options: &EngineOptions, kind: LayerKind) -> u64 {
    let stores = small_graph(model, options.type_k, options.type_v);
    let of = |node: &crate::graph::Node| match node.op {
        Op::KvStore {
            ty,
            n_head_kv,
            head_dim,
            ..
        } if node
            .srcs
            .iter()
            .any(|s| matches!(stores.node(*s).op, Op::Input(Input::PageTable(k)) if k == kind)) =>
        {
            (n_head_kv * ty.head_bytes(head_dim)) as u64
        }
        _ => 0,
    };
    stores.nodes.iter().map(of).sum()
}

/// A graph to look at.
fn small_graph(model: &Model, type_k: KvType, type_v: KvType) -> Graph {
    model.arch().build(&GraphParams {
        n_tokens: 1,
        n_out: 1,
        kind: GraphKind::Logits,
        context: ContextParams {
            type_k,
            type_v,
            pages_full: 1,
            pages_windowed: 1,
            max_seqs: 1,
            pages_per_seq: 1,
            fuse: false,
        },
        weights_version: 0,
    })
}

/// Bytes that a model's weights take in memory.
pub(super) fn weight_bytes(model: &Model, options: &EngineOptions) -> u64 {
    let packed = |w: &crate::graph::Weight| options.pack && w.usage != WeightUse::Table;
    let weights = model.weights().iter().filter(|(_, w)| packed(w));
    weights.map(|(_, w)| w.data.bytes().len() as u64).sum()
}

/// Refuses KV that, with the packed weights and the bytes of a draft model `beside`, is more than all memory this process may ever have.
///
/// # Errors
/// [`EngineError::Memory`] with the numbers. Where the system does not tell, nothing is refused.
pub(super) fn check(
    model: &Model,
    options: &EngineOptions,
    room: &Room,
    beside: u64,
) -> Result<(), EngineError> {
    let weights = weight_bytes(model, options).saturating_add(beside);
    match limit() {
        Some(limit) if weights.saturating_add(room.bytes) > limit => Err(EngineError::Memory {
            weights,
            kv: room.bytes,
            limit,
        }),
        _ => Ok(()),
    }
}

/// Refuses a memory for KV that this process can never have, whatever of it the context needs.
///
/// # Errors
/// [`EngineError::KvMemoryTooLarge`] with the numbers. Where the system does not tell, nothing is refused.
pub(super) fn check_kv(kv: Option<u64>) -> Result<(), EngineError> {
    match (kv, limit()) {
        (Some(kv), Some(limit)) if kv > limit => Err(EngineError::KvMemoryTooLarge { kv, limit }),
        _ => Ok(()),
    }
}

/// Bytes that this process may have at most: the machine's memory, or less by its control group.
pub(super) fn limit() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        let kb: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kb * 1024)
    });
    let group = read("/sys/fs/cgroup/memory.max")
        .or_else(|| read("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
        .and_then(|text| text.trim().parse().ok());
    match (machine, group) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
