//! KV stores, shifts and attention nodes: how their work is cut for the threads.

use std::ops::Range;

use crate::graph::{Attention, Counts, Input, KvPart, NodeId, Op, Run, SEGMENT};

use super::execute::Region;
use super::heads::FreshHeads;
use super::kernels::attention::{self as kernel, AttnArgs};
use super::kernels::kv::{StoreArgs, head_offset, kv_store};
use super::kernels::shift::turn_keys;
use super::rows::Rows;
use super::scratch::ThreadScratch;
use super::threads::Worker;

/// A step whose tiles make fewer work items than so many a thread is cut by segment, too.
pub(super) const ITEMS_A_THREAD: usize = 2;

/// A tile of rows, and where its segments' partial results begin.
#[derive(Clone)]
pub(super) struct Tile {
    rows: Range<usize>,
    segments: Range<usize>,
    /// First (tile, head, segment) item.
    item: usize,
    /// First f32 of its partial results.
    offset: usize,
}

impl Region<'_> {
    /// This thread's share of a KV store.
    pub(super) fn kv_store(&self, part: KvPart, id: NodeId, w: &Worker<'_>) {
        let node = self.run.graph.node(id);
        let Op::KvStore {
            ty,
            n_head_kv,
            head_dim,
            ..
        } = node.op
        else {
            return;
        };
        let x = self.rows(node.srcs[0]);
        let context = &self.run.graph.params.context;
        let args = StoreArgs {
            part,
            ty,
            n_head_kv,
            head_dim,
            x: x.as_ptr(),
            x_stride: x.stride(),
            slots: self.integers(node.srcs[1]),
            row_seq: self.integers(node.srcs[2]),
            page_table: self.integers(node.srcs[3]),
            pages_per_seq: context.pages_per_seq,
            region: self.buffer(id).as_mut_ptr(),
        };
        // SAFETY: the scheduler has checked that every row's slot has its page in the table and the
        // region; rows are different positions; attention comes after a barrier.
        unsafe { kv_store(self.machine, &args, w.range(x.rows)) };
    }

    /// This thread's share of turning keys.
    pub(super) fn kv_shift(&self, id: NodeId, w: &Worker<'_>, own: &mut ThreadScratch) {
        let node = self.run.graph.node(id);
        let Op::KvShift {
            ty,
            n_head_kv,
            head_dim,
            rope,
            ..
        } = node.op
        else {
            return;
        };
        let (angles, pages) = (self.rows(node.srcs[0]), self.integers(node.srcs[1]));
        let region = self.buffer(id);
        let room = own.heads.floats_mut(head_dim);
        for item in w.range(pages.len() * n_head_kv) {
            let (r, head) = (item / n_head_kv, item % n_head_kv);
            let Ok(page) = usize::try_from(pages[r]) else {
                continue; // a row without a page of this kind
            };
            let at = head_offset(ty, (n_head_kv, head_dim), page, head);
            // SAFETY: the scheduler has checked that the page is in the region and comes once: a head's part
            // of it is this item's alone. The angles were written before the last barrier.
            unsafe {
                let part = region.as_mut_ptr().add(at);
                turn_keys(self.machine, (ty, rope), angles.row(r), part, room);
            }
        }
    }

    /// The values of an i32 node, all rows in one slice.
    pub(super) fn integers(&self, id: NodeId) -> &[i32] {
        // SAFETY: inputs, or selected from them before the last barrier.
        unsafe { self.rows(id).dense_i32() }
    }

    /// This thread's share of an attention node.
    pub(super) fn attention(
        &self,
        a: &Attention,
        id: NodeId,
        w: &Worker<'_>,
        own: &mut ThreadScratch,
    ) {
        let srcs = &self.run.graph.node(id).srcs;
        let rows = [srcs[3], srcs[4]].map(|s| self.integers(s));
        let args = self.attention_args(a, id, self.rows(srcs[0]), rows);
        self.attend(&args, None, self.rows(id), w, own);
    }

    /// What an attention node's kernels read: queries `q`, whose `slots` and `row_seq` these are.
    pub(super) fn attention_args<'r>(
        &'r self,
        a: &Attention,
        id: NodeId,
        q: Rows,
        [slots, row_seq]: [&'r [i32]; 2],
    ) -> AttnArgs<'r> {
        let srcs = &self.run.graph.node(id).srcs;
        let context = &self.run.graph.params.context;
        AttnArgs {
            q: q.as_ptr(),
            q_stride: q.stride(),
            k: self.buffer(srcs[1]).as_ptr(),
            v: self.buffer(srcs[2]).as_ptr(),
            k_type: context.type_k,
            v_type: context.type_v,
            slots,
            row_seq,
            page_table: self.integers(srcs[5]),
            pages_per_seq: context.pages_per_seq,
            n_head: a.n_head,
            n_head_kv: a.n_head_kv,
            head_dim: a.head_dim,
            scale: a.scale,
            window: a.window,
        }
    }

    /// Attention of all rows of `out`. With `heads`, whose rows are tiles of their own, each item makes its
    /// queries first, and the item that sees a row's own position stores that row's key and value.
    pub(super) fn attend(
        &self,
        args: &AttnArgs<'_>,
        heads: Option<&FreshHeads<'_>>,
        out: Rows,
        w: &Worker<'_>,
        own: &mut ThreadScratch,
    ) {
        if out.rows == 0 {
            return;
        }
        cut(args, out.rows, &mut own.tiles_of_rows);
        let items = own.tiles_of_rows.len() * args.n_head_kv;
        let single = own.tiles_of_rows.iter().all(|t| t.segments.len() == 1);
        if single || items >= ITEMS_A_THREAD * w.count() || w.count() == 1 {
            self.by_tile(args, heads, out, w, own);
        } else {
            self.by_segment(args, heads, out, w, own);
        }
    }

    /// One item a (KV head, tile): all its segments in order.
    fn by_tile(
        &self,
        args: &AttnArgs<'_>,
        heads: Option<&FreshHeads<'_>>,
        out: Rows,
        w: &Worker<'_>,
        own: &mut ThreadScratch,
    ) {
        let ThreadScratch {
            tiles_of_rows,
            attention,
            heads: room,
            ..
        } = own;
        let n = tiles_of_rows.len();
        w.for_each(n * args.n_head_kv, 1, |items| {
            for item in items {
                // Late tiles see the most, so they are started first; a head's tiles go together.
                let (head, tile) = (item / n, &tiles_of_rows[n - 1 - item % n]);
                let args = match heads {
                    Some(fresh) => fresh.ready(self, args, head, tile.rows.start, true, room),
                    None => *args,
                };
                // SAFETY: `args` describes this node's sources, written before the last barrier or just
                // now by this thread; the tile's rows of `out` in this head's columns are this item's alone.
                unsafe {
                    kernel::tile(
                        self.machine,
                        &args,
                        head,
                        tile.rows.clone(),
                        attention,
                        out.as_ptr(),
                        out.stride(),
                    );
                }
            }
        });
    }

    /// One item a (KV head, tile, segment). Who ends the last segment of a (KV head, tile) merges them.
    fn by_segment(
        &self,
        args: &AttnArgs<'_>,
        heads: Option<&FreshHeads<'_>>,
        out: Rows,
        w: &Worker<'_>,
        own: &mut ThreadScratch,
    ) {
        let ThreadScratch {
            tiles_of_rows: tiles,
            attention,
            heads: room,
            ..
        } = own;
        let Some(last) = tiles.last() else { return };
        let (partials, reserved) = self.shared.floats();
        assert!(
            last.end_offset(args) <= reserved,
            "scratch was reserved for {reserved} partial values"
        );
        let n_heads = args.n_head_kv;
        let slice = |tile: &Tile, head: usize, segments: Range<usize>| {
            let len = args.partial_len(&tile.rows);
            let first = tile.offset + (head * tile.segments.len() + segments.start) * len;
            // SAFETY: inside the reserved floats; different items have different parts.
            unsafe { std::slice::from_raw_parts_mut(partials.add(first), segments.len() * len) }
        };
        w.for_each(last.item + n_heads * last.segments.len(), 1, |items| {
            for item in items {
                let at = tiles.partition_point(|t| t.item <= item) - 1;
                let (tile, n) = (&tiles[at], tiles[at].segments.len());
                let (head, s) = ((item - tile.item) / n, (item - tile.item) % n);
                let segment = tile.segments.start + s;
                let args = match heads {
                    Some(fresh) => fresh.ready(self, args, head, tile.rows.start, s + 1 == n, room),
                    None => *args,
                };
                let rows = tile.rows.clone();
                // SAFETY: as in `by_tile`; the partial result is this item's alone.
                unsafe {
                    kernel::segments(
                        self.machine,
                        &args,
                        head,
                        rows.clone(),
                        segment..segment + 1,
                        attention,
                        slice(tile, head, s..s + 1),
                    );
                }
                if !self.shared.one_more_done(at * n_heads + head, n) {
                    continue;
                }
                // SAFETY: all parts of this tile and head are written, as their counter says, and are
                // this item's alone now, as are the tile's rows of `out` in this head's columns.
                unsafe {
                    kernel::merge(
                        self.machine,
                        &args,
                        head,
                        rows,
                        slice(tile, head, 0..n),
                        out.as_ptr(),
                        out.stride(),
                    );
                }
            }
        });
    }
}

