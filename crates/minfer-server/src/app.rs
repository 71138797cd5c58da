//! What all requests share, and which path goes where.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::models::Models;
use crate::{ApiError, ServerOptions, openai};

/// What all requests share.
pub struct App {
    /// Models.
    pub models: Models,
    /// How the server was set up.
    pub options: ServerOptions,
}

/// Every handler's state.
pub type Shared = State<Arc<App>>;

/// All paths.
pub fn router(app: Arc<App>) -> Router {
    let openai = openai::routes();
    Router::new()
        .route("/health", get(health))
        .nest("/v1", openai.clone())
        .merge(openai)
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

async fn health(State(app): Shared) -> Response {
    match app.models.is_ready() {
        true => axum::Json(json!({"status": "ok"})).into_response(),
        false => ApiError {
            retry_after: Some(1),
            ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "Loading model")
        }
        .into_response(),
    }
}

async fn nowhere(uri: Uri) -> ApiError {
    let message = format!("there is nothing at {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, message)
}

async fn wrong_method(method: axum::http::Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}
