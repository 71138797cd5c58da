//! The engine's heart: what its thread owns, and a turn of it: drop who left, admit, step.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::EngineError;
use super::batch::Batch;
use super::draft::Drafter;
use super::events::Events;
use super::measure::{Lane, Measure};
use super::memory::{self, Room};
use super::model::Model;
use super::options::EngineOptions;
use super::pace::Pace;
use super::request::Event;
use super::sequence::Sequence;
use super::stats::{Places, Stats};
use crate::Error;
use crate::graph::{
    Backend, ContextParams, GraphKind, GraphParams, LayerKind, Observer, Profile, Scheduler,
    SchedulerOptions, capacity_class,
};
use crate::kv::KvCache;

/// What the engine's thread owns.
pub(super) struct Core {
    pub(super) model: Arc<Model>,
    pub(super) scheduler: Scheduler,
    pub(super) context: ContextParams,
    pub(super) kv: KvCache,
    /// Without a place: new ones, and those that lost theirs. The first goes first.
    pub(super) waiting: Vec<Sequence>,
    /// With pages, in the same order.
    pub(super) running: Vec<Sequence>,
    /// Sequences that were measured.
    pub(super) lanes: Vec<Lane>,
    /// Measurements that wait until nothing runs.
    measures: Vec<(Measure, Events)>,
    /// Who listens to the one that runs.
    measuring: Option<Events>,
    pub(super) n_ctx: usize,
    pub(super) n_batch: usize,
    pub(super) n_seqs: usize,
    pub(super) batch: Batch,
    /// Room for rows of the output, where the host can't look at them.
    pub(super) row: Vec<f32>,
    pub(super) pace: Pace,
    pub(super) drafter: Option<Drafter>,
    pub(super) stats: Stats,
    published: Arc<Mutex<Stats>>,
    /// Shared with who looks at it between steps.
    profile: Option<Arc<Mutex<Profile>>>,
    arrivals: u64,
    /// Requests that have left the queue for good since the last turn.
    settled: usize,
}

/// What others see: numbers and times.
type Shared = (Arc<Mutex<Stats>>, Option<Arc<Mutex<Profile>>>);

