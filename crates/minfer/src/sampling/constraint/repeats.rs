//! What regular expressions and Lark ask for and can't have: how often a part must come at least (`{n}`, `{n,}`, `{n,m}`, in Lark also `~n` and `~n..m`), and in Lark
//! a temperature.
//!
//! What may come often costs nothing; what must come more often than any answer is long can never be fulfilled.

use serde_json::{Deserializer, Value};

use super::schema;

/// Most times that a part must come; llama.cpp takes 2,000.
pub(super) const REPEATS: u32 = 10_000;

/// Where a scan of a source is.
enum Within {
    /// Rules of a grammar.
    Rules,
    /// A text in quotes.
    Text,
    /// A regular expression, this many brackets deep in a class.
    Regex { class: usize },
}

/// Refuses a regular expression with a part that must come too often; its column is named.
pub(super) fn in_regex(text: &str) -> Result<(), String> {
    scan(text, Within::Regex { class: 0 }, false)
}

/// The same of a Lark grammar, and of the schemas within it; and refuses a rule that asks for a temperature.
pub(super) fn in_lark(text: &str) -> Result<(), String> {
    scan(text, Within::Rules, true)
}

fn scan(text: &str, mut within: Within, lark: bool) -> Result<(), String> {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let here = rest;
        rest = here.get(c.len_utf8()..).unwrap_or_default();
        within = match (within, c) {
            (Within::Rules, c) => {
                let begun;
                (begun, rest) = rules(text, c, rest)?;
                begun
            }
            (Within::Text, '"') => Within::Rules,
            (within @ (Within::Text | Within::Regex { .. }), '\\') => {
                rest = after_escape(rest);
                within
            }
            (Within::Regex { class }, '[') => {
                // A bracket that closes nothing stands for itself.
                let negated = rest.strip_prefix('^').unwrap_or(rest);
                rest = negated.strip_prefix(']').unwrap_or(negated);
                Within::Regex {
                    class: class.saturating_add(1),
                }
            }
            (Within::Regex { class }, ']') => Within::Regex {
                class: class.saturating_sub(1),
            },
            // Lark ends it even within a class.
            (Within::Regex { .. }, '/') if lark => Within::Rules,
            (within @ Within::Regex { class: 0 }, '{') => {
                least(text, rest)?;
                within
            }
            (within, _) => within,
        };
    }
    Ok(())
}

/// What a character of rules begins, and what is still to be read then.
fn rules<'a>(text: &str, c: char, rest: &'a str) -> Result<(Within, &'a str), String> {
    let comment = c == '#' || c == '/' && rest.starts_with('/');
    Ok(match c {
        _ if comment => (
            Within::Rules,
            rest.find('\n')
                .and_then(|at| rest.get(at..))
                .unwrap_or_default(),
        ),
        '"' => (Within::Text, rest),
        '/' => (Within::Regex { class: 0 }, rest),
        '{' | '~' => {
            least(text, rest)?;
            (Within::Rules, rest)
        }
        '=' => {
            no_temperature(text, rest)?;
            (Within::Rules, rest)
        }
        '%' => (Within::Rules, json(text, rest)?),
        _ => (Within::Rules, rest),
    })
}

/// What comes after the schema of a `%json` that begins here, if one does; that it is no JSON, llguidance says.
fn json<'a>(text: &str, rest: &'a str) -> Result<&'a str, String> {
    let Some(after) = rest.strip_prefix("json") else {
        return Ok(rest);
    };
    let mut read = Deserializer::from_str(after).into_iter::<Value>();
    let Some(Ok(value)) = read.next() else {
        return Ok(rest);
    };
    schema::counts(&value).map_err(|why| format!("{}: in this %json, {why}", place(text, rest)))?;
    Ok(after.get(read.byte_offset()..).unwrap_or_default())
}

/// The line and column of the character before what is left of a text.
fn place(text: &str, rest: &str) -> String {
    let before = text
        .get(..text.len().saturating_sub(rest.len()))
        .unwrap_or_default();
    let line = before.matches('\n').count().saturating_add(1);
    let column = before.lines().last().map_or(0, |l| l.chars().count());
    format!("line {line}, column {column}")
}

/// Refuses the attribute `[temperature=…]`, where what comes after its `=` is given. Outside of texts, patterns and schemas nothing else has one.
fn no_temperature(text: &str, rest: &str) -> Result<(), String> {
    let before = text
        .get(..text.len().saturating_sub(rest.len()))
        .and_then(|before| before.strip_suffix('='));
    let name = before.unwrap_or_default().trim_end_matches([' ', '\t']);
    match name.ends_with("temperature") {
        true => Err(format!(
            "{}: temperature= is not supported; set the request's",
            place(text, rest)
        )),
        false => Ok(()),
    }
}

/// What comes after an escape: `\n`, `\x{41}`, `\p{Greek}`.
fn after_escape(rest: &str) -> &str {
    let mut chars = rest.chars();
    let named = matches!(chars.next(), Some('x' | 'u' | 'U' | 'p' | 'P'));
    let after = chars.as_str();
    match after.starts_with('{') && named {
        true => after
            .find('}')
            .and_then(|at| after.get(at..))
            .unwrap_or(after),
        false => after,
    }
}

