//! What the host hands a forward pass, and the checks that keep kernels in bounds.

use super::{Counts, Graph, GraphError, GraphKind, Input, LayerKind, Op, PAGE};

/// One batch: data that a graph of large enough capacity runs on.
///
/// A [`GraphKind::KvShift`] graph reads `positions`, `pages_full` and `pages_windowed` alone: row `i` turns the keys
/// of page `pages_full[i]` of the full layers and page `pages_windowed[i]` of the windowed ones by `positions[i]`
/// positions (which may be negative); -1 stands for no page, since the kinds may have different numbers of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchInputs<'a> {
    /// Token ids, one a row.
    pub token_ids: &'a [i32],
    /// RoPE position of each row; of a shift, by how much it changes.
    pub positions: &'a [i32],
    /// Absolute slot of each row in its sequence's KV.
    pub slots: &'a [i32],
    /// Line of the page tables that each row uses.
    pub row_seq: &'a [i32],
    /// Which rows are asked for.
    pub out_rows: &'a [i32],
    /// `[lines][pages_per_seq]`: pages of each line for full layers, whole lines.
    pub page_table_full: &'a [i32],
    /// The same for windowed layers; empty for a model that has none.
    pub page_table_windowed: &'a [i32],
    /// Of a shift: the page of the full layers that each row turns, -1 for none.
    pub pages_full: &'a [i32],
    /// The same for windowed layers; empty for a model that has none.
    pub pages_windowed: &'a [i32],
}

