//! How often a part must come at least, in regular expressions and Lark: `{n}`, `{n,}`, `{n,m}`.
//!
//! What may come often costs nothing; what must come more often than any answer is long can never be fulfilled.

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

/// The same of a Lark grammar.
pub(super) fn in_lark(text: &str) -> Result<(), String> {
    scan(text, Within::Rules, true)
}

fn scan(text: &str, mut within: Within, lark: bool) -> Result<(), String> {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let here = rest;
        rest = here.get(c.len_utf8()..).unwrap_or_default();
        within = match (within, c) {
            (Within::Rules, '"') => Within::Text,
            (Within::Rules, '/') if rest.starts_with('/') => {
                rest = rest
                    .find('\n')
                    .and_then(|at| rest.get(at..))
                    .unwrap_or_default();
                Within::Rules
            }
            (Within::Rules, '/') => Within::Regex { class: 0 },
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
            (Within::Regex { class: 0 }, '/') if lark => Within::Rules,
            (within @ (Within::Rules | Within::Regex { class: 0 }), '{') => {
                least(text, rest)?;
                within
            }
            (within, _) => within,
        };
    }
    Ok(())
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
    let from = rest.trim_start_matches(' ');
    let end = from
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(from.len());
    let digits = from.get(..end).unwrap_or_default();
    let few = digits.is_empty() || digits.parse().is_ok_and(|n: u32| n <= REPEATS);
    if few {
        return Ok(());
    }
    let before = text
        .get(..text.len().saturating_sub(from.len()))
        .unwrap_or_default();
    let line = before.matches('\n').count().saturating_add(1);
    let column = before.lines().last().map_or(0, |l| l.chars().count());
    Err(format!(
        "line {line}, column {column}: {digits} repetitions; at most {REPEATS} of a part can be asked for"
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
        ] {
            assert_eq!(in_lark(text), Ok(()), "{text}");
        }
    }
}
