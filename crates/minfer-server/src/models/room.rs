//! Room for models: who is unloaded, and when.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use minfer::engine::{Engine, Stats};

use super::registry::{Held, Registry, Slot};
use crate::ApiError;
use crate::counts::Totals;

/// A model that waits for memory waits so long for others to become idle.
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that have just left are still counted by an engine that is to go, for at most so long.
const FAREWELL: Duration = Duration::from_secs(2);

/// How it stands with a model's place.
enum Place {
    Free,
    /// An idle model must go first.
    Taken,
    /// For this.
    Waits(&'static str),
}

/// An engine on its way out.
pub(super) struct Gone {
    slot: usize,
    engine: Arc<Engine>,
    bytes: u64,
    /// What has been counted of it.
    counted: Stats,
}

impl Registry {
    /// Unloads idle models, the least recently used first, until another one of `bytes` fits in. A copy of its own that is on its way out goes first.
    pub(super) fn make_room(&self, slot: usize, bytes: u64) -> Result<(), ApiError> {
        let memory = self.residency.memory.unwrap_or(u64::MAX);
        if bytes > memory {
            let message = format!(
                "model '{}' could not be loaded: it takes {bytes} bytes, all models may take {memory} (--models-memory)",
                self.id(slot)
            );
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        let started = Instant::now();
        let mut held = self.lock();
        loop {
            let why = match self.place_for(&held, slot, bytes) {
                Place::Free => {
                    if let Some(Slot::Loading(reserved, _)) = held.slots.get_mut(slot) {
                        *reserved = Some(bytes);
                    }
                    return Ok(());
                }
                Place::Taken => match self.take_idlest(&mut held) {
                    Some(gone) => {
                        drop(held);
                        self.end(gone);
                        held = self.lock();
                        continue;
                    }
                    None => "the others are at work",
                },
                Place::Waits(why) => why,
            };
            let Some(left) = PATIENCE.checked_sub(started.elapsed()) else {
                return Err(self.no_room(slot, why));
            };
            let waited = self.freed.wait_timeout(held, left);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How it stands with the place of a model of so many bytes.
    fn place_for(&self, held: &Held, slot: usize, bytes: u64) -> Place {
        let memory = self.residency.memory.unwrap_or(u64::MAX);
        let max = self.residency.max.unwrap_or(usize::MAX);
        // Without a first model the server ends: it never waits behind one that came later and is at work.
        let first = slot == 0 || self.placed.load(Ordering::Acquire);
        if !first && (memory, max) != (u64::MAX, usize::MAX) {
            return Place::Waits("the first model is not loaded yet");
        }
        let fits = |(count, used): (usize, u64)| {
            count < max && used.checked_add(bytes).is_some_and(|all| all <= memory)
        };
        let staying = held.staying(slot);
        let twice = held.leaving.iter().any(|(i, _)| *i == slot);
        match (fits(staying), fits(held.with_leaving(staying))) {
            (false, _) => Place::Taken,
            (true, true) if !twice => Place::Free,
            // What is on its way out makes the room: no other need follow it.
            _ => Place::Waits("a model is still being unloaded"),
        }
    }

    fn no_room(&self, slot: usize, why: &str) -> ApiError {
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
    fn take_idlest(&self, held: &mut Held) -> Option<Gone> {
        let idle = |(i, slot): (usize, &Slot)| match slot {
            Slot::Present(p) if p.users == 0 => Some((p.used, i)),
            _ => None,
        };
        let (_, i) = held.slots.iter().enumerate().filter_map(idle).min()?;
        self.take(held, i)
    }

    pub(super) fn take(&self, held: &mut Held, i: usize) -> Option<Gone> {
        match std::mem::replace(held.slots.get_mut(i)?, Slot::Absent) {
            Slot::Present(p) => {
                tracing::info!("model '{}' is unloaded", self.id(i));
                held.leaving.push((i, p.bytes));
                // Under the lock: who counts sees it here or there.
                let counted = p.engine.stats();
                self.past(i, |past| past.add(&counted));
                Some(Gone {
                    slot: i,
                    engine: p.engine,
                    bytes: p.bytes,
                    counted,
                })
            }
            _ => None,
        }
    }

    /// Waits for an engine's thread, and counts what it still counted.
    pub(super) fn end(&self, gone: Gone) {
        let started = Instant::now();
        let is_busy = |s: &Stats| s.running > 0 || s.waiting > 0;
        while is_busy(&gone.engine.stats()) && started.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stats = gone.engine.stats();
        self.past(gone.slot, |past| past.add_since(&stats, &gone.counted));
        drop(gone.engine);
        let mut held = self.lock();
        let own = (gone.slot, gone.bytes);
        if let Some(i) = held.leaving.iter().position(|l| *l == own) {
            held.leaving.swap_remove(i);
        }
        drop(held);
        self.freed.notify_all();
    }

    fn past(&self, slot: usize, change: impl FnOnce(&mut Totals)) {
        let mut all = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(past) = all.get_mut(slot) {
            change(past);
        }
    }

    /// When the first model's time is over that is idle now.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let held = self.lock();
        held.slots.iter().filter_map(Slot::end).min()
    }

    /// Unloads the idle models whose time is over. May block.
    pub(super) fn unload_due(&self) {
        let mut held = self.lock();
        let now = Instant::now();
        let due = |slot: &Slot| slot.end().is_some_and(|end| end <= now);
        let all = held.slots.iter().enumerate();
        let due: Vec<usize> = all.filter(|(_, s)| due(s)).map(|(i, _)| i).collect();
        let gone: Vec<_> = due.into_iter().map(|i| self.take(&mut held, i)).collect();
        drop(held);
        gone.into_iter().flatten().for_each(|gone| self.end(gone));
    }
}

impl Held {
    /// How many models take memory, and how much, beside what is kept for one that is loading and what is on its way out.
    fn staying(&self, slot: usize) -> (usize, u64) {
        let others = self.slots.iter().enumerate();
        let others = others.filter_map(|(i, other)| match other {
            Slot::Present(p) => Some(p.bytes),
            Slot::Loading(Some(bytes), _) if i != slot => Some(*bytes),
            _ => None,
        });
        others.fold((0, 0), and)
    }

    /// The same with what is on its way out.
    fn with_leaving(&self, staying: (usize, u64)) -> (usize, u64) {
        let leaving = self.leaving.iter().map(|(_, bytes)| *bytes);
        leaving.fold(staying, and)
    }
}

/// One more model.
fn and((n, used): (usize, u64), bytes: u64) -> (usize, u64) {
    (n.saturating_add(1), used.saturating_add(bytes))
}

impl Slot {
    /// When a loaded, idle model's time is over.
    fn end(&self) -> Option<Instant> {
        match self {
            Slot::Present(p) => p.end(),
            _ => None,
        }
    }
}
