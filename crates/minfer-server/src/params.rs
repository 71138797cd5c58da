//! The fields that say how to generate, the same on every surface: sampling, limits, constraints, log-probabilities.

use minfer::engine::{Generate, Model};
use minfer::sampling::{ConstraintSpec, SamplerKind, SamplerParams};
use serde_json::{Value, json};

use crate::ApiError;
use crate::fields::{Fields, Given, Idle, kind, mismatch};
use crate::id;

/// The most answers to one request.
pub const MAX_CHOICES: usize = 128;
/// The most stop strings.
pub const MAX_STOPS: usize = 64;
/// The most bytes of one of them.
const MAX_STOP_LEN: usize = 1024;
/// The most biases of tokens: every token takes the time of all of them, for everybody.
const MAX_BIASES: usize = 4096;
/// The most likeliest tokens beside each one.
pub const MAX_TOP: usize = 20;

/// llama-server's fields of a context that is shifted: here it never is.
const SHIFTED: [(&str, Idle); 2] = [("n_keep", Idle::Whole), ("n_discard", Idle::Whole)];

/// How to generate, before the prompt is known.
#[derive(Clone, Debug)]
pub struct Params {
    /// For the engine.
    pub generate: Generate,
    /// The field that the constraint came from.
    pub constraint_field: Option<&'static str>,
    /// Answers wanted.
    pub n: usize,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// With usage at the stream's end.
    pub include_usage: bool,
    /// Compute the whole prompt.
    pub no_cache: bool,
    /// Progress of the prompt in the stream.
    pub return_progress: bool,
    /// Timings with every piece.
    pub timings_per_token: bool,
}

/// The defaults over HTTP: the model's own, else llama.cpp's without a repeat penalty, which damages code, JSON and tool
/// calls.
///
/// # Errors
/// A field of the model's file that is out of its range.
pub fn defaults(model: &Model) -> Result<SamplerParams, ApiError> {
    let plain = SamplerParams {
        repeat_penalty: 1.0,
        ..SamplerParams::default()
    };
    let own = plain.or_model_defaults(model.metadata());
    own.map_err(|e| minfer::Error::from(e).into())
}

impl Params {
    /// One whole answer without a limit, a random seed and the model's defaults: where surfaces with names of their
    /// own begin.
    ///
    /// # Errors
    /// As [`defaults`].
    pub fn plain(model: &Model) -> Result<Params, ApiError> {
        let sampling = SamplerParams {
            seed: id::seed(),
            ..defaults(model)?
        };
        Ok(Params {
            generate: Generate {
                sampling,
                n_predict: None,
                ..Generate::default()
            },
            constraint_field: None,
            n: 1,
            stream: false,
            include_usage: false,
            no_cache: false,
            return_progress: false,
            timings_per_token: false,
        })
    }

    /// Takes the fields of all surfaces that have OpenAI's or llama-server's names. May block, as [`take_sampling`] does.
    ///
    /// # Errors
    /// A field that can't be honoured, by name.
    pub fn take(f: &mut Fields, model: &Model) -> Result<Params, ApiError> {
        let mut sampling = defaults(model)?;
        take_sampling(f, &mut sampling, model)?;
        let n = take_choices(f)?;
        f.idle("generation", &SHIFTED)?;
        let stream = f.flag("stream")?;
        let include_usage = take_stream_options(f, stream)?;
        let (constraint_field, constraint) = take_constraint(f)?.unzip();
        let generate = Generate {
            sampling,
            n_predict: take_limit(f)?,
            stop: take_stop(f)?,
            ignore_eos: f.flag("ignore_eos")?,
            constraint,
            ..Generate::default()
        };
        Ok(Params {
            generate,
            constraint_field,
            n,
            stream,
            include_usage,
            no_cache: !f.take("cache_prompt")?.unwrap_or(true),
            return_progress: f.flag("return_progress")?,
            timings_per_token: f.flag("timings_per_token")?,
        })
    }

    /// The field of the constraint, if there is one.
    pub fn constrained_by(&self) -> Option<&'static str> {
        let constraint = self.generate.constraint.as_ref();
        constraint.map(|_| self.constraint_field.unwrap_or("grammar"))
    }

    /// An error of the constraint names the field that it came from.
    pub fn blame(&self, e: minfer::Error) -> ApiError {
        match (&e, self.constraint_field) {
            (minfer::Error::Constraint(_), Some(field)) => ApiError::field(field, e),
            _ => e.into(),
        }
    }
}

