//! JSON schemas, before llguidance sees them.

use std::collections::{BTreeSet, VecDeque};

use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Number, Value, json};

use super::repeats::{self, REPEATS};
use super::together::{Look, TOGETHER};
use crate::chat::tools::plain::{INNER, NAMED, Path, find, path_of, plain_schema};
use crate::chat::tools::vacuous::asks_nothing;

/// White space between the parts of a JSON text: as llama.cpp's, it can't go on forever.
const SPACE: &str = r" |\n{1,2}[ \t]{0,20}";

/// Most properties of one object that may be left out. Each may come after any of those before it, and takes some four items of a row of the parser, which may
/// have 2,000: 400 are followed (compiled in 0.1 s, 15 ms the slowest step), 700 are not.
const OPTIONAL: usize = 400;

/// Any JSON object.
pub(super) fn any_object() -> TopLevelGrammar {
    grammar(json!({"type": "object"}))
}

/// A schema. Errors say what is wrong and where.
pub(super) fn read(text: &str) -> Result<TopLevelGrammar, String> {
    let schema: Value = serde_json::from_str(text).map_err(|e| format!("it is no JSON: {e}"))?;
    match &schema {
        Value::Object(_) => {}
        Value::Bool(true) => return Ok(grammar(json!({}))),
        _ => return Err("a schema is a JSON object, or true".to_owned()),
    }
    Check::of(&schema, false).all()?;
    plain_schema(&schema, "#").map(grammar)
}

/// Refuses what costs too much, and counts beyond any answer, of a schema that llguidance reads itself, and nothing else: it stands in a Lark grammar.
pub(super) fn counts(schema: &Value) -> Result<(), String> {
    Check::of(schema, true).all()
}

/// A schema that was looked at, with the white space that is allowed here.
pub(super) fn grammar(mut schema: Value) -> TopLevelGrammar {
    if let Value::Object(map) = &mut schema {
        map.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_pattern": SPACE}),
        );
    }
    TopLevelGrammar::from_json_schema(schema)
}

/// Keywords that say something which no grammar here can.
const UNSUPPORTED: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "x-guidance",
];
/// Keywords whose value is a count that must be reached.
const LEAST: &[&str] = &["minItems", "minLength", "minProperties"];
/// The other keywords that mean something, or are known to mean nothing.
const KNOWN: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$ref",
    "$schema",
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "deprecated",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "id",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "readOnly",
    "required",
    "title",
    "type",
    "writeOnly",
];

/// Looks for what llguidance would refuse without saying where, or read in another way than the schema's author. What lies under `$defs` counts
/// only if it is referred to. JSON from text nests at most 127 deep.
struct Check<'a> {
    root: &'a Value,
    /// Where the schema is that is looked at.
    at: String,
    /// What was referred to.
    known: BTreeSet<Path>,
    /// What of that is still to be looked at, and the reference to it.
    waiting: VecDeque<(String, &'a Value)>,
    /// References that are known to lead to a schema that says something.
    sound: BTreeSet<Path>,
    /// What strings must match at once.
    look: Look<'a>,
    /// Whether it is looked for counts beyond any answer only.
    counts: bool,
}

