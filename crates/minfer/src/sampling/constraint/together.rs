//! How many patterns one string has to match at once, by `allOf`, references and what objects and lists say of the same part.
//!
//! What matches them all is found by walking the states of all: each further pattern can double the work and
//! the memory of compiling (ten take 13 ms, fourteen a second, twenty-six all memory).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::chat::tools::plain::{find, path_of};
use crate::chat::tools::vacuous::holds_format;

/// The most patterns that one string may have to match at once.
pub(super) const TOGETHER: usize = 8;

/// Looks at a schema for all of one text: nothing that people write comes near.
const STEPS: usize = 400_000;
/// Alternatives within alternatives that are looked at.
const DEPTH: usize = 16;

/// Looks for strings that have to match too much.
pub(super) struct Look<'a> {
    root: &'a Value,
    steps: usize,
    /// Schemas that hold at once and were looked at.
    seen: BTreeSet<Vec<*const Value>>,
}

impl<'a> Look<'a> {
    /// For a whole schema.
    pub(super) fn new(root: &'a Value) -> Look<'a> {
        Look {
            root,
            steps: STEPS,
            seen: BTreeSet::new(),
        }
    }

    /// The most patterns that a string in what this part of the schema allows has to match at once; what was looked at before is not counted again. `None` when
    /// too much holds at once to be looked at.
    pub(super) fn patterns(&mut self, schema: &'a Value) -> Option<usize> {
        let mut most = 0;
        let mut waiting = vec![vec![schema]];
        while let Some(schemas) = waiting.pop() {
            let mut all = Together::default();
            for schema in schemas {
                self.gather(schema, &mut all);
            }
            if !self.seen.insert(all.known.into_iter().collect()) {
                continue;
            }
            let all = all.schemas;
            let here = all.iter().map(|s| self.own(s, DEPTH)).sum();
            most = most.max(here);
            self.members(&all, &mut waiting);
            self.items(&all, &mut waiting);
            if self.steps == 0 {
                return None;
            }
        }
        Some(most)
    }

    /// Takes so many steps, if there are as many left.
    fn spend(&mut self, steps: usize) -> bool {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.is_some()
    }

    /// What holds at once for a member of an object: of each name, with each pattern that it may fit.
    fn members(&mut self, all: &[&'a Value], waiting: &mut Vec<Vec<&'a Value>>) {
        let [names, patterns] = ["properties", "patternProperties"].map(|key| keys(all, key));
        let pairs = names.len().saturating_mul(patterns.len());
        if !self.spend(pairs.saturating_mul(all.len())) {
            return;
        }
        for name in names {
            for pattern in &patterns {
                let said = all.iter().flat_map(|s| of_member(s, name, *pattern));
                waiting.extend(Some(said.collect()).filter(|all: &Vec<_>| !all.is_empty()));
            }
        }
    }

    /// What holds at once for an item of a list: of each place, and of the rest.
    fn items(&mut self, all: &[&'a Value], waiting: &mut Vec<Vec<&'a Value>>) {
        let longest = all.iter().map(|s| first_items(s).len()).max();
        let places = longest.unwrap_or(0).saturating_add(1);
        if !self.spend(places.saturating_mul(all.len())) {
            return;
        }
        for place in 0..places {
            let said = all.iter().filter_map(|s| of_item(s, place));
            waiting.extend(Some(said.collect()).filter(|all: &Vec<_>| !all.is_empty()));
        }
    }

    /// Adds a schema and all that hold with it, each once.
    fn gather(&mut self, schema: &'a Value, all: &mut Together<'a>) {
        // A chain of references may be longer than a thread's stack is deep.
        let mut open = vec![schema];
        while let Some(schema) = open.pop() {
            if !self.spend(1) {
                return;
            }
            if !all.known.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            all.schemas.push(schema);
            let reference = schema.get("$ref").and_then(Value::as_str);
            let target = reference.and_then(path_of);
            open.extend(target.and_then(|p| find(self.root, &p)));
            open.extend(list(schema, "allOf"));
        }
    }

    /// Those that a schema says itself, with its alternatives that say most.
    fn own(&mut self, schema: &'a Value, depth: usize) -> usize {
        let pattern = schema.get("pattern").is_some();
        let mut own = usize::from(pattern).saturating_add(usize::from(holds_format(schema)));
        let Some(depth) = depth.checked_sub(1) else {
            return own;
        };
        for key in ["anyOf", "oneOf"] {
            let alternatives = list(schema, key).iter().map(|alternative| {
                let mut all = Together::default();
                self.gather(alternative, &mut all);
                let said = all.schemas.iter().map(|s| self.own(s, depth));
                said.fold(0, usize::saturating_add)
            });
            own = own.saturating_add(alternatives.max().unwrap_or(0));
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

/// A list that a schema has.
fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    let list = schema.get(key).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// The names that schemas have under a keyword, and none of them.
fn keys<'a>(all: &[&'a Value], key: &str) -> BTreeSet<Option<&'a str>> {
    let objects = all.iter().filter_map(|s| s.get(key)?.as_object());
    let names = objects.flat_map(|named| named.keys().map(|name| Some(name.as_str())));
    names.chain([None]).collect()
}

/// What a schema says of a member with this name that fits this pattern.
fn of_member<'a>(
    schema: &'a Value,
    name: Option<&str>,
    pattern: Option<&str>,
) -> impl Iterator<Item = &'a Value> + use<'a> {
    let own = |key: &str, name: Option<&str>| schema.get(key)?.get(name?);
    let said = [own("properties", name), own("patternProperties", pattern)];
    let rest = match said {
        [None, None] => schema.get("additionalProperties"),
        _ => None,
    };
    said.into_iter().flatten().chain(rest)
}

/// What a schema says of the first items of a list.
fn first_items(schema: &Value) -> &[Value] {
    match list(schema, "items") {
        [] => list(schema, "prefixItems"),
        items => items,
    }
}

/// What a schema says of the item at a place.
fn of_item(schema: &Value, place: usize) -> Option<&Value> {
    let rest = schema.get("items").filter(|items| !items.is_array());
    let rest = rest.or_else(|| schema.get("additionalItems"));
    first_items(schema).get(place).or(rest)
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

    /// A name may fit a pattern, and has what is said of other names where a schema knows neither.
    #[test]
    fn patterns_of_a_member_are_counted_by_name_pattern_and_rest() {
        let p = |c: &str| json!({"pattern": c});
        let named = json!({"properties": {"x": p("a")}, "patternProperties": {"x|y": p("b"), "z": p("c")}, "additionalProperties": p("d")});
        assert_eq!(counted(&named), 2);
        let rest = json!({"allOf": [{"properties": {"x": p("a")}}, {"additionalProperties": p("b")}, {"patternProperties": {"x": p("c")}}]});
        assert_eq!(counted(&rest), 3);
        let apart = json!({"patternProperties": {"a": p("a"), "b": p("b"), "c": p("c")}, "additionalProperties": p("d")});
        assert_eq!(counted(&apart), 1);
        let same = json!({"allOf": [{"patternProperties": {"a": p("a")}}, {"patternProperties": {"a": p("b")}}, {"patternProperties": {"b": p("c")}, "additionalProperties": p("d")}]});
        assert_eq!(counted(&same), 3);
    }

    #[test]
    fn patterns_of_an_item_are_counted_by_its_place() {
        let p = |c: &str| json!({"pattern": c});
        let places = json!({"allOf": [{"prefixItems": [p("a"), p("b")]}, {"prefixItems": [{}, p("c")], "items": p("d")}, {"items": [p("e"), p("f")], "additionalItems": p("g")}]});
        assert_eq!(counted(&places), 3);
        let rest = json!({"allOf": [{"items": p("a")}, {"items": [], "additionalItems": p("b")}, {"prefixItems": [p("c")]}]});
        assert_eq!(counted(&rest), 3);
    }

    /// Only what is held to counts: other formats are notes.
    #[test]
    fn a_format_that_is_a_note_is_no_pattern() {
        let known = json!({"allOf": [{"format": "date"}, {"format": "path"}, {"format": "int32"}], "pattern": "a"});
        assert_eq!(counted(&known), 2);
    }

    /// Each node of a tree has three: level for level there are three times as many ways, but never another schema.
    #[test]
    fn a_tree_is_looked_at_once() {
        let node = json!({"$ref": "#/$defs/node", "description": "a child"});
        let tree = json!({"allOf": [node], "$defs": {"node": {"properties": {"a": node, "b": node, "c": node, "name": {"pattern": "a"}}}}});
        let mut look = Look::new(&tree);
        assert_eq!(look.patterns(&tree), Some(1));
        assert!(STEPS - look.steps < 500, "{}", look.steps);
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
