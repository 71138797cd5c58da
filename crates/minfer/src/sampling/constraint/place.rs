//! Where in a schema lies what its compiler refuses: it says what, but seldom where.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::compile::parsed;
use super::schema;
use crate::chat::tools::plain::{INNER, NAMED, find, path_of, plain_schema};

/// Longest schema that is searched, in bytes: each try copies it.
const LONGEST: usize = 1 << 15;
/// Most parts of it that are looked at, for the same reason.
const LOOKS: usize = 1024;
/// Bytes that all tries together compile, in times the schema's own.
const TIMES: usize = 8;
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
    /// Whether what it lies in can't be fulfilled without it.
    needed: bool,
}

/// What is refused of a schema whose refusal as a whole is `said`: the innermost part that is refused for the same reason by itself, with its place. `None`: that is
/// the whole itself, or it is too much to look for.
pub(super) fn at_fault(text: &str, said: &str) -> Option<String> {
    if text.len() > LONGEST {
        return None;
    }
    let own: Value = serde_json::from_str(text).ok()?;
    let plain = plain_schema(&own, ROOT).ok()?;
    Search::of(&own, &plain).innermost(said, |part| refusal(part, &plain))
}

/// Why a part is refused by itself.
fn refusal(part: &Value, whole: &Value) -> Option<String> {
    let Value::Object(part) = part else {
        return None;
    };
    let mut alone = part.clone();
    let definitions = Map::from_iter([("whole".to_owned(), whole.clone())]);
    alone.insert("$defs".to_owned(), Value::Object(definitions));
    let refused = parsed(schema::grammar(Value::Object(alone)), None).err()?;
    Some(refused.cause)
}

/// A search, and what it may still cost.
struct Search<'a> {
    /// The whole as it was written.
    own: &'a Value,
    /// In plain words.
    plain: &'a Value,
    looks: usize,
    /// Bytes that may still be compiled.
    left: usize,
    /// How often what a reference leads to was compiled in parts that are not at fault. It counts as often the next time: few bytes may take
    /// long, and be referred to everywhere.
    again: BTreeMap<&'a str, usize>,
}

impl<'a> Search<'a> {
    fn of(own: &'a Value, plain: &'a Value) -> Search<'a> {
        let mut search = Search {
            own,
            plain,
            looks: LOOKS,
            left: usize::MAX,
            again: BTreeMap::new(),
        };
        let whole = search.weight(plain).map_or(0, |(bytes, _)| bytes);
        search.left = whole.saturating_mul(TIMES);
        search
    }

    /// Goes from part to part within it. `refused`: why one is refused by itself.
    fn innermost(
        mut self,
        said: &str,
        mut refused: impl FnMut(&Value) -> Option<String>,
    ) -> Option<String> {
        let mut here = Part {
            at: "#".to_owned(),
            own: self.own,
            plain: self.plain,
            needed: true,
        };
        let mut found = None;
        let mut passed = BTreeSet::new();
        let mut same = |part: &Value| refused(part).filter(|why| said.contains(why.as_str()));
        while let Some((part, why)) = self.within(&here, &passed, &mut same) {
            found = Some(format!("at {}: {why}", part.at));
            passed.insert(part.at.clone());
            here = part;
        }
        found
    }

    /// The first part within one that is refused; not one of those `passed`.
    fn within(
        &mut self,
        here: &Part<'a>,
        passed: &BTreeSet<String>,
        refused: &mut impl FnMut(&Value) -> Option<String>,
    ) -> Option<(Part<'a>, String)> {
        for part in parts(self.own, self.plain, here) {
            self.looks = self.looks.checked_sub(1)?;
            if passed.contains(&part.at) {
                continue;
            }
            // What costs too much is left out: what is at fault may cost little.
            let Some((bytes, targets)) = self.weight(part.plain) else {
                continue;
            };
            self.left = self.left.saturating_sub(bytes);
            if let Some(why) = refused(part.plain) {
                return Some((part, why));
            }
            for target in targets {
                let times = self.again.entry(target).or_default();
                *times = times.saturating_add(1);
            }
        }
        None
    }

    /// About how many bytes are compiled for a part, with what it refers to, which is named. `None`: more than are left.
    fn weight(&self, part: &'a Value) -> Option<(usize, BTreeSet<&'a str>)> {
        let (mut bytes, mut targets) = (0usize, BTreeSet::new());
        let mut waiting = vec![(part, 1usize)];
        while let Some((value, times)) = waiting.pop() {
            let own: usize = match value {
                Value::Object(map) => {
                    waiting.extend(map.values().map(|inner| (inner, times)));
                    let to = map.get("$ref").and_then(Value::as_str);
                    if let Some(to) = to.filter(|to| targets.insert(*to)) {
                        let times = self.again.get(to).map_or(1, |n| n.saturating_add(1));
                        waiting.extend(target(self.plain, to).map(|inner| (inner, times)));
                    }
                    map.keys().map(|key| key.len().saturating_add(4)).sum()
                }
                Value::Array(list) => {
                    waiting.extend(list.iter().map(|inner| (inner, times)));
                    list.len()
                }
                Value::String(text) => text.len().saturating_add(2),
                _ => 4,
            };
            bytes = bytes.saturating_add(own.saturating_mul(times));
            if bytes > self.left {
                return None;
            }
        }
        Some((bytes, targets))
    }
}

