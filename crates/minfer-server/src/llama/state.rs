//! `GET /props` and `/slots`: how the server stands. They only look: no model is loaded for them.

use axum::Json;
use axum::extract::{Query, State};
use minfer::engine::Generate;
use minfer::sampling::SamplerParams;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ApiError;
use crate::app::Shared;
use crate::params;

/// Which model a question is about.
#[derive(Debug, Deserialize)]
pub struct About {
    model: Option<String>,
}

/// What does not change: the model, its template, the context, the defaults.
pub async fn props(
    State(app): Shared,
    Query(about): Query<About>,
) -> Result<Json<Value>, ApiError> {
    let loaded = app.models.look(about.model.as_deref())?;
    let (model, options) = (loaded.engine.model(), loaded.engine.options());
    let sampling = params::defaults(model)?;
    let generate = Generate {
        n_predict: None,
        ..Generate::default()
    };
    // Without a seed each request has a random one: llama-server writes that as its largest.
    let mut settings = settings(&Generate {
        sampling,
        ..generate
    });
    if let Some(map) = settings.as_object_mut() {
        map.insert("seed".to_owned(), json!(u32::MAX));
    }
    let token = |id: Option<u32>| id.and_then(|id| model.tokenizer().token_text(id));
    let template = model.chat_template()?;
    let path = model.file().path().to_string_lossy();
    Ok(Json(json!({
        "default_generation_settings": {"n_ctx": options.n_ctx, "params": settings},
        "total_slots": options.n_seqs,
        "model_alias": loaded.id,
        "model_path": path,
        "chat_template": template.source(),
        // Not llama-server's: whether ChatML stands in for a template that the file does not have.
        "chat_template_notice": template.notice(),
        "bos_token": token(model.tokenizer().bos()),
        "eos_token": token(model.tokenizer().eos()),
        "modalities": {"vision": false, "audio": false},
        "build_info": format!("minfer {}", env!("CARGO_PKG_VERSION")),
    })))
}

/// vLLM's way to ask for a tokenizer's marks and template: with it lm-eval needs no model hub.
pub async fn tokenizer_info(
    State(app): Shared,
    Query(about): Query<About>,
) -> Result<Json<Value>, ApiError> {
    let loaded = app.models.look(about.model.as_deref())?;
    let model = loaded.engine.model();
    let token = |id: Option<u32>| id.and_then(|id| model.tokenizer().token_text(id));
    Ok(Json(json!({
        "bos_token": token(model.tokenizer().bos()),
        "eos_token": token(model.tokenizer().eos()),
        "chat_template": model.chat_template().ok().map(|t| t.source()),
        "model_max_length": loaded.engine.options().n_ctx,
    })))
}

/// One entry a place of the engine's batch. An answer keeps its place from its beginning to its end, unless it loses its
/// pages for a while; its last words say which (`id_slot`).
pub async fn slots(
    State(app): Shared,
    Query(about): Query<About>,
) -> Result<Json<Value>, ApiError> {
    let loaded = app.models.look(about.model.as_deref())?;
    let (stats, options) = (loaded.engine.stats(), loaded.engine.options());
    let slot = |id: usize| {
        json!({
            "id": id,
            "model": loaded.id,
            "n_ctx": options.n_ctx,
            "is_processing": stats.places.contains(id),
        })
    };
    Ok(Json((0..options.n_seqs).map(slot).collect()))
}

/// How something is generated, in llama-server's names.
pub fn settings(g: &Generate) -> Value {
    let s: &SamplerParams = &g.sampling;
    let samplers: Vec<&str> = s.samplers.iter().map(|k| k.name()).collect();
    json!({
        "n_predict": g.n_predict.map_or(json!(-1), |n| json!(n)),
        "seed": s.seed,
        "temperature": s.temperature,
        "dynatemp_range": s.dynatemp_range,
        "dynatemp_exponent": s.dynatemp_exponent,
        "top_k": s.top_k,
        "top_p": s.top_p,
        "min_p": s.min_p,
        "top_n_sigma": s.top_n_sigma,
        "typical_p": s.typical_p,
        "xtc_probability": s.xtc_probability,
        "xtc_threshold": s.xtc_threshold,
        "repeat_last_n": s.repeat_last_n,
        "repeat_penalty": s.repeat_penalty,
        "presence_penalty": s.presence_penalty,
        "frequency_penalty": s.frequency_penalty,
        "dry_multiplier": s.dry_multiplier,
        "dry_base": s.dry_base,
        "dry_allowed_length": s.dry_allowed_length,
        "dry_penalty_last_n": s.dry_penalty_last_n,
        "mirostat": s.mirostat,
        "mirostat_tau": s.mirostat_ent,
        "mirostat_eta": s.mirostat_lr,
        "samplers": samplers,
        "stop": g.stop,
        "ignore_eos": g.ignore_eos,
        "n_probs": g.logprobs.unwrap_or(0),
    })
}
