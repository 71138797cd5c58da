//! `POST /infill`: what stands between two texts.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use minfer::engine::Model;

use super::completion::{Asked, answer};
use crate::ApiError;
use crate::app::Shared;
use crate::fields::Fields;
use crate::gaps::{Extra, Fim, Gap};
use crate::prompts;

/// The handler.
pub async fn infill(State(app): Shared, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&body)?;
    let name: Option<String> = fields.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    let model = loaded.engine.model().clone();
    let why = "this model has no tokens for filling gaps: use one that was taught to";
    let fim = Fim::of(&model).ok_or_else(|| ApiError::bad_request(why))?;
    let gap = take_gap(&mut fields, &model)?;
    let take = move || {
        let asked = Asked::take(&mut fields, &model)?;
        fields.close("infill", &[])?;
        Ok((asked, vec![fim.encode_gap(model.tokenizer(), &gap)]))
    };
    answer(loaded, take).await
}

fn take_gap(f: &mut Fields, model: &Model) -> Result<Gap, ApiError> {
    let extra = f.list("input_extra")?.unwrap_or_default();
    let extra = extra.into_iter().enumerate().map(|(i, value)| {
        let name = format!("input_extra[{i}]");
        let mut f = Fields::of_value(&name, value)?;
        Ok(Extra {
            name: f.take("filename").map_err(|e| e.within(&name))?,
            text: f.need("text").map_err(|e| e.within(&name))?,
        })
    });
    let extra = extra.collect::<Result<_, ApiError>>()?;
    let (before, after) = (f.need("input_prefix")?, f.need("input_suffix")?);
    let n_vocab = model.hparams().n_vocab;
    let mut prompts = prompts::parse_mixed("prompt", f.value("prompt"), n_vocab)?;
    match (prompts.pop(), prompts.is_empty()) {
        (Some(begun), true) => Ok(Gap {
            extra,
            before,
            after,
            begun,
        }),
        _ => Err(ApiError::field(
            "prompt",
            "one gap has one prompt: send several requests",
        )),
    }
}
