//! Anthropic's surface.

mod answer;
mod cut;
mod input;
mod messages;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;

use crate::ApiError;
use crate::app::App;
use crate::shape::Shape;

/// Its paths.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count))
}

/// A failure in Anthropic's shape.
struct Failure(ApiError);

impl From<ApiError> for Failure {
    fn from(e: ApiError) -> Failure {
        Failure(e)
    }
}

impl Failure {
    fn body(&self) -> Value {
        Shape::Anthropic.body(&self.0)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.0.response(&self.body())
    }
}
