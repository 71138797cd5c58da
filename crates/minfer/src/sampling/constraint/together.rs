//! How many patterns one string has to match at once, by `allOf`.
//!
//! What matches them all is found by walking the states of all: each further pattern can double the work and
//! the memory of compiling (ten take 13 ms, fourteen a second, twenty-six all memory).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::chat::tools::plain::{find, path_of};

/// The most patterns that one string may have to match at once.
pub(super) const TOGETHER: usize = 8;

/// Schemas that are looked at for all `allOf` of one text: nothing that people write comes near.
const STEPS: usize = 200_000;
/// Properties within properties that are looked at.
const DEPTH: usize = 16;

/// Looks for strings that have to match too much.
pub(super) struct Look<'a> {
    root: &'a Value,
    steps: usize,
}

impl<'a> Look<'a> {
    /// For a whole schema.
    pub(super) fn new(root: &'a Value) -> Look<'a> {
        Look { root, steps: STEPS }
    }

    /// The most patterns that a string in what this part of the schema allows has to match at once. `None` when too
    /// much holds at once to be looked at.
    pub(super) fn patterns(&mut self, schema: &'a Value) -> Option<usize> {
        let most = self.most(vec![schema], DEPTH);
        (self.steps > 0).then_some(most)
    }

    /// The most in a value for which all these schemas hold.
    fn most(&mut self, schemas: Vec<&'a Value>, depth: usize) -> usize {
        let mut all = Together::default();
        for schema in schemas {
            self.gather(schema, &mut all);
        }
        let all = all.schemas;
        let here = all.iter().map(|s| self.own(s, depth)).sum::<usize>();
        if depth == 0 {
            return here;
        }
        let mut most = here;
        let mut names: Vec<&str> = properties(&all).map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let same = properties(&all).filter(|(n, _)| *n == name);
            most = most.max(self.most(same.map(|(_, s)| s).collect(), depth - 1));
        }
        for key in ["items", "additionalProperties"] {
            let inner: Vec<_> = all.iter().filter_map(|s| s.get(key)).collect();
            if !inner.is_empty() {
                most = most.max(self.most(inner, depth - 1));
            }
        }
        most
    }

    /// Adds a schema and all that hold with it, each once.
    fn gather(&mut self, schema: &'a Value, all: &mut Together<'a>) {
        if self.steps == 0 || !all.known.insert(std::ptr::from_ref(schema)) {
            return;
        }
        self.steps -= 1;
        all.schemas.push(schema);
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some(target) = reference
            .and_then(path_of)
            .and_then(|p| find(self.root, &p))
        {
            self.gather(target, all);
        }
        for member in schema
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.gather(member, all);
        }
    }

    /// Those that a schema says itself, with its alternatives that say most.
    fn own(&mut self, schema: &'a Value, depth: usize) -> usize {
        let said = ["pattern", "format"]
            .iter()
            .filter(|key| schema.get(**key).is_some());
        let mut own = said.count();
        if depth == 0 {
            return own;
        }
        for list in ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)) {
            let alternatives = list.as_array().into_iter().flatten();
            own += alternatives
                .map(|alternative| {
                    let mut all = Together::default();
                    self.gather(alternative, &mut all);
                    all.schemas.iter().map(|s| self.own(s, depth - 1)).sum()
                })
                .max()
                .unwrap_or(0);
        }
        own
    }
}

/// Schemas that hold at once, each once.
#[derive(Default)]
struct Together<'a> {
    schemas: Vec<&'a Value>,
    known: BTreeSet<*const Value>,
}

/// All properties of these schemas.
fn properties<'a>(all: &[&'a Value]) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let objects = all.iter().filter_map(|s| s.get("properties")?.as_object());
    objects
        .flatten()
        .map(|(name, schema)| (name.as_str(), schema))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counted(schema: &Value) -> usize {
        Look::new(schema).patterns(schema).expect("not much")
    }

    #[test]
    fn patterns_of_one_string_are_counted() {
        let p = |c: &str| json!({"pattern": format!(".*{c}.*")});
        let pair = json!({"allOf": [p("a"), p("b")], "pattern": "c"});
        assert_eq!(counted(&pair), 3);
        assert_eq!(counted(&json!({"anyOf": [p("a"), p("b"), pair]})), 3);
        let apart = json!({"properties": {"x": p("a"), "y": p("b"), "z": {"format": "date"}}});
        assert_eq!(counted(&apart), 1);
        let same =
            json!({"allOf": [{"properties": {"x": p("a")}}, {"properties": {"x": p("b")}}, apart]});
        assert_eq!(counted(&same), 3);
        let items = json!({"allOf": [{"items": p("a")}, {"items": {"$ref": "#/$defs/b"}}], "$defs": {"b": pair}});
        assert_eq!(counted(&items), 4);
    }

    #[test]
    fn what_refers_to_itself_ends() {
        let round = json!({"allOf": [
            {"properties": {"x": {"$ref": "#"}, "y": {"$ref": "#"}}, "pattern": "a"},
            {"properties": {"x": {"$ref": "#"}, "y": {"$ref": "#"}}, "anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        ]});
        let most = Look::new(&round).patterns(&round);
        assert!(most.is_none_or(|n| n >= 1), "{most:?}");
    }
}
