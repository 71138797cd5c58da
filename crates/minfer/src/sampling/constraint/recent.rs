//! What was compiled lately, and what is being compiled.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::grammar::Grammar;
use super::{ConstraintError, ConstraintSpec};

/// Grammars that are kept: requests of one program, several answers to one request and the prompts of a list ask for the same.
const GRAMMARS: usize = 4;
/// Specs that are known to be fine, at most: some bytes each.
const FINE: usize = 4096;

type Made = Result<Arc<Grammar>, ConstraintError>;

/// A spec that is being compiled by the first who asked for it; the others wait.
struct Flight {
    spec: ConstraintSpec,
    made: OnceLock<Made>,
}

/// The last grammars, as they begin, and specs that could be compiled.
#[derive(Default)]
pub(super) struct Recent {
    held: Mutex<Held>,
    /// Hashes whose key nobody outside knows.
    fine: Mutex<HashSet<u64>>,
    hasher: RandomState,
    /// How often something was compiled.
    compiled: AtomicU64,
}

#[derive(Default)]
struct Held {
    /// The last used is first.
    grammars: Vec<(ConstraintSpec, Arc<Grammar>)>,
    flights: Vec<Arc<Flight>>,
}

impl Recent {
    /// The grammar of a spec, which nobody has advanced: the one that is kept, or what `compile` makes. Of those who ask at once for the same, one compiles.
    ///
    /// # Errors
    /// What `compile` says, to all of them; who asks later has it tried again.
    pub(super) fn grammar(
        &self,
        spec: &ConstraintSpec,
        compile: impl FnOnce() -> Result<Grammar, ConstraintError>,
    ) -> Made {
        let flight = {
            let mut held = self.held();
            if let Some(known) = held.known(spec) {
                return Ok(known);
            }
            let under_way = held.flights.iter().find(|f| f.spec == *spec).cloned();
            under_way.unwrap_or_else(|| {
                let (spec, made) = (spec.clone(), OnceLock::new());
                let flight = Arc::new(Flight { spec, made });
                held.flights.push(flight.clone());
                flight
            })
        };
        let make = || {
            let made = self.counted(compile).map(Arc::new);
            self.held().land(spec, made.as_ref().ok());
            made
        };
        flight.made.get_or_init(make).clone()
    }

    /// What `compile` makes, counted and not kept.
    pub(super) fn counted<T>(&self, compile: impl FnOnce() -> T) -> T {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        compile()
    }

    /// How often something was compiled.
    pub(super) fn compiled(&self) -> u64 {
        self.compiled.load(Ordering::Relaxed)
    }

    /// Whether the grammar of a spec is kept.
    #[cfg(test)]
    pub(super) fn keeps(&self, spec: &ConstraintSpec) -> bool {
        self.held().grammars.iter().any(|(known, _)| known == spec)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a spec could be compiled before.
    pub(super) fn is_fine(&self, spec: &ConstraintSpec) -> bool {
        let fine = self.fine.lock().unwrap_or_else(PoisonError::into_inner);
        fine.contains(&self.hasher.hash_one(spec))
    }

    /// Notes that a spec could be compiled.
    pub(super) fn fine(&self, spec: &ConstraintSpec) {
        let mut fine = self.fine.lock().unwrap_or_else(PoisonError::into_inner);
        if fine.len() >= FINE {
            fine.clear();
        }
        fine.insert(self.hasher.hash_one(spec));
    }
}

impl Held {
    fn known(&mut self, spec: &ConstraintSpec) -> Option<Arc<Grammar>> {
        let all = &mut self.grammars;
        let at = all.iter().position(|(known, _)| known == spec)?;
        all[..=at].rotate_right(1);
        Some(Arc::clone(&all[0].1))
    }

    /// The end of a flight: a grammar is kept in place of that which was used longest ago.
    fn land(&mut self, spec: &ConstraintSpec, made: Option<&Arc<Grammar>>) {
        self.flights.retain(|f| f.spec != *spec);
        if let Some(grammar) = made {
            self.grammars.truncate(GRAMMARS - 1);
            let kept = (spec.clone(), Arc::clone(grammar));
            self.grammars.insert(0, kept);
        }
    }
}
