//! `POST /v1/responses`, without a memory: what was said before comes with every request.

mod answer;
mod input;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use minfer::engine::Model;
use serde_json::{Map, Value, json};

use super::others;
use crate::ApiError;
use crate::app::Shared;
use crate::chat::{Chat, Conversation, Turn, blocking, reason_as};
use crate::fields::{Elsewhere, Fields, Idle, mismatch, texts};
use crate::params::{MAX_TOP, Params, answer_format, take_sampling, take_stream_options};
use crate::sse;
use crate::tools::{self, Offer};
use answer::Events;

/// Where the answer's form is said.
const FORMAT: &str = "text.format";

/// What `include` may ask for beside the text.
const LOGPROBS: &str = "message.output_text.logprobs";

/// The rest of what it may ask for: parts of what never is in an answer here, so that nothing is left out.
const NEVER_THERE: [&str; 7] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content", // nothing is kept, and reasoning is shown as it is
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// What other surfaces have names for, and where it is said here.
const SAID_ELSEWHERE: &Elsewhere = &[
    ("response_format", FORMAT),
    ("guided_json", FORMAT),
    ("reasoning_effort", "reasoning.effort"),
    ("thinking", "reasoning.effort"),
];

/// What a request says that its response repeats.
struct Echo {
    instructions: Option<String>,
    metadata: Value,
    format: Value,
    effort: Option<String>,
    user: Option<String>,
    top_logprobs: usize,
    tools: Value,
    tool_choice: Value,
    parallel: Value,
    max_tool_calls: Option<u64>,
}

/// The handler.
pub async fn create(State(app): Shared, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = Fields::parse(&body)?;
    let name: Option<String> = fields.take("model")?;
    let loaded = app.models.get(name.as_deref()).await?;
    refuse(&mut fields)?;
    let model = loaded.engine.model().clone();
    let (chat, echo) = blocking(move || {
        let taken = take(&mut fields, &model)?;
        fields.close("responses", SAID_ELSEWHERE)?;
        Ok(taken)
    })
    .await?;
    let stream = chat.params.stream;
    let talk = Conversation::start(loaded, chat).await?;
    let events = Events::new(talk, echo, stream);
    match stream {
        true => Ok(sse::response(events)),
        false => Ok(Json(events.whole().await?).into_response()),
    }
}

/// What needs a memory, or other services.
fn refuse(f: &mut Fields) -> Result<(), ApiError> {
    const NOTHING_KEPT: &str =
        "this server keeps no responses: send the whole conversation as input";
    const ELSEWHERE: &str = "needs a service that this server has not";
    f.refuse("previous_response_id", &[json!("")], NOTHING_KEPT)?;
    f.refuse("conversation", &[json!("")], NOTHING_KEPT)?;
    f.refuse("background", &[json!(false)], NOTHING_KEPT)?;
    f.refuse("prompt", &[], NOTHING_KEPT)?;
    f.refuse("moderation", &[], ELSEWHERE)?;
    const MANAGED: &str = "context_management";
    if f.list(MANAGED)?.is_some_and(|l| !l.is_empty()) {
        return Err(ApiError::field(MANAGED, ELSEWHERE));
    }
    let why = "a prompt is never cut: shorten the input";
    f.refuse("truncation", &[json!("disabled")], why)?;
    let why = "is chat's name: here it is text.format";
    f.refuse("response_format", &[json!({"type": "text"})], why)?;
    f.idle("responses", &others::OF_RESPONSES)?;
    Ok(())
}

