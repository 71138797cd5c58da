//! What Ollama's requests have in common.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::keep_alive;
use crate::ApiError;
use crate::app::App;
use crate::fields::{Elsewhere, Fields, Idle, mismatch};
use crate::models::{Keep, Loaded};
use crate::params::{MAX_TOP, Params, schema, take_sampling, take_stop};
use minfer::sampling::ConstraintSpec;

/// Options that say how a model is run, not what it says: the server's own, set when it was started.
const RUNNER: [(&str, Idle); 14] = [
    ("numa", Idle::Flag),
    ("num_batch", Idle::Whole),
    ("num_gpu", Idle::Whole),
    ("main_gpu", Idle::Whole),
    ("low_vram", Idle::Flag),
    ("f16_kv", Idle::Flag),
    ("logits_all", Idle::Flag),
    ("vocab_only", Idle::Flag),
    ("use_mmap", Idle::Flag),
    ("use_mlock", Idle::Flag),
    ("embedding_only", Idle::Flag),
    ("num_thread", Idle::Whole),
    ("num_keep", Idle::Whole), // of a context that is shifted: here it never is
    ("draft_num_predict", Idle::Whole),
];

/// What is to happen when the context is full: here no text is cut, nor an answer's context shifted. A conversation's `truncate` is taken before: it has turns to leave out.
const FULL: [(&str, Idle); 2] = [("truncate", Idle::Flag), ("shift", Idle::Flag)];

/// What other surfaces have names for, and where it is said beside `options`.
const BESIDE_OPTIONS: &Elsewhere = &[
    ("response_format", "format, beside options"),
    ("guided_json", "format, beside options"),
    ("reasoning_effort", "think, beside options"),
    ("thinking", "think, beside options"),
    ("tools", "tools, beside options"),
];

/// A model that is asked for, before it is loaded.
pub struct Wanted {
    /// Under this name.
    pub name: String,
    /// How long it is to stay, where the request says so.
    keep: Option<Keep>,
    since: Instant,
}

impl Wanted {
    /// `model` and `keep_alive`.
    ///
    /// # Errors
    /// The one is missing; the other is no duration.
    pub fn take(app: &App, f: &mut Fields) -> Result<Wanted, ApiError> {
        Ok(Wanted {
            since: Instant::now(),
            name: take_name(app, f)?,
            keep: keep_alive::take(f)?,
        })
    }

    /// Whether it is to go at once.
    pub fn is_unwanted(&self) -> bool {
        self.keep == Some(Keep::For(Duration::ZERO))
    }

    /// The model. It stays for as long as the request says once that is [accepted](Asked::accepted).
    ///
    /// # Errors
    /// There is no such model, or it can't be loaded.
    pub async fn load(self, app: &App) -> Result<Asked, ApiError> {
        let loaded = app.models.get(Some(id(app, &self.name))).await?;
        Ok(Asked {
            name: self.name,
            keep: self.keep,
            loaded,
            since: self.since,
            load: self.since.elapsed(),
        })
    }

    /// Unloads it.
    ///
    /// # Errors
    /// There is no such model.
    pub async fn unload(&self, app: &App) -> Result<(), ApiError> {
        app.models.unload(id(app, &self.name)).await
    }
}

/// A model that was asked for.
pub struct Asked {
    /// Under this name.
    pub name: String,
    keep: Option<Keep>,
    /// The model.
    pub loaded: Arc<Loaded>,
    /// When.
    pub since: Instant,
    /// Until it was there.
    pub load: Duration,
}

impl Asked {
    /// The model that a request names, loaded.
    ///
    /// # Errors
    /// As [`Wanted::take`] and [`Wanted::load`].
    pub async fn take(app: &App, f: &mut Fields) -> Result<Asked, ApiError> {
        Wanted::take(app, f)?.load(app).await
    }

    /// The request is one that is answered: from now on the model stays for as long as it says.
    pub fn accepted(&self) {
        self.keep.iter().for_each(|keep| self.loaded.keep(*keep));
    }
}

/// `model`, or `name`, as it was called before.
///
/// # Errors
/// Neither is there, or each names another model.
pub fn take_name(app: &App, f: &mut Fields) -> Result<String, ApiError> {
    const NAMES: [&str; 2] = ["model", "name"];
    // Ollama's own client sends both, and the one that it was not given empty.
    for name in NAMES {
        if f.peek(name) == Some(json!("")) {
            f.value(name);
        }
    }
    let same = |a: &String, b: &String| id(app, a) == id(app, b);
    let given = f.one_meaning(&NAMES, same)?.map(|(_, name)| name);
    given.ok_or_else(|| ApiError::field("model", "is required"))
}

/// A model's name here: the tag `:latest` may be left out or added.
pub fn id<'a>(app: &App, name: &'a str) -> &'a str {
    let known = app.models.ids().any(|id| id == name);
    match name.strip_suffix(":latest") {
        Some(plain) if !known => plain,
        _ => name,
    }
}