impl<'a> Check<'a> {
    fn of(root: &'a Value, counts: bool) -> Check<'a> {
        Check {
            root,
            at: "#".to_owned(),
            known: BTreeSet::from([Path::new()]),
            waiting: VecDeque::new(),
            sound: BTreeSet::new(),
            look: Look::new(root),
            counts,
        }
    }

    fn all(mut self) -> Result<(), String> {
        self.schema(self.root)?;
        while let Some((at, schema)) = self.waiting.pop_front() {
            self.at = at;
            self.inner(schema)?;
        }
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value) -> Result<(), String> {
        let Value::Object(map) = schema else {
            return Ok(());
        };
        let mut unsupported = UNSUPPORTED.iter().filter(|_| !self.counts);
        let asks = |key: &&&str| map.get(**key).is_some_and(|v| !asks_nothing(map, key, v));
        if let Some(key) = unsupported.find(asks) {
            return Err(format!("the keyword {key} at {} is not supported", self.at));
        }
        self.optional(map)?;
        for (key, value) in map {
            self.within(key, |check| {
                if asks_nothing(map, key, value) {
                    check.left_out(key, value);
                    return Ok(());
                }
                check.keyword(key, value)
            })?;
        }
        let several = map.contains_key("allOf") || map.contains_key("$ref") && map.len() > 1;
        let several = several || map.contains_key("patternProperties");
        if several && self.look.patterns(schema).is_none_or(|n| n > TOGETHER) {
            return Err(format!(
                "the schemas that hold at once at {} (allOf, $ref, patternProperties) want one string to match more than {TOGETHER} patterns: use fewer, or \
                 put what they say into one pattern",
                self.at
            ));
        }
        match map.get("$ref") {
            Some(Value::String(reference)) => self.reference(schema, reference),
            _ => Ok(()),
        }
    }

    /// A keyword that asks for nothing; a format that is only a note is told, since it looks as if it were held to.
    fn left_out(&self, key: &str, value: &Value) {
        if key == "format" && !self.counts {
            tracing::debug!(
                "{} in the JSON schema is {value}: a note, nothing is held to it",
                self.at
            );
        }
    }

    /// Not more optional properties than can be followed.
    fn optional(&self, map: &Map<String, Value>) -> Result<(), String> {
        let Some(Value::Object(properties)) = map.get("properties") else {
            return Ok(());
        };
        let required = map.get("required").and_then(Value::as_array);
        let required: BTreeSet<&str> = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let names = properties.keys();
        let n = names
            .filter(|name| !required.contains(name.as_str()))
            .count();
        match n > OPTIONAL {
            true => Err(format!(
                "the schema at {} has {n} optional properties: at most {OPTIONAL} of one object can be followed; name others in required, or leave them out",
                self.at
            )),
            false => Ok(()),
        }
    }

    /// A schema that is not the root.
    fn inner(&mut self, schema: &'a Value) -> Result<(), String> {
        match schema.get("$id") {
            None => self.schema(schema),
            Some(_) if self.counts => self.schema(schema),
            Some(_) => Err(format!(
                "$id at {} is not supported: references go from the root (#/...)",
                self.at
            )),
        }
    }

    /// What stands under a name, with the name in its place.
    fn within(
        &mut self,
        name: &str,
        look: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let end = self.at.len();
        self.at.push('/');
        self.at.push_str(name);
        let seen = look(self);
        self.at.truncate(end);
        seen
    }

    fn keyword(&mut self, key: &str, value: &'a Value) -> Result<(), String> {
        match value {
            Value::Object(named) if NAMED.contains(&key) => {
                let mut patterns = named.keys().filter(|_| key == "patternProperties");
                patterns.try_for_each(|p| self.pattern(p))?;
                self.named(named)
            }
            Value::Array(list) if INNER.contains(&key) => {
                let mut all = list.iter().enumerate();
                all.try_for_each(|(i, inner)| self.within(&i.to_string(), |c| c.inner(inner)))
            }
            inner if INNER.contains(&key) => self.inner(inner),
            Value::Number(n) if LEAST.contains(&key) => self.least(n),
            Value::String(pattern) if key == "pattern" => self.pattern(pattern),
            _ if KNOWN.contains(&key) || NAMED.contains(&key) => Ok(()),
            _ => {
                tracing::debug!(
                    "{} in the JSON schema is no keyword and means nothing",
                    self.at
                );
                Ok(())
            }
        }
    }

    /// A regular expression whose counts can be reached.
    fn pattern(&self, pattern: &str) -> Result<(), String> {
        repeats::in_regex(pattern)
            .map_err(|why| format!("the regular expression at {}: {why}", self.at))
    }

    /// A count that must be reached, and can be.
    fn least(&self, n: &Number) -> Result<(), String> {
        match n.as_f64().is_some_and(|n| n > f64::from(REPEATS)) {
            true => Err(format!(
                "{} is {n}: no more than {REPEATS} can be asked for",
                self.at
            )),
            false => Ok(()),
        }
    }

    fn named(&mut self, named: &'a Map<String, Value>) -> Result<(), String> {
        let mut all = named.iter();
        all.try_for_each(|(name, inner)| self.within(name, |c| c.inner(inner)))
    }

    /// A reference must lead to a schema, and not back to itself alone.
    fn reference(&mut self, schema: &'a Value, reference: &str) -> Result<(), String> {
        let Some(path) = path_of(reference) else {
            return Ok(()); // llguidance names it
        };
        let Some(target) = find(self.root, &path) else {
            if self.counts {
                return Ok(());
            }
            return Err(format!(
                "the reference {reference} at {} leads to nothing in the schema",
                self.at
            ));
        };
        if !self.counts && self.circles(schema) {
            return Err(format!(
                "the reference {reference} at {} leads only to itself: nothing says what is to come there",
                self.at
            ));
        }
        if self.known.insert(path) {
            self.waiting.push_back((reference.to_owned(), target));
        }
        Ok(())
    }

    /// Whether a schema is nothing but references that go round.
    fn circles(&mut self, schema: &'a Value) -> bool {
        let mut here = Some(schema);
        let mut passed = BTreeSet::new();
        while let Some(path) = here.and_then(sole).and_then(path_of) {
            if self.sound.contains(&path) {
                break;
            }
            here = find(self.root, &path);
            if !passed.insert(path) {
                return true;
            }
        }
        self.sound.append(&mut passed);
        false
    }
}

/// The reference that a schema can't do without: its own, or that of the only one it is made of.
fn sole(schema: &Value) -> Option<&str> {
    if let Some(Value::String(reference)) = schema.get("$ref") {
        return Some(reference);
    }
    let lists = ["allOf", "anyOf", "oneOf"].map(|key| schema.get(key).and_then(Value::as_array));
    let only = lists.into_iter().flatten().filter(|list| list.len() == 1);
    only.flatten().find_map(sole)
}
