//! Metadata values as GGUF types them.

use super::error::shown;

/// An array of strings, kept in one allocation (a vocabulary has hundreds of thousands).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrArray {
    text: String,
    ends: Vec<usize>,
}

impl StrArray {
    /// An empty array.
    pub fn new() -> StrArray {
        StrArray::default()
    }

    /// An array of the strings that end at `ends` of `text`, or the index of the first that is no UTF-8.
    pub(super) fn from_bytes(text: Vec<u8>, ends: Vec<usize>) -> Result<StrArray, usize> {
        // Strings are UTF-8, one by one, if they are so together and none ends within a character.
        let cut = |text: &str| ends.iter().position(|end| !text.is_char_boundary(*end));
        match String::from_utf8(text) {
            Ok(text) => match cut(&text) {
                None => Ok(StrArray { text, ends }),
                Some(i) => Err(i),
            },
            Err(e) => {
                let valid = e.as_bytes().get(..e.utf8_error().valid_up_to());
                let valid = std::str::from_utf8(valid.unwrap_or_default());
                Err(cut(valid.unwrap_or_default()).unwrap_or_default())
            }
        }
    }

    /// Appends a string.
    pub fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`; `None` past the end.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = match i.checked_sub(1) {
            Some(p) => *self.ends.get(p)?,
            None => 0,
        };
        self.text.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

impl<S: AsRef<str>> FromIterator<S> for StrArray {
    fn from_iter<I: IntoIterator<Item = S>>(items: I) -> StrArray {
        let mut out = StrArray::new();
        for s in items {
            out.push(s.as_ref());
        }
        out
    }
}

/// An array value. GGUF arrays have one element type; arrays of arrays are allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Unsigned 8-bit integers.
    U8(Vec<u8>),
    /// Signed 8-bit integers.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// Bools.
    Bool(Vec<bool>),
    /// UTF-8 strings.
    Str(StrArray),
    /// Arrays, each with its own element type.
    Array(Vec<Array>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Str(v) => v.len(),
            Array::Array(v) => v.len(),
        }
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements: `u8`, … `f64`, `bool`, `string`, `array`.
    pub fn element_type(&self) -> &'static str {
        match self {
            Array::U8(_) => "u8",
            Array::I8(_) => "i8",
            Array::U16(_) => "u16",
            Array::I16(_) => "i16",
            Array::U32(_) => "u32",
            Array::I32(_) => "i32",
            Array::U64(_) => "u64",
            Array::I64(_) => "i64",
            Array::F32(_) => "f32",
            Array::F64(_) => "f64",
            Array::Bool(_) => "bool",
            Array::Str(_) => "string",
            Array::Array(_) => "array",
        }
    }

    /// The elements as integers, if they are of an integer type.
    pub(super) fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        fn all<T: Copy + Into<i128>>(v: &[T]) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
            Some(Box::new(v.iter().map(|x| (*x).into())))
        }
        match self {
            Array::U8(v) => all(v),
            Array::I8(v) => all(v),
            Array::U16(v) => all(v),
            Array::I16(v) => all(v),
            Array::U32(v) => all(v),
            Array::I32(v) => all(v),
            Array::U64(v) => all(v),
            Array::I64(v) => all(v),
            _ => None,
        }
    }

    /// How deep arrays are nested: 1 for an array of anything but arrays.
    pub(super) fn depth(&self) -> u32 {
        match self {
            Array::Array(inner) => inner
                .iter()
                .map(Array::depth)
                .max()
                .unwrap_or(1)
                .saturating_add(1),
            _ => 1,
        }
    }
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned 8-bit integer.
    U8(u8),
    /// A signed 8-bit integer.
    I8(i8),
    /// An unsigned 16-bit integer.
    U16(u16),
    /// A signed 16-bit integer.
    I16(i16),
    /// An unsigned 32-bit integer.
    U32(u32),
    /// A signed 32-bit integer.
    I32(i32),
    /// An unsigned 64-bit integer.
    U64(u64),
    /// A signed 64-bit integer.
    I64(i64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A bool.
    Bool(bool),
    /// A UTF-8 string.
    Str(String),
    /// An array.
    Array(Array),
}

impl Value {
    /// The type: `u8`, … `f64`, `bool`, `string`, `array`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F32(_) => "f32",
            Value::F64(_) => "f64",
            Value::Bool(_) => "bool",
            Value::Str(_) => "string",
            Value::Array(_) => "array",
        }
    }

    /// The value as an integer, if it is of an integer type.
    pub(super) fn integer(&self) -> Option<i128> {
        Some(match self {
            Value::U8(v) => (*v).into(),
            Value::I8(v) => (*v).into(),
            Value::U16(v) => (*v).into(),
            Value::I16(v) => (*v).into(),
            Value::U32(v) => (*v).into(),
            Value::I32(v) => (*v).into(),
            Value::U64(v) => (*v).into(),
            Value::I64(v) => (*v).into(),
            _ => return None,
        })
    }

    /// The type and the value, for messages: `i32 -1`, `bool true`, `string "none"` (as [`shown`]); of an array the types: `array of string`.
    pub(crate) fn summary(&self) -> String {
        match self {
            Value::Bool(v) => format!("bool {v}"),
            Value::Str(text) => format!("string \"{}\"", shown(text)),
            Value::F32(v) => format!("f32 {v}"),
            Value::F64(v) => format!("f64 {v}"),
            Value::Array(a) => format!("array of {}", a.element_type()),
            other => match other.integer() {
                Some(v) => format!("{} {v}", other.type_name()),
                None => other.type_name().to_owned(),
            },
        }
    }
}