/// The body's fields. May block.
fn take(f: &mut Fields, model: &Model) -> Result<(Chat, Echo), ApiError> {
    let instructions: Option<String> = f.take("instructions")?;
    let (messages, systems) = input::parse(instructions.as_deref(), f.value("input"))?;
    let mut params = Params::plain(model)?;
    params.stream = f.flag("stream")?;
    take_stream_options(f, params.stream)?; // the usage is always told
    take_sampling(f, &mut params.generate.sampling, model)?;
    params.generate.n_predict = f.take("max_output_tokens")?;
    if params.generate.n_predict == Some(0) {
        let why = "must be 1 or more, is 0";
        return Err(ApiError::field("max_output_tokens", why));
    }
    let top: Option<usize> = f.take("top_logprobs")?;
    if let Some(top) = top.filter(|n| *n > MAX_TOP) {
        let why = format!("must be 0 to {MAX_TOP}, is {top}");
        return Err(ApiError::field("top_logprobs", why));
    }
    params.generate.logprobs = take_include(f)?.then(|| top.unwrap_or(0));
    if params.generate.logprobs.is_none() && top.is_some_and(|n| n > 0) {
        let why = format!("needs \"include\": [\"{LOGPROBS}\"]");
        return Err(ApiError::field("top_logprobs", why));
    }
    let format = take_format(f)?;
    params.generate.constraint = answer_format(&format, FORMAT, "text.format.schema")?;
    params.constraint_field = Some(FORMAT);
    let effort = take_effort(f)?;
    let mut template_kwargs = Map::new();
    if let Some(effort) = &effort {
        reason_as(effort, &mut template_kwargs);
    }
    let (offer, tools) = take_tools(f)?;
    let metadata = f.value("metadata").map(|v| texts("metadata", v));
    let metadata = metadata.transpose()?;
    let echo = Echo {
        instructions,
        metadata: Value::Object(metadata.unwrap_or_default()),
        format,
        effort,
        user: f.take("user")?,
        top_logprobs: top.unwrap_or(0),
        tool_choice: f.peek("tool_choice").unwrap_or(json!("auto")),
        parallel: f.peek("parallel_tool_calls").unwrap_or(json!(true)),
        tools,
        // It counts calls of tools that a server runs; this one runs none, so no number is too small.
        max_tool_calls: f.take("max_tool_calls")?,
    };
    let chat = Chat {
        messages,
        systems,
        turn: Turn::Opened,
        drops_turns: false,
        template_kwargs,
        tools: tools::choose(f, offer, &tools::RESPONSES)?,
        split_reasoning: true,
        params,
    };
    Ok((chat, echo))
}

/// `include`: whether log-probabilities are.
///
/// # Errors
/// Something that no client knows.
fn take_include(f: &mut Fields) -> Result<bool, ApiError> {
    const NAME: &str = "include";
    let include: Vec<String> = f.take(NAME)?.unwrap_or_default();
    let known = |one: &str| one == LOGPROBS || NEVER_THERE.contains(&one);
    if let Some((i, one)) = include.iter().enumerate().find(|(_, one)| !known(one)) {
        let why = format!("must be {LOGPROBS} or a part that other servers add, is {one:?}");
        return Err(ApiError::field(&format!("{NAME}[{i}]"), why));
    }
    Ok(include.iter().any(|one| one == LOGPROBS))
}

/// `tools`, and how the response repeats them.
fn take_tools(f: &mut Fields) -> Result<(Option<Offer>, Value), ApiError> {
    let (mut functions, mut echo) = (Vec::new(), Vec::new());
    for (i, tool) in f.list("tools")?.into_iter().flatten().enumerate() {
        let field = format!("tools[{i}]");
        let ty = tool.get("type").and_then(Value::as_str).unwrap_or_default();
        if ty != "function" {
            let why = format!("must be function, is {ty:?}: this server runs no tools itself");
            return Err(ApiError::field(&format!("{field}.type"), why));
        }
        let function = tools::function(&field, tool)?;
        echo.push(json!({
            "type": "function",
            "name": function.name,
            "description": function.description,
            "parameters": function.parameters,
            "strict": function.strict.unwrap_or(false),
        }));
        functions.push((field.clone(), format!("{field}.parameters"), function));
    }
    Ok((Offer::of(functions)?, Value::Array(echo)))
}

/// `text.format`.
fn take_format(f: &mut Fields) -> Result<Value, ApiError> {
    let mut text = Fields::of(f.take("text")?.unwrap_or_default());
    let why = "how much is said is the model's to decide: ask for it in the instructions";
    text.refuse("verbosity", &[json!("medium")], why)
        .map_err(|e| e.within("text"))?;
    let format = text.value("format").unwrap_or(json!({"type": "text"}));
    text.finish("text");
    match format {
        Value::Object(_) => Ok(format),
        other => Err(mismatch(FORMAT, "an object", &other)),
    }
}

/// `reasoning.effort`.
fn take_effort(f: &mut Fields) -> Result<Option<String>, ApiError> {
    let mut reasoning = Fields::of(f.take("reasoning")?.unwrap_or_default());
    let within = |e: ApiError| e.within("reasoning");
    let effort = reasoning.take("effort").map_err(within)?;
    // Reasoning is shown as it is.
    let shown = ["summary", "generate_summary", "context", "mode"].map(|name| (name, Idle::Text));
    reasoning.idle("reasoning", &shown).map_err(within)?;
    reasoning.finish("reasoning");
    Ok(effort)
}
