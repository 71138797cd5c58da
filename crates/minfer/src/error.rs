//! The engine's error: each room's own, wrapped once.

use std::path::PathBuf;

/// Whatever can go wrong. Shown, it is one line that names the thing, the value and the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not GGUF, or a value in it has another type.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    /// A model file could not be opened.
    #[error("{}: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<Error>,
    },
    /// The file is no model that can be run.
    #[error(transparent)]
    Arch(#[from] crate::models::ModelError),
    /// The file's tokenizer is not known or broken.
    #[error(transparent)]
    Tokenizer(#[from] crate::tokenizer::TokenizerError),
    /// The chat template is broken or refused the messages.
    #[error(transparent)]
    Chat(#[from] crate::chat::ChatError),
    /// A sampling parameter is out of its range, or a logit is no number.
    #[error(transparent)]
    Sampling(#[from] crate::sampling::SamplingError),
    /// A graph could not be built or run.
    #[error(transparent)]
    Graph(#[from] crate::graph::GraphError),
    /// No backend could be made.
    #[error(transparent)]
    Backend(#[from] crate::backend::RegistryError),
    /// No page of the KV is left.
    #[error(transparent)]
    Kv(#[from] crate::kv::OutOfPages),
    /// A session could not be read, written or used.
    #[error(transparent)]
    Session(#[from] crate::engine::SessionError),
    /// A constraint could not be compiled.
    #[error(transparent)]
    Constraint(#[from] crate::sampling::ConstraintError),
    /// A request or an engine was refused.
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
}
