//! How the server gets a model: by whom it was started.

use std::path::Path;
use std::sync::Arc;

use minfer::engine::{Engine, Model};

/// Asks for room for a model of so many bytes, once they are known; an error says why there is none.
pub type Room<'a> = &'a mut dyn FnMut(u64) -> Result<(), String>;

/// Where models come from.
#[derive(Clone)]
pub struct Loader {
    load: Load,
    read: Read,
}

type Load = Arc<dyn Fn(&str, Room<'_>) -> Result<Engine, String> + Send + Sync>;
type Read = Arc<dyn Fn(&str) -> Result<Arc<Model>, String> + Send + Sync>;

impl Loader {
    /// `load` makes an engine of a model's spec, having asked for room; it may take long and is called on a thread of its
    /// own. A spec is taken for the path of a file where somebody only wants to know about a model.
    pub fn new(
        load: impl Fn(&str, Room<'_>) -> Result<Engine, String> + Send + Sync + 'static,
    ) -> Loader {
        Loader {
            load: Arc::new(load),
            read: Arc::new(|spec| Model::open(Path::new(spec)).map_err(|e| e.to_string())),
        }
    }

    /// With another way to open a model's file for who only wants to know about it. It must fetch nothing.
    #[must_use]
    pub fn reading(
        self,
        read: impl Fn(&str) -> Result<Arc<Model>, String> + Send + Sync + 'static,
    ) -> Loader {
        Loader {
            read: Arc::new(read),
            ..self
        }
    }

    /// Makes an engine.
    ///
    /// # Errors
    /// Why it can't.
    pub fn load(&self, spec: &str, room: Room<'_>) -> Result<Engine, String> {
        (self.load)(spec, room)
    }

    /// Opens a model's file.
    ///
    /// # Errors
    /// Why it can't.
    pub fn read(&self, spec: &str) -> Result<Arc<Model>, String> {
        (self.read)(spec)
    }
}
