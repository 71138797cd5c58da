//! The engine as others hold it: a queue in front of a thread.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::answer::Answer;
use super::check;
use super::compiler::Compiler;
use super::core::Core;
use super::draft::{self, Drafter};
use super::embed::{Pool, Pooling};
use super::events::{EventStream, Events, stream};
use super::measure::Measure;
use super::options::within;
use super::queue::{Queue, Refused};
use super::request::{Generate, Request, Task};
use super::sequence::{Sequence, Want};
use super::stats::Stats;
use super::{EngineError, EngineOptions, Model};
use crate::Error;
use crate::backend::{self, cpu::threads::DefaultFloatEnv};
use crate::graph::{Backend, LayerKind, Profile};
use crate::sampling::ConstraintSpec;

enum Job {
    Sequence(Box<Sequence>),
    Measure(Box<Measure>, Events),
}

/// A model at work. Cheap to share behind an `Arc`. Dropping it waits for the requests that it has accepted and whose
/// streams are still held.
pub struct Engine {
    model: Arc<Model>,
    options: EngineOptions,
    queue: Arc<Queue<Job>>,
    thread: Option<JoinHandle<()>>,
    stats: Arc<Mutex<Stats>>,
    profile: Option<Arc<Mutex<Profile>>>,
    compiler: Arc<Compiler>,
    /// Bytes of a page, of full and of windowed layers.
    page_bytes: [usize; 2],
}

