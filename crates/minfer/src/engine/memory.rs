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
        let page = |kind| page_bytes(model, options, kind);
        let pages = (page(LayerKind::Full), page(LayerKind::Windowed));
        Room::with(options, model.hparams().sliding_window, pages)
    }

    /// The same for pages of these bytes, of full and of windowed layers. A context and a window are what a file says: their
    /// products stay at the largest number there is, which no memory holds.
    fn with(
        options: &EngineOptions,
        window: Option<usize>,
        (full_page, windowed_page): (u64, u64),
    ) -> Result<Room, EngineError> {
        let pages_per_seq = options.n_ctx.div_ceil(PAGE);
        let all = pages_per_seq.saturating_mul(options.n_seqs);
        // A sequence has the window and a chunk; as much again is kept for those to come.
        let share = window.map_or(0, |w| 2 * (w.saturating_add(options.n_batch) / PAGE + 2));
        let windowed_of = |full: usize| match window {
            None => 0,
            Some(_) if options.whole_windows => full,
            Some(_) => share
                .saturating_mul(options.n_seqs)
                .max(pages_per_seq)
                .min(full),
        };
        let times = |pages: usize, bytes: u64| (pages as u64).saturating_mul(bytes);
        let bytes_of = |full: usize| {
            times(full, full_page).saturating_add(times(windowed_of(full), windowed_page))
        };
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
                    let middle = low + (high - low).div_ceil(2);
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

    /// Refuses more pages than a page table can name, which are `i32` there.
    ///
    /// # Errors
    /// [`EngineError::Pages`].
    pub fn check_pages(&self) -> Result<(), EngineError> {
        const MAX: usize = i32::MAX as usize;
        // Windowed layers never have more.
        match self.full > MAX {
            true => Err(EngineError::Pages {
                pages: self.full,
                max: MAX,
            }),
            false => Ok(()),
        }
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
            (n_head_kv as u64).saturating_mul(ty.head_bytes(head_dim) as u64)
        }
        _ => 0,
    };
    stores.nodes.iter().map(of).fold(0, u64::saturating_add)
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
    weights
        .map(|(_, w)| w.data.bytes().len() as u64)
        .fold(0, u64::saturating_add)
}

/// Refuses KV that, with the packed weights and the bytes of a draft model `beside`, is more than all memory this process may ever have.
///
/// # Errors
/// [`EngineError::Memory`] with the numbers, [`EngineError::Pages`]. Where the system does not tell its memory, only what no process can
/// address is refused.
pub(super) fn check(
    model: &Model,
    options: &EngineOptions,
    room: &Room,
    beside: u64,
) -> Result<(), EngineError> {
    let weights = weight_bytes(model, options).saturating_add(beside);
    fits(weights, room, limit())
}

/// See [`check`].
fn fits(weights: u64, room: &Room, limit: Option<u64>) -> Result<(), EngineError> {
    let limit = limit.unwrap_or(isize::MAX as u64);
    match weights.saturating_add(room.bytes) > limit {
        true => Err(EngineError::Memory {
            weights,
            kv: room.bytes,
            limit,
        }),
        false => room.check_pages(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options(n_ctx: usize, n_seqs: usize) -> EngineOptions {
        EngineOptions {
            n_ctx,
            n_seqs,
            ..EngineOptions::default()
        }
    }

    #[test]
    fn pages_are_those_of_all_sequences() {
        let plain = Room::with(&options(100, 3), None, (10, 0)).unwrap();
        let want = Room {
            full: 12,
            windowed: 0,
            pages_per_seq: 4,
            bytes: 120,
        };
        assert_eq!(plain, want);
        // Windowed layers have at least what one sequence needs.
        let windowed = Room::with(&options(6400, 2), Some(32), (10, 1)).unwrap();
        assert_eq!(
            (windowed.full, windowed.windowed, windowed.bytes),
            (400, 200, 4200)
        );
    }

    #[test]
    fn sizes_whose_products_are_no_number_are_refused_and_do_not_wrap() {
        let far = usize::MAX;
        for (n_ctx, n_seqs, window, page) in [
            // Pages times bytes are 2^64, which is 0 where it wraps.
            (1 << 53, 1, None, 1 << 16),
            // Pages of all sequences are.
            (far, 256, None, 1),
            // And those of both kinds of layers, each less than that.
            (1 << 53, 1, Some(far), 1 << 15),
            (far, far, Some(far), u64::MAX),
        ] {
            let room = Room::with(&options(n_ctx, n_seqs), window, (page, page)).unwrap();
            let said = fits(0, &room, Some(1 << 40)).unwrap_err();
            assert!(
                matches!(said, EngineError::Memory { kv, .. } if kv > 1 << 58),
                "{n_ctx} {n_seqs} {page}: {said}"
            );
            // In a machine whose memory is not told, too.
            assert!(fits(0, &room, None).is_err());
            let little = EngineOptions {
                kv_memory: Some(1 << 40),
                ..options(n_ctx, n_seqs)
            };
            let said = Room::with(&little, window, (page, page)).unwrap_err();
            let need = matches!(said, EngineError::KvMemory { need, .. } if need > 1 << 40);
            assert!(need, "{n_ctx} {n_seqs} {page}: {said}");
        }
    }

    #[test]
    fn kv_memory_is_filled_however_many_sequences_there_may_be() {
        let most = EngineOptions {
            kv_memory: Some(1000),
            ..options(32, usize::MAX)
        };
        let room = Room::with(&most, None, (10, 0)).unwrap();
        assert_eq!((room.full, room.bytes), (100, 1000));
    }

    #[test]
    fn more_pages_than_a_table_names_are_refused() {
        let room = |pages: usize| Room::with(&options(pages * PAGE, 1), None, (1, 0)).unwrap();
        let most = i32::MAX as usize;
        assert!(fits(0, &room(most), None).is_ok());
        let said = fits(0, &room(most + 1), None).unwrap_err().to_string();
        assert!(
            said.contains("2147483648 pages") && said.contains("lower --n-ctx"),
            "{said}"
        );
    }
}
