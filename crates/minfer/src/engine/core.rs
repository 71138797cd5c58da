//! The engine's heart: admit → plan → forward → choose, one step after the other.

use std::sync::Arc;

use super::model::Model;
use super::options::EngineOptions;
use super::sequence::{Next, Sequence};
use crate::Error;
use crate::backend;
use crate::graph::{
    BatchInputs, ContextParams, GraphKind, GraphParams, PAGE, Scheduler, SchedulerOptions,
    capacity_class,
};
use crate::kv::PagePool;

/// Most logits a step may leave behind, in values: 64 MB of f32.
const MAX_LOGITS: usize = 1 << 24;

/// What the engine's thread owns.
pub(super) struct Core {
    model: Arc<Model>,
    scheduler: Scheduler,
    context: ContextParams,
    full: PagePool,
    windowed: PagePool,
    n_ctx: usize,
    n_batch: usize,
    batch: Batch,
    logits: Vec<f32>,
}

/// The inputs of a step, kept so that a step allocates nothing.
#[derive(Default)]
struct Batch {
    token_ids: Vec<i32>,
    slots: Vec<i32>,
    row_seq: Vec<i32>,
    out_rows: Vec<i32>,
    full: Vec<i32>,
    windowed: Vec<i32>,
}

impl Core {
    /// Loads the weights into the backends. `progress` gets bytes done and bytes in all.
    pub fn new(
        model: Arc<Model>,
        options: &EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Core, Error> {
        options.check(&model)?;
        let backends = backend::create(
            options.backends.as_deref(),
            options.n_threads,
            options.cpu.as_deref(),
        )?;
        let mut scheduler = Scheduler::new(backends, SchedulerOptions::default());
        scheduler.load_weights(model.weights(), &mut |done, all| {
            progress(done as u64, all as u64)
        })?;
        let pages = options.n_ctx.div_ceil(PAGE);
        let windowed = model.hparams().sliding_window.map_or(0, |_| pages);
        let context = ContextParams {
            type_k: options.type_k,
            type_v: options.type_v,
            pages_full: pages,
            pages_windowed: windowed,
            max_seqs: 1,
            pages_per_seq: pages,
            fuse: options.fuse,
        };
        let n_vocab = model.hparams().n_vocab;
        Ok(Core {
            scheduler,
            context,
            full: PagePool::new(pages),
            windowed: PagePool::new(windowed),
            n_ctx: options.n_ctx,
            n_batch: options.n_batch,
            batch: Batch::default(),
            logits: vec![0.0; n_vocab],
            model,
        })
    }

    /// Runs one sequence to its end and gives its pages back, whatever happens.
    pub fn run(&mut self, mut seq: Sequence) {
        loop {
            match self.step(&mut seq) {
                Ok(Next::Step) => {}
                Ok(Next::End) => break,
                Err(e) => {
                    seq.fail(e);
                    break;
                }
            }
        }
        seq.full.release(&mut self.full);
        seq.windowed.release(&mut self.windowed);
    }

    /// After a panic lost a sequence with its pages: all are free again.
    pub fn recover(&mut self) {
        self.full = PagePool::new(self.full.total());
        self.windowed = PagePool::new(self.windowed.total());
    }

    fn step(&mut self, seq: &mut Sequence) -> Result<Next, Error> {
        let all = seq.wants_all_logits();
        let limit = if all {
            (MAX_LOGITS / self.logits.len()).max(1)
        } else {
            usize::MAX
        };
        let rows = seq.next_rows(self.n_batch.min(limit));
        let last = seq.n_past + rows == seq.tokens.len();
        let first_row = seq.n_past;
        self.plan(seq, rows, if all { rows } else { usize::from(last) })?;
        self.forward()?;
        seq.n_past += rows;
        if seq.prompt_progress() == Next::End {
            return Ok(Next::End);
        }
        for out in 0..self.batch.out_rows.len() {
            self.scheduler.read_output(out..out + 1, &mut self.logits)?;
            let next = if seq.is_logits() {
                seq.logits(first_row + self.batch.out_rows[out] as usize, &self.logits)?
            } else {
                seq.choose(&mut self.logits, self.model.tokenizer(), self.n_ctx)?
            };
            if next == Next::End {
                return Ok(Next::End);
            }
        }
        Ok(Next::Step)
    }

    /// Fills the inputs: the next `rows` tokens of the sequence, the last `outs` of them asked for.
    fn plan(&mut self, seq: &mut Sequence, rows: usize, outs: usize) -> Result<(), Error> {
        let end = seq.n_past + rows;
        seq.full.reserve(&mut self.full, end)?;
        if self.windowed.total() > 0 {
            seq.windowed.reserve(&mut self.windowed, end)?;
        }
        let b = &mut self.batch;
        let fill = |to: &mut Vec<i32>, from: &mut dyn Iterator<Item = i32>| {
            to.clear();
            to.extend(from);
        };
        fill(
            &mut b.token_ids,
            &mut seq.tokens[seq.n_past..end].iter().map(|t| *t as i32),
        );
        fill(&mut b.slots, &mut (seq.n_past as i32..end as i32));
        fill(&mut b.row_seq, &mut std::iter::repeat_n(0, rows));
        fill(&mut b.out_rows, &mut ((rows - outs) as i32..rows as i32));
        let table = |to: &mut Vec<i32>, pages: &[i32]| {
            to.clear();
            to.extend_from_slice(pages);
            to.resize(self.context.pages_per_seq, 0);
        };
        table(&mut b.full, seq.full.pages());
        table(&mut b.windowed, seq.windowed.pages());
        Ok(())
    }

    fn forward(&mut self) -> Result<(), Error> {
        let b = &self.batch;
        let params = GraphParams {
            n_tokens: capacity_class(b.token_ids.len()),
            n_out: capacity_class(b.out_rows.len()),
            kind: GraphKind::Logits,
            context: self.context,
            weights_version: 0,
        };
        let inputs = BatchInputs {
            token_ids: &b.token_ids,
            positions: &b.slots, // the same until a context is shifted
            slots: &b.slots,
            row_seq: &b.row_seq,
            out_rows: &b.out_rows,
            page_table_full: &b.full,
            page_table_windowed: &b.windowed,
        };
        let arch = self.model.arch();
        self.scheduler
            .forward(&params, &|p| arch.build(p), &inputs, None)?;
        Ok(())
    }
}