impl Core {
    /// Loads the weights into the backends. `progress` gets bytes done and bytes in all.
    ///
    /// # Errors
    /// Memory that does not suffice, with the numbers, before anything is loaded. `options` are checked, `beside` are the bytes of a
    /// draft model.
    pub fn new(
        model: Arc<Model>,
        options: &EngineOptions,
        backends: Vec<Box<dyn Backend>>,
        (published, profile): Shared,
        beside: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Core, Error> {
        let room = Room::of(&model, options)?;
        memory::check(&model, options, &room, beside)?;
        let scheduler_options = SchedulerOptions {
            check_rebuilds: options.check_rebuilds,
            ..SchedulerOptions::default()
        };
        let mut scheduler = Scheduler::new(backends, scheduler_options);
        scheduler.load_weights(model.weights(), &mut |done, all| {
            progress(done as u64, all as u64)
        })?;
        let windowed = model.hparams().sliding_window;
        let mut core = Core {
            scheduler,
            context: room.context(options),
            kv: KvCache::new(room.full, windowed.map(|w| (room.windowed, w))),
            waiting: Vec::new(),
            running: Vec::new(),
            lanes: Vec::new(),
            measures: Vec::new(),
            measuring: None,
            n_ctx: options.n_ctx,
            n_batch: options.n_batch,
            n_seqs: options.n_seqs,
            batch: Batch::new(room.pages_per_seq),
            row: Vec::new(),
            pace: Pace::default(),
            drafter: None,
            stats: Stats::default(),
            published,
            profile,
            arrivals: 0,
            settled: 0,
            model,
        };
        core.make_regions()?;
        core.publish();
        Ok(core)
    }

    /// The KV regions, before the first step asks for them: sessions write to them.
    fn make_regions(&mut self) -> Result<(), Error> {
        let (params, arch) = (self.params(GraphKind::Logits, 1, 1), self.model.arch());
        self.scheduler.prepare(&params, &|p| arch.build(p))?;
        Ok(())
    }

    /// Logits of a row.
    pub(super) fn n_vocab(&self) -> usize {
        self.model.hparams().n_vocab
    }

    /// The graph for so many rows.
    pub(super) fn params(&self, kind: GraphKind, tokens: usize, out: usize) -> GraphParams {
        GraphParams {
            n_tokens: capacity_class(tokens),
            n_out: capacity_class(out),
            kind,
            context: self.context,
            weights_version: 0,
        }
    }

    /// Runs the batch.
    pub(super) fn forward(&mut self, kind: GraphKind) -> Result<(), Error> {
        let inputs = self.batch.inputs();
        let counts = inputs.counts();
        let params = self.params(kind, counts.tokens, counts.out);
        let arch = self.model.arch();
        let mut profile = self
            .profile
            .as_ref()
            .map(|p| p.lock().unwrap_or_else(|e| e.into_inner()));
        let observer = profile.as_deref_mut().map(|p| p as &mut dyn Observer);
        self.scheduler
            .forward(&params, &|p| arch.build(p), &inputs, observer)?;
        Ok(())
    }

    /// Takes a request in.
    pub fn accept(&mut self, mut seq: Sequence) {
        self.stats.requests += 1;
        seq.arrival = self.arrivals;
        self.arrivals += 1;
        Core::enqueue(&mut self.waiting, seq);
    }

    /// Takes a measurement in. It runs when nothing else does.
    pub fn accept_measure(&mut self, measure: Measure, events: Events) {
        self.stats.requests += 1;
        self.measures.push((measure, events));
    }

    /// Puts a sequence at its place: higher priority first, then older.
    pub(super) fn enqueue(list: &mut Vec<Sequence>, seq: Sequence) {
        let before = |s: &Sequence| (s.priority, seq.arrival) >= (seq.priority, s.arrival);
        let at = list.partition_point(before);
        list.insert(at, seq);
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.measures.is_empty()
    }

    /// One turn; returns how many requests wait no longer.
    pub fn turn(&mut self) -> usize {
        let turn = AssertUnwindSafe(|| {
            self.drop_cancelled();
            if self.running.is_empty() && !self.measures.is_empty() {
                let (measure, events) = self.measures.remove(0);
                self.settled += 1;
                if !events.is_closed() {
                    self.measuring = Some(events.clone());
                    self.measure(&measure, &events);
                    self.measuring = None;
                    self.stats.finished += 1;
                }
                return;
            }
            if self.measures.is_empty() {
                self.admit();
            }
            self.step();
        });
        if let Err(panic) = catch_unwind(turn) {
            self.recover(message(&panic));
        }
        self.publish();
        std::mem::take(&mut self.settled)
    }

    /// Places for sequences that nobody has: who lost its pages keeps its place.
    pub fn free_places(&self) -> usize {
        let begun = self.waiting.iter().filter(|s| s.begun).count();
        self.n_seqs.saturating_sub(self.running.len() + begun)
    }

    /// The places of running sequences.
    pub(super) fn places(&self) -> Places {
        self.running.iter().filter_map(|s| s.place).collect()
    }

    /// A sequence leaves the waiting ones: if it was never admitted, the queue has one fewer.
    pub(super) fn settle(&mut self, seq: &mut Sequence) {
        if !std::mem::replace(&mut seq.begun, true) {
            self.settled += 1;
        }
    }

    /// Sequences that nobody listens to any more end here, running or waiting.
    fn drop_cancelled(&mut self) {
        let mut i = 0;
        while i < self.running.len() {
            if self.running[i].is_cancelled() {
                let mut seq = self.running.remove(i);
                self.stats.cancelled += 1;
                let pages = std::mem::take(&mut seq.pages);
                self.kv.release(pages, &seq.tokens, seq.n_past);
            } else {
                i += 1;
            }
        }
        let mut i = 0;
        while i < self.waiting.len() {
            if self.waiting[i].is_cancelled() {
                let mut seq = self.waiting.remove(i);
                self.settle(&mut seq);
                self.stats.cancelled += 1;
            } else {
                i += 1;
            }
        }
    }

    /// Does something with a sequence that stands in none of the lists. If that panics, the sequence hears what the others of
    /// a step do.
    pub(super) fn in_hand<T>(
        &mut self,
        seq: &mut Sequence,
        work: impl FnOnce(&mut Core, &mut Sequence) -> T,
    ) -> T {
        let done = catch_unwind(AssertUnwindSafe(|| work(self, seq)));
        done.unwrap_or_else(|panic| {
            let message = message(&panic);
            self.fail(seq, EngineError::Panicked { message }.into());
            resume_unwind(panic) // what is to be done about the others is the turn's
        })
    }

    /// After a panic: the sequences of the step fail. What the pages hold is uncertain, so all others begin
    /// anew, but for those that can't.
    fn recover(&mut self, message: String) {
        if let Some(events) = self.measuring.take() {
            let message = message.clone();
            self.stats.failed += 1;
            events.send(Event::Error(EngineError::Panicked { message }.into()));
        }
        self.lanes.clear();
        self.kv.reset();
        if let Some(drafter) = &mut self.drafter {
            drafter.reset();
        }
        for mut seq in std::mem::take(&mut self.running) {
            seq.pages = Default::default();
            if seq.in_step || seq.dropped > 0 {
                let message = message.clone();
                self.fail(&seq, EngineError::Panicked { message }.into());
            } else {
                seq.n_past = 0;
                Core::enqueue(&mut self.waiting, seq);
            }
        }
    }

    /// The end of a sequence, with a failure. Its pages are the caller's.
    pub(super) fn fail(&mut self, seq: &Sequence, error: Error) {
        self.stats.failed += 1;
        seq.fail(error);
    }

    /// Brings the numbers that others see up to date.
    pub(super) fn publish(&mut self) {
        let places = self.places();
        let s = &mut self.stats;
        s.running = self.running.len();
        s.places = places;
        s.waiting = self.waiting.len() + self.measures.len();
        s.pages_full = self.kv.usage(LayerKind::Full);
        s.pages_windowed = self.kv.usage(LayerKind::Windowed);
        s.backends = self.scheduler.counters();
        *self.published.lock().unwrap_or_else(|e| e.into_inner()) = *s;
    }

    /// How long something took.
    pub(super) fn clocked<T>(
        &mut self,
        f: impl FnOnce(&mut Core) -> T,
    ) -> (T, std::time::Duration) {
        let clock = Instant::now();
        let value = f(self);
        (value, clock.elapsed())
    }
}

/// What a panic said.
fn message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_owned()
}
