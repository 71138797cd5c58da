//! The fields of a request's body: taken by name, so that a wrong one is named and an unknown one is noticed.

mod given;
mod names;

use serde_json::{Map, Value};

use crate::ApiError;
pub use given::Given;
pub use names::Elsewhere;

/// A JSON object whose fields are taken out one by one.
#[derive(Debug, Default)]
pub struct Fields {
    map: Map<String, Value>,
    /// What was looked for, which is what is known here.
    asked: Vec<&'static str>,
    /// The same of objects within this one.
    within: Vec<(&'static str, Vec<&'static str>)>,
}

impl Fields {
    /// Of a body.
    ///
    /// # Errors
    /// No JSON, no object, or nested too deeply (more than 127 levels: serde_json's own limit).
    pub fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields::of(map)),
            Ok(other) => Err(ApiError::bad_request(format!(
                "the body must be a JSON object, not {}",
                kind(&other)
            ))),
            Err(e) => Err(ApiError::bad_request(format!("the body is not JSON: {e}"))),
        }
    }

    /// Of an object inside a body.
    pub fn of(map: Map<String, Value>) -> Fields {
        Fields {
            map,
            ..Fields::default()
        }
    }

    /// Of a value inside a body, which stands at `field`.
    ///
    /// # Errors
    /// It is no object.
    pub fn of_value(field: &str, value: Value) -> Result<Fields, ApiError> {
        match value {
            Value::Object(map) => Ok(Fields::of(map)),
            other => Err(mismatch(field, "an object", &other)),
        }
    }

    /// Whether a field is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|v| !v.is_null())
    }

    /// A copy of a field's value, if it is there and not null; it is still to be taken.
    pub fn peek(&self, name: &str) -> Option<Value> {
        self.map.get(name).filter(|v| !v.is_null()).cloned()
    }

    /// A field's value as it is, if it is there and not null.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        self.asked.push(name);
        self.map.shift_remove(name).filter(|v| !v.is_null())
    }

    /// What is known of an object within this one, whose fields have all been taken.
    pub fn know_within(&mut self, name: &'static str, inner: &Fields) {
        self.within.push((name, inner.asked.clone()));
    }

    /// A field, if it is there and not null.
    ///
    /// # Errors
    /// Of another type: the error names the field.
    pub fn take<T: Given>(&mut self, name: &'static str) -> Result<Option<T>, ApiError> {
        let value = self.value(name);
        value.map(|v| T::read(name, v)).transpose()
    }

    /// A field that has several names, and the one that it came under.
    ///
    /// # Errors
    /// Of another type; it says different things under two of them.
    pub fn one_of<T: Given + PartialEq>(
        &mut self,
        names: &[&'static str],
    ) -> Result<Option<(&'static str, T)>, ApiError> {
        self.one_meaning(names, T::eq)
    }

    /// The same, where `same` tells what means the same.
    ///
    /// # Errors
    /// As [`Fields::one_of`].
    pub fn one_meaning<T: Given>(
        &mut self,
        names: &[&'static str],
        same: impl Fn(&T, &T) -> bool,
    ) -> Result<Option<(&'static str, T)>, ApiError> {
        let mut found: Option<(&'static str, T)> = None;
        for name in names.iter().copied() {
            let Some(value) = self.take::<T>(name)? else {
                continue;
            };
            match &found {
                Some((other, known)) if !same(known, &value) => {
                    let why = format!("says something else than {other}, which is the same");
                    return Err(ApiError::field(name, why));
                }
                Some(_) => {}
                None => found = Some((name, value)),
            }
        }
        Ok(found)
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is not, or is of another type.
    pub fn need<T: Given>(&mut self, name: &'static str) -> Result<T, ApiError> {
        self.take(name)?
            .ok_or_else(|| ApiError::field(name, "is required"))
    }

    /// A text, if it is there and not null.
    ///
    /// # Errors
    /// Of another type: in words, with the field's name.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, ApiError> {
        self.take(name)
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// It is not, or is of another type.
    pub fn need_text(&mut self, name: &'static str) -> Result<String, ApiError> {
        self.text(name)?
            .ok_or_else(|| ApiError::field(name, "is required"))
    }

    /// A list, if it is there and not null.
    ///
    /// # Errors
    /// Of another type.
    pub fn list(&mut self, name: &'static str) -> Result<Option<Vec<Value>>, ApiError> {
        self.take(name)
    }

    /// An object, if it is there and not null.
    ///
    /// # Errors
    /// Of another type.
    pub fn object(&mut self, name: &'static str) -> Result<Option<Fields>, ApiError> {
        let value = self.value(name);
        value.map(|v| Fields::of_value(name, v)).transpose()
    }

    /// A flag: false unless the field says true.
    ///
    /// # Errors
    /// Of another type.
    pub fn flag(&mut self, name: &'static str) -> Result<bool, ApiError> {
        Ok(self.take(name)?.unwrap_or(false))
    }

    /// Refuses a field that asks for something: it is there with none of the `neutral` values.
    ///
    /// # Errors
    /// It does.
    pub fn refuse(
        &mut self,
        name: &'static str,
        neutral: &[Value],
        why: &str,
    ) -> Result<(), ApiError> {
        match self.value(name) {
            Some(value) if !neutral.iter().any(|n| same(n, &value)) => {
                Err(ApiError::field(name, why))
            }
            _ => Ok(()),
        }
    }

    /// Takes fields that are known and change nothing here: they must be what the surface's clients say they are, and are listed at debug level.
    ///
    /// # Errors
    /// One of another type, by name.
    pub fn idle(&mut self, what: &str, fields: &[(&'static str, Idle)]) -> Result<(), ApiError> {
        let mut idle = Vec::new();
        for (name, given) in fields {
            if let Some(value) = self.value(name) {
                given.check(name, value)?;
                idle.push(*name);
            }
        }
        if !idle.is_empty() {
            tracing::debug!("{what}: these change nothing here: {idle:?}");
        }
        Ok(())
    }

    /// What was not taken, for who passes it on.
    pub fn rest(self) -> Map<String, Value> {
        self.map
    }

    /// What was not taken is unknown: ignored, and listed at debug level.
    pub fn finish(self, what: &str) {
        if !self.map.is_empty() {
            let names: Vec<&String> = self.map.keys().collect();
            tracing::debug!("{what}: unknown fields are ignored: {names:?}");
        }
    }
}

/// Whether two values are the same. Numbers are compared as such: some languages' clients write 1 for 1.0, and some -1.0 for -1.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// What a field must hold that changes nothing.
#[derive(Clone, Copy, Debug)]
pub enum Idle {
    /// A string.
    Text,
    /// True or false.
    Flag,
    /// A number without a fraction.
    Whole,
    /// An object.
    Object,
    /// An object of strings.
    Texts,
}

impl Idle {
    fn check(self, name: &str, value: Value) -> Result<(), ApiError> {
        match self {
            Idle::Text => String::read(name, value).map(drop),
            Idle::Flag => bool::read(name, value).map(drop),
            Idle::Whole => i64::read(name, value).map(drop),
            Idle::Object => Map::read(name, value).map(drop),
            Idle::Texts => texts(name, value).map(drop),
        }
    }
}

/// An object of strings, which is what OpenAI's `metadata` is.
///
/// # Errors
/// It is none, by the place.
pub fn texts(field: &str, value: Value) -> Result<Map<String, Value>, ApiError> {
    let map = Map::read(field, value)?;
    match map.iter().find(|(_, v)| !v.is_string()) {
        Some((key, other)) => Err(mismatch(&format!("{field}.{key}"), "a string", other)),
        None => Ok(map),
    }
}

/// A value of another kind than it must have.
pub fn mismatch(field: &str, wanted: &str, value: &Value) -> ApiError {
    ApiError::field(field, format!("must be {wanted}, not {}", kind(value)))
}

/// A JSON value's kind, in words.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named_and_null_is_absent() {
        let mut f = Fields::parse(br#"{"a": "x", "b": null, "c": 3, "d": true}"#).unwrap();
        let e = f.take::<u32>("a").unwrap_err();
        assert_eq!(e.param.as_deref(), Some("a"));
        assert!(e.message.starts_with("a: "), "{}", e.message);
        assert_eq!(f.take::<u32>("b").unwrap(), None);
        assert_eq!(f.need::<u32>("b").unwrap_err().message, "b: is required");
        assert_eq!(f.take::<u32>("c").unwrap(), Some(3));
        assert!(f.refuse("d", &[Value::Bool(false)], "no").is_err());
    }

    #[test]
    fn what_asks_for_nothing_is_not_refused() {
        let neutral = [Value::from(1.0), Value::from(-1), Value::from("")];
        let refuse = |value: &str| {
            let body = format!("{{\"a\": {value}}}");
            let mut f = Fields::parse(body.as_bytes()).unwrap();
            f.refuse("a", &neutral, "no").is_err()
        };
        for nothing in ["null", "1", "1.0", "1e0", "-1", "-1.0", "\"\""] {
            assert!(!refuse(nothing), "{nothing}");
        }
        for something in ["0", "1.5", "\"1\"", "true", "[]", "{}"] {
            assert!(refuse(something), "{something}");
        }
    }

    #[test]
    fn two_names_of_one_thing_must_agree() {
        let parse = |body: &str| Fields::parse(body.as_bytes()).unwrap();
        let one = |body: &str| parse(body).one_of::<u32>(&["a", "b"]);
        assert_eq!(one("{}").unwrap(), None);
        assert_eq!(one(r#"{"b": 1}"#).unwrap(), Some(("b", 1)));
        assert_eq!(one(r#"{"a": 1, "b": 1.0}"#).unwrap(), Some(("a", 1)));
        assert_eq!(one(r#"{"a": null, "b": 2}"#).unwrap(), Some(("b", 2)));
        let e = one(r#"{"b": 1, "a": 2}"#).unwrap_err();
        assert_eq!(
            e.message,
            "b: says something else than a, which is the same"
        );
        let e = one(r#"{"a": 1, "b": "1"}"#).unwrap_err();
        assert_eq!(e.param.as_deref(), Some("b"));
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for (body, says) in [("[1]", "not a list"), ("{\"a\":", "EOF"), ("", "not JSON")] {
            let e = Fields::parse(body.as_bytes()).unwrap_err();
            assert!(e.status == 400 && e.message.contains(says), "{}", e.message);
        }
        let deep = |levels: usize| {
            let body = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
            Fields::parse(body.as_bytes())
        };
        assert!(deep(127).is_ok());
        let e = deep(128).unwrap_err();
        assert!(e.message.contains("recursion limit"), "{}", e.message);
    }
}
