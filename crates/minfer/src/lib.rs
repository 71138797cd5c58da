//! minfer: a pure-Rust engine that runs GGUF language models.
//!
//! Every forward pass is data: a compute graph that is built, assigned, fused, allocated and
//! executed. The rooms below are listed in import order: a room uses only rooms above it
//! (`cargo xtask tidy` checks this). `docs/ARCHITECTURE.md` is the map.
//!
//! ```no_run
//! use minfer::chat::{Message, RenderRequest};
//! use minfer::engine::{Engine, EngineOptions, Event, Generate, Model, Request, Task};
//!
//! # fn main() -> Result<(), minfer::Error> {
//! let model = Model::open("model.gguf".as_ref())?;
//! let question = RenderRequest::new(vec![Message::new("user", "Why is the sky blue?")]);
//! let (prompt, _note) = model.chat_prompt(&question)?;
//! let engine = Engine::new(model, EngineOptions::default(), &mut |_done, _total| {})?;
//! for event in engine.submit(Request::new(prompt, Task::Generate(Generate::default())))? {
//!     match event {
//!         Event::Token { text, .. } => print!("{text}"),
//!         Event::Done(done) => println!("{}", done.text),
//!         Event::Error(e) => return Err(e),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod words;

pub mod place;

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
