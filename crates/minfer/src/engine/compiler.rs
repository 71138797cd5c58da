//! The compiler of constraints of an engine: made once, ahead of the first request that needs it if that is wanted.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::model::Model;
use crate::sampling::{Constraint, ConstraintError, ConstraintSpec, Constraints};

/// How often it is looked whether the engine has nothing to do.
const LOOK: Duration = Duration::from_millis(200);

/// Taking in a large vocabulary takes about a second of one CPU.
pub(super) struct Compiler {
    model: Arc<Model>,
    made: OnceLock<Result<Constraints, ConstraintError>>,
}

impl Compiler {
    /// Not made yet.
    pub fn new(model: Arc<Model>) -> Compiler {
        Compiler {
            model,
            made: OnceLock::new(),
        }
    }

    /// Compiles a spec. Who comes while the vocabulary is taken in waits for that; who comes before does it.
    ///
    /// # Errors
    /// Why the vocabulary or the spec can't be used.
    pub fn compile(&self, spec: &ConstraintSpec) -> Result<Box<dyn Constraint>, ConstraintError> {
        self.make().as_ref().map_err(Clone::clone)?.compile(spec)
    }

    /// Whether a spec can be compiled; once that has been seen, it is not tried again.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn check(&self, spec: &ConstraintSpec) -> Result<(), ConstraintError> {
        self.make().as_ref().map_err(Clone::clone)?.check(spec)
    }

    /// Whether a spec says what it may, as far as is seen without compiling it.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn read(&self, spec: &ConstraintSpec) -> Result<(), ConstraintError> {
        self.make().as_ref().map_err(Clone::clone)?.read(spec)
    }

    /// How often something was compiled.
    pub fn compiled(&self) -> u64 {
        let made = self.made.get().and_then(|made| made.as_ref().ok());
        made.map_or(0, Constraints::compiled)
    }

    fn make(&self) -> &Result<Constraints, ConstraintError> {
        self.made
            .get_or_init(|| Constraints::new(self.model.tokenizer()))
    }

    /// Whether the vocabulary was taken in.
    pub fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// Takes the vocabulary in on a thread of its own, once nobody needs the CPUs: when `idle` says `Some(true)` twice in a
    /// row. `None`: the engine is gone, and nothing is made.
    pub fn make_when_idle(self: &Arc<Self>, idle: impl Fn() -> Option<bool> + Send + 'static) {
        let compiler = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("minfer-vocabulary".to_owned());
        let spawned = thread.spawn(move || wait_and_make(&compiler, idle));
        if let Err(e) = spawned {
            tracing::warn!("the first request with a constraint takes a second longer: {e}");
        }
    }
}

fn wait_and_make(compiler: &Weak<Compiler>, idle: impl Fn() -> Option<bool>) {
    let mut before = false;
    loop {
        std::thread::sleep(LOOK);
        let (Some(compiler), Some(now)) = (compiler.upgrade(), idle()) else {
            return;
        };
        if compiler.is_made() {
            return;
        }
        if before && now {
            // Requests with a constraint say it, too.
            if let Err(e) = compiler.make() {
                tracing::warn!("no answer can be constrained: {e}");
            }
            return;
        }
        before = now;
    }
}
