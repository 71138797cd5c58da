//! What a tool's schema says of a value's type.

use serde_json::{Map, Value};

use super::literal;
use super::plain::{find, path_of};

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
