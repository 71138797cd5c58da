//! A smaller model that guesses what the engine's own will say.
//!
//! It chooses as the sequence would: with a copy of its sampler and the same draws. Where both models say nearly the
//! same, so do both choices, at any temperature.

use std::collections::HashMap;
use std::sync::Arc;

use super::EngineError;
use super::batch::Batch;
use super::core::Core;
use super::memory::{self, Room};
use super::model::Model;
use super::options::EngineOptions;
use crate::Error;
use crate::graph::{
    Backend, ContextParams, GraphKind, GraphParams, Scheduler, SchedulerOptions, capacity_class,
};
use crate::kv::{KvCache, SeqPages};
use crate::sampling::Sampler;

/// Tokens of a text that are read in a step before guesses are made of it.
const READ: usize = 64;

/// The draft model at work, beside the engine's own.
pub(super) struct Drafter {
    model: Arc<Model>,
    scheduler: Scheduler,
    context: ContextParams,
    kv: KvCache,
    batch: Batch,
    n_ctx: usize,
    n_batch: usize,
    row: Vec<f32>,
    /// By arrival.
    seqs: HashMap<u64, Followed>,
}

/// A sequence that it follows.
#[derive(Default)]
struct Followed {
    pages: SeqPages,
    /// The tokens in its KV.
    fed: Vec<u32>,
}

/// One sequence whose next tokens are wanted.
struct Wanted {
    arrival: u64,
    n: usize,
    sampler: Sampler,
    /// All its tokens, and those guessed so far.
    tokens: Vec<u32>,
    guesses: usize,
}

/// Refuses a draft model that does not speak of the same tokens.
///
/// # Errors
/// [`EngineError::DraftVocabulary`] with the first difference.
pub(super) fn check_vocabulary(model: &Model, draft: &Model) -> Result<(), EngineError> {
    let differ = |reason: String| {
        Err(EngineError::DraftVocabulary {
            draft: draft.file().path().to_owned(),
            reason,
        })
    };
    let (ours, theirs) = (model.tokenizer(), draft.tokenizer());
    let (a, b) = (ours.n_vocab(), theirs.n_vocab());
    if a != b {
        return differ(format!("it has {b} tokens, the model {a}"));
    }
    for id in 0..a as u32 {
        if ours.piece(id) != theirs.piece(id) || ours.is_control(id) != theirs.is_control(id) {
            return differ(format!("token {id} is another one"));
        }
    }
    match (0..a as u32).find(|id| ours.is_eog(*id) != theirs.is_eog(*id)) {
        Some(id) => differ(format!("token {id} ends an answer in one of them only")),
        None => Ok(()),
    }
}

/// Bytes that a draft model takes: weights and KV.
///
/// # Errors
/// Formats of K and V that its heads do not fit; KV memory that does not hold one of its contexts.
pub(super) fn bytes(model: &Model, options: &EngineOptions) -> Result<u64, EngineError> {
    let options = own_options(model, options);
    options.check_formats(model)?;
    let room = Room::of(model, &options)?;
    Ok(memory::weight_bytes(model, &options).saturating_add(room.bytes))
}

/// The engine's options, with a context that the draft model can have.
fn own_options(model: &Model, options: &EngineOptions) -> EngineOptions {
    EngineOptions {
        n_ctx: options.n_ctx.min(model.hparams().n_ctx_train),
        ..options.clone()
    }
}

