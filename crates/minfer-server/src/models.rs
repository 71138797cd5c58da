//! Which models there are, and which of them are loaded.

use std::sync::Arc;

use axum::http::StatusCode;
use minfer::engine::Engine;
use tokio::sync::Mutex;

use crate::metrics::Times;
use crate::{ApiError, id};

/// A model that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// What clients call it.
    pub id: String,
    /// What the loader calls it: a path, an alias, a source.
    pub spec: String,
}

/// Makes an engine of a model's spec; it may take long and is called on a thread of its own.
pub type Loader = Arc<dyn Fn(&str) -> Result<Engine, String> + Send + Sync>;

/// A loaded model.
pub struct Loaded {
    /// What clients call it.
    pub id: String,
    /// At work.
    pub engine: Engine,
    /// What its clients wait for.
    pub times: Arc<Times>,
}

/// All models of a server.
pub struct Models {
    slots: Vec<Slot>,
    loader: Loader,
    created: u64,
}

struct Slot {
    name: ModelName,
    /// Who loads it holds the lock; others wait for that.
    loaded: Mutex<Option<Arc<Loaded>>>,
}

impl Models {
    /// None of them loaded yet.
    pub fn new(names: Vec<ModelName>, loader: Loader) -> Models {
        let slot = |name| Slot {
            name,
            loaded: Mutex::new(None),
        };
        Models {
            slots: names.into_iter().map(slot).collect(),
            loader,
            created: id::now(),
        }
    }

    /// The names that clients may ask for.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|s| s.name.id.as_str())
    }

    /// When the server began, in seconds since 1970.
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Whether the first model is loaded.
    pub fn is_ready(&self) -> bool {
        let first = self.slots.first();
        // Who holds the lock is loading.
        first.is_some_and(|s| s.loaded.try_lock().is_ok_and(|l| l.is_some()))
    }

    /// The loaded models.
    pub fn loaded(&self) -> Vec<Arc<Loaded>> {
        let held = self.slots.iter().filter_map(|s| s.loaded.try_lock().ok());
        held.filter_map(|l| l.clone()).collect()
    }

    /// The model of this name, loaded now if it is not; without a name the first one.
    ///
    /// # Errors
    /// 404 with the names there are; 500 with the reason why it can't be loaded.
    pub async fn get(&self, name: Option<&str>) -> Result<Arc<Loaded>, ApiError> {
        let slot = match name {
            None => self.slots.first(),
            Some(name) => self.slots.iter().find(|s| s.name.id == name),
        };
        let slot = slot.ok_or_else(|| self.unknown(name.unwrap_or_default()))?;
        let mut loaded = slot.loaded.lock().await;
        if let Some(loaded) = &*loaded {
            return Ok(loaded.clone());
        }
        let (loader, spec) = (self.loader.clone(), slot.name.spec.clone());
        let made = tokio::task::spawn_blocking(move || loader(&spec)).await;
        let failed = |e: String| {
            let message = format!("model '{}' could not be loaded: {e}", slot.name.id);
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        };
        let engine = made.map_err(|e| failed(e.to_string()))?.map_err(failed)?;
        let made = Arc::new(Loaded {
            id: slot.name.id.clone(),
            engine,
            times: Arc::default(),
        });
        *loaded = Some(made.clone());
        Ok(made)
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
