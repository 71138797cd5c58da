//! What was compiled lately.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use super::ConstraintSpec;
use super::grammar::Grammar;

/// Grammars that are kept: requests of one program, several answers to one request and the prompts of a list ask for the same.
const GRAMMARS: usize = 4;
/// Specs that are known to be fine, at most: some bytes each.
const FINE: usize = 4096;

/// The last grammars, as they begin, and specs that could be compiled.
#[derive(Default)]
pub(super) struct Recent {
    /// The last used is first.
    grammars: Mutex<Vec<(ConstraintSpec, Arc<Grammar>)>>,
    /// Hashes whose key nobody outside knows.
    fine: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl Recent {
    /// The grammar of a spec, which nobody has advanced.
    pub(super) fn grammar(&self, spec: &ConstraintSpec) -> Option<Arc<Grammar>> {
        let mut all = self.grammars.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(known, _)| known == spec)?;
        all[..=at].rotate_right(1);
        Some(Arc::clone(&all[0].1))
    }

    /// Keeps one in place of that which was used longest ago.
    pub(super) fn keep(&self, spec: &ConstraintSpec, grammar: Arc<Grammar>) {
        let mut all = self.grammars.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests that come at once compile it at once.
        all.retain(|(known, _)| known != spec);
        all.truncate(GRAMMARS - 1);
        all.insert(0, (spec.clone(), grammar));
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
