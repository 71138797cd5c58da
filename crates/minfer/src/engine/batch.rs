//! What one step works on: rows of one or several sequences, and the KV pages they stand on.

use crate::graph::{BatchInputs, LayerKind};
use crate::kv::SeqPages;

/// The inputs of a step, kept so that a step allocates nothing.
pub(super) struct Batch {
    /// Columns of the page tables.
    pages_per_seq: usize,
    token_ids: Vec<i32>,
    slots: Vec<i32>,
    row_seq: Vec<i32>,
    out_rows: Vec<i32>,
    full: Vec<i32>,
    windowed: Vec<i32>,
}

impl Batch {
    /// Empty, for page tables of so many columns.
    pub fn new(pages_per_seq: usize) -> Batch {
        Batch {
            pages_per_seq,
            token_ids: Vec::new(),
            slots: Vec::new(),
            row_seq: Vec::new(),
            out_rows: Vec::new(),
            full: Vec::new(),
            windowed: Vec::new(),
        }
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        for values in [
            &mut self.token_ids,
            &mut self.slots,
            &mut self.row_seq,
            &mut self.out_rows,
            &mut self.full,
            &mut self.windowed,
        ] {
            values.clear();
        }
    }

    /// Adds one more sequence with these tokens, the first at slot `first`; the last `outs` are asked for.
    pub fn push(
        &mut self,
        ids: impl Iterator<Item = u32>,
        first: usize,
        outs: usize,
        pages: &SeqPages,
    ) {
        let line = (self.full.len() / self.pages_per_seq) as i32;
        let start = self.token_ids.len();
        self.token_ids.extend(ids.map(|id| id as i32));
        let end = self.token_ids.len();
        self.slots
            .extend((first..first + end - start).map(|s| s as i32));
        self.row_seq.resize(end, line);
        self.out_rows.extend((end - outs..end).map(|r| r as i32));
        let lines = (line as usize + 1) * self.pages_per_seq;
        for (table, kind) in [
            (&mut self.full, LayerKind::Full),
            (&mut self.windowed, LayerKind::Windowed),
        ] {
            pages.write_line(kind, table);
            table.resize(lines, 0);
        }
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.token_ids.is_empty()
    }

    /// As the graph takes them.
    pub fn inputs(&self) -> BatchInputs<'_> {
        BatchInputs {
            token_ids: &self.token_ids,
            positions: &self.slots, // a shift moves both
            slots: &self.slots,
            row_seq: &self.row_seq,
            out_rows: &self.out_rows,
            page_table_full: &self.full,
            page_table_windowed: &self.windowed,
            ..BatchInputs::default()
        }
    }
}
