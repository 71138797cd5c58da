//! The fields of a request's body: taken by name, so that a wrong one is named and an unknown one is noticed.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::ApiError;

/// A JSON object whose fields are taken out one by one.
#[derive(Debug, Default)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Of a body.
    ///
    /// # Errors
    /// No JSON, no object, or nested too deeply (128, serde_json's own limit).
    pub fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields(map)),
            Ok(other) => Err(ApiError::bad_request(format!(
                "the body must be a JSON object, not {}",
                kind(&other)
            ))),
            Err(e) => Err(ApiError::bad_request(format!("the body is not JSON: {e}"))),
        }
    }

    /// Of an object inside a body.
    pub fn of(map: Map<String, Value>) -> Fields {
        Fields(map)
    }

    /// Of a value inside a body, which stands at `field`.
    ///
    /// # Errors
    /// It is no object.
    pub fn of_value(field: &str, value: Value) -> Result<Fields, ApiError> {
        match value {
            Value::Object(map) => Ok(Fields(map)),
            other => Err(mismatch(field, "an object", &other)),
        }
    }

    /// Whether a field is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|v| !v.is_null())
    }

    /// A copy of a field's value, if it is there and not null; it is still to be taken.
    pub fn peek(&self, name: &str) -> Option<Value> {
        self.0.get(name).filter(|v| !v.is_null()).cloned()
    }

    /// A field's value as it is, if it is there and not null.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|v| !v.is_null())
    }

    /// A field, if it is there and not null.
    ///
    /// # Errors
    /// Of another type: the error names the field.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        match serde_json::from_value(value) {
            Ok(value) => Ok(Some(value)),
            Err(e) => Err(ApiError::field(name, e)),
        }
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is not, or is of another type.
    pub fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?
            .ok_or_else(|| ApiError::field(name, "is required"))
    }

    /// A text, if it is there and not null.
    ///
    /// # Errors
    /// Of another type: in words, with the field's name.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(mismatch(name, "a string", &other)),
        }
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// It is not, or is of another type.
    pub fn need_text(&mut self, name: &str) -> Result<String, ApiError> {
        self.text(name)?
            .ok_or_else(|| ApiError::field(name, "is required"))
    }

    /// A list, if it is there and not null.
    ///
    /// # Errors
    /// Of another type.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(mismatch(name, "a list", &other)),
        }
    }

    /// An object, if it is there and not null.
    ///
    /// # Errors
    /// Of another type.
    pub fn object(&mut self, name: &str) -> Result<Option<Fields>, ApiError> {
        let value = self.value(name);
        value.map(|v| Fields::of_value(name, v)).transpose()
    }

    /// A flag: false unless the field says true.
    ///
    /// # Errors
    /// Of another type.
    pub fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        Ok(self.take(name)?.unwrap_or(false))
    }

    /// Refuses a field that is there with a value other than `harmless`.
    ///
    /// # Errors
    /// It is there.
    pub fn refuse(&mut self, name: &str, harmless: &[Value], why: &str) -> Result<(), ApiError> {
        match self.value(name) {
            Some(value) if !harmless.contains(&value) => Err(ApiError::field(name, why)),
            _ => Ok(()),
        }
    }

    /// What was not taken, for who passes it on.
    pub fn rest(self) -> Map<String, Value> {
        self.0
    }

    /// What was not taken is unknown: ignored, and listed at debug level.
    pub fn finish(self, what: &str) {
        if !self.0.is_empty() {
            let names: Vec<&String> = self.0.keys().collect();
            tracing::debug!("{what}: unknown fields are ignored: {names:?}");
        }
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
    fn a_body_that_is_no_object_is_refused() {
        for (body, says) in [("[1]", "not a list"), ("{\"a\":", "EOF"), ("", "not JSON")] {
            let e = Fields::parse(body.as_bytes()).unwrap_err();
            assert!(e.status == 400 && e.message.contains(says), "{}", e.message);
        }
        let deep = "{\"a\":".repeat(1000);
        assert!(
            Fields::parse(deep.as_bytes())
                .unwrap_err()
                .message
                .contains("recursion limit")
        );
    }
}
