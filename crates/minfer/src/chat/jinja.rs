//! The Jinja environment that Hugging Face gives chat templates, on minijinja.

use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, escape_formatter,
};
use minijinja_contrib::pycompat::unknown_method_callback;
use regex::Regex;

use super::{ChatError, DateTime, json};

/// Budget of one rendering: instructions, and one more for every 64 bytes of text made.
pub(super) const BASE_FUEL: u64 = 200_000;

/// More budget for every byte of the conversation, and the most in all (128 MB of text).
const FUEL_PER_BYTE: u64 = 20;
const MAX_FUEL: u64 = 2_000_000;

/// Stack of the thread that renders: minijinja frees nested lists recursively, and `MAX_FUEL` buys some 300,000 levels.
const STACK: usize = 256 << 20;

/// Levels of nesting (macros count ten). A level costs stack, and callers may be threads with little of it.
const MAX_RECURSION: usize = 100;

/// The message given to `raise_exception`, carried through minijinja's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// Builds the environment with `source` as its template `chat`.
pub(super) fn environment(source: &str) -> Result<Environment<'static>, ChatError> {
    let mut env = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
    {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(|out, state, value| {
        let float = value.is_number() && !value.is_integer();
        match f64::try_from(value.clone()) {
            Ok(x) if float && x.is_finite() => out.write_str(&json::float(x)).map_err(Error::from),
            _ => escape_formatter(out, state, value),
        }
    });
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(MAX_RECURSION);
    env.set_unknown_method_callback(unknown_method_callback);
    env.add_filter("tojson", json::tojson);
    env.add_filter("indent", indent);
    env.add_test("iterable", |v: &Value| !v.is_none() && v.try_iter().is_ok());
    // What has a length and an index in Python: strings and dicts too.
    env.add_test("sequence", |v: &Value| {
        matches!(
            v.kind(),
            ValueKind::String
                | ValueKind::Seq
                | ValueKind::Map
                | ValueKind::Bytes
                | ValueKind::Undefined
        )
    });
    env.add_function(
        "raise_exception",
        |message: Value| -> Result<Value, Error> {
            let message = message.to_string();
            Err(Error::new(ErrorKind::InvalidOperation, message.clone())
                .with_source(Raised(message)))
        },
    );
    env.add_function(
        "strftime_now",
        |state: &State, format: &str| -> Result<String, Error> {
            let now = state
                .lookup(NOW)
                .and_then(|v| v.as_i64())
                .map_or_else(DateTime::now, DateTime::from_unix);
            now.strftime(format)
                .map_err(|e| Error::new(ErrorKind::InvalidOperation, e))
        },
    );
    let source = plain_generation_tags(source);
    env.add_template_owned("chat", source)
        .map_err(|e| ChatError::Syntax {
            line: e.line().unwrap_or(0),
            detail: e.detail().unwrap_or("syntax error").to_owned(),
        })?;
    Ok(env)
}

/// Jinja's `indent(text, width=4, first=False, blank=False)`; minijinja's own drops a trailing newline.
fn indent(state: &State, text: String, args: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let argument = |i: usize, name: &str| {
        args.get(i)
            .cloned()
            .map_or_else(|| kwargs.get::<Option<Value>>(name), |v| Ok(Some(v)))
    };
    let width = argument(0, "width")?;
    let first = argument(1, "first")?.is_some_and(|v| v.is_true());
    let blank = argument(2, "blank")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let by = match &width {
        None => "    ".to_owned(),
        Some(w) => match (w.as_str(), w.as_usize()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(n)) if n <= 256 => " ".repeat(n),
            _ => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "indent: width must be a string or a number up to 256",
                ));
            }
        },
    };
    let mut out = String::with_capacity(text.len());
    for (i, line) in text.split('\n').enumerate() {
        state.consume_fuel(u64::try_from(by.len() / 64).unwrap_or(u64::MAX))?;
        if i > 0 {
            out.push('\n');
        }
        if if i == 0 {
            first
        } else {
            blank || !line.is_empty()
        } {
            out.push_str(&by);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// Name under which a fixed time (seconds) travels in the context.
pub(super) const NOW: &str = "__now";

/// `{% generation %}` marks the assistant's words for training; here it is a block that always shows.
fn plain_generation_tags(source: &str) -> String {
    static TAG: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").ok());
    let Some(tag) = TAG.as_ref() else {
        return source.to_owned();
    };
    tag.replace_all(source, |c: &regex::Captures| {
        let get = |i| c.get(i).map_or("", |m| m.as_str());
        let word = if c.get(2).is_some() {
            "endif"
        } else {
            "if true"
        };
        format!("{{%{} {word} {}%}}", get(1), get(3))
    })
    .into_owned()
}

/// The budget for a conversation of `bytes` bytes.
pub(super) fn fuel(bytes: usize) -> u64 {
    let more = u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .saturating_mul(FUEL_PER_BYTE);
    BASE_FUEL.saturating_add(more).min(MAX_FUEL)
}

/// Runs the template with `fuel`, on a thread with a stack that a hostile template can't overflow.
pub(super) fn render(
    env: &Environment<'static>,
    context: Value,
    fuel: u64,
) -> Result<String, ChatError> {
    let mut env = env.clone();
    env.set_fuel(Some(fuel));
    let run = move || -> Result<String, ChatError> {
        let template = env.get_template("chat").map_err(|e| failure(&e, fuel))?;
        template.render(context).map_err(|e| failure(&e, fuel))
    };
    let thread = std::thread::Builder::new()
        .name("chat-template".to_owned())
        .stack_size(STACK)
        .spawn(run);
    let lost = |detail: String| ChatError::Render { line: 0, detail };
    let thread = thread.map_err(|e| lost(format!("no thread to render on: {e}")))?;
    thread
        .join()
        .unwrap_or_else(|_| Err(lost("the template engine panicked".to_owned())))
}

fn failure(error: &Error, fuel: u64) -> ChatError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if let Some(raised) = e.downcast_ref::<Raised>() {
            return ChatError::Raised(raised.0.clone());
        }
        if e.downcast_ref::<Error>()
            .is_some_and(|e| e.kind() == ErrorKind::OutOfFuel)
        {
            return ChatError::TooLong { fuel };
        }
        cause = e.source();
    }
    let detail = error.detail().map_or_else(
        || error.kind().to_string(),
        |d| format!("{}: {d}", error.kind()),
    );
    ChatError::Render {
        line: error.line().unwrap_or(0),
        detail,
    }
}

/// A JSON value as the template sees it.
pub(super) fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(b) => Value::from(*b),
        serde_json::Value::Number(n) => n
            .as_i64()
            .map(Value::from)
            .or_else(|| n.as_u64().map(Value::from))
            .or_else(|| n.as_f64().map(Value::from))
            .unwrap_or_default(),
        serde_json::Value::String(s) => Value::from(s.as_str()),
        serde_json::Value::Array(items) => items.iter().map(value).collect(),
        serde_json::Value::Object(map) => {
            Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), value(v))))
        }
    }
}
