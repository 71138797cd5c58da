//! `tojson` as Hugging Face renders: Python's `json.dumps` with `ensure_ascii=False` and no HTML escaping.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deepest nesting written; Python's own limit is near 1000.
const MAX_DEPTH: usize = 128;

struct Style {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item: String,
    key: String,
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

/// The filter: `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    args: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let argument = |i: usize, name: &str| -> Result<Value, Error> {
        match args.get(i) {
            Some(v) => Ok(v.clone()),
            None => Ok(kwargs.get::<Option<Value>>(name)?.unwrap_or_default()),
        }
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_true();
    let indent = argument(1, "indent")?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_true();
    kwargs.assert_all_used()?;

    let indent = match indent.kind() {
        ValueKind::None | ValueKind::Undefined => None,
        ValueKind::String => Some(indent.to_string()),
        _ => {
            let n = indent
                .as_i64()
                .ok_or_else(|| invalid("tojson: indent must be a number or a string"))?;
            let n = usize::try_from(n).unwrap_or(0);
            if n > 64 {
                return Err(invalid(format!("tojson: indent is {n}, more than 64")));
            }
            Some(" ".repeat(n))
        }
    };
    let (mut item, mut key) = (
        if indent.is_some() { "," } else { ", " }.to_owned(),
        ": ".to_owned(),
    );
    if !separators.is_none() && !separators.is_undefined() {
        item = separators.get_item_by_index(0)?.to_string();
        key = separators.get_item_by_index(1)?.to_string();
    }
    let style = Style {
        ensure_ascii,
        sort_keys,
        indent,
        item,
        key,
    };
    let mut out = String::new();
    write_value(&mut out, state, value, &style, 0)?;
    Ok(Value::from(out))
}

fn write_value(
    out: &mut String,
    state: &State,
    value: &Value,
    style: &Style,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!(
            "tojson: nested more than {MAX_DEPTH} deep"
        )));
    }
    state.consume_fuel(1)?;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)?),
        ValueKind::String => {
            write_string(out, value.as_str().unwrap_or_default(), style.ensure_ascii)
        }
        ValueKind::Seq => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_list(out, state, &items, style, depth)?;
        }
        ValueKind::Map => write_map(out, state, value, style, depth)?,
        other => {
            return Err(invalid(format!(
                "tojson: a value of type {other} is not JSON serializable"
            )));
        }
    }
    Ok(())
}

fn write_list(
    out: &mut String,
    state: &State,
    items: &[Value],
    style: &Style,
    depth: usize,
) -> Result<(), Error> {
    let inner = depth.saturating_add(1);
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        separate(out, state, i, style, inner)?;
        write_value(out, state, item, style, inner)?;
    }
    close(out, items.is_empty(), style, depth);
    out.push(']');
    Ok(())
}

fn write_map(
    out: &mut String,
    state: &State,
    map: &Value,
    style: &Style,
    depth: usize,
) -> Result<(), Error> {
    let inner = depth.saturating_add(1);
    let mut keys: Vec<Value> = map.try_iter()?.collect();
    if style.sort_keys {
        keys.sort();
    }
    out.push('{');
    for (i, key) in keys.iter().enumerate() {
        separate(out, state, i, style, inner)?;
        let text = match key.kind() {
            ValueKind::String => key.to_string(),
            ValueKind::None => "null".to_owned(),
            ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
            ValueKind::Number => number(key)?,
            other => {
                return Err(invalid(format!(
                    "tojson: keys must be strings or numbers, not {other}"
                )));
            }
        };
        write_string(out, &text, style.ensure_ascii);
        out.push_str(&style.key);
        write_value(out, state, &map.get_item(key)?, style, inner)?;
    }
    close(out, keys.is_empty(), style, depth);
    out.push('}');
    Ok(())
}

fn separate(
    out: &mut String,
    state: &State,
    i: usize,
    style: &Style,
    depth: usize,
) -> Result<(), Error> {
    if i > 0 {
        out.push_str(&style.item);
    }
    if let Some(indent) = &style.indent {
        state.consume_fuel(
            u64::try_from(indent.len().saturating_mul(depth) / 64).unwrap_or(u64::MAX),
        )?;
        out.push('\n');
        (0..depth).for_each(|_| out.push_str(indent));
    }
    Ok(())
}

fn close(out: &mut String, empty: bool, style: &Style, depth: usize) {
    if let (Some(indent), false) = (&style.indent, empty) {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str(indent));
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    f64::try_from(value.clone()).map(float)
}

/// Python's `repr` of a float.
pub(super) fn float(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() {
            "NaN"
        } else if x > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    let scientific = format!("{x:e}"); // the shortest digits that read back as x, as in Python
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let plain = format!("{x}");
    if plain.contains('.') {
        plain
    } else {
        format!("{plain}.0")
    }
}

fn write_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\x1f' => drop(write!(out, "\\u{:04x}", u32::from(c))),
            '\x7f'.. if ensure_ascii && c != '\x7f' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
