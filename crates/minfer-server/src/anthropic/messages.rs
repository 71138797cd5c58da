//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use minfer::chat::Message;
use minfer::engine::Model;
use serde_json::{Map, Value, json};

use super::{Failure, answer, input};
use crate::ApiError;
use crate::app::Shared;
use crate::chat::{self, Chat, Conversation, blocking};
use crate::fields::Fields;
use crate::params::{Params, check_stops, schema, set, validate};
use crate::sse;

/// Answers.
pub async fn create(State(app): Shared, body: Bytes) -> Result<Response, Failure> {
    let mut fields = Fields::parse(&body)?;
    let name: String = fields.need("model")?;
    let loaded = app.models.get(Some(&name)).await?;
    let params = take_params(&mut fields, loaded.engine.model())?;
    let chat = take_chat(&mut fields, params)?;
    fields.finish("messages");
    let stream = chat.params.stream;
    let talk = Conversation::start(loaded, chat).await?;
    match stream {
        true => Ok(sse::response(answer::Events::new(talk))),
        false => Ok(Json(answer::whole(talk).await?).into_response()),
    }
}

/// How long the prompt is.
pub async fn count(State(app): Shared, body: Bytes) -> Result<Json<Value>, Failure> {
    let mut fields = Fields::parse(&body)?;
    let name: String = fields.need("model")?;
    let loaded = app.models.get(Some(&name)).await?;
    let chat = take_chat(&mut fields, Params::plain(loaded.engine.model())?)?;
    fields.finish("messages/count_tokens");
    let count = blocking(move || {
        let prompt = chat::prompt(&loaded, chat.messages, chat.template_kwargs)?;
        Ok(prompt.len())
    });
    Ok(Json(json!({"input_tokens": count.await?})))
}

/// How to generate.
fn take_params(f: &mut Fields, model: &Model) -> Result<Params, ApiError> {
    let mut params = Params::plain(model)?;
    params.stream = f.flag("stream")?;
    let generate = &mut params.generate;
    let limit: usize = f.need("max_tokens")?;
    if limit == 0 {
        return Err(ApiError::field("max_tokens", "must be 1 or more, is 0"));
    }
    generate.n_predict = Some(limit);
    let sampling = &mut generate.sampling;
    set(f, "temperature", &mut sampling.temperature)?;
    set(f, "top_p", &mut sampling.top_p)?;
    set(f, "top_k", &mut sampling.top_k)?;
    validate(sampling)?;
    let stops = f.take("stop_sequences")?.unwrap_or_default();
    generate.stop = check_stops("stop_sequences", stops)?;
    const ELSEWHERE: &str = "needs a service that this server has not";
    f.refuse("container", &[], ELSEWHERE)?;
    f.refuse("mcp_servers", &[json!([])], ELSEWHERE)?;
    Ok(params)
}

/// What is said, and what the answer must look like.
fn take_chat(f: &mut Fields, mut params: Params) -> Result<Chat, ApiError> {
    let messages: Vec<Message> = input::parse(f.value("system"), f.need("messages")?)?;
    let mut template_kwargs = Map::new();
    if let Some(config) = f.take::<Map<String, Value>>("output_config")? {
        let mut config = Fields::of(config);
        if let Some(effort) = config.take::<String>("effort")? {
            template_kwargs.insert("reasoning_effort".to_owned(), json!(effort));
        }
        if let Some(format) = config.value("format") {
            params.generate.constraint = Some(output_format(&format)?);
        }
        config.finish("output_config");
    }
    if let Some(thinking) = f.take::<Map<String, Value>>("thinking")? {
        let thinks = take_thinking(Fields::of(thinking))?;
        template_kwargs.insert("enable_thinking".to_owned(), json!(thinks));
    }
    const NO_TOOLS: &str = "tool calls are not supported on this surface yet";
    f.refuse("tools", &[json!([])], NO_TOOLS)?;
    f.refuse("tool_choice", &[json!({"type": "none"})], NO_TOOLS)?;
    Ok(Chat {
        messages,
        template_kwargs,
        params,
    })
}

fn output_format(format: &Value) -> Result<minfer::sampling::ConstraintSpec, ApiError> {
    const NAME: &str = "output_config.format";
    match (
        format.get("type").and_then(Value::as_str),
        format.get("schema"),
    ) {
        (Some("json_schema"), Some(s)) => schema(s, "output_config.format.schema"),
        _ => Err(ApiError::field(
            NAME,
            "must have the type json_schema and a schema",
        )),
    }
}

/// Whether the model is to reason before it answers.
fn take_thinking(mut f: Fields) -> Result<bool, ApiError> {
    let within = |e: ApiError| match &e.param {
        Some(name) => ApiError::field(&format!("thinking.{name}"), &e.message),
        None => e,
    };
    let thinks = match f.need::<String>("type").map_err(within)?.as_str() {
        "disabled" => false,
        "enabled" | "adaptive" => true,
        other => {
            let why = format!("must be enabled, disabled or adaptive, is '{other}'");
            return Err(ApiError::field("thinking.type", why));
        }
    };
    let why =
        "reasoning has no limit of its own here: leave it out (type adaptive) and set max_tokens";
    f.refuse("budget_tokens", &[], why).map_err(within)?;
    let why = "reasoning is shown as it is";
    f.refuse("display", &[json!("summarized")], why)
        .map_err(within)?;
    f.finish("thinking");
    Ok(thinks)
}
