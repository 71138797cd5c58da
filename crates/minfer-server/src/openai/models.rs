//! `GET /v1/models` and `/v1/models/{id}`.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::ApiError;
use crate::app::Shared;

fn entry(id: &str, created: u64) -> Value {
    json!({"id": id, "object": "model", "created": created, "owned_by": "minfer"})
}

/// All models.
pub async fn list(State(app): Shared) -> Json<Value> {
    let created = app.models.created();
    let data: Vec<Value> = app.models.ids().map(|id| entry(id, created)).collect();
    Json(json!({"object": "list", "data": data}))
}

/// One of them.
pub async fn one(State(app): Shared, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let known = app.models.ids().find(|known| *known == id);
    let known = known.ok_or_else(|| app.models.unknown(&id))?;
    Ok(Json(entry(known, app.models.created())))
}
