//! JSON schemas in the plain form that grammars take: references by names that need no escapes, counts without a fraction, no keyword that asks for nothing.
//!
//! The compiler of grammars takes a reference apart at its slashes and reads the parts as they stand, reads a count only where it is written as an
//! integer, and refuses keywords that it doesn't know by their name alone. RFC 6901 and the drafts of JSON Schema allow more.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use super::vacuous::asks_nothing;

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
const VALUES: usize = 50_000;
/// Most bytes of texts and names that are copied: four times what the longest schema has.
const BYTES: usize = 1 << 20;
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

/// The place in a list that a name is: without a sign or leading zeros (RFC 6901, section 4).
fn index(name: &str) -> Option<usize> {
    name.parse().ok().filter(|i: &usize| i.to_string() == name)
}

/// What stands at a path.
pub(crate) fn find<'a>(root: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(root, |here, name| match here {
        Value::Object(map) => map.get(name),
        Value::Array(list) => list.get(index(name)?),
        _ => None,
    })
}

/// The same schema in plain words, where `root` is the reference to it: `#`, or where it will stand. What leads to nothing stays, for the compiler to refuse.
///
/// # Errors
/// A reference that would have too much copied; it is named.
pub(crate) fn plain_schema(schema: &Value, root: &str) -> Result<Value, String> {
    let mut key = "referred".to_owned();
    while schema.get(&key).is_some() {
        key.push('_');
    }
    let mut writer = Writer {
        schema,
        root,
        key,
        names: BTreeMap::new(),
        waiting: Vec::new(),
        room: Room {
            values: VALUES,
            bytes: BYTES,
        },
    };
    let mut plain = writer.write(schema)?;
    let mut copies = Map::new();
    while let Some((name, target)) = writer.waiting.pop() {
        copies.insert(name, writer.write(target)?);
    }
    if let (Value::Object(map), false) = (&mut plain, copies.is_empty()) {
        map.insert(writer.key, Value::Object(copies));
    }
    Ok(plain)
}

struct Writer<'a> {
    /// The whole schema.
    schema: &'a Value,
    /// The reference to it.
    root: &'a str,
    /// Where schemas are copied to that no plain reference leads to: a keyword that there is not.
    key: String,
    /// The names of these by their paths.
    names: BTreeMap<Path, String>,
    /// Those still to be copied.
    waiting: Vec<(String, &'a Value)>,
    room: Room,
}

impl Writer<'_> {
    fn write(&mut self, schema: &Value) -> Result<Value, String> {
        let Value::Object(map) = schema else {
            return Ok(schema.clone());
        };
        let write = |(key, value): (&String, &Value)| {
            let is = |keys: &[&str]| keys.contains(&key.as_str());
            let value = match value {
                Value::String(reference) if key == "$ref" => {
                    Value::String(self.reference(reference)?)
                }
                Value::Number(n) if is(COUNTS) => Value::Number(whole(n)),
                Value::Object(named) if is(NAMED) || is(DEFINED) => {
                    let all = named.iter().map(|(n, s)| Ok((n.clone(), self.write(s)?)));
                    Value::Object(all.collect::<Result<_, String>>()?)
                }
                Value::Array(list) if is(INNER) => {
                    let all = list.iter().map(|s| self.write(s));
                    Value::Array(all.collect::<Result<_, String>>()?)
                }
                inner if is(INNER) => self.write(inner)?,
                other => other.clone(),
            };
            Ok((key.clone(), value))
        };
        let asking = map.iter().filter(|(k, v)| !asks_nothing(map, k, v));
        asking
            .map(write)
            .collect::<Result<_, String>>()
            .map(Value::Object)
    }

    fn reference(&mut self, text: &str) -> Result<String, String> {
        let root = self.root;
        let path = path_of(text);
        let Some((path, target)) = path.and_then(|p| find(self.schema, &p).map(|t| (p, t))) else {
            let within = text.strip_prefix('#');
            return Ok(within.map_or_else(|| text.to_owned(), |rest| format!("{root}{rest}")));
        };
        if path.is_empty() {
            return Ok(root.to_owned());
        }
        if in_place(self.schema, &path) && !path.iter().any(|name| name.contains('/')) {
            return Ok(format!("{root}/{}", path.join("/")));
        }
        let name = match self.names.get(&path) {
            Some(name) => name.clone(),
            None if !self.room.fits(target) => {
                return Err(format!(
                    "the reference {text} leads to too much: at most {VALUES} values and {BYTES} bytes are copied for references; \
                     put what it leads to under $defs, by a name without a slash"
                ));
            }
            None => {
                let name = self.names.len().to_string();
                self.names.insert(path, name.clone());
                self.waiting.push((name.clone(), target));
                name
            }
        };
        Ok(format!("{root}/{}/{name}", self.key))
    }
}

/// How much may still be copied.
struct Room {
    values: usize,
    bytes: usize,
}

