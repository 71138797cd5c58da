//! Which models there are, and which of them are loaded.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use minfer::engine::{Engine, Model, Stats};
use tokio::sync::watch;

use crate::chat::blocking;
use crate::loader::Loader;
use crate::metrics::{Times, Totals};
use crate::{ApiError, id};

/// A model that waits for memory waits so long for others to become idle.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that have just left are still counted by an engine that is to go, for at most so long.
const FAREWELL: Duration = Duration::from_secs(2);

/// A model that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// What clients call it.
    pub id: String,
    /// What the loader calls it: a path, an alias, a source.
    pub spec: String,
}

/// How many models are loaded at once, and for how long. One that works is never unloaded.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    /// Bytes of all; what was used least recently makes room. `None`: no limit.
    pub memory: Option<u64>,
    /// How many. `None`: no limit.
    pub max: Option<usize>,
    /// An idle model other than the first is unloaded after this. `None`: never.
    pub keep_alive: Option<Duration>,
}

/// A loaded model. It stays loaded as long as a request holds this.
pub struct Loaded {
    /// What clients call it.
    pub id: String,
    /// At work.
    pub engine: Arc<Engine>,
    /// What its clients wait for.
    pub times: Arc<Times>,
    /// None for who only looks.
    _lease: Option<Lease>,
}

/// All models of a server.
pub struct Models(Arc<Registry>);

struct Registry {
    slots: Mutex<Vec<Slot>>,
    /// A model became idle, or is gone.
    freed: Condvar,
    names: Vec<ModelName>,
    /// Of each model, whether it is loaded or not.
    times: Vec<Arc<Times>>,
    /// What engines of each model counted that are gone.
    past: Mutex<Vec<Totals>>,
    loader: Loader,
    /// Held by who reads a file.
    reading: Mutex<()>,
    residency: Residency,
    /// The first model has its room, and no other may take it.
    placed: AtomicBool,
    /// The first model has been loaded.
    ready: AtomicBool,
    created: u64,
}

/// What is known of a model's work.
pub struct Counted {
    /// What clients call it.
    pub id: String,
    /// Since the server's start.
    pub totals: Totals,
    /// What its clients waited for.
    pub times: Arc<Times>,
    /// How it stands, if it is loaded.
    pub now: Option<Stats>,
}

type Outcome = Result<Arc<Loaded>, ApiError>;

enum Slot {
    Absent,
    /// With the bytes that are kept for it, once it has been given a place.
    Loading(Option<u64>, watch::Receiver<Option<Outcome>>),
    Present(Present),
}

struct Present {
    engine: Arc<Engine>,
    bytes: u64,
    /// Requests that hold it.
    users: usize,
    used: Instant,
}

/// An engine on its way out.
struct Gone {
    slot: usize,
    engine: Arc<Engine>,
    /// What has been counted of it.
    counted: Stats,
}

/// A request's hold on a model.
struct Lease {
    registry: Arc<Registry>,
    slot: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(Slot::Present(p)) = self.registry.lock().get_mut(self.slot) {
            p.users = p.users.saturating_sub(1);
            p.used = Instant::now();
        }
        self.registry.freed.notify_all();
    }
}

impl Models {
    /// None of them loaded yet.
    pub fn new(names: Vec<ModelName>, residency: Residency, loader: Loader) -> Models {
        Models(Arc::new(Registry {
            slots: Mutex::new(names.iter().map(|_| Slot::Absent).collect()),
            freed: Condvar::new(),
            times: names.iter().map(|_| Arc::default()).collect(),
            past: Mutex::new(vec![Totals::default(); names.len()]),
            names,
            loader,
            reading: Mutex::new(()),
            residency,
            placed: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            created: id::now(),
        }))
    }