impl Tile {
    /// One past its partial results.
    fn end_offset(&self, args: &AttnArgs<'_>) -> usize {
        self.offset + args.n_head_kv * self.segments.len() * args.partial_len(&self.rows)
    }
}

/// Cuts rows into tiles.
fn cut(args: &AttnArgs<'_>, rows: usize, tiles: &mut Vec<Tile>) {
    tiles.clear();
    let (mut start, mut item, mut offset) = (0, 0, 0);
    while start < rows {
        let rows_of = args.tile_from(start, rows);
        start = rows_of.end;
        let tile = Tile {
            segments: args.segments(&rows_of),
            rows: rows_of,
            item,
            offset,
        };
        item += args.n_head_kv * tile.segments.len();
        offset = tile.end_offset(args);
        tiles.push(tile);
    }
}

/// How many segments rows with these slots see at most.
pub(super) fn segments(slots: &[i32]) -> usize {
    slots.iter().max().map_or(0, |s| *s as usize / SEGMENT + 1)
}

/// At most how many f32 the partial results of the run's attention nodes take, of so many segments.
pub(super) fn shared_floats(run: &Run<'_>, threads: usize, segments: usize) -> usize {
    let needs = run.iter().map(|(_, node)| match &node.op {
        Op::Attention(a) => floats_of(a, run.counts, threads, segments),
        _ => 0,
    });
    needs.max().unwrap_or(0)
}

/// Partial results exist only where tiles are few, which bounds their rows.
fn floats_of(a: &Attention, counts: Counts, threads: usize, segments: usize) -> usize {
    if threads == 1 || segments < 2 {
        return 0;
    }
    let most_tiles = (ITEMS_A_THREAD * threads).div_ceil(a.n_head_kv);
    let rows = counts
        .tokens
        .min(most_tiles * kernel::tile_tokens(a.n_head / a.n_head_kv));
    rows * a.n_head * (a.head_dim + 2) * segments
}

/// The input that holds the rows' slots, if the graph has one.
pub(super) fn slots_input(run: &Run<'_>) -> Option<NodeId> {
    run.graph
        .inputs
        .iter()
        .find(|(i, _)| *i == Input::Slots)
        .map(|(_, id)| *id)
}
