//! The engine as others hold it: a queue in front of a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

use super::core::Core;
use super::measure::Measure;
use super::options::within;
use super::request::{Event, Request, Task};
use super::sequence::{Sequence, Wanted};
use super::{EngineError, EngineOptions, Model};
use crate::Error;

/// Requests that may wait.
const QUEUE: usize = 64;

/// The events of one request, in order. Dropping it cancels the request.
pub type EventStream = Receiver<Event>;

struct Job {
    request: Request,
    events: Sender<Event>,
}

/// A model at work. Cheap to share behind an `Arc`; dropping it waits for the running request.
pub struct Engine {
    model: Arc<Model>,
    options: EngineOptions,
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Loads the model's weights and starts the thread. `progress` gets bytes done and in all.
    pub fn new(
        model: Arc<Model>,
        options: EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Engine, Error> {
        let core = Core::new(model.clone(), &options, progress)?;
        let (queue, jobs) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("minfer-engine".into())
            .spawn({
                let model = model.clone();
                move || serve(core, &model, &jobs)
            })
            .map_err(|_| EngineError::Stopped)?;
        Ok(Engine {
            model,
            options,
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The options it was made with.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Puts a request into the queue, if it can be served at all.
    pub fn submit(&self, request: Request) -> Result<EventStream, Error> {
        self.check(&request)?;
        let (events, stream) = channel();
        let queue = self.queue.as_ref().ok_or(EngineError::Stopped)?;
        match queue.try_send(Job { request, events }) {
            Ok(()) => Ok(stream),
            Err(TrySendError::Full(_)) => Err(EngineError::QueueFull { waiting: QUEUE }.into()),
            Err(TrySendError::Disconnected(_)) => Err(EngineError::Stopped.into()),
        }
    }

    fn check(&self, request: &Request) -> Result<(), EngineError> {
        if let Task::Measure(m) = &request.task {
            return self.check_measure(m);
        }
        let (prompt, n_ctx) = (request.prompt.len(), self.options.n_ctx);
        let h = self.model.hparams();
        if prompt == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt > n_ctx {
            return Err(EngineError::PromptTooLong {
                prompt,
                n_ctx,
                limit: h.n_ctx_train,
            });
        }
        match request.prompt.iter().find(|t| **t as usize >= h.n_vocab) {
            Some(id) => Err(EngineError::TokenOutOfRange {
                id: *id,
                n_vocab: h.n_vocab,
            }),
            None => Ok(()),
        }
    }

    fn check_measure(&self, m: &Measure) -> Result<(), EngineError> {
        within("n_seqs", m.n_seqs, self.options.n_seqs)?;
        within("repetitions", m.repetitions, usize::MAX)?;
        if m.logits {
            within("n_gen", m.n_gen, usize::MAX)?;
        }
        let (depth, n_ctx) = (m.depth, self.options.n_ctx);
        let tokens = m.n_prompt.saturating_add(m.n_gen);
        within("n_prompt + n_gen", tokens, usize::MAX)?;
        match depth.saturating_add(tokens) > n_ctx {
            true => Err(EngineError::MeasureTooLong {
                depth,
                tokens,
                n_ctx,
            }),
            false => Ok(()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue = None; // the thread sees the end of the queue
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

/// The thread: one request after the other. A panic fails its request, not the engine.
fn serve(mut core: Core, model: &Model, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        let events = job.events.clone();
        let run = AssertUnwindSafe(|| {
            let wanted = match job.request.task {
                Task::Measure(m) => return core.measure(&m, &job.events),
                Task::Generate(answer) => Wanted::Answer(answer),
                Task::Logits { all } => Wanted::Logits { all },
            };
            let prompt = job.request.prompt;
            match Sequence::new(prompt, wanted, job.events.clone(), model.tokenizer()) {
                Ok(seq) => core.run(seq),
                Err(e) => drop(job.events.send(Event::Error(e))),
            }
        });
        if let Err(panic) = catch_unwind(run) {
            let message = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a message")
                .to_owned();
            core.recover();
            drop(events.send(Event::Error(EngineError::Panicked { message }.into())));
        }
    }
}
