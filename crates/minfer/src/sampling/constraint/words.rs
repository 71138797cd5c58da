//! What llguidance says of a spec, in words of use to who wrote it: what is wrong, what it is, and what would do.

use std::borrow::Cow;

/// Said of a grammar that names tokens.
pub(super) const NAMES_TOKENS: &str = "it names tokens (<...>); it can only say what text may come";
/// Most characters of a part of a message that may quote a whole spec.
const SAID: usize = 300;
/// Most characters of a value that is named within a message.
const NAMED: usize = 60;
/// How often one thing is said in one message, at most.
const TIMES: usize = 4;

/// Said of too much that may come next.
pub(super) const TOO_WIDE: &str =
    "too much can come next at one place: use fewer optional parts and alternatives";
const TOO_MUCH: &str = "its texts and patterns are too much together: use fewer or simpler ones";
const TOO_MANY_STATES: &str = "its patterns take too much together: use fewer or simpler ones";

/// Said of each part of a schema that nothing fulfils, and of what that lies in.
const UNSATISFIABLE: &str = "Unsatisfiable schema: ";

/// What it says, and what is said instead. A hole (`{}`) is what stands between the words around it, the last one all that is left; the holes go where the
/// other side has a hole, in order or by their number.
const WORDS: &[(&str, &str)] = &[
    // Of settings that nobody here can change.
    (
        "oneOf constraints are not supported{}",
        "oneOf is only supported where no text can fit two of its schemas: use anyOf",
    ),
    ("initial lexer configuration (grammar) too big{}", TOO_MUCH),
    ("lexer precomputation failed{}", TOO_MUCH),
    (
        "grammar size (number of symbols) too big{}",
        "it has too many parts: use fewer, or lower counts",
    ),
    (
        "panic: assertion failed: grammar.symbols.len(){}",
        "it has too many parts: use fewer, or lower counts",
    ),
    ("schema too large{}", "it has too many parts: use fewer"),
    ("Current row has {}", TOO_WIDE),
    ("Too many items{}", TOO_WIDE),
    ("too many states{}", TOO_MANY_STATES),
    ("too many expressions constructed{}", TOO_MANY_STATES),
    // Of keywords' values.
    (
        "Unimplemented keys: {}",
        "the keywords {} are not supported: leave them out",
    ),
    (
        "Unknown format: {}",
        "the format {} is not known: leave it out",
    ),
    (
        "Invalid type: {}",
        "{} is no type: use null, boolean, number, integer, string, array or object",
    ),
    (
        "Expected f64 for '{}', got {}",
        "{0} must be a number, is {1}",
    ),
    (
        "Expected positive integer for '{}', got {}",
        "{0} must be a whole number from 0 on, is {1}",
    ),
    (
        "Expected string for '{}' item, got {}",
        "{0} must be a list of texts, one is {1}",
    ),
    (
        "Expected string for '{}', got {}",
        "{0} must be a text, is {1}",
    ),
    (
        "Expected array for '{}', got {}",
        "{0} must be a list, is {1}",
    ),
    (
        "Expected object for '{}', got {}",
        "{0} must be an object, is {1}",
    ),
    (
        "type must be a string or array of strings{}",
        "type must be a text or a list of texts",
    ),
    (
        "schema must be an object or boolean{}",
        "a schema is a JSON object, true or false",
    ),
    ("invalid multiple of{}", "multipleOf must be more than 0"),
    (
        "Value for 'multipleOf' has too many digits: {}",
        "multipleOf has too many digits: round it",
    ),
    (
        "Only absolute $ref's {}; ref '{}'",
        "the reference {1} leads out of the schema: put what it means under $defs, and refer to it as #/$defs/NAME",
    ),
    (
        "circular references with sibling keys are not supported: {}",
        "the reference {} leads round to itself, with other keywords beside each reference on the way: leave those out in one place",
    ),
    (
        "Schema intersection stack level exceeded{}",
        "what holds at once there (allOf, $ref) lies too deep within itself: use fewer levels",
    ),
    (
        "min/maxProperties only supported{}",
        "minProperties and maxProperties can only be held where every one of properties is required: name them in required, or leave the counts out",
    ),
    (
        "patternProperty regexes {} and {} are not disjoint{}",
        "a name can fit both {0} and {1} in patternProperties: use patterns of which no name fits two",
    ),
    (
        "can't determine if patternProperty regexes {} and {} are disjoint{}",
        "whether a name can fit both {0} and {1} in patternProperties is too much to find out: use simpler patterns",
    ),
    (
        "Unable to determine if regex is empty: {}",
        "whether any text fits its pattern, format and length is too much to find out: use a simpler pattern, or leave one of them out",
    ),
    (
        "lookarounds not supported yet; {} in regex {}",
        "anchors within a regular expression and word boundaries are not supported: {1}",
    ),
    ("regex parse error", "the regular expression can't be read"),
    // Of what nothing fulfils.
    ("schema is false", "it is false"),
    (
        "anyOf is empty",
        "the list of its alternatives is empty (enum or anyOf)",
    ),
    (
        "oneOf is empty",
        "the list of its alternatives is empty (oneOf)",
    ),
    (
        "incompatible types",
        "what holds at once wants values of different types",
    ),
    (
        "incompatible boolean values",
        "what holds at once wants different values",
    ),
    (
        "All options in anyOf are unsatisfiable",
        "nothing fulfils any of its alternatives",
    ),
    (
        "required property '{}' is unsatisfiable",
        "nothing fulfils the required property {}",
    ),
    (
        "required item is unsatisfiable",
        "nothing fulfils an item that minItems asks for",
    ),
    (
        "prefixItems[{}] is unsatisfiable but minItems is ",
        "nothing fulfils prefixItems/{}, and minItems is ",
    ),
    (
        "Constant {} doesn't match length constraints",
        "the text {} does not have the length that is asked for",
    ),
    (
        "Regex is empty: {}",
        "no text fits its pattern, format and length together",
    ),
    (
        "minProperties > maxProperties",
        "minProperties is more than maxProperties",
    ),
    (
        "required > maxProperties",
        "required names more than maxProperties allows",
    ),
];

