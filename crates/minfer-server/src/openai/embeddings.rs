//! `POST /v1/embeddings`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minfer::engine::{Embed, Event, Request, Task};
use serde_json::{Value, json};

use super::others;
use crate::ApiError;
use crate::app::Shared;
use crate::chat::blocking;
use crate::completion::Completion;
use crate::fields::Fields;
use crate::prompts;
use crate::vectors::{shorten, take_dimensions};

/// The handler.
pub async fn create(State(app): Shared, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::parse(&body)?;
    let name: Option<String> = fields.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    let input: Value = fields.need("input")?;
    let inputs = prompts::parse(
        "input",
        Some(input),
        loaded.engine.model().hparams().n_vocab,
    )?;
    if let Some(i) = inputs.iter().position(|p| p.is_empty()) {
        return Err(ApiError::field("input", format!("text {i} is empty")));
    }
    let form = Form::take(&mut fields, loaded.engine.model().hparams().n_embd)?;
    others::refuse_in_embeddings(&mut fields)?;
    fields.idle("embeddings", &others::USER)?;
    fields.finish("embeddings");
    let tokenizer = loaded.engine.model().tokenizer().clone();
    let prompts = blocking(move || {
        let ids = inputs.iter().map(|p| p.encode(&tokenizer, false).ids);
        Ok(ids.collect::<Vec<_>>())
    });
    let prompts = prompts.await?;
    let mut data = vec![Value::Null; prompts.len()];
    let request = Request::new(Vec::new(), Task::Embed(Embed::default()));
    let mut work = Completion::start(loaded, "input", prompts, request, 1).await?;
    let mut tokens = 0usize;
    while let Some((index, event)) = work.next().await? {
        match event {
            Event::Embedding { values } => {
                if let Some(entry) = data.get_mut(index) {
                    let embedding = form.write(values);
                    *entry = json!({"object": "embedding", "index": index, "embedding": embedding});
                }
            }
            Event::Done(done) => tokens = tokens.saturating_add(done.timings.prompt_n),
            _ => {}
        }
    }
    Ok(Json(json!({
        "object": "list",
        "data": data,
        "model": work.loaded.id,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

/// How a vector is written.
#[derive(Clone, Copy)]
struct Form {
    base64: bool,
    /// Its first so many channels, scaled to length 1 again.
    dimensions: Option<usize>,
}

impl Form {
    fn take(f: &mut Fields, n_embd: usize) -> Result<Form, ApiError> {
        let base64 = match f.take::<String>("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(other) => {
                let why = format!("must be float or base64, is '{other}'");
                return Err(ApiError::field("encoding_format", why));
            }
        };
        let dimensions = take_dimensions(f, n_embd)?;
        Ok(Form { base64, dimensions })
    }

    /// The numbers, or the base64 of their little-endian bytes.
    fn write(self, mut values: Vec<f32>) -> Value {
        if let Some(n) = self.dimensions {
            shorten(&mut values, n);
        }
        match self.base64 {
            false => json!(values),
            true => {
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                json!(STANDARD.encode(bytes))
            }
        }
    }
}
