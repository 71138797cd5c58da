//! `GET /api/tags` and `/api/ps`, `POST /api/show`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use minfer::chat::DateTime;
use minfer::engine::Model;
use minfer::gguf::Value as Meta;
use serde_json::{Map, Value, json};

use super::Failure;
use super::answer::time;
use super::request::{id, take_name};
use crate::ApiError;
use crate::app::{App, Shared};
use crate::chat::blocking;
use crate::fields::Fields;
use crate::gaps::Fim;
use crate::id::now;
use crate::models::Keep;

fn modified(app: &App) -> String {
    time(DateTime::from_unix(
        i64::try_from(app.models.created()).unwrap_or(0),
    ))
}

/// What a list says of a model: as long as it is loaded as that is, else as it was when it was last told of as loaded or, if it never was, as its file was
/// when it was first read for this. Lists are asked for often, and reading a file takes its vocabulary in.
#[derive(Default)]
pub struct Known(Mutex<HashMap<String, Map<String, Value>>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Map<String, Value>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `size`, `digest` and `details`.
    async fn of(&self, app: &App, id: &str) -> Map<String, Value> {
        let loaded = app.models.look(Some(id)).ok();
        let model = loaded.map(|l| l.engine.model().clone());
        let said = match model {
            Some(model) => self.loaded(id, model).await,
            None => self.unloaded(app, id).await,
        };
        // A file that is not here takes no room; Ollama's command needs a digest of some length.
        said.unwrap_or_else(|_| {
            Map::from_iter([
                ("size".to_owned(), json!(0)),
                ("digest".to_owned(), json!("0".repeat(64))),
                ("details".to_owned(), json!({"format": "gguf"})),
            ])
        })
    }

    /// Of a loaded model, which from now on is what is known of it: once its file has been replaced, no list goes back to the old one.
    async fn loaded(&self, id: &str, model: Arc<Model>) -> Result<Map<String, Value>, ApiError> {
        let about = blocking(move || Ok(about(&model))).await?;
        self.lock().insert(id.to_owned(), about.clone());
        Ok(about)
    }

    /// Of one that is not loaded.
    async fn unloaded(&self, app: &App, id: &str) -> Result<Map<String, Value>, ApiError> {
        let known = self.lock().get(id).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let model = app.models.read(id).await?;
        let about = blocking(move || Ok(about(&model))).await?;
        // What was told of it as loaded in the meantime is newer.
        Ok(self.lock().entry(id.to_owned()).or_insert(about).clone())
    }
}

/// A new file's fingerprint is computed for it: this may block.
fn about(model: &Model) -> Map<String, Value> {
    Map::from_iter([
        ("size".to_owned(), json!(model.file().size())),
        ("digest".to_owned(), json!(model.fingerprint())),
        ("details".to_owned(), details(model)),
    ])
}

/// All models, loaded or not; none is loaded for it.
pub async fn tags(State(app): Shared) -> Json<Value> {
    let mut models = Vec::new();
    for id in app.models.ids() {
        let named = [("name", json!(id)), ("model", json!(id))];
        let dated = [("modified_at", json!(modified(&app)))];
        let entry = named.into_iter().chain(dated);
        let mut entry: Map<String, Value> = entry.map(|(k, v)| (k.to_owned(), v)).collect();
        entry.extend(app.known.of(&app, id).await);
        models.push(Value::Object(entry));
    }
    Json(json!({"models": models}))
}

/// The loaded ones.
pub async fn running(State(app): Shared) -> Result<Json<Value>, Failure> {
    // Of each only what is told: who looks keeps no engine while fingerprints are computed.
    let loaded = app.models.resident().into_iter().map(|(l, keep)| {
        let entry = [
            ("name", json!(l.id)),
            ("model", json!(l.id)),
            ("expires_at", json!(expiry(keep))),
            ("size_vram", json!(0)),
            ("context_length", json!(l.engine.options().n_ctx)),
        ];
        (l.id.clone(), l.engine.model().clone(), entry)
    });
    let loaded: Vec<_> = loaded.collect();
    let mut models = Vec::new();
    for (id, model, entry) in loaded {
        let mut entry = Map::from_iter(entry.map(|(k, v)| (k.to_owned(), v)));
        entry.extend(app.known.loaded(&id, model).await?);
        models.push(Value::Object(entry));
    }
    Ok(Json(json!({"models": models})))
}