/// `stream_options`: whether the usage is told at the stream's end.
///
/// # Errors
/// They are no such options, or there is no stream.
pub fn take_stream_options(f: &mut Fields, stream: bool) -> Result<bool, ApiError> {
    const NAME: &str = "stream_options";
    let Some(mut options) = f.object(NAME)? else {
        return Ok(false);
    };
    if !stream {
        return Err(ApiError::field(NAME, "needs \"stream\": true"));
    }
    let within = |e: ApiError| e.within(NAME);
    let include = options.flag("include_usage").map_err(within)?;
    let obfuscation = [("include_obfuscation", Idle::Flag)]; // nothing is hidden by padding
    options.idle(NAME, &obfuscation).map_err(within)?;
    options.finish(NAME);
    Ok(include)
}

/// A number into a slot, if the field is there; its range is for [`validate`] to check.
///
/// # Errors
/// Of another type.
pub fn set<T: Given>(f: &mut Fields, name: &'static str, slot: &mut T) -> Result<(), ApiError> {
    if let Some(value) = f.take(name)? {
        *slot = value;
    }
    Ok(())
}

/// The fields of the sampler chain. May block: texts of `logit_bias` are tokenized.
///
/// # Errors
/// One that can't be honoured, by name.
pub fn take_sampling(f: &mut Fields, s: &mut SamplerParams, model: &Model) -> Result<(), ApiError> {
    let floats: [(&'static str, &mut f32); 15] = [
        ("temperature", &mut s.temperature),
        ("dynatemp_range", &mut s.dynatemp_range),
        ("dynatemp_exponent", &mut s.dynatemp_exponent),
        ("top_p", &mut s.top_p),
        ("min_p", &mut s.min_p),
        ("typical_p", &mut s.typical_p),
        ("top_n_sigma", &mut s.top_n_sigma),
        ("xtc_probability", &mut s.xtc_probability),
        ("xtc_threshold", &mut s.xtc_threshold),
        ("frequency_penalty", &mut s.frequency_penalty),
        ("presence_penalty", &mut s.presence_penalty),
        ("dry_multiplier", &mut s.dry_multiplier),
        ("dry_base", &mut s.dry_base),
        ("mirostat_tau", &mut s.mirostat_ent),
        ("mirostat_eta", &mut s.mirostat_lr),
    ];
    for (name, slot) in floats {
        set(f, name, slot)?;
    }
    // The second is vLLM's name for it.
    if let Some((_, penalty)) = f.one_of(&["repeat_penalty", "repetition_penalty"])? {
        s.repeat_penalty = penalty;
    }
    // -1 means all of them, as 0 does.
    if let Some(k) = f.take::<i64>("top_k")? {
        let why = || {
            let why = format!("must be a whole number from -1 to {}, is {k}", u32::MAX);
            ApiError::field("top_k", why)
        };
        s.top_k = match k {
            -1 => 0,
            k => u32::try_from(k).map_err(|_| why())?,
        };
    }
    set(f, "repeat_last_n", &mut s.repeat_last_n)?;
    set(f, "dry_allowed_length", &mut s.dry_allowed_length)?;
    set(f, "dry_penalty_last_n", &mut s.dry_penalty_last_n)?;
    set(f, "dry_sequence_breakers", &mut s.dry_breakers)?;
    set(f, "mirostat", &mut s.mirostat)?;
    if let Some(names) = f.value("samplers") {
        let parsed = match names {
            Value::String(letters) => SamplerKind::parse_letters(&letters),
            Value::Array(list) => {
                let names: Vec<String> = Given::read("samplers", Value::Array(list))?;
                SamplerKind::parse_names(&names.join(";"))
            }
            other => return Err(mismatch("samplers", "a list of names", &other)),
        };
        s.samplers = parsed.map_err(|e| ApiError::field("samplers", e))?;
    }
    s.seed = take_seed(f)?;
    s.logit_bias = match f.value("logit_bias") {
        None => Vec::new(),
        Some(value) => logit_bias(value, model)?,
    };
    validate(s)
}

/// `seed`: random if it is not there, or -1.
///
/// # Errors
/// It is below -1.
pub fn take_seed(f: &mut Fields) -> Result<u64, ApiError> {
    match f.take::<i64>("seed")? {
        None | Some(-1) => Ok(id::seed()),
        Some(seed) => u64::try_from(seed)
            .map_err(|_| ApiError::field("seed", format!("must be 0 or more, or -1, is {seed}"))),
    }
}

/// Checks every number's range.
///
/// # Errors
/// The one that is out of its range, by name.
pub fn validate(s: &SamplerParams) -> Result<(), ApiError> {
    s.validate().map_err(|e| {
        let minfer::sampling::SamplingError::Parameter {
            field,
            value,
            range,
        } = &e
        else {
            return ApiError::bad_request(e.to_string());
        };
        // Over HTTP they have llama-server's names.
        let name = match *field {
            "mirostat_ent" => "mirostat_tau",
            "mirostat_lr" => "mirostat_eta",
            "dry_breakers" => "dry_sequence_breakers",
            field => field,
        };
        ApiError::field(name, format!("must be {range}, is {value}"))
    })
}

/// OpenAI's object of token ids, or llama-server's list of pairs of a token id or a text and a number or false (a ban).
fn logit_bias(value: Value, model: &Model) -> Result<Vec<(u32, f32)>, ApiError> {
    let wrong = |why: String| ApiError::field("logit_bias", why);
    let n_vocab = model.hparams().n_vocab;
    let bias = |value: &Value| match value {
        Value::Bool(false) => Ok(f32::NEG_INFINITY),
        Value::Number(_) => f32::read("logit_bias", value.clone()),
        value => Err(wrong(format!(
            "a bias must be a number, not {}",
            kind(value)
        ))),
    };
    let token = |id: u64| {
        let known = u32::try_from(id).ok().filter(|id| (*id as usize) < n_vocab);
        known.ok_or_else(|| wrong(format!("token {id} is not in the vocabulary of {n_vocab}")))
    };
    let mut out = Vec::new();
    match value {
        Value::Object(map) => {
            for (key, value) in &map {
                let id = key.parse::<u64>();
                let id = id.map_err(|_| wrong(format!("'{key}' is no token id")))?;
                out.push((token(id)?, bias(value)?));
            }
        }
        Value::Array(pairs) => {
            for pair in &pairs {
                let Some([what, value]) = pair.as_array().map(Vec::as_slice) else {
                    return Err(wrong("must hold pairs of a token and a bias".to_owned()));
                };
                let value = bias(value)?;
                match what {
                    Value::String(text) => {
                        let options = minfer::tokenizer::EncodeOptions {
                            add_special: false,
                            parse_special: true,
                        };
                        let ids = model.tokenizer().encode(text, options);
                        out.extend(ids.into_iter().map(|id| (id, value)));
                    }
                    what => {
                        let id = what.as_u64();
                        let id = id.ok_or_else(|| wrong(format!("{what} is no token id")))?;
                        out.push((token(id)?, value));
                    }
                }
            }
        }
        other => return Err(wrong(format!("must be an object, not {}", kind(&other)))),
    }
    if out.len() > MAX_BIASES {
        return Err(wrong(format!(
            "names {} tokens, {MAX_BIASES} are the most",
            out.len()
        )));
    }
    Ok(out)
}

/// `n`, which llama-server calls `n_cmpl`, too.
fn take_choices(f: &mut Fields) -> Result<usize, ApiError> {
    match f.one_of::<usize>(&["n", "n_cmpl"])? {
        None => Ok(1),
        Some((_, n)) if (1..=MAX_CHOICES).contains(&n) => Ok(n),
        Some((name, n)) => {
            let why = format!("must be 1 to {MAX_CHOICES}, is {n}");
            Err(ApiError::field(name, why))
        }
    }
}

/// The names of the answer's length: OpenAI's, llama-server's, and Ollama's, which SillyTavern sends beside the others.
pub const LIMITS: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "n_predict",
    "num_predict",
];

