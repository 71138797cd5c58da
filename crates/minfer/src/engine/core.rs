//! The engine's heart: admit → plan → forward → choose, one step after the other.

use std::sync::Arc;

use super::batch::{Batch, Pools};
use super::measure::Lane;
use super::model::Model;
use super::options::EngineOptions;
use super::sequence::{Next, Sequence};
use crate::Error;
use crate::backend;
use crate::graph::{
    ContextParams, GraphKind, GraphParams, PAGE, Scheduler, SchedulerOptions, capacity_class,
};

/// Most logits a step may leave behind, in values: 64 MB of f32.
const MAX_LOGITS: usize = 1 << 24;

/// What the engine's thread owns.
pub(super) struct Core {
    model: Arc<Model>,
    pub(super) scheduler: Scheduler,
    context: ContextParams,
    pub(super) pools: Pools,
    /// Sequences that were measured.
    pub(super) lanes: Vec<Lane>,
    n_ctx: usize,
    pub(super) n_batch: usize,
    pub(super) batch: Batch,
    /// One row of them.
    pub(super) logits: Vec<f32>,
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
            options.pack,
        )?;
        let scheduler_options = SchedulerOptions {
            check_rebuilds: options.check_rebuilds,
            ..SchedulerOptions::default()
        };
        let mut scheduler = Scheduler::new(backends, scheduler_options);
        scheduler.load_weights(model.weights(), &mut |done, all| {
            progress(done as u64, all as u64)
        })?;
        let pages = options.n_ctx.div_ceil(PAGE);
        let pages_full = pages * options.n_seqs;
        let pages_windowed = model.hparams().sliding_window.map_or(0, |_| pages_full);
        let context = ContextParams {
            type_k: options.type_k,
            type_v: options.type_v,
            pages_full,
            pages_windowed,
            max_seqs: options.n_seqs,
            pages_per_seq: pages,
            fuse: options.fuse,
        };
        let n_vocab = model.hparams().n_vocab;
        Ok(Core {
            scheduler,
            context,
            pools: Pools::new(pages_full, pages_windowed),
            lanes: Vec::new(),
            n_ctx: options.n_ctx,
            n_batch: options.n_batch,
            batch: Batch::new(pages),
            logits: vec![0.0; n_vocab],
            model,
        })
    }

    /// Runs one sequence to its end and gives its pages back, whatever happens.
    pub fn run(&mut self, mut seq: Sequence) {
        self.release_lanes();
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
        seq.pages.release(&mut self.pools);
    }

    /// After a panic lost a sequence with its pages: all are free again.
    pub fn recover(&mut self) {
        self.lanes.clear();
        self.pools.reset();
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
        let (end, outs) = (first_row + rows, if all { rows } else { usize::from(last) });
        seq.pages.reserve(&mut self.pools, end)?;
        self.batch.clear();
        let ids = seq.tokens[first_row..end].iter().copied();
        self.batch.push(ids, first_row, outs, &seq.pages);
        self.forward()?;
        seq.n_past = end;
        if seq.prompt_progress() == Next::End {
            return Ok(Next::End);
        }
        for out in 0..self.batch.out_rows().len() {
            let row = self.scheduler.output_row(out, &mut self.logits)?;
            let next = if seq.is_logits() {
                seq.logits(first_row + self.batch.out_rows()[out] as usize, row)?
            } else {
                seq.choose(row, self.model.tokenizer(), self.n_ctx)?
            };
            if next == Next::End {
                return Ok(Next::End);
            }
        }
        Ok(Next::Step)
    }

    /// Runs the batch.
    pub(super) fn forward(&mut self) -> Result<(), Error> {
        let inputs = self.batch.inputs();
        let counts = inputs.counts();
        let params = GraphParams {
            n_tokens: capacity_class(counts.tokens),
            n_out: capacity_class(counts.out),
            kind: GraphKind::Logits,
            context: self.context,
            weights_version: 0,
        };
        let arch = self.model.arch();
        self.scheduler
            .forward(&params, &|p| arch.build(p), &inputs, None)?;
        Ok(())
    }
}