impl Engine {
    /// Loads the model's weights and starts the thread. `progress` gets bytes done and in all.
    ///
    /// # Errors
    /// Options that can't be; memory that does not suffice; a draft model of another vocabulary.
    pub fn new(
        model: Arc<Model>,
        options: EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Engine, Error> {
        let backends = create(&options)?;
        Engine::with_backends(model, options, backends, progress)
    }

    /// The same on backends of the caller's own, in priority order.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn with_backends(
        model: Arc<Model>,
        options: EngineOptions,
        backends: Vec<Box<dyn Backend>>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Engine, Error> {
        options.check(&model)?;
        let stats = Arc::new(Mutex::new(Stats::default()));
        let mut beside = 0;
        if let Some(draft) = &options.draft {
            draft::check_vocabulary(&model, draft)?;
            beside = draft::bytes(draft, &options)?;
        }
        let profile = options.profile.then(Arc::default);
        let shared = (stats.clone(), profile.clone());
        let mut core = Core::new(model.clone(), &options, backends, shared, beside, progress)?;
        if let Some(draft) = options.draft.clone() {
            let drafter = Drafter::new(draft, &options, create(&options)?, progress)?;
            core.drafter = Some(drafter);
        }
        let page_bytes =
            [LayerKind::Full, LayerKind::Windowed].map(|k| core.scheduler.kv_page_bytes(k));
        let queue = Arc::new(Queue::new(options.queue, options.n_seqs));
        let thread = std::thread::Builder::new()
            .name("minfer-engine".into())
            .spawn({
                let queue = queue.clone();
                move || serve(core, &queue)
            })
            .map_err(|_| EngineError::Stopped)?;
        let engine = Engine {
            compiler: Arc::new(Compiler::new(model.clone())),
            model,
            options,
            queue,
            thread: Some(thread),
            stats,
            profile,
            page_bytes,
        };
        if engine.options.constraints_ahead {
            engine.prepare_constraints();
        }
        Ok(engine)
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The options it was made with.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// What it has done up to the last step.
    pub fn stats(&self) -> Stats {
        let mut stats = *self.stats.lock().unwrap_or_else(|e| e.into_inner());
        stats.waiting = stats.waiting.max(self.queue.waiting());
        stats
    }

    /// Where the time of its passes went up to now, if it keeps that ([`EngineOptions::profile`]).
    pub fn profile(&self) -> Option<Profile> {
        let profile = self.profile.as_ref()?;
        Some(profile.lock().unwrap_or_else(|e| e.into_inner()).clone())
    }

    /// Puts a request into the queue, if it can be served at all.
    ///
    /// # Errors
    /// What can't be served, naming it: a prompt that is too long, a constraint that can't be compiled, a
    /// session of another model, a full queue …
    pub fn submit(&self, request: Request) -> Result<EventStream, Error> {
        let mut streams = self.submit_choices(request, 1)?;
        streams.pop().ok_or_else(|| EngineError::Stopped.into())
    }

    /// Several answers to one prompt, which is computed once: the request's choice and those that follow it.
    ///
    /// # Errors
    /// As [`Engine::submit`]; all or none are accepted.
    pub fn submit_choices(&self, request: Request, n: usize) -> Result<Vec<EventStream>, Error> {
        self.check(&request)?;
        within("the number of answers", n, self.options.queue)?;
        let (mut jobs, mut streams) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for choice in 0..n as u32 {
            let (events, listener) = stream();
            jobs.push(self.job(&request, choice, events)?);
            streams.push(listener);
        }
        match self.queue.push(jobs.into_iter()) {
            Ok(()) => Ok(streams),
            Err(Refused::Full { waiting }) => Err(EngineError::QueueFull { waiting }.into()),
            Err(Refused::Closed) => Err(EngineError::Stopped.into()),
        }
    }

    fn job(&self, request: &Request, choice: u32, events: Events) -> Result<Job, Error> {
        let session = request.session.as_deref();
        let mut tokens = session.map_or(Vec::new(), |s| s.tokens().to_vec());
        tokens.extend_from_slice(&request.prompt);
        let want = match &request.task {
            Task::Measure(m) => return Ok(Job::Measure(Box::new(m.clone()), events)),
            Task::Logits { all } => Want::Logits { all: *all },
            Task::Embed(e) => {
                let pooling = match e.pooling {
                    Some(pooling) => pooling,
                    None => Pooling::of(self.model.metadata())?,
                };
                let n_embd = self.model.hparams().n_embd;
                Want::Embedding(Pool::new(pooling, e.normalize, n_embd))
            }
            Task::Generate(params) => {
                let mut params = params.clone();
                params.choice = params.choice.wrapping_add(choice);
                let goes_on = request.prompt.is_empty();
                let answer = self.answer(params, &tokens, request, goes_on)?;
                Want::Answer(Box::new(answer))
            }
        };
        let mut seq = Sequence::new(tokens, want, events);
        (seq.priority, seq.no_cache) = (request.priority, request.no_cache);
        seq.content = session.map(|s| s.content.clone());
        seq.dropped = session.map_or(0, |s| s.content.dropped);
        Ok(Job::Sequence(Box::new(seq)))
    }

    /// The answer's side of a generation; of a session that goes on where it ended, with its state.
    fn answer(
        &self,
        mut params: Generate,
        tokens: &[u32],
        request: &Request,
        goes_on: bool,
    ) -> Result<Answer, Error> {
        let session = request.session.as_deref();
        let open = session.filter(|_| goes_on).and_then(|s| s.constraint());
        let open =
            open.filter(|(spec, _)| params.constraint.as_ref().is_none_or(|own| own == *spec));
        if let Some((spec, _)) = open {
            params.constraint = Some(spec.clone());
        }
        let mut constraint = match &params.constraint {
            Some(spec) => Some(self.compiler.compile(spec)?),
            None => None,
        };
        let mut from = tokens.len();
        if let (Some(constraint), Some((_, seen))) = (&mut constraint, open) {
            from -= seen.len();
            for token in seen {
                constraint.accept(*token)?;
            }
        }
        let mut answer = Answer::new(params, constraint, tokens, self.model.tokenizer())?;
        answer.constraint_from = from;
        if let Some(session) = session {
            session.restore(&mut answer)?;
            if goes_on {
                answer = answer.with_held(session.held().clone());
            }
        }
        Ok(answer)
    }

    /// Tries whether a constraint can be compiled for this model: one that is only a part of another's, which is what answers are held to.
    ///
    /// # Errors
    /// Why not.
    pub fn check_constraint(&self, spec: &ConstraintSpec) -> Result<(), Error> {
        Ok(self.compiler.check(spec)?)
    }

    /// The same as far as is seen without compiling it, which takes its time.
    ///
    /// # Errors
    /// A spec that is too long, or says what can't be followed.
    pub fn read_constraint(&self, spec: &ConstraintSpec) -> Result<(), Error> {
        Ok(self.compiler.read(spec)?)
    }

    /// Compiles a constraint. It is kept for the request that comes with it, until some others have been compiled.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn compile_constraint(&self, spec: &ConstraintSpec) -> Result<(), Error> {
        Ok(self.compiler.compile(spec).map(drop)?)
    }

    /// How many times it has compiled a constraint: equal ones that come together or one soon after the other are compiled once.
    pub fn constraints_compiled(&self) -> u64 {
        self.compiler.compiled()
    }

    /// Whether the vocabulary is ready for constraints ([`EngineOptions::constraints_ahead`]); if not, the first one takes
    /// about a second longer where the vocabulary is large.
    pub fn constraints_are_ready(&self) -> bool {
        self.compiler.is_made()
    }

    fn prepare_constraints(&self) {
        let (stats, queue) = (self.stats.clone(), Arc::downgrade(&self.queue));
        self.compiler.make_when_idle(move || {
            let queue = queue.upgrade()?;
            let running = stats.lock().unwrap_or_else(|e| e.into_inner()).running;
            Some(running == 0 && queue.waiting() == 0)
        });
    }

    /// Whether a request can be served at all: what can be said before its constraint is compiled.
    ///
    /// # Errors
    /// As [`Engine::submit`], but for the constraint and the queue.
    pub fn check(&self, request: &Request) -> Result<(), Error> {
        check::request(request, &self.model, &self.options, Some(self.page_bytes))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue.close(); // the thread sees the end of the queue
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

fn create(options: &EngineOptions) -> Result<Vec<Box<dyn Backend>>, Error> {
    Ok(backend::create(
        options.backends.as_deref(),
        options.n_threads,
        options.cpu.as_deref(),
        options.pack,
    )?)
}

/// Refuses pushers from the moment the thread is gone, however it went.
struct Taker<'a>(&'a Queue<Job>);

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The thread: turn after turn, and asleep when there is nothing to do.
fn serve(mut core: Core, queue: &Queue<Job>) {
    // What is chosen here must not depend on what a host program has set on the thread that made this one.
    let _env = DefaultFloatEnv::enter();
    let taker = Taker(queue);
    let mut jobs = Vec::new();
    while taker.0.take(core.is_idle(), &mut jobs) || !core.is_idle() {
        for job in jobs.drain(..) {
            match job {
                Job::Sequence(seq) => core.accept(*seq),
                Job::Measure(measure, events) => core.accept_measure(*measure, events),
            }
        }
        let settled = core.turn();
        queue.settled(settled, core.free_places());
    }
}
