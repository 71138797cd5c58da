//! Keywords of JSON schemas that ask for nothing as they stand (`uniqueItems: false`, `propertyNames: {}`), and notes: no grammar has to know them.

use serde_json::{Map, Value};

/// The formats that a string is held to. JSON Schema 2020-12 (Validation, section 7.2.1) calls a format an annotation, and says nothing of others than its own:
/// `path`, `binary` and `int32` are notes here, for whoever reads the answer.
const FORMATS: &[&str] = &[
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "time",
    "uri",
    "uuid",
];
/// Keywords that say something of a schema, and nothing of what it allows.
const NOTES: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];

/// Whether a schema holds a string to a form by its `format`.
pub(crate) fn holds_format(schema: &Value) -> bool {
    let format = schema.get("format").and_then(Value::as_str);
    format.is_some_and(|f| FORMATS.contains(&f))
}

/// Whether a keyword of a schema, as it stands there, allows any value. It looks no deeper than into the schema that the keyword has.
pub(crate) fn asks_nothing(schema: &Map<String, Value>, key: &str, value: &Value) -> bool {
    match key {
        // Drafts up to 2019-09: it goes on with a list of items.
        "additionalItems" => !schema.get("items").is_some_and(Value::is_array),
        "contains" => finds_nothing(schema),
        "minContains" | "maxContains" => !schema.contains_key("contains") || finds_nothing(schema),
        "dependencies" => named(value, |v| is_empty_list(v) || allows_all(v)),
        "dependentRequired" => named(value, is_empty_list),
        "dependentSchemas" => named(value, allows_all),
        "if" => ["then", "else"]
            .iter()
            .all(|key| schema.get(*key).is_none_or(allows_all)),
        "then" | "else" => !schema.contains_key("if") || allows_all(value),
        "propertyNames" => allows_all(value) || is_for_strings(value),
        "unevaluatedItems" | "unevaluatedProperties" => allows_all(value),
        _ => is_idle(key, value),
    }
}

/// The same of a keyword for which that depends on its value alone.
fn is_idle(key: &str, value: &Value) -> bool {
    match key {
        // What would look for them ($dynamicRef, $recursiveRef) is refused.
        "$dynamicAnchor" | "$recursiveAnchor" => true,
        "format" => value.as_str().is_some_and(|f| !FORMATS.contains(&f)),
        "minItems" | "minLength" | "minProperties" => is_zero(value),
        "not" | "uniqueItems" => *value == Value::Bool(false),
        "required" => is_empty_list(value),
        _ => false,
    }
}

/// Whether what `contains` says may come not at all and in any number.
fn finds_nothing(schema: &Map<String, Value>) -> bool {
    !schema.contains_key("maxContains") && schema.get("minContains").is_some_and(is_zero)
}

/// Whether a schema is seen at once to allow any value.
fn allows_all(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().all(|(k, v)| says_nothing(k, v)),
        schema => *schema == Value::Bool(true),
    }
}

/// Whether a schema is seen at once to allow any string, which is what names are.
fn is_for_strings(schema: &Value) -> bool {
    let allows = |(key, value): (&String, &Value)| match (key.as_str(), value) {
        ("type", Value::String(kind)) => kind == "string",
        ("type", Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => says_nothing(key, value),
    };
    schema.as_object().is_some_and(|map| map.iter().all(allows))
}

fn says_nothing(key: &str, value: &Value) -> bool {
    NOTES.contains(&key) || is_idle(key, value)
}

fn named(value: &Value, is: impl Fn(&Value) -> bool) -> bool {
    value.as_object().is_some_and(|map| map.values().all(is))
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Whether all keywords of a schema ask for nothing.
    fn vacuous(schema: &Value) -> bool {
        let map = schema.as_object().expect("an object");
        map.iter().all(|(key, value)| asks_nothing(map, key, value))
    }

    #[test]
    fn what_asks_for_nothing_is_told_from_what_asks() {
        for schema in [
            json!({"uniqueItems": false, "minItems": 0, "minLength": 0.0, "required": []}),
            json!({"propertyNames": true}),
            json!({"propertyNames": {"title": "names", "type": "string", "minLength": 0}}),
            json!({"propertyNames": {"type": ["null", "string"]}}),
            json!({"propertyNames": {}, "unevaluatedProperties": true, "unevaluatedItems": {"description": "any"}}),
            json!({"contains": {"const": 1}, "minContains": 0}),
            json!({"minContains": 3, "maxContains": 4}),
            json!({"dependencies": {"a": [], "b": true}, "dependentRequired": {"a": []}, "dependentSchemas": {"a": {}}}),
            json!({"dependencies": {}, "dependentRequired": {}, "dependentSchemas": {}}),
            json!({"if": {"const": 1}}),
            json!({"if": {"const": 1}, "then": true, "else": {}}),
            json!({"then": {"const": 1}, "else": {"const": 2}}),
            json!({"not": false, "additionalItems": false}),
            json!({"$dynamicAnchor": "a", "$recursiveAnchor": true, "format": "path"}),
        ] {
            assert!(vacuous(&schema), "{schema}");
        }
        for schema in [
            json!({"uniqueItems": true}),
            json!({"minItems": 1}),
            json!({"required": ["a"]}),
            json!({"propertyNames": false}),
            json!({"propertyNames": {"type": "null"}}),
            json!({"propertyNames": {"type": "string", "minLength": 1}}),
            json!({"propertyNames": {"unknown": 1}}),
            json!({"unevaluatedItems": false}),
            json!({"unevaluatedProperties": {"type": "string"}}),
            json!({"contains": {}}),
            json!({"contains": {}, "minContains": 0, "maxContains": 1}),
            json!({"dependencies": {"a": ["b"]}}),
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"dependentSchemas": {"a": {"required": ["b"]}}}),
            json!({"if": {}, "then": {"const": 1}}),
            json!({"not": {}}),
            json!({"additionalItems": false, "items": []}),
            json!({"format": "date"}),
            json!({"format": 3}),
            json!({"type": "string"}),
        ] {
            assert!(!vacuous(&schema), "{schema}");
        }
        // Of a condition that asks, what does not can still be left out.
        let one = json!({"if": {}, "then": {"const": 1}, "else": {}});
        let map = one.as_object().expect("an object");
        assert!(!asks_nothing(map, "if", &one["if"]) && asks_nothing(map, "else", &one["else"]));
    }
}
