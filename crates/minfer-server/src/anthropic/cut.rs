//! A call's input that was cut: as much of it as is complete, which is what Anthropic's own clients make of a stream that ends there.

use serde_json::{Map, Value};

/// The members that are complete in the beginning of a JSON object's text.
pub fn object(text: &str) -> Map<String, Value> {
    let (mut within, mut escaped) = (false, false);
    // What closes all that is open; and the same where a value is known to have ended or a list or an object to have begun.
    let mut open = String::new();
    let mut sound = (0, String::new());
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if within => escaped = true,
            '"' => within = !within,
            _ if within => {}
            '{' | '[' => {
                open.insert(0, if c == '{' { '}' } else { ']' });
                sound = (at.saturating_add(1), open.clone());
            }
            '}' | ']' if !open.is_empty() => drop(open.remove(0)),
            ',' => sound = (at, open.clone()),
            _ => {}
        }
    }
    let closed = |end: usize, open: &str| {
        let text = text.get(..end).unwrap_or_default();
        serde_json::from_str(&format!("{text}{open}")).ok()
    };
    let all = closed(text.len(), &open).filter(|_| !within);
    let object = all.or_else(|| closed(sound.0, &sound.1));
    object.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The values are those of `jiter.from_json(text, partial_mode=True)`, with which Anthropic's Python client reads a stream.
    #[test]
    fn what_is_complete_is_kept() {
        for (text, want) in [
            ("", json!({})),
            ("{", json!({})),
            (r#"{"a"#, json!({})),
            (r#"{"a": "b"#, json!({})),
            (r#"{"a": "b""#, json!({"a": "b"})),
            (
                r#"{"a": "b, }", "c": [1, {"d": true}, {"e"#,
                json!({"a": "b, }", "c": [1, {"d": true}, {}]}),
            ),
            (r#"{"a": "\"", "c": tr"#, json!({"a": "\""})),
            (
                r#"{"a": {"b": "c"}, "d": 1"#,
                json!({"a": {"b": "c"}, "d": 1}),
            ),
            (r#"{"a": 1}"#, json!({"a": 1})),
            ("no object", json!({})),
        ] {
            assert_eq!(Value::Object(object(text)), want, "{text}");
        }
    }
}