/// `max_tokens` under each of its names; -1: until the context is full.
fn take_limit(f: &mut Fields) -> Result<Option<usize>, ApiError> {
    match f.one_of::<i64>(LIMITS)? {
        Some((name, value)) if value < -1 => {
            let why = format!("must be 0 or more, or -1 for no limit, is {value}");
            Err(ApiError::field(name, why))
        }
        limit => Ok(limit.and_then(|(_, value)| usize::try_from(value).ok())),
    }
}

/// `stop`: a string or several.
///
/// # Errors
/// As [`check_stops`], or of another type.
pub fn take_stop(f: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stops = match f.value("stop") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(list @ Value::Array(_)) => Given::read("stop", list)?,
        Some(other) => return Err(mismatch("stop", "a string or a list of strings", &other)),
    };
    check_stops("stop", stops)
}

/// Stop strings that can be.
///
/// # Errors
/// Too many, or an empty one: it would end every answer at once.
pub fn check_stops(name: &str, stops: Vec<String>) -> Result<Vec<String>, ApiError> {
    if stops.len() > MAX_STOPS {
        let why = format!("has {} strings, {MAX_STOPS} are the most", stops.len());
        return Err(ApiError::field(name, why));
    }
    if let Some(long) = stops.iter().find(|s| s.len() > MAX_STOP_LEN) {
        let why = format!(
            "a string has {} bytes, {MAX_STOP_LEN} are the most",
            long.len()
        );
        return Err(ApiError::field(name, why));
    }
    match stops.iter().any(String::is_empty) {
        true => Err(ApiError::field(name, "holds an empty string")),
        false => Ok(stops),
    }
}