/// What a plain reference leads to. Its names stand there as they are.
fn target<'a>(plain: &'a Value, to: &str) -> Option<&'a Value> {
    let names = to.strip_prefix(ROOT)?.split('/').skip(1);
    let path: Vec<String> = names.map(str::to_owned).collect();
    find(plain, &path)
}

/// The parts that lie within one, and what it refers to; first those it can't be fulfilled without, since another one that is impossible is no fault.
fn parts<'a>(own: &'a Value, plain: &'a Value, within: &Part<'a>) -> Vec<Part<'a>> {
    let Value::Object(map) = within.own else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for (key, value) in map {
        match (value, within.plain.get(key)) {
            (Value::String(reference), Some(Value::String(to))) if key == "$ref" => {
                let written = path_of(reference).and_then(|path| find(own, &path));
                out.extend(written.zip(target(plain, to)).map(|(own, plain)| Part {
                    at: reference.clone(),
                    own,
                    plain,
                    needed: true,
                }));
            }
            (value, Some(made)) => out.extend(under(within, key, value, made)),
            _ => {}
        }
    }
    out.sort_by_key(|part| !part.needed);
    out
}

/// The parts that lie under a keyword of one.
fn under<'a>(within: &Part<'a>, key: &str, own: &'a Value, plain: &'a Value) -> Vec<Part<'a>> {
    let at = format!("{}/{key}", within.at);
    let is = |keys: &[&str]| keys.contains(&key);
    match (own, plain) {
        (Value::Object(named), made) if is(NAMED) => {
            let required = within.own.get("required").and_then(Value::as_array);
            let required = required.into_iter().flatten().filter_map(Value::as_str);
            let required: BTreeSet<&str> = required.filter(|_| key == "properties").collect();
            let all = named.iter().filter_map(|(name, own)| {
                Some(Part {
                    at: format!("{at}/{name}"),
                    own,
                    plain: made.get(name)?,
                    needed: required.contains(name.as_str()),
                })
            });
            all.collect()
        }
        (Value::Array(list), Value::Array(made)) if is(INNER) => {
            let all = list.iter().zip(made).enumerate();
            let all = all.map(|(i, (own, plain))| Part {
                at: format!("{at}/{i}"),
                own,
                plain,
                needed: key == "allOf",
            });
            all.collect()
        }
        (own, plain) if is(INNER) => vec![Part {
            at,
            own,
            plain,
            needed: false,
        }],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The place that is found in a schema, and how often something was compiled that refers to `#/$defs/costly`.
    fn searched(schema: &Value) -> (Option<String>, usize) {
        let said = parsed(schema::grammar(schema.clone()), None).err().unwrap();
        let plain = plain_schema(schema, ROOT).unwrap();
        let mut tries = 0;
        let found = Search::of(schema, &plain).innermost(&said.all, |part| {
            tries += usize::from(part.to_string().contains("/$defs/costly"));
            refusal(part, &plain)
        });
        (found, tries)
    }

    /// What is referred to from everywhere is compiled a few times, be it much of the schema or a few bytes of it, and be the parts equal or not;
    /// and the part at fault is found behind it.
    #[test]
    fn a_costly_part_is_not_compiled_for_each_reference_to_it() {
        let words = |n: usize| (0..n).map(|i| format!("word {i}")).collect::<Vec<_>>();
        for (costly, most) in [
            (json!({"enum": words(1000)}), 8),
            (json!({"enum": words(60)}), 24),
        ] {
            for notes in [false, true] {
                let mut properties: Map<String, Value> = (0..250)
                    .map(|i| {
                        let mut part = json!({"$ref": "#/$defs/costly"});
                        if notes {
                            part["title"] = json!(i.to_string());
                        }
                        (format!("p{i}"), part)
                    })
                    .collect();
                properties.insert("wrong".to_owned(), json!({"type": "strin"}));
                let schema = json!({"properties": properties, "$defs": {"costly": costly}});
                let (found, tries) = searched(&schema);
                let found = found.unwrap_or_default();
                assert!(found.starts_with("at #/properties/wrong: "), "{found}");
                assert!((1..=most).contains(&tries), "{tries} tries");
            }
        }
    }

    /// Parts that lie deep are not compiled again for each that they lie in; how far the search came is told.
    #[test]
    fn a_search_that_costs_too_much_tells_how_far_it_came() {
        let words: Vec<String> = (0..1000).map(|i| format!("word {i}")).collect();
        let mut schema = json!({"type": "strin", "enum": words});
        for _ in 0..30 {
            schema = json!({"allOf": [schema]});
        }
        let found = searched(&schema).0.unwrap_or_default();
        let place = found.strip_prefix("at #").and_then(|f| f.split(':').next());
        let deep = place.unwrap_or_default().matches("/allOf/0").count();
        assert!((2..=TIMES).contains(&deep), "{found}");
    }
}