impl Drafter {
    /// Loads its weights.
    ///
    /// # Errors
    /// As the engine's own model.
    pub fn new(
        model: Arc<Model>,
        options: &EngineOptions,
        backends: Vec<Box<dyn Backend>>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Drafter, Error> {
        let options = own_options(&model, options);
        let room = Room::of(&model, &options)?;
        room.check_pages()?;
        let mut scheduler = Scheduler::new(backends, SchedulerOptions::default());
        scheduler.load_weights(model.weights(), &mut |done, all| {
            progress(done as u64, all as u64)
        })?;
        let window = model.hparams().sliding_window;
        Ok(Drafter {
            scheduler,
            context: room.context(&options),
            kv: KvCache::new(room.full, window.map(|w| (room.windowed, w))),
            batch: Batch::new(room.pages_per_seq),
            n_ctx: options.n_ctx,
            n_batch: options.n_batch,
            row: vec![0.0; model.hparams().n_vocab],
            seqs: HashMap::new(),
            model,
        })
    }

    /// Forgets the sequences that are gone.
    pub fn keep(&mut self, is_there: impl Fn(u64) -> bool) {
        let gone: Vec<u64> = self
            .seqs
            .keys()
            .copied()
            .filter(|a| !is_there(*a))
            .collect();
        for arrival in gone {
            if let Some(seq) = self.seqs.remove(&arrival) {
                self.kv.release(seq.pages, &seq.fed, seq.fed.len());
            }
        }
    }

    /// All sequences and pages are lost.
    pub fn reset(&mut self) {
        self.seqs.clear();
        self.kv.reset();
    }

    /// Guesses for all at once, token by token. Who has a long text to read first reads a part of it, and guesses
    /// in a later step: others wait for this one.
    fn guess(&mut self, wanted: &mut Vec<Wanted>) -> Result<(), Error> {
        wanted.retain(|w| w.tokens.len() + w.n <= self.n_ctx);
        for w in wanted.iter() {
            self.follow(w)?;
        }
        let lags = |w: &Wanted| {
            let fed = self.seqs.get(&w.arrival).map_or(0, |s| s.fed.len());
            w.tokens.len() - fed > READ
        };
        let (mut late, ready): (Vec<Wanted>, Vec<Wanted>) = wanted.drain(..).partition(lags);
        *wanted = ready;
        if !late.is_empty() {
            self.fill(&mut late, READ)?;
            self.forward(0)?;
        }
        loop {
            let asked = self.fill(wanted, usize::MAX)?;
            if self.batch.is_empty() {
                return Ok(());
            }
            self.forward(asked.len())?;
            for (out, &at) in asked.iter().enumerate() {
                let w = &mut wanted[at];
                let row = self.scheduler.output_row(out, &mut self.row)?;
                let id = w.sampler.sample(row, w.tokens.len() as u64)?;
                w.sampler.accept(id);
                w.tokens.push(id);
                w.guesses += 1;
            }
        }
    }

    /// Brings what is known of a sequence in line with its tokens.
    fn follow(&mut self, w: &Wanted) -> Result<(), Error> {
        let Drafter { seqs, kv, .. } = self;
        let seq = match seqs.entry(w.arrival) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let found = kv.attach(&w.tokens, w.tokens.len() - 1, 0);
                for c in &found.copies {
                    self.scheduler.kv_copy(c.kind, c.from, c.to)?;
                }
                new.insert(Followed {
                    pages: found.pages,
                    fed: w.tokens[..found.positions].to_vec(),
                })
            }
        };
        let same = seq
            .fed
            .iter()
            .zip(&w.tokens)
            .take_while(|(a, b)| a == b)
            .count();
        seq.fed.truncate(same.min(w.tokens.len() - 1));
        Ok(())
    }

    /// Fills the batch with what comes next of every sequence, at most `most` rows or a batch; returns who is asked for
    /// a token, in order. Who finds no page makes no guess.
    fn fill(&mut self, wanted: &mut [Wanted], most: usize) -> Result<Vec<usize>, Error> {
        self.batch.clear();
        let (mut asked, mut room) = (Vec::new(), self.n_batch.max(wanted.len()).min(most));
        for (at, w) in wanted.iter_mut().enumerate() {
            let Some(seq) = self.seqs.get_mut(&w.arrival).filter(|_| w.guesses < w.n) else {
                continue;
            };
            let first = seq.fed.len();
            let rows = (w.tokens.len() - first).min(room);
            let end = first + rows;
            if rows == 0 {
                continue;
            }
            if self.kv.reserve(&mut seq.pages, end).is_err() {
                w.n = w.guesses;
                continue;
            }
            room -= rows;
            let ids = &w.tokens[first..end];
            // Of a text that is only read, nothing is asked.
            let outs = usize::from(end == w.tokens.len() && most == usize::MAX);
            self.batch
                .push(ids.iter().copied(), first, outs, &seq.pages);
            seq.fed.extend_from_slice(ids);
            if outs == 1 {
                asked.push(at);
            }
        }
        Ok(asked)
    }

    fn forward(&mut self, out: usize) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let inputs = self.batch.inputs();
        let params = GraphParams {
            n_tokens: capacity_class(inputs.counts().tokens),
            n_out: capacity_class(out),
            kind: GraphKind::Logits,
            context: self.context,
            weights_version: 0,
        };
        let arch = self.model.arch();
        self.scheduler
            .forward(&params, &|p| arch.build(p), &inputs, None)?;
        Ok(())
    }

    /// Pages that windowed layers no longer see, and what whole pages hold.
    fn tidy(&mut self, wanted: &[Wanted]) {
        for w in wanted {
            if let Some(seq) = self.seqs.get_mut(&w.arrival) {
                // What was guessed may be taken back: only what came before it is certain.
                let n = seq.fed.len().min(w.tokens.len() - w.guesses);
                self.kv.learn(&mut seq.pages, &seq.fed, n);
                self.kv.trim(&mut seq.pages, n, 0);
            }
        }
    }
}

impl Core {
    /// Lets the draft model guess: `(running sequence, tokens)`, at most `room` tokens in all. A failure costs the
    /// guesses, and is told. A sequence that was shifted, or is longer than the draft model's context, goes on without.
    pub(super) fn draft(&mut self, drafts: &[(usize, usize)], mut room: usize) {
        let Core {
            drafter: Some(drafter),
            running,
            stats,
            ..
        } = self
        else {
            return;
        };
        let clock = std::time::Instant::now();
        let mut wanted = Vec::new();
        for &(i, n) in drafts {
            let s = &running[i];
            let n = n.min(room);
            if let Some(answer) = s.answer().filter(|_| n > 0 && s.dropped == 0) {
                room -= n;
                wanted.push(Wanted {
                    arrival: s.arrival,
                    n,
                    sampler: answer.sampler.clone(),
                    tokens: s.tokens.clone(),
                    guesses: 0,
                });
            }
        }
        drafter.keep(|arrival| running.iter().any(|s| s.arrival == arrival));
        match drafter.guess(&mut wanted) {
            Ok(()) => {
                drafter.tidy(&wanted);
                for w in wanted {
                    let s = running.iter_mut().find(|s| s.arrival == w.arrival);
                    if let Some(s) = s {
                        s.guesses = w.tokens[w.tokens.len() - w.guesses..].to_vec();
                    }
                }
            }
            Err(e) => {
                tracing::warn!("the draft model's guesses are lost, answers go on without: {e}");
                drafter.reset();
            }
        }
        stats.draft += clock.elapsed();
    }
}
