//! Architectures: hyper-parameters, tensor names and the graph of each, one file a family.
//!
//! What differs between families is visible in its file; what is common is in `blocks`. A file
//! of an unknown architecture, with a tensor missing, left over or of another shape is refused by
//! name. This room knows no device and no engine.

mod blocks;
mod gemma3;
mod hparams;
mod llama;
mod loader;
mod plain;
mod qwen2;
mod qwen3;

use std::sync::Arc;

pub use hparams::HParams;
pub use loader::{Loader, ModelError};

use crate::gguf::{GgufFile, shown};
use crate::graph::{Graph, GraphParams, WeightSet};

/// A family's graph, bound to one file's weights.
pub trait Architecture: Send + Sync {
    /// The numbers read from the file.
    fn hparams(&self) -> &HParams;
    /// What `params.kind` says: a forward pass, or the turning of kept keys. A function of `params` alone.
    fn build(&self, params: &GraphParams) -> Graph;
}

/// What loading a file gives: the architecture and the weights it asked for.
pub struct Loaded {
    /// The graph maker.
    pub arch: Box<dyn Architecture>,
    /// Its weights, by id.
    pub weights: WeightSet,
}

/// Loads one family from a file.
type LoadFn = fn(&mut Loader) -> Result<Box<dyn Architecture>, ModelError>;

/// Every architecture this build runs, by `general.architecture`.
const ARCHITECTURES: &[(&str, LoadFn)] = &[
    ("llama", |l| Ok(Box::new(llama::load(l)?))),
    ("qwen2", |l| Ok(Box::new(qwen2::load(l)?))),
    ("qwen3", |l| Ok(Box::new(qwen3::load(l)?))),
    ("gemma3", |l| Ok(Box::new(gemma3::Gemma3::load(l)?))),
];

/// Names of the architectures this build runs.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|a| a.0)
}

/// Reads hyper-parameters, finds and checks every tensor. Reads no tensor data.
pub fn load(file: Arc<GgufFile>) -> Result<Loaded, ModelError> {
    let mut loader = Loader::new(file)?;
    let name = loader.architecture().to_owned();
    let Some((_, load)) = ARCHITECTURES.iter().find(|a| a.0 == name) else {
        return Err(ModelError::UnknownArchitecture {
            name: shown(&name),
            known: architectures().collect::<Vec<_>>().join(", "),
        });
    };
    let arch = load(&mut loader)?;
    Ok(Loaded {
        arch,
        weights: loader.finish()?,
    })
}
