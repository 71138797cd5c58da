//! `POST /embedding`: vectors in llama-server's older shape.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use minfer::engine::{Embed, Event, Request, Task};
use serde_json::{Value, json};

use crate::ApiError;
use crate::app::Shared;
use crate::chat::blocking;
use crate::completion::Completion;
use crate::fields::Fields;
use crate::prompts;

/// `encoding_format`: a vector is a list of numbers in this shape.
///
/// # Errors
/// It asks for something else.
fn take_format(f: &mut Fields) -> Result<(), ApiError> {
    const NAME: &str = "encoding_format";
    match f.text(NAME)?.as_deref() {
        None | Some("float") => Ok(()),
        Some("base64") => {
            let why = "base64 is not supported here: use /v1/embeddings";
            Err(ApiError::field(NAME, why))
        }
        Some(other) => {
            let why = format!("must be float, is '{other}'");
            Err(ApiError::field(NAME, why))
        }
    }
}

/// The handler.
pub async fn embedding(State(app): Shared, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut f = Fields::parse(&body)?;
    let name: Option<String> = f.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    let model = loaded.engine.model().clone();
    // OpenAI's name for it serves here, too.
    let given = f.one_of::<Value>(&["content", "input"])?;
    let (field, texts) = given.ok_or_else(|| ApiError::field("content", "is required"))?;
    let inputs = prompts::parse_mixed(field, Some(texts), model.hparams().n_vocab)?;
    let normalize = match f.take::<i64>("embd_normalize")? {
        None | Some(2) => true,
        Some(-1) => false,
        Some(other) => {
            let why = format!("must be 2 (length 1) or -1 (as it is), is {other}");
            return Err(ApiError::field("embd_normalize", why));
        }
    };
    take_format(&mut f)?;
    f.finish("embedding");
    let prompts = blocking(move || {
        let ids = inputs
            .iter()
            .map(|p| p.encode(model.tokenizer(), false).ids);
        Ok(ids.collect::<Vec<_>>())
    });
    let prompts = prompts.await?;
    let mut vectors = vec![Value::Null; prompts.len()];
    let embed = Embed {
        pooling: None,
        normalize,
    };
    let request = Request::new(Vec::new(), Task::Embed(embed));
    let mut work = Completion::start(loaded, field, prompts, request, 1).await?;
    while let Some((index, event)) = work.next().await? {
        if let (Event::Embedding { values }, Some(slot)) = (event, vectors.get_mut(index)) {
            // A list of one: llama-server has a vector for each token where a model pools none.
            *slot = json!({"index": index, "embedding": [values]});
        }
    }
    Ok(Json(Value::Array(vectors)))
}
