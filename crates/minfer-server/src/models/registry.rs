//! What is known of each model, and how one is loaded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use minfer::engine::{Engine, Model};
use tokio::sync::{Notify, watch};

use super::{Counted, Keep, Loaded, ModelName, Residency};
use crate::counts::{Times, Totals};
use crate::loader::Loader;
use crate::{ApiError, id};

/// All models, whether they are loaded or not.
pub(super) struct Registry {
    held: Mutex<Held>,
    /// There may be room now: a model became idle, or is gone.
    pub(super) freed: Condvar,
    /// A model became idle, or stays for another time than before.
    pub(super) idle: Notify,
    pub(super) names: Vec<ModelName>,
    /// Of each model.
    times: Vec<Arc<Times>>,
    /// What engines of each model counted that are gone.
    pub(super) past: Mutex<Vec<Totals>>,
    loader: Loader,
    /// Held by who reads a file.
    reading: Mutex<()>,
    pub(super) residency: Residency,
    /// The first model has its room, and no other may take it.
    pub(super) placed: AtomicBool,
    /// The first model has been loaded.
    ready: AtomicBool,
    pub(super) created: u64,
}

/// What takes memory.
pub(super) struct Held {
    /// Of each model.
    pub(super) slots: Vec<Slot>,
    /// Engines on their way out: the model of each, and its bytes.
    pub(super) leaving: Vec<(usize, u64)>,
}

pub(super) type Outcome = Result<Arc<Loaded>, ApiError>;

pub(super) enum Slot {
    Absent,
    /// With the bytes that are kept for it, once it has been given a place.
    Loading(Option<u64>, watch::Receiver<Option<Outcome>>),
    Present(Present),
}

pub(super) struct Present {
    pub(super) engine: Arc<Engine>,
    pub(super) bytes: u64,
    /// Requests that hold it.
    pub(super) users: usize,
    pub(super) used: Instant,
    /// How long it stays from then on.
    pub(super) keep: Keep,
}

impl Present {
    /// When its time is over; `None`: never, or it is at work.
    pub(super) fn end(&self) -> Option<Instant> {
        self.keep.end(self.used).filter(|_| self.users == 0)
    }
}

/// How a model stands for who asks for it.
pub(super) enum Entered {
    Present(Arc<Loaded>),
    Loading(watch::Receiver<Option<Outcome>>),
    /// Who asks loads it, and tells the others.
    Load(
        watch::Sender<Option<Outcome>>,
        watch::Receiver<Option<Outcome>>,
    ),
}

/// A request's hold on a model.
pub(super) struct Lease {
    registry: Arc<Registry>,
    slot: usize,
}

impl Lease {
    pub(super) fn keep(&self, keep: Keep) {
        self.present(|p| p.keep = keep);
    }

    fn present(&self, change: impl FnOnce(&mut Present)) {
        if let Some(Slot::Present(p)) = self.registry.lock().slots.get_mut(self.slot) {
            change(p);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.present(|p| {
            p.users = p.users.saturating_sub(1);
            p.used = Instant::now();
        });
        self.registry.freed.notify_all();
        self.registry.idle.notify_one();
    }
}

/// What became of a load, once that is known.
pub(super) async fn known(mut outcome: watch::Receiver<Option<Outcome>>) -> Outcome {
    let known = outcome.wait_for(Option::is_some).await;
    let known = known.map(|o| o.clone());
    known.ok().flatten().unwrap_or_else(|| Err(panicked()))
}

fn panicked() -> ApiError {
    let message = "the model could not be loaded: internal error, the server goes on";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}

impl Registry {
    /// None of the models loaded yet.
    pub(super) fn new(names: Vec<ModelName>, residency: Residency, loader: Loader) -> Registry {
        Registry {
            held: Mutex::new(Held {
                slots: names.iter().map(|_| Slot::Absent).collect(),
                leaving: Vec::new(),
            }),
            freed: Condvar::new(),
            idle: Notify::new(),
            times: names.iter().map(|_| Arc::default()).collect(),
            past: Mutex::new(vec![Totals::default(); names.len()]),
            names,
            loader,
            reading: Mutex::new(()),
            residency,
            placed: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            created: id::now(),
        }
    }

