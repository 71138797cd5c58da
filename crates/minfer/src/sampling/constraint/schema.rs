//! JSON schemas, before llguidance sees them.

use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

/// White space between the parts of a JSON text: as llama.cpp's, it can't go on forever.
const SPACE: &str = r" |\n{1,2}[ \t]{0,20}";

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
    check(&schema, &mut "#".to_owned(), true)?;
    Ok(grammar(schema))
}

fn grammar(mut schema: Value) -> TopLevelGrammar {
    if let Value::Object(map) = &mut schema {
        map.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_pattern": SPACE}),
        );
    }
    TopLevelGrammar::from_json_schema(schema)
}

/// Keywords whose value is a schema, or a list of them.
const INNER: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "items",
    "oneOf",
    "prefixItems",
];
/// Keywords whose value is an object of schemas by name.
const NAMED: &[&str] = &["patternProperties", "properties"];
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

/// Looks for what llguidance would refuse without saying where, or read in another way than the schema's author. `at`: where
/// `schema` is. What lies under `$defs` counts only if it is referred to, and then llguidance looks at it. JSON from text nests at most
/// 128 deep.
fn check(schema: &Value, at: &mut String, root: bool) -> Result<(), String> {
    let Value::Object(map) = schema else {
        return Ok(());
    };
    if let Some(key) = UNSUPPORTED.iter().find(|k| map.contains_key(**k)) {
        return Err(format!("the keyword {key} at {at} is not supported"));
    }
    if !root && map.contains_key("$id") {
        return Err(format!(
            "$id at {at} is not supported: references go from the root (#/...)"
        ));
    }
    for (key, value) in map {
        let end = at.len();
        at.push('/');
        at.push_str(key);
        match value {
            Value::Object(named) if NAMED.contains(&key.as_str()) => check_all(named, at)?,
            Value::Array(list) if INNER.contains(&key.as_str()) => {
                for (i, inner) in list.iter().enumerate() {
                    let end = at.len();
                    at.push_str(&format!("/{i}"));
                    check(inner, at, false)?;
                    at.truncate(end);
                }
            }
            inner if INNER.contains(&key.as_str()) => check(inner, at, false)?,
            _ if KNOWN.contains(&key.as_str()) || NAMED.contains(&key.as_str()) => {}
            _ => tracing::debug!("{at} in the JSON schema is no keyword and means nothing"),
        }
        at.truncate(end);
    }
    Ok(())
}

fn check_all(named: &Map<String, Value>, at: &mut String) -> Result<(), String> {
    for (name, inner) in named {
        let end = at.len();
        at.push('/');
        at.push_str(name);
        check(inner, at, false)?;
        at.truncate(end);
    }
    Ok(())
}
