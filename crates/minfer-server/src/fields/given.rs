//! What a field may hold, and what a client is told that sends something else.

use serde_json::{Map, Value};

use super::{kind, mismatch};
use crate::ApiError;

/// Something that a field holds.
pub trait Given: Sized {
    /// Of the value that stands at `field`.
    ///
    /// # Errors
    /// Of another type, in words: the field, what was given and what is accepted.
    fn read(field: &str, value: Value) -> Result<Self, ApiError>;
}

impl Given for Value {
    fn read(_: &str, value: Value) -> Result<Value, ApiError> {
        Ok(value)
    }
}

impl Given for bool {
    fn read(field: &str, value: Value) -> Result<bool, ApiError> {
        match value {
            Value::Bool(flag) => Ok(flag),
            other => Err(mismatch(field, "true or false", &other)),
        }
    }
}

impl Given for String {
    fn read(field: &str, value: Value) -> Result<String, ApiError> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(mismatch(field, "a string", &other)),
        }
    }
}

impl Given for f32 {
    fn read(field: &str, value: Value) -> Result<f32, ApiError> {
        let Some(number) = value.as_f64() else {
            return Err(mismatch(field, "a number", &value));
        };
        let held = number as f32;
        match held.is_finite() {
            true => Ok(held),
            false => {
                let (most, least) = (f32::MAX, f32::MIN);
                let why = format!("must be a number from {least:e} to {most:e}, is {value}");
                Err(ApiError::field(field, why))
            }
        }
    }
}

impl Given for Map<String, Value> {
    fn read(field: &str, value: Value) -> Result<Map<String, Value>, ApiError> {
        match value {
            Value::Object(map) => Ok(map),
            other => Err(mismatch(field, "an object", &other)),
        }
    }
}

impl<T: Given> Given for Vec<T> {
    fn read(field: &str, value: Value) -> Result<Vec<T>, ApiError> {
        let Value::Array(list) = value else {
            return Err(mismatch(field, "a list", &value));
        };
        let one = |(i, value)| T::read(&format!("{field}[{i}]"), value);
        list.into_iter().enumerate().map(one).collect()
    }
}

/// A whole number that is written with a point or an exponent: `100.0`, `1e3`.
fn pointed(value: &Value) -> Option<i128> {
    let number = value.as_f64().filter(|x| x.fract() == 0.0);
    number.map(|x| x as i128) // what is past that has no type's range
}

/// A number without a fraction, of the type's range, which is named where it is exceeded.
fn whole<T: TryFrom<i128>>(
    field: &str,
    value: &Value,
    wanted: &str,
    [least, most]: [i128; 2],
) -> Result<T, ApiError> {
    let number = value.as_i64().map(i128::from);
    let number = number.or_else(|| value.as_u64().map(i128::from));
    let number = number.or_else(|| pointed(value));
    let fits = number.and_then(|n| T::try_from(n).ok());
    fits.ok_or_else(|| match value {
        Value::Number(n) if n.as_f64().is_some_and(|x| x.abs() >= most as f64) => {
            let why = format!("must be a whole number from {least} to {most}, is {n}");
            ApiError::field(field, why)
        }
        Value::Number(n) => ApiError::field(field, format!("must be {wanted}, is {n}")),
        other => ApiError::field(field, format!("must be {wanted}, not {}", kind(other))),
    })
}

macro_rules! whole {
    ($($type:ty: $wanted:literal,)*) => {$(
        impl Given for $type {
            fn read(field: &str, value: Value) -> Result<$type, ApiError> {
                whole(field, &value, $wanted, [<$type>::MIN as i128, <$type>::MAX as i128])
            }
        }
    )*};
}

whole! {
    i32: "a whole number",
    i64: "a whole number",
    u32: "a whole number of 0 or more",
    u64: "a whole number of 0 or more",
    usize: "a whole number of 0 or more",
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said<T: Given>(value: Value) -> String {
        T::read("f", value).err().expect("refused").message
    }

    #[test]
    fn what_is_accepted_and_what_was_given_are_said_in_words() {
        assert_eq!(said::<f32>(json!("a")), "f: must be a number, not a string");
        assert_eq!(
            said::<bool>(json!(1)),
            "f: must be true or false, not a number"
        );
        assert_eq!(
            said::<String>(json!(["a"])),
            "f: must be a string, not a list"
        );
        assert_eq!(
            said::<Map<String, Value>>(json!(true)),
            "f: must be an object, not a boolean"
        );
        let whole = "f: must be a whole number of 0 or more";
        assert_eq!(said::<usize>(json!(-1)), format!("{whole}, is -1"));
        assert_eq!(said::<usize>(json!(1.5)), format!("{whole}, is 1.5"));
        assert_eq!(said::<u32>(json!({})), format!("{whole}, not an object"));
        assert_eq!(
            said::<Vec<u32>>(json!([1, "2"])),
            "f[1]: must be a whole number of 0 or more, not a string"
        );
        assert_eq!(
            said::<Vec<String>>(json!("a")),
            "f: must be a list, not a string"
        );
    }

    #[test]
    fn a_number_past_the_range_is_told_the_range() {
        let range = "f: must be a whole number from";
        let u32s = format!("{range} 0 to 4294967295, is ");
        assert_eq!(said::<u32>(json!(1u64 << 32)), format!("{u32s}4294967296"));
        assert_eq!(said::<u32>(json!(-1e10)), format!("{u32s}-10000000000.0"));
        let i64s = format!("{range} -9223372036854775808 to 9223372036854775807, is ");
        let most = u64::MAX;
        assert_eq!(said::<i64>(json!(most)), format!("{i64s}{most}"));
        let beyond: Value = serde_json::from_str("18446744073709551616").unwrap();
        let said = said::<u64>(beyond);
        assert!(
            said.starts_with(&format!("{range} 0 to {most}, is ")),
            "{said}"
        );
    }

    /// No number is told a rule that it obeys.
    #[test]
    fn a_number_that_no_float_holds_is_told_the_range() {
        let range = "f: must be a number from -3.4028235e38 to 3.4028235e38, is ";
        assert_eq!(said::<f32>(json!(1e39)), format!("{range}1e+39"));
        assert_eq!(said::<f32>(json!(-1e300)), format!("{range}-1e+300"));
        assert_eq!(f32::read("f", json!(3e38)), Ok(3e38));
    }

    #[test]
    fn a_whole_number_may_have_a_point() {
        assert_eq!(u32::read("f", json!(100.0)), Ok(100));
        assert_eq!(i64::read("f", json!(-1.0)), Ok(-1));
        let exponent: Value = serde_json::from_str("1e3").unwrap();
        assert_eq!(usize::read("f", exponent), Ok(1000));
        let most = said::<u64>(json!(18_446_744_073_709_551_616.0_f64));
        assert!(
            most.contains("from 0 to 18446744073709551615, is "),
            "{most}"
        );
    }

    #[test]
    fn what_fits_is_taken() {
        assert_eq!(u32::read("f", json!(u32::MAX)), Ok(u32::MAX));
        assert_eq!(f32::read("f", json!(1)), Ok(1.0));
        assert_eq!(i64::read("f", json!(-1)), Ok(-1));
        assert_eq!(u64::read("f", json!(u64::MAX)), Ok(u64::MAX));
        assert_eq!(Vec::read("f", json!(["a"])), Ok(vec!["a".to_owned()]));
    }
}
