//! `POST /v1/messages` and `/v1/messages/count_tokens`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use minfer::engine::Model;
use serde_json::{Map, Value, json};

use super::{Failure, answer, input};
use crate::ApiError;
use crate::app::Shared;
use crate::chat::{Chat, Conversation, Length, Turn, blocking, prepare, reason_as};
use crate::fields::{Elsewhere, Fields, Idle};
use crate::params::{Params, check_stops, schema, set, take_seed, validate};
use crate::sse;
use crate::tools::{self, Choice, Offer};

/// Fields that ask for nothing which is done here: accounts, places and prices of Anthropic's service.
const IDLE: [(&str, Idle); 7] = [
    ("metadata", Idle::Object),
    ("service_tier", Idle::Text),
    ("inference_geo", Idle::Text),
    ("cache_control", Idle::Object), // what is alike is always kept
    ("context_management", Idle::Object), // of what to leave out when: nothing ever is
    ("diagnostics", Idle::Object),
    ("speed", Idle::Text),
];

/// What other surfaces have names for, and where it is said here.
const SAID_ELSEWHERE: &Elsewhere = &[
    ("response_format", "output_config.format"),
    ("guided_json", "output_config.format"),
    ("reasoning_effort", "output_config.effort"),
    ("reasoning_budget", "thinking.budget_tokens"),
    (
        "parallel_tool_calls",
        "tool_choice.disable_parallel_tool_use",
    ),
];

/// Answers.
pub async fn create(State(app): Shared, body: Bytes) -> Result<Response, Failure> {
    let mut fields = Fields::parse(&body)?;
    let name: String = fields.need("model")?;
    let loaded = app.models.get(Some(&name)).await?;
    let params = take_params(&mut fields, loaded.engine.model(), true)?;
    let chat = take_chat(&mut fields, params)?;
    fields.close("messages", SAID_ELSEWHERE)?;
    let stream = chat.params.stream;
    let talk = Conversation::start(loaded, chat).await?;
    match stream {
        true => Ok(sse::response(answer::Events::new(talk))),
        false => Ok(Json(answer::whole(talk).await?).into_response()),
    }
}

/// How long the prompt is, of a request that would be answered: what an answer refuses is refused here, but a prompt that is too long.
pub async fn count(State(app): Shared, body: Bytes) -> Result<Json<Value>, Failure> {
    let mut fields = Fields::parse(&body)?;
    let name: String = fields.need("model")?;
    let loaded = app.models.get(Some(&name)).await?;
    let params = take_params(&mut fields, loaded.engine.model(), false)?;
    let chat = take_chat(&mut fields, params)?;
    fields.close("messages/count_tokens", SAID_ELSEWHERE)?;
    let count = blocking(move || Ok(prepare(&loaded, chat, Length::Counted)?.prompt.len()));
    Ok(Json(json!({"input_tokens": count.await?})))
}

/// How to generate. `answers`: there is to be an answer, whose length must be said.
fn take_params(f: &mut Fields, model: &Model, answers: bool) -> Result<Params, ApiError> {
    let mut params = Params::plain(model)?;
    params.stream = f.flag("stream")?;
    let generate = &mut params.generate;
    generate.n_predict = f.take("max_tokens")?;
    match generate.n_predict {
        None if answers => return Err(ApiError::field("max_tokens", "is required")),
        Some(0) => return Err(ApiError::field("max_tokens", "must be 1 or more, is 0")),
        _ => {}
    }
    let sampling = &mut generate.sampling;
    set(f, "temperature", &mut sampling.temperature)?;
    set(f, "top_p", &mut sampling.top_p)?;
    set(f, "top_k", &mut sampling.top_k)?;
    validate(sampling)?;
    sampling.seed = take_seed(f)?; // not Anthropic's: for who wants the same answer again
    let stops = f.take("stop_sequences")?.unwrap_or_default();
    generate.stop = check_stops("stop_sequences", stops)?;
    const ELSEWHERE: &str = "needs a service that this server has not";
    f.refuse("container", &[json!("")], ELSEWHERE)?;
    f.refuse("mcp_servers", &[json!([])], ELSEWHERE)?;
    f.idle("messages", &IDLE)?;
    Ok(params)
}

/// What is said, and what the answer must look like.
fn take_chat(f: &mut Fields, mut params: Params) -> Result<Chat, ApiError> {
    let turns = f.list("messages")?;
    let turns = turns.ok_or_else(|| ApiError::field("messages", "is required"))?;
    let last = format!("messages[{}].content", turns.len().saturating_sub(1));
    let (messages, systems) = input::parse(f.value("system"), turns)?;
    let mut template_kwargs = Map::new();
    take_output(f, &mut params, &mut template_kwargs)?;
    if let Some(thinking) = f.take::<Map<String, Value>>("thinking")? {
        let (thinks, budget) = take_thinking(Fields::of(thinking))?;
        params.generate.reasoning_budget = budget;
        template_kwargs.insert("enable_thinking".to_owned(), json!(thinks));
    }
    let offer = take_tools(f)?;
    Ok(Chat {
        turn: Turn::of(&messages, &last)?,
        messages,
        systems,
        drops_turns: false,
        template_kwargs,
        tools: choose(f, offer)?,
        split_reasoning: true,
        params,
    })
}