/// A message in our words; what stands before what is known (a place) stays.
fn ours(message: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(message);
    if let Some((before, why)) = message.split_once(UNSATISFIABLE) {
        let why = why.replace(UNSATISFIABLE, "");
        out = Cow::Owned(format!("{before}nothing fulfils it: {why}"));
    }
    for (theirs, ours) in WORDS {
        for _ in 0..TIMES {
            let Some(said) = instead(&out, theirs, ours) else {
                break;
            };
            out = Cow::Owned(said);
        }
    }
    out
}

/// The message with the first of what fits `theirs` replaced, if anything does.
fn instead(message: &str, theirs: &str, ours: &str) -> Option<String> {
    let mut parts = theirs.split("{}");
    let first = parts.next().filter(|first| !first.is_empty())?;
    let (before, mut rest) = message.split_once(first)?;
    let mut holes: Vec<&str> = Vec::new();
    for part in parts {
        let (hole, after) = match part {
            "" => (rest, ""),
            part => rest.split_once(part)?,
        };
        holes.push(hole);
        rest = after;
    }
    let before = before.strip_suffix("Parser Error: ").unwrap_or(before);
    let mut said = before.to_owned();
    let mut next = 0usize;
    let mut pieces = ours.split('{');
    said.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (number, text) = piece.split_once('}')?;
        let hole = number.parse().unwrap_or(next);
        next = hole.saturating_add(1);
        said.push_str(&shortened(
            holes.get(hole).copied().unwrap_or_default(),
            NAMED,
        ));
        said.push_str(text);
    }
    said.push_str(rest);
    Some(said)
}

/// A text with so many characters at most.
fn shortened(text: &str, most: usize) -> String {
    let mut out: String = text.chars().take(most).collect();
    if out.len() < text.len() {
        out.push('…');
    }
    out
}

/// The first thing that one of llguidance's messages says, in one line.
pub(super) fn tidy(message: &str) -> String {
    if message.contains("special token") {
        return NAMES_TOKENS.to_owned();
    }
    // A regular expression's message draws a picture, and then says what is wrong.
    let said = message
        .lines()
        .find_map(|l| l.trim().strip_prefix("error: "));
    let first = message.lines().map(str::trim).find(|l| !l.is_empty());
    let first = first.unwrap_or("nothing is said").trim_end_matches(':');
    let first = &*ours(first);
    if let Some(failure) = first.strip_prefix("panic: ") {
        return format!(
            "it is too large, or its compiler failed: {}",
            shortened(failure, SAID)
        );
    }
    let mut out = shortened(first, SAID);
    if let Some(said) = said {
        out.push_str(": ");
        out.extend(said.chars().take(SAID));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_put_in_place_of_others() {
        for (theirs, ours) in [
            (
                "at #/a: Expected f64 for 'minimum', got \"x\"",
                "at #/a: minimum must be a number, is \"x\"",
            ),
            (
                "patternProperty regexes /a/ and /b/ are not disjoint",
                "a name can fit both /a/ and /b/ in patternProperties: use patterns of which no name fits two",
            ),
            (
                "Unsatisfiable schema: required property 'b' is unsatisfiable: Unsatisfiable schema: schema is false",
                "nothing fulfils it: nothing fulfils the required property b: it is false",
            ),
            (
                "Unsatisfiable schema: prefixItems[2] is unsatisfiable but minItems is 3",
                "nothing fulfils it: nothing fulfils prefixItems/2, and minItems is 3",
            ),
            ("Parser Error: Current row has 3000 items; max", TOO_WIDE),
            ("what nobody knows", "what nobody knows"),
        ] {
            assert_eq!(tidy(theirs), ours);
        }
        let long = tidy(&format!("Invalid type: {}", "x".repeat(1000)));
        assert!(
            long.ends_with(
                "… is no type: use null, boolean, number, integer, string, array or object"
            ),
            "{long}"
        );
    }

    #[test]
    fn no_words_hold_what_they_stand_for() {
        for (theirs, _) in WORDS {
            for (_, ours) in WORDS {
                let plain = ours
                    .replace("{}", "x")
                    .replace("{0}", "x")
                    .replace("{1}", "y");
                assert_eq!(instead(&plain, theirs, "z"), None, "{plain}");
            }
        }
    }
}
