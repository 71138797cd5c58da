//! A block of attention in one step, for batches in which every row is of another sequence: nobody but
//! the item at work reads what is made or stored here before the next barrier.

use crate::graph::{Attention, KvPart, Norm, Op, PAGE};

use super::blocks::Heads;
use super::buffer::AlignedBuffer;
use super::execute::Region;
use super::kernels::attention::AttnArgs;
use super::kernels::kv::{head_offset, kv_store_head};
use super::kernels::{norm, rope};
use super::rows::Rows;
use super::scratch::ThreadScratch;
use super::threads::Worker;

/// More rows than this run node by node: barriers are nothing then.
const MOST_ROWS: usize = 64;

/// Heads that are normed, turned and stored by the attention's items.
pub(super) struct FreshHeads<'a> {
    heads: &'a Heads,
    head_dim: usize,
    q: Rows,
    k: Rows,
    v: Rows,
    angles: Rows,
    regions: [*mut u8; 2],
}

impl Region<'_> {
    /// This thread's share of the block, if the batch allows it: all rows are asked for and are of
    /// different sequences. Every thread comes to the same answer.
    pub(super) fn heads(&self, h: &Heads, w: &Worker<'_>, own: &mut ThreadScratch) -> bool {
        let Op::Attention(a) = &self.run.graph.node(h.attention).op else {
            return false;
        };
        let (k_store, v_store) = (
            self.run.graph.node(h.k_store),
            self.run.graph.node(h.v_store),
        );
        let (slots, row_seq) = (
            self.integers(k_store.srcs[1]),
            self.integers(k_store.srcs[2]),
        );
        let out = self.rows(h.attention);
        let all_asked = h.asked.is_none_or(|rows| {
            let rows = self.integers(rows).iter();
            rows.enumerate().all(|(i, r)| i as i32 == *r)
        });
        if out.rows != slots.len() || !all_asked || !different(row_seq) {
            return false;
        }
        let fresh = FreshHeads {
            heads: h,
            head_dim: a.head_dim,
            q: self.rows(h.q),
            k: self.rows(h.k),
            v: self.rows(v_store.srcs[0]),
            angles: self.rows(h.angles),
            regions: [h.k_store, h.v_store].map(|s| self.buffer(s).as_mut_ptr()),
        };
        let args = self.attention_args(a, h.attention, fresh.q, [slots, row_seq]);
        self.attend(&args, Some(&fresh), out, w, own);
        true
    }
}

/// Whether few sequences are all different.
fn different(row_seq: &[i32]) -> bool {
    let before = |i: usize| &row_seq[..i];
    row_seq.len() <= MOST_ROWS && (1..row_seq.len()).all(|i| !before(i).contains(&row_seq[i]))
}

impl FreshHeads<'_> {
    /// f32 values that a thread needs for the heads of a row: the queries, and one key.
    pub fn values(a: &Attention) -> usize {
        (a.n_head + 1) * a.head_dim
    }

    /// Makes the queries of KV head `head` in row `row`, in `room`; with `store`, the row's key and value of
    /// this head go into their pages, too. Returns what the attention's kernels read then.
    pub fn ready<'r>(
        &self,
        region: &Region<'_>,
        args: &AttnArgs<'r>,
        head: usize,
        row: usize,
        store: bool,
        room: &mut AlignedBuffer,
    ) -> AttnArgs<'r> {
        let (hd, group) = (args.head_dim, args.group());
        let room = room.floats_mut((args.n_head + 1) * hd); // reserved before the region
        let (q, key) = room.split_at_mut(args.n_head * hd);
        let first = head * group * hd;
        self.turn(
            region,
            self.heads.q_norm,
            [self.q, self.angles],
            (row, first),
            &mut q[first..][..group * hd],
        );
        if store {
            let norm = self.heads.k_norm;
            self.turn(region, norm, [self.k, self.angles], (row, head * hd), key);
            let value = self.v.at(row, head * hd).cast_const();
            self.store(region, args, KvPart::K, (row, head), key.as_ptr());
            self.store(region, args, KvPart::V, (row, head), value);
        }
        AttnArgs {
            q: q.as_ptr(),
            q_stride: 0,
            ..*args
        }
    }

    /// Norms and turns the heads in row `row` of `x` from column `first` on, as many as `to` takes.
    fn turn(
        &self,
        region: &Region<'_>,
        norm: Option<Norm>,
        [x, angles]: [Rows; 2],
        (row, first): (usize, usize),
        to: &mut [f32],
    ) {
        // SAFETY: both were written before the last barrier, and nothing of the step is written there
        // (`plan`).
        let (x, angles) = unsafe { (&x.row(row)[first..][..to.len()], angles.row(row)) };
        let machine = region.machine;
        match norm {
            Some(n) => norm::rms_norm(machine, x, region.weights.vector(n.weight), n.eps, to),
            None => to.copy_from_slice(x),
        }
        rope::rope_row(machine, self.heads.rope, to, self.head_dim, angles);
    }

    /// Writes one head of one row into its page.
    fn store(
        &self,
        region: &Region<'_>,
        args: &AttnArgs<'_>,
        part: KvPart,
        (row, head): (usize, usize),
        x: *const f32,
    ) {
        let (slot, seq) = (args.slots[row] as usize, args.row_seq[row] as usize);
        let page = args.page_table[seq * args.pages_per_seq + slot / PAGE] as usize;
        let (ty, to) = match part {
            KvPart::K => (args.k_type, self.regions[0]),
            KvPart::V => (args.v_type, self.regions[1]),
        };
        let (hd, t) = (args.head_dim, slot % PAGE);
        let offset = head_offset(ty, (args.n_head_kv, hd), page, head);
        // SAFETY: the scheduler has checked that the slot has its page; the position is this sequence's
        // newest, which no other row of the batch reads, and of this head this item's alone.
        unsafe { kv_store_head(region.machine, (part, ty), hd, x, t, to.add(offset)) };
    }
}
