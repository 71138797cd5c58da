//! JSON schemas in the plain form that grammars take: references by names that need no escapes, counts without a fraction.
//!
//! The compiler of grammars takes a reference apart at its slashes and reads the parts as they stand, and reads a count only where it is written as an
//! integer. RFC 6901 and the drafts of JSON Schema allow more.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

/// Keywords whose value is a schema, or a list of them.
pub(crate) const INNER: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "items",
    "oneOf",
    "prefixItems",
];
/// Keywords whose value is an object of schemas by name.
pub(crate) const NAMED: &[&str] = &["patternProperties", "properties"];
/// The same, of schemas that count only where they are referred to.
const DEFINED: &[&str] = &["$defs", "definitions"];
/// Keywords whose value is a count.
const COUNTS: &[&str] = &[
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
];
/// Most values that are copied: what is copied may lie within what is, and the compiler takes no more schemas than this.
const MOVED: usize = 50_000;
/// The largest integer up to which every one is a 64-bit float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Names from a schema's root down.
pub(crate) type Path = Vec<String>;

/// The path that a reference within a document (`#`, `#/…`) names: percent-encoded (RFC 3986), then with `~0` and `~1` for `~` and `/` (RFC 6901). `None`: a
/// reference of another kind, or one that is no UTF-8.
pub(crate) fn path_of(reference: &str) -> Option<Path> {
    let pointer = decoded(reference.strip_prefix('#')?)?;
    // The compiler takes "#/" for the root, too.
    if pointer.is_empty() || pointer == "/" {
        return Some(Path::new());
    }
    let names = pointer.strip_prefix('/')?.split('/');
    Some(
        names
            .map(|n| n.replace("~1", "/").replace("~0", "~"))
            .collect(),
    )
}

/// A percent-encoded text as it was; a percent sign before anything but two digits stands for itself.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let encoded = after.split_at_checked(2).filter(|_| *first == b'%');
        match encoded.and_then(|(digits, after)| Some((hexadecimal(digits)?, after))) {
            Some((byte, after)) => {
                bytes.push(byte);
                rest = after;
            }
            None => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    let all = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| all)
}

/// What stands at a path.
pub(crate) fn find<'a>(root: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(root, |here, name| match here {
        Value::Object(map) => map.get(name),
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The same schema in plain words. What can't be made plain stays, for the compiler to refuse.
pub(crate) fn plain_schema(schema: &Value) -> Value {
    let mut key = "referred".to_owned();
    while schema.get(&key).is_some() {
        key.push('_');
    }
    let mut writer = Writer {
        root: schema,
        key,
        names: BTreeMap::new(),
        waiting: Vec::new(),
        room: MOVED,
    };
    let mut plain = writer.schema(schema);
    let mut moved = Map::new();
    while let Some((name, target)) = writer.waiting.pop() {
        moved.insert(name, writer.schema(target));
    }
    if let (Value::Object(map), false) = (&mut plain, moved.is_empty()) {
        map.insert(writer.key, Value::Object(moved));
    }
    plain
}

struct Writer<'a> {
    root: &'a Value,
    /// Where schemas are copied to that no plain reference leads to: a keyword that there is not.
    key: String,
    /// The names of these by their paths.
    names: BTreeMap<Path, String>,
    /// Those still to be copied.
    waiting: Vec<(String, &'a Value)>,
    /// How many values they may still have.
    room: usize,
}

impl<'a> Writer<'a> {
    fn schema(&mut self, schema: &Value) -> Value {
        let Value::Object(map) = schema else {
            return schema.clone();
        };
        let write = |(key, value): (&String, &Value)| {
            let is = |keys: &[&str]| keys.contains(&key.as_str());
            let value = match value {
                Value::String(reference) if key == "$ref" => self.reference(reference),
                Value::Number(n) if is(COUNTS) => Value::Number(whole(n)),
                Value::Object(named) if is(NAMED) || is(DEFINED) => {
                    let all = named.iter().map(|(n, s)| (n.clone(), self.schema(s)));
                    Value::Object(all.collect())
                }
                Value::Array(list) if is(INNER) => list.iter().map(|s| self.schema(s)).collect(),
                inner if is(INNER) => self.schema(inner),
                other => other.clone(),
            };
            (key.clone(), value)
        };
        Value::Object(map.iter().map(write).collect())
    }

    fn reference(&mut self, text: &str) -> Value {
        let as_it_is = || Value::String(text.to_owned());
        let Some(path) = path_of(text) else {
            return as_it_is();
        };
        let Some(target) = find(self.root, &path) else {
            return as_it_is();
        };
        if path.is_empty() {
            return Value::String("#".to_owned());
        }
        if in_place(self.root, &path) && !path.iter().any(|name| name.contains('/')) {
            return Value::String(format!("#/{}", path.join("/")));
        }
        let name = match self.names.get(&path) {
            Some(name) => name.clone(),
            None if !fits(target, &mut self.room) => return as_it_is(),
            None => {
                let name = self.names.len().to_string();
                self.names.insert(path, name.clone());
                self.waiting.push((name.clone(), target));
                name
            }
        };
        Value::String(format!("#/{}/{name}", self.key))
    }
}

/// Whether there is room for a value and all in it; what is taken is gone.
fn fits(value: &Value, room: &mut usize) -> bool {
    let Some(left) = room.checked_sub(1) else {
        return false;
    };
    *room = left;
    match value {
        Value::Object(map) => map.values().all(|v| fits(v, room)),
        Value::Array(list) => list.iter().all(|v| fits(v, room)),
        _ => true,
    }
}

