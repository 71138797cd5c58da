//! llama-server's own endpoints.

mod completion;
mod embedding;
mod infill;
mod state;
mod text;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;

/// Their paths.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/completion", post(completion::completion))
        .route("/infill", post(infill::infill))
        .route("/embedding", post(embedding::embedding))
        .route("/tokenize", post(text::tokenize))
        .route("/detokenize", post(text::detokenize))
        .route("/apply-template", post(text::apply_template))
        .route("/props", get(state::props))
        .route("/tokenizer_info", get(state::tokenizer_info))
        .route("/slots", get(state::slots))
}