/// When a model is unloaded that nobody asks for from now on; the end of time stands for never.
fn expiry(keep: Keep) -> String {
    const NEVER: i64 = 253_402_300_799; // 9999-12-31T23:59:59Z
    let seconds = match keep {
        Keep::For(time) => now().saturating_add(time.as_secs()),
        Keep::Always => u64::MAX,
    };
    let seconds = i64::try_from(seconds).unwrap_or(NEVER);
    time(DateTime::from_unix(seconds.min(NEVER)))
}

/// All about one, as its file says: nothing is loaded for it.
pub async fn show(State(app): Shared, body: Bytes) -> Result<Json<Value>, Failure> {
    let mut f = Fields::parse(&body)?;
    let name = take_name(&app, &mut f)?;
    let verbose = f.flag("verbose")?;
    f.finish("api/show");
    let model = app.models.read(id(&app, &name)).await?;
    let template = model.chat_template().map(|t| t.source().to_owned());
    let license = model.metadata().str("general.license").ok().flatten();
    let info = model.metadata().iter();
    let info = info.map(|(key, value)| (key.to_owned(), plain(value, verbose)));
    let mut info: Map<String, Value> = info.collect();
    info.insert(
        "general.parameter_count".to_owned(),
        json!(parameters(&model)),
    );
    // Tools that a template does not show are told in words.
    let mut capabilities = vec!["completion", "tools"];
    let tags = model.chat_template().map(|t| t.reasoning_tags());
    if tags.is_ok_and(|tags| tags.is_some()) {
        capabilities.push("thinking");
    }
    if Fim::of(&model).is_some() {
        capabilities.push("insert");
    }
    Ok(Json(json!({
        "modelfile": "",
        "parameters": "",
        "template": template.unwrap_or_default(),
        "license": license.unwrap_or_default(),
        "modified_at": modified(&app),
        "details": details(&model),
        "model_info": info,
        "capabilities": capabilities,
    })))
}

fn parameters(model: &Model) -> u64 {
    let counts = model.file().tensors().iter().map(|t| t.n_elements());
    counts.fold(0, u64::saturating_add)
}

fn details(model: &Model) -> Value {
    let arch = model.metadata().str("general.architecture").ok().flatten();
    let n = parameters(model);
    let size = match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.2}M", n as f64 / 1e6),
        _ => format!("{:.1}B", n as f64 / 1e9),
    };
    let named = model.metadata().u32("general.file_type").ok().flatten();
    // Else the type that most weights have.
    let mut types: HashMap<&str, u64> = HashMap::new();
    for t in model.file().tensors() {
        let count = types.entry(t.ty.name()).or_default();
        *count = count.saturating_add(t.n_elements());
    }
    let most = types.into_iter().max_by_key(|(name, n)| (*n, *name));
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": arch,
        "families": [arch],
        "parameter_size": size,
        "quantization_level": named.and_then(file_type).or(most.map(|(name, _)| name)),
    })
}

/// What llama.cpp calls a file of this `general.file_type`: K-quants mix types, so no tensor's type says it.
fn file_type(number: u32) -> Option<&'static str> {
    Some(match number {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        32 => "BF16",
        _ => return None,
    })
}

/// A metadata value; long lists only where they are wanted.
fn plain(value: &Meta, verbose: bool) -> Value {
    match value {
        Meta::U8(x) => json!(x),
        Meta::I8(x) => json!(x),
        Meta::U16(x) => json!(x),
        Meta::I16(x) => json!(x),
        Meta::U32(x) => json!(x),
        Meta::I32(x) => json!(x),
        Meta::U64(x) => json!(x),
        Meta::I64(x) => json!(x),
        Meta::F32(x) => json!(x),
        Meta::F64(x) => json!(x),
        Meta::Bool(x) => json!(x),
        Meta::Str(x) => json!(x),
        Meta::Array(minfer::gguf::Array::Str(list)) if verbose => list.iter().collect(),
        Meta::Array(_) => Value::Null,
    }
}
