//! The server on real sockets, with tiny models.

mod anthropic;
mod begun;
mod beside;
mod chat;
mod completions;
mod cuts;
mod documents;
mod elsewhere;
mod embeddings;
mod golden;
mod guard;
mod harness;
mod history;
mod ignored;
mod keep_alive;
mod life;
mod limits;
mod llama;
mod many;
#[path = "../../../minfer-cli/tests/cli/models.rs"]
#[allow(dead_code)] // the command's tests use the rest
mod models;
mod ollama;
mod page;
mod raw;
mod reports;
mod responses;
mod schemas;
mod systems;
mod tools;
mod turns;
mod types;
