//! Ollama's surface.

mod answer;
mod embed;
mod keep_alive;
mod models;
mod request;
mod talk;

use std::sync::Arc;

use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::ApiError;
use crate::app::App;
use crate::shape::Shape;

pub use models::Known;

/// Its paths.
pub fn routes() -> Router<Arc<App>> {
    let mut routes = Router::new()
        .route("/api/chat", post(talk::chat))
        .route("/api/generate", post(talk::generate))
        .route("/api/embed", post(embed::embed))
        .route("/api/embeddings", post(embed::legacy))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::running))
        .route("/api/show", post(models::show))
        .route("/api/version", get(version));
    // What would change which models there are.
    for name in ["pull", "push", "create", "copy", "delete", "blobs/{digest}"] {
        routes = routes.route(&format!("/api/{name}"), any(fixed));
    }
    routes
}

/// A failure in Ollama's shape.
struct Failure(ApiError);

impl From<ApiError> for Failure {
    fn from(e: ApiError) -> Failure {
        Failure(e)
    }
}

impl Failure {
    fn body(&self) -> Value {
        Shape::Ollama.body(&self.0)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.0.response(&self.body())
    }
}

async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

async fn fixed(uri: Uri) -> Failure {
    let message = format!(
        "{} is not supported: this server has the models it was started with (see minfer pull and minfer serve)",
        uri.path()
    );
    Failure(ApiError::new(StatusCode::NOT_IMPLEMENTED, message))
}