/// `options`, `format`, `stream` (true unless it says false) and log-probabilities. May block.
///
/// # Errors
/// What can't be honoured, by name.
pub fn take_params(f: &mut Fields, loaded: &Loaded) -> Result<Params, ApiError> {
    let mut params = Params::plain(loaded.engine.model())?;
    params.stream = f.take("stream")?.unwrap_or(true);
    let mut options = Fields::of(f.take("options")?.unwrap_or_default());
    let generate = &mut params.generate;
    take_sampling(&mut options, &mut generate.sampling, loaded.engine.model())?;
    generate.stop = take_stop(&mut options)?;
    generate.n_predict = take_limit(f, &mut options)?;
    take_options(&mut options, loaded)?;
    f.know_within("options", &options);
    // Spring AI says it in both places.
    if options.peek("think") == f.peek("think") {
        options.value("think");
    }
    options.close("options", BESIDE_OPTIONS)?;
    f.idle("ollama", &FULL)?;
    generate.constraint = take_format(f)?;
    params.constraint_field = Some("format");
    let generate = &mut params.generate;
    let top: Option<usize> = f.take("top_logprobs")?;
    if let Some(top) = top.filter(|n| *n > MAX_TOP) {
        let why = format!("must be 0 to {MAX_TOP}, is {top}");
        return Err(ApiError::field("top_logprobs", why));
    }
    generate.logprobs = f.flag("logprobs")?.then(|| top.unwrap_or(0));
    if generate.logprobs.is_none() && top.is_some_and(|n| n > 0) {
        return Err(ApiError::field("top_logprobs", "needs \"logprobs\": true"));
    }
    Ok(params)
}

/// `num_predict`: an option, which Open WebUI's tasks give as a field.
fn take_limit(f: &mut Fields, options: &mut Fields) -> Result<Option<usize>, ApiError> {
    let beside: Option<i64> = f.take("num_predict")?;
    let option: Option<i64> = options.take("num_predict")?;
    if let (Some(a), Some(b)) = (beside, option)
        && a != b
    {
        let why = format!("is {a}, and options.num_predict {b}: give one of them");
        return Err(ApiError::field("num_predict", why));
    }
    match option.or(beside) {
        None | Some(-1 | -2) => Ok(None), // until the context is full
        Some(n) => usize::try_from(n).map(Some).map_err(|_| {
            let why = format!("must be 0 or more, or -1 for no limit, is {n}");
            ApiError::field("num_predict", why)
        }),
    }
}

/// The options where nothing is generated: what says how to is of no use there.
///
/// # Errors
/// What can't be honoured, by name.
pub fn check_options(mut options: Fields, loaded: &Loaded) -> Result<(), ApiError> {
    take_options(&mut options, loaded)?;
    options.finish("options");
    Ok(())
}

/// The options that are not about sampling.
///
/// # Errors
/// What can't be honoured, by name.
fn take_options(options: &mut Fields, loaded: &Loaded) -> Result<(), ApiError> {
    let room = loaded.engine.options().n_ctx;
    if let Some(n) = options.take::<usize>("num_ctx")?.filter(|n| *n > room) {
        let limit = loaded.engine.model().hparams().n_ctx_train;
        let way_out = match room < limit {
            true => format!(
                ", or start the server with a larger --n-ctx (the model's limit is {limit})"
            ),
            false => " (the model's limit)".to_owned(),
        };
        let why = format!(
            "{n} is more than the {room} positions this model was loaded with: leave it out, or ask for at most {room}{way_out}"
        );
        return Err(ApiError::field("num_ctx", why));
    }
    options.idle("options", &RUNNER)?;
    let why = "tail-free sampling is not built in: use min_p";
    options.refuse("tfs_z", &[json!(1)], why)?;
    let why = "penalties make no exception for line breaks";
    options.refuse("penalize_newline", &[json!(true)], why)
}

fn take_format(f: &mut Fields) -> Result<Option<ConstraintSpec>, ApiError> {
    match f.value("format") {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => Ok(Some(ConstraintSpec::JsonObject)),
        Some(object @ Value::Object(_)) => schema(&object, "format").map(Some),
        Some(text @ Value::String(_)) => {
            let why = format!("must be \"json\" or a JSON Schema, is {text}");
            Err(ApiError::field("format", why))
        }
        Some(other) => Err(mismatch("format", "\"json\" or a JSON Schema", &other)),
    }
}

/// `think`: whether to reason, or how much. Variables for the template.
///
/// # Errors
/// It is neither.
pub fn take_think(f: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let mut kwargs = Map::new();
    match f.value("think") {
        None => {}
        Some(on @ Value::Bool(_)) => {
            kwargs.insert("enable_thinking".to_owned(), on);
        }
        Some(effort @ Value::String(_)) => {
            kwargs.insert("enable_thinking".to_owned(), json!(true));
            kwargs.insert("reasoning_effort".to_owned(), effort);
        }
        Some(other) => return Err(mismatch("think", "true, false or an effort", &other)),
    }
    Ok(kwargs)
}
