//! minfer: a pure-Rust engine that runs GGUF language models.
//!
//! Every forward pass is data: a compute graph that is built, assigned, fused, allocated and
//! executed. The rooms below are listed in import order: a room uses only rooms above it
//! (`cargo xtask tidy` checks this). `docs/ARCHITECTURE.md` is the map.

pub mod numeric;

pub mod lanes;

pub mod gguf;

pub mod tokenizer;

pub mod chat;

pub mod sampling;

pub mod graph;

pub mod backend;

pub mod models;

pub mod kv;

pub mod engine;

mod error;

pub use error::Error;