/// Whether a path leads from schema to schema, so that what stands there is made plain where it is.
fn in_place(root: &Value, path: &[String]) -> bool {
    let mut names = path.iter();
    let mut here = Some(root);
    while let Some(name) = names.next() {
        let is = |keys: &[&str]| keys.contains(&name.as_str());
        let value = here.and_then(|h| h.get(name));
        here = match value {
            Some(Value::Array(list)) if is(INNER) => {
                let at = names.next().and_then(|n| n.parse::<usize>().ok());
                at.and_then(|i| list.get(i))
            }
            Some(Value::Object(named)) if is(NAMED) || is(DEFINED) => {
                names.next().and_then(|n| named.get(n))
            }
            value if is(INNER) => value,
            _ => None,
        };
    }
    here.is_some()
}

/// A count, which may be written with a fraction of nothing.
fn whole(n: &Number) -> Number {
    let float = n.as_f64().filter(|_| !n.is_u64());
    let count = float.filter(|x| x.fract() == 0.0 && (0.0..=EXACT).contains(x));
    count.map_or_else(|| n.clone(), |x| Number::from(x as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// RFC 6901, sections 5 and 6: the document and what its pointers name.
    #[test]
    fn references_lead_where_rfc_6901_says() {
        let document = json!({"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8});
        for (reference, names) in [
            ("#", document.clone()),
            ("#/foo", json!(["bar", "baz"])),
            ("#/foo/0", json!("bar")),
            ("#/a~1b", json!(1)),
            ("#/c%25d", json!(2)),
            ("#/e%5Ef", json!(3)),
            ("#/g%7Ch", json!(4)),
            ("#/i%5Cj", json!(5)),
            ("#/k%22l", json!(6)),
            ("#/%20", json!(7)),
            ("#/m~0n", json!(8)),
        ] {
            let path = path_of(reference).unwrap();
            assert_eq!(find(&document, &path), Some(&names), "{reference}");
        }
        assert_eq!(path_of("#anchor"), None);
        assert_eq!(path_of("http://example.com/#/foo"), None);
        assert_eq!(path_of("#/%ff"), None);
        // Section 4: first ~1, then ~0.
        assert_eq!(path_of("#/~01"), Some(vec!["~1".to_owned()]));
    }

    /// Definitions within definitions, each of which would be copied with all that lies in it.
    #[test]
    fn copies_have_a_limit() {
        let mut inner = json!({"enum": vec![0; 20_000]});
        let mut all = Vec::new();
        let mut path = "#/$defs".to_owned();
        for _ in 0..20 {
            inner = json!({"$defs": {"a/b": inner}});
            path.push_str("/a~1b");
            all.push(json!({"$ref": path}));
            path.push_str("/$defs");
        }
        inner["anyOf"] = Value::Array(all);
        let plain = plain_schema(&inner);
        let copies = plain["referred"].as_object().unwrap();
        assert!(copies.len() < 3, "{}", copies.len());
    }

    #[test]
    fn what_is_plain_stays_as_it_is() {
        let schema = json!({
            "type": "object",
            "properties": {"$ref": {"$ref": "#/$defs/a"}, "maxItems": {"const": {"maxItems": 2.0, "$ref": "#/x~1y"}}, "b": {"$ref": "#"}},
            "minProperties": 1, "maxProperties": 2.5, "default": {"minLength": 1.0},
            "$defs": {"a": {"type": "string", "minLength": 3}},
        });
        assert_eq!(plain_schema(&schema), schema);
        assert_eq!(plain_schema(&json!(true)), json!(true));
    }

    #[test]
    fn escapes_and_fractions_are_gone() {
        let schema = json!({
            "items": {"$ref": "#/$defs/a%22b"},
            "prefixItems": [{"$ref": "#/$defs/c~1d"}, {"$ref": "#/$defs/c%7E1d"}, {"$ref": "#/components/e"}],
            "maxItems": 2.0,
            "$defs": {
                "a\"b": {"minLength": 1e1},
                "c/d": {"anyOf": [{"$ref": "#/$defs/c~1d/anyOf/1"}, {"maxLength": 4.0}]},
            },
            "components": {"e": {"items": {"$ref": "#/$defs/m~0n"}, "minItems": -1.0}},
        });
        let plain = plain_schema(&schema);
        assert_eq!(plain["items"], json!({"$ref": "#/$defs/a\"b"}));
        assert_eq!(plain["$defs"]["a\"b"], json!({"minLength": 10}));
        assert_eq!(plain["maxItems"], json!(2));
        let of = |reference: &Value| {
            let path = path_of(reference["$ref"].as_str().unwrap()).unwrap();
            assert!(
                path.iter().all(|n| !n.contains(['/', '~', '%'])),
                "{path:?}"
            );
            find(&plain, &path).unwrap().clone()
        };
        let [first, second, third] = [0, 1, 2].map(|i| plain["prefixItems"][i].clone());
        assert_eq!(first, second);
        let alternatives = &of(&first)["anyOf"];
        assert_eq!(of(&alternatives[0]), json!({"maxLength": 4}));
        // What is not there stays, for the compiler to name.
        assert_eq!(
            of(&third),
            json!({"items": {"$ref": "#/$defs/m~0n"}, "minItems": -1.0})
        );
    }
}
