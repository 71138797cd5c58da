//! `keep_alive`: how long a model stays loaded after its last answer. A number is seconds, a text one of Go's durations;
//! what is negative means for ever.

use std::time::Duration;

use serde_json::Value;

use crate::ApiError;
use crate::fields::Fields;
use crate::models::Keep;

/// The longest of Go's durations, some 292 years: what is longer is for ever, too.
const LONGEST: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// `keep_alive`, if it is there.
///
/// # Errors
/// It is no duration.
pub fn take(f: &mut Fields) -> Result<Option<Keep>, ApiError> {
    let Some(value) = f.value("keep_alive") else {
        return Ok(None);
    };
    let seconds = match &value {
        Value::Number(n) => n.as_f64(),
        Value::String(text) => seconds(text),
        _ => None,
    };
    let Some(seconds) = seconds else {
        let why = format!(
            "must be seconds or a duration such as \"5m\", \"1h30m\" or \"-1m\" (for ever), is {value}"
        );
        return Err(ApiError::field("keep_alive", why));
    };
    if seconds < 0.0 {
        return Ok(Some(Keep::Always));
    }
    let time = Duration::try_from_secs_f64(seconds).ok();
    let time = time.filter(|t| *t < LONGEST);
    Ok(Some(time.map_or(Keep::Always, Keep::For)))
}

/// The seconds of a duration as Go's `time.ParseDuration` reads it: a sign, then numbers with units.
fn seconds(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut rest = match unsigned {
        "0" => return Some(0.0),
        "" => return None,
        parts => parts,
    };
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut sum = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, unit) = rest.split_at_checked(end)?;
        let end = unit.find(is_number).unwrap_or(unit.len());
        let (unit, more) = unit.split_at_checked(end)?;
        sum += number.parse::<f64>().ok()? * scale(unit)?;
        rest = more;
    }
    Some(if text.starts_with('-') { -sum } else { sum })
}

fn scale(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keep(value: Value) -> Result<Option<Keep>, ApiError> {
        let body = json!({"keep_alive": value}).to_string();
        take(&mut Fields::parse(body.as_bytes()).unwrap())
    }

    /// What Ollama's own `TestKeepAliveParsingFromJSON` expects (api/types_test.go), and Go's documentation of durations.
    #[test]
    fn durations_are_read_as_ollama_reads_them() {
        let time = |seconds: f64| Some(Keep::For(Duration::from_secs_f64(seconds)));
        for (value, want) in [
            (json!(null), None),
            (json!(42), time(42.0)),
            (json!(42.5), time(42.5)),
            (json!("42m"), time(42.0 * 60.0)),
            (json!("1.5h"), time(5400.0)),
            (json!("2h45m"), time(9900.0)),
            (json!("300ms"), time(0.3)),
            (json!("1\u{b5}s"), time(1e-6)),
            (json!("+5s"), time(5.0)),
            (json!("1h15m30.918273645s"), time(4_530.918_273_645)),
            (json!(".5s"), time(0.5)),
            (json!(0), time(0.0)),
            (json!("0"), time(0.0)),
            (json!("0s"), time(0.0)),
            (json!(-1), Some(Keep::Always)),
            (json!(-3.5), Some(Keep::Always)),
            (json!("-1s"), Some(Keep::Always)),
            (json!("-1m"), Some(Keep::Always)),
            (json!(1e300), Some(Keep::Always)),
        ] {
            assert_eq!(keep(value.clone()).unwrap(), want, "{value}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_a_way_out() {
        for value in [
            json!("soon"),
            json!(""),
            json!("5"),
            json!("5 m"),
            json!("5d"),
            json!("."),
            json!("s"),
            json!("1.2.3s"),
            json!("-"),
            json!(true),
            json!({}),
        ] {
            let e = keep(value.clone()).unwrap_err();
            assert_eq!(e.param.as_deref(), Some("keep_alive"), "{value}");
            assert!(e.message.contains("\"5m\""), "{}", e.message);
        }
    }
}
