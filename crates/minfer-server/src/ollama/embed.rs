//! `POST /api/embed`, and `/api/embeddings` as it was before.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use minfer::engine::{Embed, Event, Request, Task};
use serde_json::{Value, json};

use super::Failure;
use super::answer::nanos;
use super::request::{Asked, check_options};
use crate::ApiError;
use crate::app::Shared;
use crate::chat::blocking;
use crate::completion::Completion;
use crate::fields::Fields;
use crate::prompts::{self, Prompt};
use crate::vectors::{shorten, take_dimensions};

/// Vectors of length 1.
pub async fn embed(State(app): Shared, body: Bytes) -> Result<Json<Value>, Failure> {
    let mut f = Fields::parse(&body)?;
    let asked = Asked::take(&app, &mut f).await?;
    let input = prompts::parse(
        "input",
        f.value("input"),
        asked.loaded.engine.model().hparams().n_vocab,
    )?;
    let n_embd = asked.loaded.engine.model().hparams().n_embd;
    let dimensions = take_dimensions(&mut f, n_embd)?;
    let truncate = f.flag("truncate")?;
    check_options(
        Fields::of(f.take("options")?.unwrap_or_default()),
        &asked.loaded,
    )?;
    f.finish("api/embed");
    let (mut embeddings, tokens) = vectors(&asked, ("input", input), truncate, true).await?;
    if let Some(n) = dimensions.filter(|n| *n < n_embd) {
        embeddings.iter_mut().for_each(|e| shorten(e, n));
    }
    Ok(Json(json!({
        "model": asked.name,
        "embeddings": embeddings,
        "total_duration": nanos(asked.since.elapsed()),
        "load_duration": nanos(asked.load),
        "prompt_eval_count": tokens,
    })))
}

/// One vector, of any length.
pub async fn legacy(State(app): Shared, body: Bytes) -> Result<Json<Value>, Failure> {
    let mut f = Fields::parse(&body)?;
    let asked = Asked::take(&app, &mut f).await?;
    let text: String = f.need("prompt")?;
    let input = prompts::parse(
        "prompt",
        Some(Value::String(text)),
        asked.loaded.engine.model().hparams().n_vocab,
    )?;
    check_options(
        Fields::of(f.take("options")?.unwrap_or_default()),
        &asked.loaded,
    )?;
    f.finish("api/embeddings");
    let (embeddings, _) = vectors(&asked, ("prompt", input), false, false).await?;
    Ok(Json(json!({"embedding": embeddings.first()})))
}

/// A vector for each text, and how many tokens they have in all.
async fn vectors(
    asked: &Asked,
    (field, input): (&str, Vec<Prompt>),
    truncate: bool,
    normalize: bool,
) -> Result<(Vec<Vec<f32>>, usize), ApiError> {
    let loaded = asked.loaded.clone();
    let room = match truncate {
        true => loaded.engine.options().n_ctx,
        false => usize::MAX,
    };
    let prompts: Vec<Vec<u32>> = blocking(move || {
        let tokenizer = loaded.engine.model().tokenizer();
        let encoded = input.iter().map(|p| {
            let mut ids = p.encode(tokenizer, false).ids;
            ids.truncate(room);
            ids
        });
        Ok(encoded.collect())
    })
    .await?;
    let tokens = prompts.iter().map(Vec::len).sum();
    let mut vectors = vec![Vec::new(); prompts.len()];
    let embed = Embed {
        pooling: None,
        normalize,
    };
    let request = Request::new(Vec::new(), Task::Embed(embed));
    let mut work = Completion::start(asked.loaded.clone(), field, prompts, request, 1).await?;
    asked.accepted();
    while let Some((which, event)) = work.next().await? {
        if let (Event::Embedding { values }, Some(slot)) = (event, vectors.get_mut(which)) {
            *slot = values;
        }
    }
    Ok((vectors, tokens))
}
