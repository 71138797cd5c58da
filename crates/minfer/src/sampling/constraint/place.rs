//! Where in a schema lies what its compiler refuses: it says what, but seldom where.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::compile::grammar_of;
use super::schema;
use crate::chat::tools::plain::{INNER, NAMED, find, path_of, plain_schema};

/// Longest schema that is searched, in bytes: each try copies it.
const LONGEST: usize = 1 << 15;
/// Most parts of it that are tried.
const TRIES: usize = 256;
/// Where the whole stands beside a part that is tried alone: the part's references lead into it.
const ROOT: &str = "#/$defs/whole";

/// A part of a schema.
struct Part<'a> {
    /// The way to it, with the references that lead there.
    at: String,
    /// As it was written.
    own: &'a Value,
    /// In plain words; its references go from [`ROOT`].
    plain: &'a Value,
}

/// What is refused of a schema whose refusal as a whole is `said`: the innermost part that is refused for the same reason by itself, with its place. `None`: that is
/// the whole itself, or it is too much to look for.
pub(super) fn at_fault(text: &str, said: &str) -> Option<String> {
    if text.len() > LONGEST {
        return None;
    }
    let own: Value = serde_json::from_str(text).ok()?;
    let plain = plain_schema(&own, ROOT).ok()?;
    let mut here = Part {
        at: "#".to_owned(),
        own: &own,
        plain: &plain,
    };
    let (mut found, mut tries) = (None, TRIES);
    let mut passed = BTreeSet::new();
    'inwards: loop {
        for part in parts(&own, &plain, &here) {
            if tries == 0 {
                break 'inwards;
            }
            tries = tries.saturating_sub(1);
            let why = refusal(part.plain, &plain).filter(|why| said.contains(why.as_str()));
            if let Some(why) = why
                && passed.insert(part.at.clone())
            {
                found = Some(format!("at {}: {why}", part.at));
                here = part;
                continue 'inwards;
            }
        }
        break;
    }
    found
}

/// Why a part is refused by itself.
fn refusal(part: &Value, whole: &Value) -> Option<String> {
    let Value::Object(part) = part else {
        return None;
    };
    let mut alone = part.clone();
    let definitions = Map::from_iter([("whole".to_owned(), whole.clone())]);
    alone.insert("$defs".to_owned(), Value::Object(definitions));
    let refused = grammar_of(schema::grammar(Value::Object(alone))).err()?;
    Some(refused.cause)
}

/// The parts that lie within one, and what it refers to.
fn parts<'a>(own: &'a Value, plain: &'a Value, within: &Part<'a>) -> Vec<Part<'a>> {
    let mut out = Vec::new();
    let (Value::Object(map), at) = (within.own, &within.at) else {
        return out;
    };
    for (key, value) in map {
        let is = |keys: &[&str]| keys.contains(&key.as_str());
        let Some(made) = within.plain.get(key) else {
            continue;
        };
        match (value, made) {
            (Value::String(reference), Value::String(to)) if key == "$ref" => {
                let target = path_of(reference).and_then(|path| find(own, &path));
                let rest = to
                    .strip_prefix(ROOT)
                    .and_then(|to| path_of(&format!("#{to}")));
                let made = rest.and_then(|path| find(plain, &path));
                out.extend(target.zip(made).map(|(own, plain)| Part {
                    at: reference.clone(),
                    own,
                    plain,
                }));
            }
            (Value::Object(named), made) if is(NAMED) => {
                out.extend(named.iter().filter_map(|(name, own)| {
                    Some(Part {
                        at: format!("{at}/{key}/{name}"),
                        own,
                        plain: made.get(name)?,
                    })
                }));
            }
            (Value::Array(list), Value::Array(made)) if is(INNER) => {
                let all = list.iter().zip(made).enumerate();
                out.extend(all.map(|(i, (own, plain))| Part {
                    at: format!("{at}/{key}/{i}"),
                    own,
                    plain,
                }));
            }
            (own, plain) if is(INNER) => out.push(Part {
                at: format!("{at}/{key}"),
                own,
                plain,
            }),
            _ => {}
        }
    }
    out
}