/// `response_format`, `json_schema` or `grammar`: one of them, and which.
///
/// # Errors
/// Two of them; a schema that is none.
pub fn take_constraint(f: &mut Fields) -> Result<Option<(&'static str, ConstraintSpec)>, ApiError> {
    let mut found: Option<(&'static str, ConstraintSpec)> = None;
    let mut put = |name: &'static str, spec: Option<ConstraintSpec>| {
        let Some(spec) = spec else { return Ok(()) };
        if let Some((other, _)) = &found {
            return Err(ApiError::field(
                name,
                format!("can't be used together with {other}"),
            ));
        }
        found = Some((name, spec));
        Ok(())
    };
    const FORMAT: &str = "response_format";
    const PLACE: &str = "response_format.json_schema.schema";
    let format = f.value(FORMAT);
    let format = format
        .map(|v| answer_format(&v, FORMAT, PLACE))
        .transpose()?;
    put(FORMAT, format.flatten())?;
    let schema = f
        .value("json_schema")
        .map(|s| schema(&s, "json_schema"))
        .transpose()?;
    put("json_schema", schema)?;
    let grammar = f.take::<String>("grammar")?.filter(|g| !g.is_empty());
    put("grammar", grammar.map(ConstraintSpec::Gbnf))?;
    Ok(found)
}

/// What a JSON Schema allows.
///
/// # Errors
/// It is no schema.
pub fn schema(schema: &Value, name: &str) -> Result<ConstraintSpec, ApiError> {
    match schema {
        Value::Object(_) | Value::Bool(_) => Ok(ConstraintSpec::JsonSchema(schema.to_string())),
        other => {
            let why = format!("must be a JSON Schema (an object), not {}", kind(other));
            Err(ApiError::field(name, why))
        }
    }
}

/// What the format of an answer asks for; no constraint for text. `name` is its field, `place` the one of a schema within it.
///
/// # Errors
/// A type that there is not; a schema that is none.
pub fn answer_format(
    format: &Value,
    name: &str,
    place: &str,
) -> Result<Option<ConstraintSpec>, ApiError> {
    const TYPES: &str = "text, json_object or json_schema";
    if !format.is_object() {
        return Err(mismatch(name, "an object", format));
    }
    let ty = match format.get("type") {
        Some(Value::String(ty)) => ty.as_str(),
        None => "",
        Some(other) => return Err(mismatch(&format!("{name}.type"), TYPES, other)),
    };
    match ty {
        "text" => Ok(None),
        // llama-server takes a schema here, too.
        "json_object" => match format.get("schema") {
            Some(s) if *s != json!({}) => schema(s, &format!("{name}.schema")).map(Some),
            _ => Ok(Some(ConstraintSpec::JsonObject)),
        },
        "json_schema" => {
            let named = format
                .pointer("/json_schema/schema")
                .or(format.get("schema"));
            let Some(s) = named else {
                return Err(ApiError::field(place, "is required"));
            };
            schema(s, place).map(Some)
        }
        other => {
            let why = format!("type must be {TYPES}, is '{other}'");
            Err(ApiError::field(name, why))
        }
    }
}
