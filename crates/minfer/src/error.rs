//! The engine's error: each room's own, wrapped once.

use std::path::PathBuf;

/// Whatever can go wrong. Shown, it is one line that names the thing, the value and the way out.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    #[error("{}: {source}", path.display())]
    Model { path: PathBuf, source: Box<Error> },
    #[error(transparent)]
    Arch(#[from] crate::models::ModelError),
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    #[error(transparent)]
    Chat(#[from] crate::chat::ChatError),
    #[error(transparent)]
    Sampling(#[from] crate::sampling::SamplingError),
    #[error(transparent)]
    Graph(#[from] crate::graph::GraphError),
    #[error(transparent)]
    Backend(#[from] crate::backend::RegistryError),
    #[error(transparent)]
    Kv(#[from] crate::kv::OutOfPages),
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
}
