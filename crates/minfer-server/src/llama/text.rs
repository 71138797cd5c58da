//! `POST /tokenize`, `/detokenize` and `/apply-template`: no model is run.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use minfer::chat::RenderRequest;
use minfer::tokenizer::EncodeOptions;
use serde_json::{Value, json};

use crate::app::Shared;
use crate::chat::{blocking, held_by, not_rendered, reason_as};
use crate::fields::Fields;
use crate::messages::Results;
use crate::params::take_constraint;
use crate::{ApiError, messages, tools};

/// Token ids of a text, with what they stand for if that is asked for.
pub async fn tokenize(State(app): Shared, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut f = Fields::parse(&body)?;
    let name: Option<String> = f.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    // vLLM has names of its own, and another default; lm-eval speaks to both through them.
    let given = f.one_of::<String>(&["prompt", "content"])?;
    let (name, content) = given.ok_or_else(|| ApiError::field("content", "is required"))?;
    let add_special = f.one_of::<bool>(&["add_special", "add_special_tokens"])?;
    let options = EncodeOptions {
        add_special: add_special.map_or(name == "prompt", |(_, add)| add),
        parse_special: f.take("parse_special")?.unwrap_or(true),
    };
    let pieces = f.flag("with_pieces")?;
    f.finish("tokenize");
    let tokenizer = loaded.engine.model().tokenizer().clone();
    let tokens = blocking(move || {
        let ids = tokenizer.encode(&content, options);
        let one = |id: u32| match pieces {
            false => json!(id),
            true => {
                let bytes = tokenizer.piece(id).unwrap_or_default();
                let piece = std::str::from_utf8(bytes).map_or(json!(bytes), |text| json!(text));
                json!({"id": id, "piece": piece})
            }
        };
        Ok(ids.into_iter().map(one).collect::<Value>())
    });
    let tokens = tokens.await?;
    let count = tokens.as_array().map_or(0, Vec::len);
    Ok(Json(json!({"tokens": tokens, "count": count})))
}

/// The text of token ids, control tokens shown.
pub async fn detokenize(State(app): Shared, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut f = Fields::parse(&body)?;
    let name: Option<String> = f.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    let tokens: Vec<u32> = f.need("tokens")?;
    f.finish("detokenize");
    let tokenizer = loaded.engine.model().tokenizer().clone();
    let text = blocking(move || {
        if let Some(id) = tokens.iter().find(|id| tokenizer.piece(**id).is_none()) {
            let why = format!(
                "token {id} is not in the vocabulary of {}",
                tokenizer.n_vocab()
            );
            return Err(ApiError::field("tokens", why));
        }
        Ok(tokenizer.decode(&tokens, true))
    });
    let text = text.await?;
    Ok(Json(json!({"content": text, "prompt": text}))) // llama-server's name and vLLM's
}

/// A conversation as the model's template writes it.
pub async fn apply_template(State(app): Shared, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut f = Fields::parse(&body)?;
    let name: Option<String> = f.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    // People look at prompts here: a part of a conversation is shown, too.
    let messages = messages::parse(&mut f, Results::Any)?;
    let mut extra = messages::template_kwargs(&mut f)?;
    if let Some(effort) = f.text("reasoning_effort")? {
        reason_as(&effort, &mut extra);
    }
    let offer = tools::take(&mut f)?;
    let offer = tools::choose(&mut f, offer, &tools::CHAT)?;
    let constraint = take_constraint(&mut f)?.map(|(field, _)| field);
    let turn = messages::turn(&mut f, &messages, held_by(constraint, offer.as_ref()))?;
    let request = RenderRequest {
        extra,
        tools: offer.map(|o| o.shown()),
        ..turn.request(messages)
    };
    f.finish("apply-template");
    let rendered = blocking(move || {
        let template = loaded.engine.model().chat_template()?;
        let rendered = template.render_whole(request);
        let rendered = rendered.map_err(|e| not_rendered(e, &[], 0))?;
        Ok(rendered.text)
    });
    Ok(Json(json!({"prompt": rendered.await?})))
}
