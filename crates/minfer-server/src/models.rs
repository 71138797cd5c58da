//! Which models there are, and which of them are loaded.

mod registry;
mod room;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use minfer::engine::{Engine, Model, Stats};
use tokio::time::sleep_until;

use crate::ApiError;
use crate::chat::blocking;
use crate::counts::{Times, Totals};
use crate::loader::Loader;
use registry::{Entered, Lease, Registry, Slot};

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

/// How long a model stays loaded when nobody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// So long after its last request.
    For(Duration),
    /// Until another needs the room.
    Always,
}

impl Keep {
    /// When a model's time is over that was used last at `since`; `None`: never.
    fn end(self, since: Instant) -> Option<Instant> {
        match self {
            Keep::For(time) => since.checked_add(time),
            Keep::Always => None,
        }
    }
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
    lease: Option<Lease>,
}

impl Loaded {
    /// Says how long the model stays once it is idle, until somebody says otherwise or it is loaded anew.
    pub fn keep(&self, keep: Keep) {
        if let Some(lease) = &self.lease {
            lease.keep(keep);
        }
    }
}

/// All models of a server.
pub struct Models(Arc<Registry>);

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

impl Models {
    /// None of them loaded yet.
    pub fn new(names: Vec<ModelName>, residency: Residency, loader: Loader) -> Models {
        Models(Arc::new(Registry::new(names, residency, loader)))
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
        self.0.is_ready()
    }

    /// The loaded models, to look at.
    pub fn loaded(&self) -> Vec<Arc<Loaded>> {
        self.resident().into_iter().map(|(l, _)| l).collect()
    }

    /// The loaded models, to look at, and how long each stays if nobody asks for it from now on.
    pub fn resident(&self) -> Vec<(Arc<Loaded>, Keep)> {
        let held = self.0.lock();
        let present = |(i, slot): (usize, &Slot)| match slot {
            Slot::Present(p) => {
                let loaded = Arc::new(self.0.held(i, p.engine.clone(), None));
                let left = match p.keep {
                    Keep::For(time) if p.users == 0 => {
                        Keep::For(time.saturating_sub(p.used.elapsed()))
                    }
                    keep => keep,
                };
                Some((loaded, left))
            }
            _ => None,
        };
        held.slots.iter().enumerate().filter_map(present).collect()
    }

    /// Of each model its name, what its engines have counted since the server's start, what its clients waited for, and
    /// how it stands if it is loaded.
    pub fn counted(&self) -> Vec<Counted> {
        self.0.counted()
    }

    /// The model of this name, loaded now if it is not; without a name the first one. Who asks for a model that is being
    /// loaded waits for that; who leaves does not stop it.
    ///
    /// # Errors
    /// 404 with the names there are; 503 if models at work leave no room for it; 500 with the reason why it can't be
    /// loaded: the next request tries again.
    pub async fn get(&self, name: Option<&str>) -> Result<Arc<Loaded>, ApiError> {
        let slot = self.slot(name)?;
        let outcome = match self.0.enter(slot) {
            Entered::Present(loaded) => return Ok(loaded),
            Entered::Loading(outcome) => outcome,
            Entered::Load(tell, outcome) => {
                let registry = self.0.clone();
                tokio::task::spawn_blocking(move || registry.load_and_tell(slot, &tell));
                outcome
            }
        };
        registry::known(outcome).await
    }

    /// Unloads the model of this name: now if it is idle, else once the requests that hold it have ended. One that is
    /// not loaded stays so.
    ///
    /// # Errors
    /// 404 with the names there are; what loading it says, if that is under way.
    pub async fn unload(&self, name: &str) -> Result<(), ApiError> {
        let slot = self.slot(Some(name))?;
        if let Some(outcome) = self.0.dismiss(slot) {
            registry::known(outcome)
                .await?
                .keep(Keep::For(Duration::ZERO));
        }
        let registry = self.0.clone();
        blocking(move || {
            registry.unload_due();
            Ok(())
        })
        .await
    }

    /// The model of this name, without a name the first one, to look at: nothing is loaded for who only looks.
    ///
    /// # Errors
    /// 404 with the names there are; 503 if it is not loaded.
    pub fn look(&self, name: Option<&str>) -> Result<Arc<Loaded>, ApiError> {
        let slot = self.slot(name)?;
        let loaded = self.0.engine(slot);
        let loaded = loaded.map(|engine| Arc::new(self.0.held(slot, engine, None)));
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
        if let Some(engine) = self.0.engine(slot) {
            return Ok(engine.model().clone());
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

    /// Unloads each model when its time is over, for ever.
    pub async fn tend(&self) -> Infallible {
        loop {
            match self.0.next_end() {
                Some(at) if at <= Instant::now() => {
                    let registry = self.0.clone();
                    drop(tokio::task::spawn_blocking(move || registry.unload_due()).await);
                }
                Some(at) => tokio::select! {
                    () = sleep_until(at.into()) => {}
                    () = self.0.idle.notified() => {}
                },
                None => self.0.idle.notified().await,
            }
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