    /// The names that clients may ask for.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.names.iter().map(|n| n.id.as_str())
    }

    /// When the server began, in seconds since 1970.
    pub fn created(&self) -> u64 {
        self.0.created
    }

    /// Whether the first model has been loaded.
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Acquire)
    }

    /// The loaded models, to look at.
    pub fn loaded(&self) -> Vec<Arc<Loaded>> {
        let slots = self.0.lock();
        let present = |(i, slot): (usize, &Slot)| match slot {
            Slot::Present(p) => Some(Arc::new(self.0.held(i, p.engine.clone(), None))),
            _ => None,
        };
        slots.iter().enumerate().filter_map(present).collect()
    }

    /// Of each model its name, what its engines have counted since the server's start, what its clients waited for, and
    /// how it stands if it is loaded.
    pub fn counted(&self) -> Vec<Counted> {
        let slots = self.0.lock();
        let past = self.0.past.lock();
        let past = past.unwrap_or_else(PoisonError::into_inner);
        let all = slots.iter().zip(&*past).zip(&self.0.times).enumerate();
        let one = |(i, ((slot, past), times)): (usize, ((&Slot, &Totals), &Arc<Times>))| {
            let now = match slot {
                Slot::Present(p) => Some(p.engine.stats()),
                _ => None,
            };
            let mut totals = *past;
            now.iter().for_each(|now| totals.add(now));
            Counted {
                id: self.0.id(i).to_owned(),
                totals,
                times: times.clone(),
                now,
            }
        };
        all.map(one).collect()
    }

    /// The model of this name, loaded now if it is not; without a name the first one. Who asks for a model that is being
    /// loaded waits for that; who leaves does not stop it.
    ///
    /// # Errors
    /// 404 with the names there are; 503 if models at work leave no room for it; 500 with the reason why it can't be
    /// loaded: the next request tries again.
    pub async fn get(&self, name: Option<&str>) -> Result<Arc<Loaded>, ApiError> {
        let slot = self.slot(name)?;
        let mut outcome = match self.0.enter(slot) {
            Entered::Present(loaded) => return Ok(loaded),
            Entered::Loading(outcome) => outcome,
            Entered::Load(tell, outcome) => {
                let registry = self.0.clone();
                tokio::task::spawn_blocking(move || registry.load_and_tell(slot, &tell));
                outcome
            }
        };
        let known = outcome.wait_for(Option::is_some).await;
        let known = known.map(|o| o.clone());
        known.ok().flatten().unwrap_or_else(|| Err(panicked()))
    }

    /// The model of this name, without a name the first one, to look at: nothing is loaded for who only looks.
    ///
    /// # Errors
    /// 404 with the names there are; 503 if it is not loaded.
    pub fn look(&self, name: Option<&str>) -> Result<Arc<Loaded>, ApiError> {
        let slot = self.slot(name)?;
        let engine = match self.0.lock().get(slot) {
            Some(Slot::Present(p)) => Some(p.engine.clone()),
            _ => None,
        };
        let loaded = engine.map(|engine| Arc::new(self.0.held(slot, engine, None)));
        loaded.ok_or_else(|| {
            let message = format!(
                "model '{0}' is not loaded, and looking does not load it: a request to use it does, as \
                 POST /tokenize with {{\"model\": \"{0}\", \"content\": \"\"}}",
                self.0.id(slot)
            );
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }

    /// The model of this name as its file describes it: it is read again where the model is not loaded.
    ///
    /// # Errors
    /// 404 with the names there are; 503 if its file can't be read or is not here yet.
    pub async fn read(&self, name: &str) -> Result<Arc<Model>, ApiError> {
        let slot = self.slot(Some(name))?;
        if let Some(Slot::Present(p)) = self.0.lock().get(slot) {
            return Ok(p.engine.model().clone());
        }
        let registry = self.0.clone();
        blocking(move || registry.read(slot)).await
    }

    fn slot(&self, name: Option<&str>) -> Result<usize, ApiError> {
        let slot = match name {
            None => Some(0),
            Some(name) => self.ids().position(|id| id == name),
        };
        slot.ok_or_else(|| self.unknown(name.unwrap_or_default()))
    }

    /// Unloads models that nobody has asked for in a while, for ever.
    pub async fn tend(&self) -> Infallible {
        let Some(keep) = self.0.residency.keep_alive else {
            return std::future::pending().await;
        };
        let pause = keep.clamp(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            tokio::time::sleep(pause).await;
            let registry = self.0.clone();
            drop(tokio::task::spawn_blocking(move || registry.unload_idle(keep)).await);
        }
    }

    /// What a client is told that asks for a model there is not.
    pub fn unknown(&self, name: &str) -> ApiError {
        let known: Vec<&str> = self.ids().collect();
        let message = format!(
            "there is no model '{name}' here: there are {}",
            known.join(", ")
        );
        ApiError {
            param: Some("model".to_owned()),
            ..ApiError::new(StatusCode::NOT_FOUND, message).with_code("model_not_found")
        }
    }
}

fn panicked() -> ApiError {
    let message = "the model could not be loaded: internal error, the server goes on";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

/// How a model stands for who asks for it.
enum Entered {
    Present(Arc<Loaded>),
    Loading(watch::Receiver<Option<Outcome>>),
    /// Who asks loads it, and tells the others.
    Load(
        watch::Sender<Option<Outcome>>,
        watch::Receiver<Option<Outcome>>,
    ),
}

impl Registry {
    /// The slots. Nothing panics while they are held.
    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, slot: usize) -> &str {
        self.names.get(slot).map_or("", |n| n.id.as_str())
    }

    fn lend(self: &Arc<Registry>, slot: usize, engine: Arc<Engine>) -> Arc<Loaded> {
        let lease = Lease {
            registry: self.clone(),
            slot,
        };
        Arc::new(self.held(slot, engine, Some(lease)))
    }

    fn held(&self, slot: usize, engine: Arc<Engine>, lease: Option<Lease>) -> Loaded {
        Loaded {
            id: self.id(slot).to_owned(),
            engine,
            times: self.times.get(slot).cloned().unwrap_or_default(),
            _lease: lease,
        }
    }

    fn enter(self: &Arc<Registry>, slot: usize) -> Entered {
        let mut slots = self.lock();
        match slots.get_mut(slot) {
            Some(Slot::Present(p)) => {
                p.users = p.users.saturating_add(1);
                Entered::Present(self.lend(slot, p.engine.clone()))
            }
            Some(Slot::Loading(_, outcome)) => Entered::Loading(outcome.clone()),
            other => {
                let (tell, outcome) = watch::channel(None);
                if let Some(absent) = other {
                    *absent = Slot::Loading(None, outcome.clone());
                }
                Entered::Load(tell, outcome)
            }
        }
    }

    /// Loads a model, whatever happens on the way.
    fn load_and_tell(self: &Arc<Registry>, slot: usize, tell: &watch::Sender<Option<Outcome>>) {
        let made = catch_unwind(AssertUnwindSafe(|| self.load(slot)));
        let made = made.unwrap_or_else(|_| Err(panicked()));
        let outcome = made.map(|(engine, bytes)| {
            let engine = Arc::new(engine);
            let present = Present {
                engine: engine.clone(),
                bytes,
                users: 1, // the one that is told now
                used: Instant::now(),
            };
            if slot == 0 {
                self.place();
                self.ready.store(true, Ordering::Release);
            }
            self.set(slot, Slot::Present(present));
            self.lend(slot, engine)
        });
        if outcome.is_err() {
            self.set(slot, Slot::Absent);
        }
        tell.send_replace(Some(outcome));
    }

    /// The first model has its room: others may look for theirs.
    fn place(&self) {
        let slots = self.lock();
        self.placed.store(true, Ordering::Release);
        drop(slots);
        self.freed.notify_all();
    }

    fn set(&self, slot: usize, to: Slot) {
        if let Some(old) = self.lock().get_mut(slot) {
            *old = to;
        }
        self.freed.notify_all();
    }

    fn load(&self, slot: usize) -> Result<(Engine, u64), ApiError> {
        self.make_room(slot, 0)?;
        let (mut bytes, mut refused) = (0, None);
        let mut room = |wanted| {
            bytes = wanted;
            let made = self.make_room(slot, wanted).map_err(|e| {
                let message = e.message.clone();
                refused = Some(e);
                message
            });
            if slot == 0 && made.is_ok() {
                self.place();
            }
            made
        };
        let spec = self.names.get(slot).map_or("", |n| n.spec.as_str());
        let started = Instant::now();
        let made = self.loader.load(spec, &mut room);
        let engine = made.map_err(|e| {
            let message = format!("model '{}' could not be loaded: {e}", self.id(slot));
            let failed = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message);
            refused.unwrap_or(failed)
        })?;
        tracing::info!(
            "model '{}' loaded in {:?}",
            self.id(slot),
            started.elapsed()
        );
        Ok((engine, bytes))
    }

    /// Opens a model's file; one after the other, since a vocabulary takes memory.
    fn read(&self, slot: usize) -> Result<Arc<Model>, ApiError> {
        let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let spec = self.names.get(slot).map_or("", |n| n.spec.as_str());
        self.loader.read(spec).map_err(|e| {
            let message = format!("model '{}' is not loaded: {e}", self.id(slot));
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }

    /// Unloads idle models, the least recently used first, until another one of `bytes` fits in.
    fn make_room(&self, slot: usize, bytes: u64) -> Result<(), ApiError> {
        let memory = self.residency.memory.unwrap_or(u64::MAX);
        let max = self.residency.max.unwrap_or(usize::MAX);
        if bytes > memory {
            let message = format!(
                "model '{}' could not be loaded: it takes {bytes} bytes, all models may take {memory} (--models-memory)",
                self.id(slot)
            );
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        if (memory, max) == (u64::MAX, usize::MAX) {
            return Ok(());
        }
        let started = Instant::now();
        let mut slots = self.lock();
        loop {
            let (mut count, mut used) = (0_usize, 0_u64);
            for (i, other) in slots.iter().enumerate() {
                let takes = match other {
                    Slot::Present(p) => p.bytes,
                    Slot::Loading(Some(bytes), _) if i != slot => *bytes,
                    _ => continue,
                };
                (count, used) = (count.saturating_add(1), used.saturating_add(takes));
            }
            // Without a first model the server ends: it never waits behind one that came later and is at work.
            let first = slot == 0 || self.placed.load(Ordering::Acquire);
            if first && count < max && used.saturating_add(bytes) <= memory {
                if let Some(Slot::Loading(reserved, _)) = slots.get_mut(slot) {
                    *reserved = Some(bytes);
                }
                return Ok(());
            }
            if let Some(gone) = first.then(|| self.take_idlest(&mut slots)).flatten() {
                drop(slots);
                self.end(gone);
                slots = self.lock();
                continue;
            }
            let Some(left) = PATIENCE.checked_sub(started.elapsed()) else {
                return Err(self.no_room(slot, first));
            };
            let waited = self.freed.wait_timeout(slots, left);
            slots = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn no_room(&self, slot: usize, first: bool) -> ApiError {
        let why = match first {
            true => "the others are at work",
            false => "the first model is not loaded yet",
        };
        let message = format!(
            "there is no room for model '{}': {why} (--models-memory, --models-max)",
            self.id(slot)
        );
        ApiError {
            retry_after: Some(5),
            ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }

    /// Takes out the idle model that was used least recently.
    fn take_idlest(&self, slots: &mut [Slot]) -> Option<Gone> {
        let idle = |(i, slot): (usize, &Slot)| match slot {
            Slot::Present(p) if p.users == 0 => Some((p.used, i)),
            _ => None,
        };
        let (_, i) = slots.iter().enumerate().filter_map(idle).min()?;
        self.take(slots, i)
    }

    fn take(&self, slots: &mut [Slot], i: usize) -> Option<Gone> {
        match std::mem::replace(slots.get_mut(i)?, Slot::Absent) {
            Slot::Present(p) => {
                tracing::info!("model '{}' is unloaded", self.id(i));
                // Under the lock: who counts sees it here or there.
                let counted = p.engine.stats();
                self.past(i, |past| past.add(&counted));
                Some(Gone {
                    slot: i,
                    engine: p.engine,
                    counted,
                })
            }
            _ => None,
        }
    }

    /// Waits for an engine's thread, and counts what it still counted.
    fn end(&self, gone: Gone) {
        let started = Instant::now();
        let is_busy = |s: &Stats| s.running > 0 || s.waiting > 0;
        while is_busy(&gone.engine.stats()) && started.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stats = gone.engine.stats();
        self.past(gone.slot, |past| past.add_since(&stats, &gone.counted));
    }

    fn past(&self, slot: usize, change: impl FnOnce(&mut Totals)) {
        let mut all = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(past) = all.get_mut(slot) {
            change(past);
        }
    }

    /// Unloads models other than the first that have been idle for `keep`.
    fn unload_idle(&self, keep: Duration) {
        let mut slots = self.lock();
        let idle = |slot: &Slot| matches!(slot, Slot::Present(p) if p.users == 0 && p.used.elapsed() >= keep);
        let all = slots.iter().enumerate().skip(1);
        let old: Vec<usize> = all.filter(|(_, s)| idle(s)).map(|(i, _)| i).collect();
        let gone: Vec<_> = old.into_iter().map(|i| self.take(&mut slots, i)).collect();
        drop(slots);
        gone.into_iter().flatten().for_each(|gone| self.end(gone));
        self.freed.notify_all();
    }
}
