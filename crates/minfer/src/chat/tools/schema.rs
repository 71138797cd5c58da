//! What a tool's schema says of a value's type.

use serde_json::{Map, Value, json};

use super::plain::{find, path_of, plain_schema};
use super::{ToolError, literal};

/// Most references followed to one type.
const HOPS: usize = 8;
/// Most schemas looked at for one type: alternatives that refer to themselves are exponentially many.
const VISITS: usize = 256;

/// The types a value may have; none: any.
#[derive(Default)]
pub(super) struct Kinds(Vec<String>);

impl Kinds {
    /// Of a property of a tool's arguments.
    pub(super) fn of_property(parameters: &Value, key: &str) -> Kinds {
        let property = parameters.get("properties").and_then(|p| p.get(key));
        property.map_or_else(Kinds::default, |p| Kinds::of(p, parameters))
    }

    /// Of a schema within `root`.
    pub(super) fn of(schema: &Value, root: &Value) -> Kinds {
        let mut kinds = Vec::new();
        collect(schema, root, HOPS, &mut { VISITS }, &mut kinds);
        Kinds(kinds)
    }

    fn has(&self, kind: &str) -> bool {
        self.0.iter().any(|k| k == kind)
    }

    /// Whether a value may be a text.
    pub(super) fn text(&self) -> bool {
        self.0.is_empty() || self.has("string")
    }

    /// What a model wrote without JSON's quotes.
    pub(super) fn value(&self, text: &str) -> Value {
        let json = serde_json::from_str(text).ok();
        // Some templates write Python's values.
        let read = json.or_else(|| literal::read(text).filter(|_| !self.0.is_empty()));
        let fits = |value: &Value| match value {
            Value::String(_) => false,
            Value::Number(_) => self.has("number") || self.has("integer"),
            value => self.has(kind(value)),
        };
        match read {
            Some(value) if fits(&value) => value,
            Some(value) if self.0.is_empty() && !value.is_string() => value,
            _ => Value::String(text.to_owned()),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn collect(schema: &Value, root: &Value, hops: usize, visits: &mut usize, kinds: &mut Vec<String>) {
    let (Some(hops), Some(left)) = (hops.checked_sub(1), visits.checked_sub(1)) else {
        return;
    };
    *visits = left;
    if let Some(schema) = referred(schema, root) {
        return collect(schema, root, hops, visits, kinds);
    }
    let list = |key: &str| {
        schema
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    match schema.get("type") {
        Some(Value::String(kind)) => kinds.push(kind.clone()),
        Some(Value::Array(all)) => {
            kinds.extend(all.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        _ => {
            let values = list("enum").chain(schema.get("const"));
            kinds.extend(values.map(|v| kind(v).to_owned()));
            for inner in list("anyOf").chain(list("oneOf")) {
                collect(inner, root, hops, visits, kinds);
            }
        }
    }
}

/// What a schema's `$ref` stands for.
pub(super) fn referred<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    find(root, &path_of(schema.get("$ref")?.as_str()?)?)
}

/// A schema taken out of `root`, with the definitions it may refer to.
pub(super) fn alone(schema: &Value, root: &Value) -> Value {
    let mut schema = schema.clone();
    for key in ["$defs", "definitions"] {
        if let (Value::Object(map), Some(defs)) = (&mut schema, root.get(key)) {
            map.entry(key).or_insert_with(|| defs.clone());
        }
    }
    schema
}

/// Whether no object that a schema allows has this key; false: that is not known.
pub(super) fn never_has(schema: &Value, key: &str) -> bool {
    fn never(schema: &Value, root: &Value, key: &str, hops: usize, visits: &mut usize) -> bool {
        let (Some(hops), Some(left)) = (hops.checked_sub(1), visits.checked_sub(1)) else {
            return false;
        };
        *visits = left;
        if let Some(schema) = referred(schema, root) {
            return never(schema, root, key, hops, visits);
        }
        let list = |name: &str| schema.get(name).and_then(Value::as_array);
        let mut inner = |schema: &Value| never(schema, root, key, hops, visits);
        let typed = match schema.get("type") {
            Some(Value::String(kind)) => kind != "object",
            Some(Value::Array(kinds)) => !kinds.iter().any(|k| k == "object"),
            _ => *schema == Value::Bool(false),
        };
        let closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
            && schema.get("patternProperties").is_none()
            && schema
                .pointer("/properties")
                .and_then(|p| p.get(key))
                .is_none();
        typed
            || closed
            || list("enum").is_some_and(|values| values.iter().all(|v| v.get(key).is_none()))
            || schema.get("const").is_some_and(|v| v.get(key).is_none())
            || ["anyOf", "oneOf"]
                .iter()
                .filter_map(|name| list(name))
                .any(|all| all.iter().all(&mut inner))
            || list("allOf").is_some_and(|all| all.iter().any(&mut inner))
    }
    never(schema, schema, key, HOPS, &mut { VISITS })
}

/// The schema of a call in JSON, in plain words: the tool's name, then arguments of a schema under `key`.
pub(super) fn named(name: &str, key: &str, arguments: &Value) -> Result<Value, ToolError> {
    let arguments =
        plain_schema(arguments, &format!("#/properties/{key}")).map_err(ToolError::References)?;
    Ok(json!({
        "type": "object",
        "properties": {"name": {"const": name}, key: arguments},
        "required": ["name", key],
        "additionalProperties": false,
    }))
}

/// A tool's schema, which must be one of an object; null is one of no properties.
pub(super) fn object(parameters: &Value) -> Option<Map<String, Value>> {
    match parameters {
        Value::Null => {
            let mut none = Map::new();
            none.insert("type".to_owned(), "object".into());
            none.insert("additionalProperties".to_owned(), false.into());
            Some(none)
        }
        Value::Object(map) => {
            let mut map = map.clone();
            let kind = map.entry("type").or_insert_with(|| "object".into());
            (kind == "object").then_some(map)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_object_never_has_is_known_where_its_keys_are() {
        let closed =
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false});
        let refers = json!({"$ref": "#/$defs/A", "$defs": {"A": closed}});
        for (schema, has_a, has_b) in [
            (closed.clone(), false, true),
            (refers, false, true),
            (json!({"type": ["array", "null"]}), true, true),
            (json!({"enum": [{"a": 1}, 2]}), false, true),
            (json!({"const": {"a": 1}}), false, true),
            (json!({"anyOf": [closed, {"type": "string"}]}), false, true),
            (json!({"anyOf": [closed, {"type": "object"}]}), false, false),
            (json!({"allOf": [closed, {"type": "object"}]}), false, true),
            (json!({"type": "object"}), false, false),
            (
                json!({"type": "object", "patternProperties": {}, "additionalProperties": false}),
                false,
                false,
            ),
            (json!({"$ref": "#"}), false, false),
            (json!({}), false, false),
        ] {
            let never = (never_has(&schema, "a"), never_has(&schema, "b"));
            assert_eq!(never, (has_a, has_b), "{schema}");
        }
    }

    /// 300 alternatives of 300 of 300 of 300: looking at each of them would not end.
    #[test]
    fn alternatives_of_alternatives_are_given_up() {
        let many = |to: &str| vec![json!({"$ref": format!("#/$defs/{to}")}); 300];
        let mut all = many("b");
        all.push(json!({}));
        let defs = json!({"b": {"anyOf": many("c")}, "c": {"anyOf": many("d")}, "d": {"anyOf": vec![json!({"type": "null"}); 300]}});
        assert!(!never_has(&json!({"anyOf": all, "$defs": defs}), "name"));
    }
}
