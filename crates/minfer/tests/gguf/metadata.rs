//! The typed getters of `Metadata`.

use minfer::gguf::{Array, Metadata, StrArray, Value};

fn sample() -> Metadata {
    let mut m = Metadata::new();
    let texts: StrArray = ["a", "", "b"].iter().collect();
    for (k, v) in [
        ("u8", Value::U8(200)),
        ("neg", Value::I32(-1)),
        ("big", Value::U64(1 << 40)),
        ("max", Value::U64(u64::MAX)),
        ("f32", Value::F32(0.5)),
        ("f64", Value::F64(0.25)),
        ("yes", Value::Bool(true)),
        ("text", Value::Str("hi".into())),
        ("texts", Value::Array(Array::Str(texts))),
        ("i64s", Value::Array(Array::I64(vec![1, -2]))),
        ("f32s", Value::Array(Array::F32(vec![1.5]))),
        ("bools", Value::Array(Array::Bool(vec![true, false]))),
    ] {
        assert!(m.insert(k, v));
    }
    m
}

#[test]
fn values_of_the_right_type() {
    let m = sample();
    assert_eq!(m.u32("u8").unwrap(), Some(200));
    assert_eq!(m.i32("neg").unwrap(), Some(-1));
    assert_eq!(m.i64("neg").unwrap(), Some(-1));
    assert_eq!(m.u64("max").unwrap(), Some(u64::MAX));
    assert_eq!(m.i64("big").unwrap(), Some(1 << 40));
    assert_eq!(m.f32("f32").unwrap(), Some(0.5));
    assert_eq!(m.f32("f64").unwrap(), Some(0.25));
    assert_eq!(m.bool("yes").unwrap(), Some(true));
    assert_eq!(m.str("text").unwrap(), Some("hi"));
    assert_eq!(m.arr("texts").unwrap().map(Array::len), Some(3));
    assert_eq!(
        m.str_arr("texts")
            .unwrap()
            .unwrap()
            .iter()
            .collect::<Vec<_>>(),
        ["a", "", "b"]
    );
    assert_eq!(m.i32_arr("i64s").unwrap(), Some(vec![1, -2]));
    assert_eq!(m.f32_arr("f32s").unwrap(), Some(&[1.5][..]));
    assert_eq!(m.bool_arr("bools").unwrap(), Some(&[true, false][..]));
    assert_eq!(m.u32("absent").unwrap(), None);
    assert_eq!(m.required("u8", m.u64("u8").unwrap()).unwrap(), 200);
}

#[test]
fn wrong_types_name_key_found_and_wanted() {
    let m = sample();
    let text = |e: Option<minfer::gguf::GgufError>| e.unwrap().to_string();
    for (message, parts) in [
        (text(m.u32("neg").err()), ["`neg`", "i32 -1", "fits u32"]),
        (
            text(m.u32("big").err()),
            ["`big`", "u64 1099511627776", "fits u32"],
        ),
        (
            text(m.i64("max").err()),
            ["`max`", "u64 18446744073709551615", "fits i64"],
        ),
        (text(m.u64("f32").err()), ["`f32`", "f32 0.5", "fits u64"]),
        (text(m.f32("u8").err()), ["`u8`", "u8 200", "a float"]),
        (text(m.bool("u8").err()), ["`u8`", "u8 200", "a bool"]),
        (
            text(m.str("texts").err()),
            ["`texts`", "array of string", "a string"],
        ),
        (text(m.arr("text").err()), ["`text`", "string", "an array"]),
        (
            text(m.str_arr("i64s").err()),
            ["`i64s`", "array of i64", "an array of strings"],
        ),
        (
            text(m.u32_arr("i64s").err()),
            ["`i64s`", "array of i64", "fit u32"],
        ),
        (
            text(m.required::<u32>("absent", None).err()),
            ["`absent`", "missing", ""],
        ),
    ] {
        assert!(
            parts.iter().all(|p| message.contains(p)),
            "{message}: {parts:?}"
        );
    }
}

#[test]
fn a_key_is_set_once() {
    let mut m = sample();
    assert!(!m.insert("u8", Value::U8(1)));
    assert_eq!(m.get("u8"), Some(&Value::U8(200)));
    assert_eq!(m.len(), 12);
}
