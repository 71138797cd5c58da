//! minfer over HTTP: OpenAI's surface, and others as thin translations onto the same engine.
//!
//! A request goes through four rooms: `guard` (who may come in, and how much), a surface (`openai`, …: a body's fields
//! in, JSON or a stream out), `chat` or `completion` (what is asked of a model, the same for every surface; `tools` and `speech` know calls and reasoning) and the
//! engine, which has its own thread. Surfaces know nothing of each other; only `models` knows what is loaded.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod answers;
mod anthropic;
mod app;
mod chat;
mod completion;
mod connection;
mod cors;
mod counts;
mod error;
mod fields;
mod gaps;
mod guard;
mod id;
mod life;
mod limits;
mod llama;
mod loader;
mod logprobs;
mod messages;
mod metrics;
mod models;
mod ollama;
mod openai;
mod pace;
mod page;
mod params;
mod parser;
mod prompts;
mod server;
mod shape;
mod speech;
mod sse;
mod tls;
mod tools;
mod vectors;
mod wire;

pub use error::ApiError;
pub use guard::{GuardError, GuardOptions};
pub use limits::Limits;
pub use loader::{Loader, Room};
pub use models::{Keep, Loaded, ModelName, Residency};
pub use server::{Handle, Server, ServerError, ServerOptions};
pub use tls::{TlsError, TlsFiles};
