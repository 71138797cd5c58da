//! The metadata of a file, and typed access to it.

use std::collections::HashMap;

use super::error::GgufError;
use super::value::{Array, StrArray, Value};

/// The metadata of a file: keys in file order, looked up by name.
///
/// The typed getters return `Ok(None)` where the key is absent and [`GgufError::WrongType`] where
/// its value has another type. Those for integers take every integer type, if the value fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// No entries.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Adds an entry; returns false, changing nothing, if the key is there already.
    pub fn insert(&mut self, key: &str, value: Value) -> bool {
        if self.index.contains_key(key) {
            return false;
        }
        self.index.insert(key.to_owned(), self.entries.len());
        self.entries.push((key.to_owned(), value));
        true
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index
            .get(key)
            .and_then(|i| self.entries.get(*i))
            .map(|e| &e.1)
    }

    /// All entries in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A string.
    ///
    /// # Errors
    /// The value is no string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.read(key, "a string", |v| match v {
            Value::Str(s) => Some(s.as_str()),
            _ => None,
        })
    }

    /// A bool.
    ///
    /// # Errors
    /// The value is no bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.read(key, "a bool", |v| match v {
            Value::Bool(b) => Some(*b),
            _ => None,
        })
    }

    /// An integer from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// The value is no integer or is out of this range.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.read(key, "an integer that fits u32", |v| {
            v.integer()?.try_into().ok()
        })
    }

    /// An integer from 0 to 2^64 - 1.
    ///
    /// # Errors
    /// The value is no integer or is negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.read(key, "an integer that fits u64", |v| {
            v.integer()?.try_into().ok()
        })
    }

    /// An integer from -2^31 to 2^31 - 1.
    ///
    /// # Errors
    /// The value is no integer or is out of this range.
    pub fn i32(&self, key: &str) -> Result<Option<i32>, GgufError> {
        self.read(key, "an integer that fits i32", |v| {
            v.integer()?.try_into().ok()
        })
    }

    /// An integer from -2^63 to 2^63 - 1.
    ///
    /// # Errors
    /// The value is no integer or is above this range.
    pub fn i64(&self, key: &str) -> Result<Option<i64>, GgufError> {
        self.read(key, "an integer that fits i64", |v| {
            v.integer()?.try_into().ok()
        })
    }

    /// A float; an f64 is rounded to f32.
    ///
    /// # Errors
    /// The value is no float.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.read(key, "a float", |v| match v {
            Value::F32(x) => Some(*x),
            Value::F64(x) => Some(*x as f32),
            _ => None,
        })
    }

    /// An array of any type.
    ///
    /// # Errors
    /// The value is no array.
    pub fn arr(&self, key: &str) -> Result<Option<&Array>, GgufError> {
        self.read(key, "an array", |v| match v {
            Value::Array(a) => Some(a),
            _ => None,
        })
    }

    /// An array of strings.
    ///
    /// # Errors
    /// The value is no array of strings.
    pub fn str_arr(&self, key: &str) -> Result<Option<&StrArray>, GgufError> {
        self.read(key, "an array of strings", |v| match v {
            Value::Array(Array::Str(a)) => Some(a),
            _ => None,
        })
    }

    /// An array of f32.
    ///
    /// # Errors
    /// The value is no array of f32.
    pub fn f32_arr(&self, key: &str) -> Result<Option<&[f32]>, GgufError> {
        self.read(key, "an array of f32", |v| match v {
            Value::Array(Array::F32(a)) => Some(a.as_slice()),
            _ => None,
        })
    }

    /// An array of bools.
    ///
    /// # Errors
    /// The value is no array of bools.
    pub fn bool_arr(&self, key: &str) -> Result<Option<&[bool]>, GgufError> {
        self.read(key, "an array of bools", |v| match v {
            Value::Array(Array::Bool(a)) => Some(a.as_slice()),
            _ => None,
        })
    }

    /// An array of integers of any type, each from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// The value is no array of integers, or one is out of this range.
    pub fn u32_arr(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.read(key, "an array of integers that fit u32", integers)
    }

    /// An array of integers of any type, each from -2^31 to 2^31 - 1.
    ///
    /// # Errors
    /// The value is no array of integers, or one is out of this range.
    pub fn i32_arr(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.read(key, "an array of integers that fit i32", integers)
    }

    /// What a getter found for a key that must be there: `m.required(k, m.u32(k)?)?`.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`] if it found nothing.
    pub fn required<T>(&self, key: &str, found: Option<T>) -> Result<T, GgufError> {
        found.ok_or_else(|| GgufError::MissingKey {
            key: key.to_owned(),
        })
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        pick: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match pick(value) {
            Some(v) => Ok(Some(v)),
            None => Err(GgufError::WrongType {
                key: key.to_owned(),
                found: value.summary(),
                wanted,
            }),
        }
    }
}

fn integers<T: TryFrom<i128>>(value: &Value) -> Option<Vec<T>> {
    match value {
        Value::Array(a) => a.integers()?.map(|x| x.try_into().ok()).collect(),
        _ => None,
    }
}
