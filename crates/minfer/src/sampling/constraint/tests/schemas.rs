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

/// JSON Schema 2020-12, Validation, section 7: formats that are known are held to, all others are notes; and each is of strings alone.
#[test]
fn formats_that_are_known_hold_and_others_are_notes() {
    for (format, fits, not) in [
        ("date", "2024-02-29", "2024-02-30"),
        ("date-time", "2024-12-31T23:59:60.5Z", "2024-12-31 23:59"),
        ("time", "23:59:59+02:00", "24:00:00Z"),
        ("duration", "P1Y2M3DT4H", "1 year"),
        ("email", "a.b@example.com", "a@b@c"),
        ("hostname", "a-b.example", "a_b"),
        ("ipv4", "127.0.0.1", "256.0.0.1"),
        ("ipv6", "::1", "::g"),
        ("uri", "https://example.com/a?b#c", "no scheme"),
        ("uuid", "01234567-89ab-cdef-0123-456789abcdef", "0123"),
    ] {
        let spec = schema(&format!(r#"{{"type":"string","format":"{format}"}}"#));
        assert!(QWEN.takes(&spec, &format!("\"{fits}\"")), "{format} {fits}");
        assert!(!QWEN.takes(&spec, &format!("\"{not}\"")), "{format} {not}");
        let number = schema(&format!(
            r#"{{"type":["integer","string"],"format":"{format}"}}"#
        ));
        assert!(QWEN.takes(&number, "7"), "{format}");
        assert!(!QWEN.takes(&number, &format!("\"{not}\"")), "{format}");
    }
    for format in [
        "path",
        "file-path",
        "directory-path",
        "binary",
        "byte",
        "password",
        "json-string",
        "uri-reference",
        "uri-template",
        "iri",
        "idn-email",
        "regex",
        "json-pointer",
        "ipvanyaddress",
        "color",
        "unknown",
        "int32",
        "double",
    ] {
        let text =
            format!(r#"{{"type":["number","string","array"],"format":"{format}","maxLength":3}}"#);
        let spec = schema(&text);
        assert!(spec.check().is_ok(), "{format}");
        for (said, fits) in [
            (r#""a/b""#, true),
            ("1.5", true),
            ("[1]", true),
            (r#""a/bc""#, false),
            ("null", false),
        ] {
            assert_eq!(QWEN.takes(&spec, said), fits, "{format} {said}");
        }
    }
}

/// What asks for nothing is not refused for its name, nor does it change what holds beside it.
#[test]
fn keywords_that_ask_for_nothing_are_taken() {
    let spec = schema(
        r##"{"type":"object","propertyNames":{"type":"string"},"unevaluatedProperties":{},"minProperties":0,"dependentRequired":{},"dependentSchemas":{"a":true},"dependencies":{"a":[]},
        "required":["a"],"additionalProperties":false,"$dynamicAnchor":"node","not":false,"if":{"const":1},"else":{},
        "properties":{"a":{"type":"array","uniqueItems":false,"minItems":0,"contains":{"const":9},"minContains":0,"unevaluatedItems":true,"items":{"type":"integer"}},
                      "b":{"$ref":"#/properties/a"}}}"##,
    );
    for (text, fits) in [
        (r#"{"a":[]}"#, true),
        (r#"{"a":[1,1],"b":[2]}"#, true),
        (r#"{"a":["x"]}"#, false),
        (r#"{"a":[],"c":1}"#, false),
        ("{}", false),
    ] {
        assert_eq!(QWEN.takes(&spec, text), fits, "{text}");
    }
    for (text, named) in [
        (r#"{"uniqueItems":true}"#, "uniqueItems at #"),
        (r#"{"propertyNames":{"minLength":1}}"#, "propertyNames at #"),
        (
            r#"{"properties":{"a":{"contains":{}}}}"#,
            "contains at #/properties/a",
        ),
        (r#"{"if":{},"then":{"const":1},"else":{}}"#, "if at #"),
        (
            r#"{"dependentRequired":{"a":["b"]}}"#,
            "dependentRequired at #",
        ),
    ] {
        let e = QWEN.refusal(&schema(text)).to_string();
        assert!(e.contains(named) && e.contains("is not supported"), "{e}");
    }
}

/// It says nothing of a list whose items are no list of schemas; what stands beside it does, also where a reference leads to it.
#[test]
fn additional_items_do_not_hide_the_first() {
    let first =
        schema(r#"{"type":"array","prefixItems":[{"type":"integer"}],"additionalItems":false}"#);
    assert!(QWEN.takes(&first, r#"[1, "a"]"#));
    assert!(!QWEN.takes(&first, r#"["a"]"#));
    let old = schema(r#"{"type":"array","items":[{"type":"integer"}],"additionalItems":false}"#);
    assert!(QWEN.takes(&old, "[1]") && !QWEN.takes(&old, "[1, 2]"));
    let referred = schema(
        r##"{"type":"array","items":{"$ref":"#/additionalItems"},"additionalItems":{"type":"null"}}"##,
    );
    assert!(QWEN.takes(&referred, "[null]") && !QWEN.takes(&referred, "[1]"));
}