/// Refuses the count that begins here.
fn least(text: &str, rest: &str) -> Result<(), String> {
    let from = rest.trim_start_matches([' ', '\t', '+']);
    let end = from
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(from.len());
    let digits = from.get(..end).unwrap_or_default();
    let few = digits.is_empty() || digits.parse().is_ok_and(|n: u32| n <= REPEATS);
    if few {
        return Ok(());
    }
    let place = place(text, from);
    Err(format!(
        "{place}: {digits} repetitions; at most {REPEATS} of a part can be asked for"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_and_named() {
        for (text, place) in [
            ("a{10001}", "line 1, column 2: 10001 "),
            ("x[a-z]{ 20000,}", "line 1, column 8: 20000 "),
            (
                r"\\{99999999999999999999,}",
                "column 3: 99999999999999999999 ",
            ),
            ("(a\n{10001,10002})", "line 2, column 1: 10001 "),
        ] {
            let e = in_regex(text).unwrap_err();
            assert!(e.contains(place) && e.contains("10000 of a part"), "{e}");
        }
        let lark = "start: a \"{20000}\"\na: /b{2}/ \"c\"{20001,}";
        let e = in_lark(lark).unwrap_err();
        assert!(e.contains("line 2, column 14: 20001 "), "{e}");
        assert!(in_lark("start: /x{20000}/").is_err());
        for (text, place) in [
            ("start: \"a\"~20000", "line 1, column 11: 20000 "),
            ("start: \"a\" ~ 10001..20000", "column 13: 10001 "),
            ("start: \"a\"{\t+20000}", "column 13: 20000 "),
            ("start: a # b\na: \"#\"{20000}", "line 2, column 7: 20000 "),
        ] {
            let e = in_lark(text).unwrap_err();
            assert!(e.contains(place), "{e}");
        }
    }

    /// Only as an attribute: in a text, a pattern, a comment or a schema it is but words.
    #[test]
    fn a_temperature_is_told_from_words() {
        for text in [
            "start: a\na[temperature=0.5]: \"a\"",
            "start: a\na[capture, temperature = 0]: \"a\"",
            "start: a\na[capture=\"x\",\ttemperature\t=1]: \"a\"",
            "start: a\na[\ntemperature=1]: \"a\"",
            r#"start: "x" %lark { start[temperature=0.5]: /y/ }"#,
            r#"start: "\"" a[temperature=0.5]: /y/ "\"""#,
            r#"start: /[/ a[temperature=0.5]: /]/"#,
            r#"start: %json {"enum": ["x"]} a[temperature=1]: /y/"#,
        ] {
            let e = in_lark(text).unwrap_err();
            let place = e.starts_with("line ") && e.contains(": temperature= is not");
            assert!(place, "{text}: {e}");
        }
        for text in [
            r#"start: "a[temperature=0.5]" /b[temperature=0.5]/"#,
            r#"start: "\"a[temperature=0.5]" "b""#,
            "start: a // a[temperature=0.5]: \"\n# a[temperature=0.5]:\na: \"b\"",
            r#"start: %json {"enum": ["x[top_p, temperature=0.5]"]}"#,
            "start: temperature\ntemperature[capture=\"t\"]: /x/",
        ] {
            assert_eq!(in_lark(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn schemas_in_a_grammar_are_looked_at() {
        for (schema, name) in [
            (r#"{"minLength": 20000}"#, "#/minLength is 20000"),
            (
                r##"{"$ref": "#/$defs/a", "$defs": {"a": {"minItems": 1e9}}}"##,
                "#/$defs/a/minItems",
            ),
            (
                r#"{"items": {"pattern": "a{20000}"}}"#,
                "at #/items/pattern: line 1, column 2: 20000",
            ),
        ] {
            let e = in_lark(&format!("start: a\na: \"b\" %json {schema}")).unwrap_err();
            assert!(
                e.contains("line 2, column 8: in this %json") && e.contains(name),
                "{e}"
            );
            assert!(in_lark(&format!("start: %json {schema}")).is_err());
        }
        let after = r#"start: %json {"type": "null"} "b"{20000}"#;
        assert!(in_lark(after).unwrap_err().contains("column 34: 20000 "));
        for text in [
            r#"start: %json {"const": {"minLength": 20000}}"#,
            r#"start: %json {"not": {}, "x-guidance": {}, "maxLength": 20000}"#,
            r##"start: %json {"$ref": "#/$defs/none", "items": {"$id": "x"}}"##,
            r#"start: %json {"minLength": 20000"#,
            r#"start: a // %json {"minLength": 20000}"#,
        ] {
            assert_eq!(in_lark(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_no_count_passes() {
        for text in [
            "a{10000}",
            "a{0,20000}",
            r"\{20000}",
            "[{20000}]",
            "[]{20000}]",
            r"[\]{20000}]",
            r"\x{20000}",
            r"\p{Greek}{3}",
            "a{,20000}",
            "",
        ] {
            assert_eq!(in_regex(text), Ok(()), "{text}");
        }
        for text in [
            "start: \"{20000}\" // a{20000}\n",
            r#"start: "\"{20000}""#,
            r#"start: %json {"const": "{20000}"}"#,
            "start: /[/]{3}/",
            "# and/or\nstart: \"{20000}\"",
            "# 5\" pipe\nstart: \"{20000}\"",
            "start: \"a\"~0..20000 ~\"20000\" \"~20000\" /~20000/ # ~20000",
        ] {
            assert_eq!(in_lark(text), Ok(()), "{text}");
        }
    }
}
