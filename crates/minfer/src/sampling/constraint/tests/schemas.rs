//! Random texts under schemas are what the schemas say.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

pub(super) const PERSON: &str = r##"{
  "type": "object",
  "properties": {
    "name": {"type": "string", "maxLength": 12},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["a", "b", 3, null]}, "minItems": 1, "maxItems": 3},
    "address": {"$ref": "#/$defs/address"}
  },
  "required": ["name", "age", "tags"],
  "additionalProperties": false,
  "$defs": {"address": {
    "type": "object",
    "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "next": {"anyOf": [{"$ref": "#/$defs/address"}, {"type": "null"}]}},
    "required": ["zip"], "additionalProperties": false}}
}"##;

fn is_address(v: &Value) -> bool {
    let Some(o) = v.as_object() else { return false };
    let zip = o.get("zip").and_then(Value::as_str);
    zip.is_some_and(|z| z.len() == 5 && z.bytes().all(|b| b.is_ascii_digit()))
        && o.keys().all(|k| k == "zip" || k == "next")
        && o.get("next").is_none_or(|n| n.is_null() || is_address(n))
}

fn is_person(v: &Value) -> bool {
    let Some(o) = v.as_object() else { return false };
    let tag = |t: &Value| t == "a" || t == "b" || t == 3 || t.is_null();
    let keys = ["name", "age", "tags", "address"];
    o.keys().all(|k| keys.contains(&k.as_str()))
        && o.get("name")
            .and_then(Value::as_str)
            .is_some_and(|n| n.chars().count() <= 12)
        && o.get("age")
            .and_then(Value::as_i64)
            .is_some_and(|a| (0..=150).contains(&a))
        && o.get("tags")
            .and_then(Value::as_array)
            .is_some_and(|t| (1..=3).contains(&t.len()) && t.iter().all(tag))
        && o.get("address").is_none_or(is_address)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn random_texts_satisfy_the_schema(seed: u64) {
        for model in [&*QWEN, &*LLAMA] {
            let (_, text) = model.walk(&mut *model.compile(&schema(PERSON)), seed, 60);
            let value: Value = serde_json::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}: {text}")))?;
            prop_assert!(is_person(&value), "{}", text);
        }
    }

    #[test]
    fn random_objects_are_json(seed: u64) {
        for model in [&*QWEN, &*LLAMA] {
            let (_, text) = model.walk(&mut *model.compile(&ConstraintSpec::JsonObject), seed, 60);
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => prop_assert!(value.is_object(), "{}", text),
                // JSON sets no limit to numbers.
                Err(e) if e.to_string().starts_with("number out of range") => {}
                Err(e) => prop_assert!(false, "{}: {}", e, text),
            }
        }
    }
}

#[test]
fn a_schema_takes_what_it_describes() {
    let person = schema(PERSON);
    assert!(QWEN.takes(
        &person,
        r#"{"name": "Eve", "age": 41, "tags": ["a", null]}"#
    ));
    assert!(QWEN.takes(
        &person,
        "{\"name\":\"A\\n\",\"age\":0,\"tags\":[3],\"address\":{\"zip\":\"12345\"}}"
    ));
    assert!(!QWEN.takes(&person, r#"{"name": "Eve", "age": 151, "tags": ["a"]}"#));
    assert!(!QWEN.takes(&person, r#"{"name": "Eve", "age": 41, "tags": []}"#));
    assert!(!QWEN.takes(&person, r#"{"name": "Eve", "age": 41}"#));
    assert!(QWEN.takes(&schema("true"), "[1, 2]"));
    assert!(QWEN.takes(&schema(r#"{"const": "x/y"}"#), r#""x/y""#));
    assert!(!QWEN.takes(&ConstraintSpec::JsonObject, "[]"));
    assert!(QWEN.takes(&ConstraintSpec::JsonObject, "{\"a\":\n\n    {}}"));
}

/// RFC 6901's escapes and its fragments' percent-encoding; and counts with a fraction of zero, which are integers since draft 6.
#[test]
fn references_have_escapes_and_counts_a_fraction() {
    let escaped = schema(
        r##"{"type": "array", "maxItems": 2.0, "items": {"anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/m~0n"}, {"$ref": "#/$defs/k%22l"}]},
        "$defs": {"a/b": {"const": 1}, "m~n": {"type": "string", "minLength": 2.0, "maxLength": 2e0},
        "k\"l": {"type": "object", "properties": {"x": {"$ref": "#/$defs/a~1b"}}, "minProperties": 1.0, "additionalProperties": false}}}"##,
    );
    for (text, fits) in [
        ("[]", true),
        (r#"[1, "ab"]"#, true),
        (r#"[{"x": 1}, 1]"#, true),
        ("[2]", false),
        (r#"["a"]"#, false),
        (r#"["abc"]"#, false),
        ("[{}]", false),
        (r#"[{"x": 2}]"#, false),
        ("[1, 1, 1]", false),
    ] {
        assert_eq!(QWEN.takes(&escaped, text), fits, "{text}");
    }
    // Half an item is none.
    let e = QWEN.refusal(&schema(r#"{"type": "array", "maxItems": 2.5}"#));
    assert!(e.to_string().contains("maxItems"), "{e}");
}

#[test]
fn white_space_can_not_go_on_forever() {
    let mut c = QWEN.compile(&ConstraintSpec::JsonObject);
    let [open, line] = QWEN.bytes(b"{\n")[..] else {
        panic!()
    };
    c.accept(open).unwrap();
    let mut n = 0;
    while c.accept(line).is_ok() {
        n += 1;
    }
    assert_eq!(n, 2);
}