/// `output_config`; `output_format` is what its format was called at first.
fn take_output(
    f: &mut Fields,
    params: &mut Params,
    template_kwargs: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    const CONFIG: &str = "output_config";
    const OLDER: &str = "output_format";
    let why = "is another surface's name: here it is output_config.format";
    f.refuse("response_format", &[json!({"type": "text"})], why)?;
    let mut config = f.object(CONFIG)?.unwrap_or_default();
    if let Some(effort) = config.text("effort").map_err(|e| e.within(CONFIG))? {
        reason_as(&effort, template_kwargs);
    }
    let format = config.value("format");
    config.finish(CONFIG);
    let (format, name, place) = match (format, f.value(OLDER)) {
        (Some(_), Some(_)) => {
            let why = "is the older name of output_config.format: say it in one of them";
            return Err(ApiError::field(OLDER, why));
        }
        (Some(format), None) => (
            format,
            "output_config.format",
            "output_config.format.schema",
        ),
        (None, Some(format)) => (format, OLDER, "output_format.schema"),
        (None, None) => return Ok(()),
    };
    let mut format = Fields::of_value(name, format)?;
    let ty = format.need_text("type").map_err(|e| e.within(name))?;
    if ty != "json_schema" {
        let why = format!("must be json_schema, is {ty:?}");
        return Err(ApiError::field(&format!("{name}.type"), why));
    }
    let wanted = format.value("schema");
    let wanted = wanted.ok_or_else(|| ApiError::field(place, "is required"))?;
    params.generate.constraint = Some(schema(&wanted, place)?);
    params.constraint_field = Some(place);
    format.finish(name);
    Ok(())
}

/// What the types of Anthropic's own tools begin with that a client runs: they come without a description and a schema.
const OF_CLIENTS: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];

/// `tools`: those that the client runs itself.
fn take_tools(f: &mut Fields) -> Result<Option<Offer>, ApiError> {
    let mut functions = Vec::new();
    for (i, tool) in f.list("tools")?.into_iter().flatten().enumerate() {
        let field = format!("tools[{i}]");
        let ty = tool.get("type").filter(|ty| !ty.is_null());
        if let Some(other) = ty.filter(|ty| **ty != "custom") {
            let theirs = other.as_str().unwrap_or_default();
            let why = match OF_CLIENTS.iter().any(|begin| theirs.starts_with(begin)) {
                true => format!(
                    "{other} is a tool whose schema only Anthropic's models know: describe it as one of your own, with name, description and input_schema"
                ),
                false => format!("{other} is a tool that a server runs: this one runs none"),
            };
            return Err(ApiError::field(&format!("{field}.type"), why));
        }
        let function = tools::function(&field, tool)?;
        functions.push((field.clone(), format!("{field}.input_schema"), function));
    }
    Offer::of(functions)
}

/// `tool_choice`.
fn choose(f: &mut Fields, offer: Option<Offer>) -> Result<Option<Offer>, ApiError> {
    const NAME: &str = "tool_choice";
    let Some(mut choice) = f.object(NAME)? else {
        return Ok(offer);
    };
    let ty = kind_of(&mut choice).map_err(|e| e.within(NAME))?;
    let name = choice.text("name").map_err(|e| e.within(NAME))?;
    let single = choice.flag("disable_parallel_tool_use");
    let single = single.map_err(|e| e.within(NAME))?;
    choice.finish(NAME);
    let Some(mut offer) = offer else {
        return match ty {
            Kind::Any | Kind::Tool => {
                let why = "asks for a call, but there are no tools";
                Err(ApiError::field(NAME, why))
            }
            Kind::Auto | Kind::None => Ok(None),
        };
    };
    offer.parallel = !single;
    match (ty, name) {
        (Kind::Auto, _) => {}
        (Kind::None, _) => return Ok(None),
        (Kind::Any, _) => offer.choice = Choice::Required,
        (Kind::Tool, Some(name)) => {
            offer.knows("tool_choice.name", &name)?;
            offer.choice = Choice::Named(name);
        }
        (Kind::Tool, None) => {
            return Err(ApiError::field("tool_choice.name", "is required"));
        }
    }
    Ok(Some(offer))
}

/// The kinds of a `tool_choice`.
enum Kind {
    Auto,
    Any,
    Tool,
    None,
}

/// The kind of a choice, with or without tools to choose from.
///
/// # Errors
/// It is none of them.
fn kind_of(choice: &mut Fields) -> Result<Kind, ApiError> {
    const TYPE: &str = "type";
    const KINDS: &str = "auto, any, tool or none";
    match choice.text(TYPE)?.as_deref() {
        Some("auto") => Ok(Kind::Auto),
        Some("any") => Ok(Kind::Any),
        Some("tool") => Ok(Kind::Tool),
        Some("none") => Ok(Kind::None),
        Some(other) => Err(ApiError::field(
            TYPE,
            format!("must be {KINDS}, is {other:?}"),
        )),
        None => Err(ApiError::field(TYPE, format!("is required: {KINDS}"))),
    }
}

/// Whether the model is to reason before it answers, and for how many tokens at most.
fn take_thinking(mut f: Fields) -> Result<(bool, Option<usize>), ApiError> {
    let within = |e: ApiError| e.within("thinking");
    let thinks = match f.need::<String>("type").map_err(within)?.as_str() {
        "disabled" => false,
        "enabled" | "adaptive" => true,
        other => {
            let why = format!("must be enabled, disabled or adaptive, is '{other}'");
            return Err(ApiError::field("thinking.type", why));
        }
    };
    let budget: Option<usize> = f.take("budget_tokens").map_err(within)?;
    let why = "reasoning is shown as it is";
    f.refuse("display", &[json!("summarized")], why)
        .map_err(within)?;
    f.finish("thinking");
    Ok((thinks, budget))
}