impl Room {
    /// Whether there is room for a value and all in it; what is taken is gone.
    fn fits(&mut self, value: &Value) -> bool {
        let text = value.as_str().map_or(0, str::len);
        let inner = match value {
            Value::Object(map) => map
                .iter()
                .all(|(key, value)| self.take(0, key.len()) && self.fits(value)),
            Value::Array(list) => list.iter().all(|value| self.fits(value)),
            _ => true,
        };
        inner && self.take(1, text)
    }

    fn take(&mut self, values: usize, bytes: usize) -> bool {
        let values = self.values.checked_sub(values);
        let left = values.zip(self.bytes.checked_sub(bytes));
        if let Some((values, bytes)) = left {
            *self = Room { values, bytes };
        }
        left.is_some()
    }
}

/// Whether a path leads from schema to schema, so that what stands there is made plain where it is.
fn in_place(root: &Value, path: &[String]) -> bool {
    let mut names = path.iter();
    let mut here = Some(root);
    while let Some(name) = names.next() {
        let is = |keys: &[&str]| keys.contains(&name.as_str());
        // What asks for nothing is left out.
        let map = here.and_then(Value::as_object);
        let value = map.and_then(|m| m.get(name).filter(|v| !asks_nothing(m, name, v)));
        here = match value {
            Some(Value::Array(list)) if is(INNER) => {
                let at = names.next().and_then(|n| index(n));
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
        // An index has no sign and no leading zeros.
        for index in ["00", "+0", "-0", "-", "2"] {
            let path = ["foo".to_owned(), index.to_owned()];
            assert_eq!(find(&document, &path), None, "{index}");
        }
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
        // There is room for two of them.
        let e = plain_schema(&inner, "#").unwrap_err();
        let third = format!("reference #{} leads", "/$defs/a~1b".repeat(3));
        assert!(e.contains(&third) && e.contains("50000"), "{e}");
    }

    /// A text may be as long as a schema: what is copied of it counts by its bytes, keys too, and by whatever names it is referred to only once.
    #[test]
    fn copies_of_long_texts_have_a_limit() {
        let long = "x".repeat(120_000);
        for inner in [
            json!({"const": long}),
            json!({"const": {(long.as_str()): 1}}),
        ] {
            let all: Vec<Value> = (0..20)
                .map(|i| json!({"$ref": format!("#/x/{i}")}))
                .collect();
            let schema = |n: usize| json!({"anyOf": all, "x": vec![inner.clone(); n]});
            let plain = plain_schema(&schema(8), "#").unwrap();
            assert_eq!(plain["referred"].as_object().unwrap().len(), 8);
            let e = plain_schema(&schema(20), "#").unwrap_err();
            assert!(e.contains("#/x/8") && e.contains("1048576"), "{e}");
        }
        let names = ["0", "00", "000", "+0", "%30"].map(|n| json!({"$ref": format!("#/x/{n}")}));
        let schema = json!({"anyOf": names, "x": [{"const": long}]});
        let plain = plain_schema(&schema, "#").unwrap();
        assert_eq!(plain["referred"].as_object().unwrap().len(), 1);
        assert_eq!(plain["anyOf"][0], plain["anyOf"][4]);
        assert_eq!(plain["anyOf"][1], json!({"$ref": "#/x/00"}));
        assert_eq!(plain["anyOf"][3], json!({"$ref": "#/x/+0"}));
    }

    /// A schema that will stand within another.
    #[test]
    fn references_go_from_where_a_schema_will_stand() {
        let schema = json!({
            "properties": {"$ref": {"$ref": "#/$defs/a"}, "b": {"$ref": "#"}, "c": {"$ref": "#/$defs/d~1e"}, "f": {"$ref": "#/$defs/none"}},
            "items": {"$ref": "http://example.com/#/g"}, "default": {"$ref": "#/$defs/a"},
            "$defs": {"a": {}, "d/e": {"items": {"$ref": "#/$defs/a"}}},
        });
        let plain = plain_schema(&schema, "#/properties/p").unwrap();
        let to = |reference: &str| json!({"$ref": reference});
        assert_eq!(
            plain["properties"],
            json!({"$ref": to("#/properties/p/$defs/a"), "b": to("#/properties/p"), "c": to("#/properties/p/referred/0"), "f": to("#/properties/p/$defs/none")})
        );
        let copy = json!({"items": to("#/properties/p/$defs/a")});
        assert_eq!(plain["referred"]["0"], copy);
        assert_eq!(plain["items"], schema["items"]);
        assert_eq!(plain["default"], schema["default"]);
    }

    #[test]
    fn what_is_plain_stays_as_it_is() {
        let schema = json!({
            "type": "object",
            "properties": {"$ref": {"$ref": "#/$defs/a"}, "maxItems": {"const": {"maxItems": 2.0, "$ref": "#/x~1y"}}, "b": {"$ref": "#"}},
            "minProperties": 1, "maxProperties": 2.5, "default": {"minLength": 1.0},
            "$defs": {"a": {"type": "string", "minLength": 3}},
        });
        assert_eq!(plain_schema(&schema, "#"), Ok(schema));
        assert_eq!(plain_schema(&json!(true), "#"), Ok(json!(true)));
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
        let plain = plain_schema(&schema, "#").unwrap();
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
