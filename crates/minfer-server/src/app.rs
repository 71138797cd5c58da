//! What all requests share, and which path goes where.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio::sync::watch;

use crate::guard::{self, Guard};
use crate::metrics::{self, Requests};
use crate::models::Models;
use crate::ollama::Known;
use crate::{ApiError, ServerOptions, anthropic, llama, ollama, openai, page};

/// What all requests share.
pub struct App {
    /// Models.
    pub models: Models,
    /// What lists say of them.
    pub known: Known,
    /// Who may come in.
    pub guard: Guard,
    /// True: the server ends once the running requests have ended.
    pub draining: watch::Sender<bool>,
    /// How many there were.
    pub requests: Requests,
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
        .merge(anthropic::routes())
        .merge(ollama::routes())
        .merge(llama::routes())
        .route("/metrics", get(metrics::show))
        .merge(page::routes())
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::disable()) // the guard's limit holds
        .layer(from_fn_with_state(app.clone(), guard::pass))
        .layer(from_fn_with_state(app.clone(), metrics::count))
        .with_state(app)
}

async fn health(State(app): Shared) -> Response {
    let state = match (*app.draining.borrow(), app.models.is_ready()) {
        (false, true) => return axum::Json(json!({"status": "ok"})).into_response(),
        (true, _) => "draining",
        (false, false) => "Loading model",
    };
    ApiError {
        retry_after: Some(1),
        ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, state)
    }
    .into_response()
}

async fn nowhere(uri: Uri) -> ApiError {
    let message = format!("there is nothing at {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, message)
}

async fn wrong_method(method: axum::http::Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}