impl BatchInputs<'_> {
    /// Rows in use: each has a position.
    pub fn counts(&self) -> Counts {
        Counts {
            tokens: self.positions.len(),
            out: self.out_rows.len(),
        }
    }

    /// The values of an input.
    pub(super) fn of(&self, input: Input) -> &[i32] {
        match input {
            Input::TokenIds => self.token_ids,
            Input::Positions => self.positions,
            Input::Slots => self.slots,
            Input::RowSeq => self.row_seq,
            Input::OutRows => self.out_rows,
            Input::PageTable(LayerKind::Full) => self.page_table_full,
            Input::PageTable(LayerKind::Windowed) => self.page_table_windowed,
            Input::Pages(LayerKind::Full) => self.pages_full,
            Input::Pages(LayerKind::Windowed) => self.pages_windowed,
        }
    }

    /// Whether the graph can run on this batch.
    ///
    /// Checked: lengths against each other and the capacities; that every row's line and slot exist, and every
    /// page that it sees; that no two rows have one place; that asked rows exist. Token ids are checked against
    /// the vocabulary by the engine.
    pub(super) fn check(&self, graph: &Graph) -> Result<(), GraphError> {
        match graph.params.kind {
            GraphKind::Logits | GraphKind::Embeddings => self.check_tokens(graph),
            GraphKind::KvShift => self.check_shift(graph),
        }
    }

    /// That there are rows, not too many, and that every page exists and comes once.
    fn check_shift(&self, graph: &Graph) -> Result<(), GraphError> {
        let params = &graph.params;
        let n = self.positions.len();
        if n == 0 || n > params.n_tokens {
            let reason = format!("{n} rows, the graph takes 1 to {}", params.n_tokens);
            return Err(refuse("positions", reason));
        }
        for &(input, _) in &graph.inputs {
            let Input::Pages(kind) = input else { continue };
            let name = match kind {
                LayerKind::Full => "pages_full",
                LayerKind::Windowed => "pages_windowed",
            };
            let pages = self.of(input);
            if pages.len() != n {
                let reason = format!("{} values for {n} positions", pages.len());
                return Err(refuse(name, reason));
            }
            let limit = params.context.pages(kind);
            let mut given: Vec<i32> = pages.iter().copied().filter(|p| *p != -1).collect();
            within(name, &given, limit)?;
            given.sort_unstable();
            if let Some(twice) = given.windows(2).find(|w| w[0] == w[1]) {
                let reason = format!("page {} comes twice and would be turned twice", twice[0]);
                return Err(refuse(name, reason));
            }
        }
        Ok(())
    }

    fn check_tokens(&self, graph: &Graph) -> Result<(), GraphError> {
        let params = &graph.params;
        let n = self.token_ids.len();
        if n == 0 || n > params.n_tokens {
            let reason = format!("{n} rows, the graph takes 1 to {}", params.n_tokens);
            return Err(refuse("token_ids", reason));
        }
        for (name, values) in [
            ("positions", self.positions),
            ("slots", self.slots),
            ("row_seq", self.row_seq),
        ] {
            if values.len() != n {
                let reason = format!("{} values for {n} tokens", values.len());
                return Err(refuse(name, reason));
            }
        }
        if self.out_rows.len() > params.n_out {
            let reason = format!(
                "{} rows, the graph takes up to {}",
                self.out_rows.len(),
                params.n_out
            );
            return Err(refuse("out_rows", reason));
        }
        let lines = params.context.max_seqs;
        let slots = params.context.pages_per_seq * PAGE;
        within("token_ids", self.token_ids, i32::MAX as usize)?;
        within("out_rows", self.out_rows, n)?;
        within("row_seq", self.row_seq, lines)?;
        within("slots", self.slots, slots)?;
        for &(input, _) in &graph.inputs {
            if let Input::PageTable(kind) = input {
                self.check_pages(graph, kind)?;
            }
        }
        Ok(())
    }

    fn check_pages(&self, graph: &Graph, kind: LayerKind) -> Result<(), GraphError> {
        let context = &graph.params.context;
        let (table, pages) = (self.of(Input::PageTable(kind)), context.pages(kind));
        let name = match kind {
            LayerKind::Full => "page_table_full",
            LayerKind::Windowed => "page_table_windowed",
        };
        let width = context.pages_per_seq;
        if table.len() > context.max_seqs * width || table.len() % width != 0 {
            let reason = format!(
                "{} entries, expected up to {} lines of {width}",
                table.len(),
                context.max_seqs
            );
            return Err(refuse(name, reason));
        }
        let window = widest_window(graph, kind);
        // A row sees little that the row before it in its sequence did not.
        let (mut line, mut known) = (-1, 0..0);
        for (&seq, &slot) in self.row_seq.iter().zip(self.slots) {
            let end = slot as usize + 1;
            let seen = end.saturating_sub(window) / PAGE..end.div_ceil(PAGE);
            let Some(entries) = table
                .get(seq as usize * width..)
                .and_then(|t| t.get(..width))
            else {
                return Err(refuse(name, format!("line {seq} is missing")));
            };
            let more = line == seq && known.start <= seen.start && seen.start < known.end;
            let first = if more { known.end } else { seen.start };
            for (i, page) in entries.iter().enumerate().take(seen.end).skip(first) {
                if !(0..pages as i64).contains(&i64::from(*page)) {
                    let reason = format!(
                        "slot {slot} of line {seq} sees entry {i}, which is page {page} of {pages}"
                    );
                    return Err(refuse(name, reason));
                }
            }
            let start = if more { known.start } else { seen.start };
            (line, known) = (seq, start..seen.end.max(first));
        }
        self.check_places(table, width)
            .map_err(|reason| refuse(name, reason))
    }

    /// That no two rows are stored at one place: threads write them at the same time. Every row's page is in
    /// the table. A row is held against all rows of other sequences, but of those that it follows on only
    /// against one a page: a prompt costs little.
    fn check_places(&self, table: &[i32], width: usize) -> Result<(), String> {
        let page = |i: usize| {
            let entry = self.row_seq[i] as usize * width + self.slots[i] as usize / PAGE;
            table[entry]
        };
        let at = |i: usize| self.slots[i] as usize % PAGE;
        let mut run = 0;
        for i in 1..self.slots.len() {
            let goes_on =
                self.row_seq[i] == self.row_seq[i - 1] && self.slots[i] == self.slots[i - 1] + 1;
            if !goes_on {
                run = i;
            }
            let followed = (run..i).rev().skip(PAGE - 1).step_by(PAGE);
            let mut others = (0..run).filter(|j| at(*j) == at(i)).chain(followed);
            if let Some(j) = others.find(|j| page(*j) == page(i)) {
                return Err(format!(
                    "rows {j} and {i} have one place, position {} of page {}",
                    at(i),
                    page(i)
                ));
            }
        }
        Ok(())
    }
}

/// How many slots the attentions of a kind see at most, the row's own included.
fn widest_window(graph: &Graph, kind: LayerKind) -> usize {
    let windows = graph.nodes.iter().filter_map(|n| match &n.op {
        Op::Attention(a) if a.kind == kind => Some(a.window.unwrap_or(usize::MAX)),
        _ => None,
    });
    windows.max().unwrap_or(1)
}

/// Every value is in `0..limit`.
fn within(input: &'static str, values: &[i32], limit: usize) -> Result<(), GraphError> {
    match values.iter().find(|v| **v < 0 || **v as usize >= limit) {
        None => Ok(()),
        Some(v) => Err(refuse(input, format!("value {v} is not in 0..{limit}"))),
    }
}

fn refuse(input: &'static str, reason: String) -> GraphError {
    GraphError::Input { input, reason }
}