    /// What takes memory. Nothing panics while it is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Lets a model go once nobody holds it; one that is being loaded must be there first: the news of that. One that is not loaded stays so.
    pub(super) fn dismiss(&self, slot: usize) -> Option<watch::Receiver<Option<Outcome>>> {
        match self.lock().slots.get_mut(slot) {
            Some(Slot::Present(p)) => {
                p.keep = Keep::For(Duration::ZERO);
                None
            }
            Some(Slot::Loading(_, outcome)) => Some(outcome.clone()),
            Some(Slot::Absent) | None => None,
        }
    }

    pub(super) fn id(&self, slot: usize) -> &str {
        self.names.get(slot).map_or("", |n| n.id.as_str())
    }

    /// The engine of a model that is loaded.
    pub(super) fn engine(&self, slot: usize) -> Option<Arc<Engine>> {
        match self.lock().slots.get(slot) {
            Some(Slot::Present(p)) => Some(p.engine.clone()),
            _ => None,
        }
    }

    /// See [`super::Models::counted`].
    pub(super) fn counted(&self) -> Vec<Counted> {
        let held = self.lock();
        let past = self.past.lock();
        let past = past.unwrap_or_else(PoisonError::into_inner);
        let all = held.slots.iter().zip(&*past).zip(&self.times).enumerate();
        let one = |(i, ((slot, past), times)): (usize, ((&Slot, &Totals), &Arc<Times>))| {
            let now = match slot {
                Slot::Present(p) => Some(p.engine.stats()),
                _ => None,
            };
            let mut totals = *past;
            now.iter().for_each(|now| totals.add(now));
            Counted {
                id: self.id(i).to_owned(),
                totals,
                times: times.clone(),
                now,
            }
        };
        all.map(one).collect()
    }

    fn lend(self: &Arc<Registry>, slot: usize, engine: Arc<Engine>) -> Arc<Loaded> {
        let lease = Lease {
            registry: self.clone(),
            slot,
        };
        Arc::new(self.held(slot, engine, Some(lease)))
    }

    pub(super) fn held(&self, slot: usize, engine: Arc<Engine>, lease: Option<Lease>) -> Loaded {
        Loaded {
            id: self.id(slot).to_owned(),
            engine,
            times: self.times.get(slot).cloned().unwrap_or_default(),
            lease,
        }
    }

    pub(super) fn enter(self: &Arc<Registry>, slot: usize) -> Entered {
        let mut held = self.lock();
        match held.slots.get_mut(slot) {
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
    pub(super) fn load_and_tell(
        self: &Arc<Registry>,
        slot: usize,
        tell: &watch::Sender<Option<Outcome>>,
    ) {
        let made = catch_unwind(AssertUnwindSafe(|| self.load(slot)));
        let made = made.unwrap_or_else(|_| Err(panicked()));
        let outcome = made.map(|(engine, bytes)| {
            let engine = Arc::new(engine);
            let present = Present {
                engine: engine.clone(),
                bytes,
                users: 1, // the one that is told now
                used: Instant::now(),
                keep: match self.residency.keep_alive {
                    Some(time) if slot > 0 => Keep::For(time),
                    _ => Keep::Always,
                },
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
        let held = self.lock();
        self.placed.store(true, Ordering::Release);
        drop(held);
        self.freed.notify_all();
    }

    fn set(&self, slot: usize, to: Slot) {
        if let Some(old) = self.lock().slots.get_mut(slot) {
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
    pub(super) fn read(&self, slot: usize) -> Result<Arc<Model>, ApiError> {
        let _one = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let spec = self.names.get(slot).map_or("", |n| n.spec.as_str());
        self.loader.read(spec).map_err(|e| {
            let message = format!("model '{}' is not loaded: {e}", self.id(slot));
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }
}
