//! Files written by the PyPI package gguf, read here with equal values.

use std::path::{Path, PathBuf};

use minfer::gguf::{Array, GgufFile, Value};
use serde_json::{Value as Json, json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/gguf")
        .join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A float as the JSON files hold it: its bytes in f64.
fn float(x: impl Into<f64>) -> Json {
    json!(hex(&x.into().to_le_bytes()))
}

fn array_to_json(a: &Array) -> Json {
    match a {
        Array::U8(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::U64(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::F32(v) => v.iter().map(|x| float(*x)).collect(),
        Array::F64(v) => v.iter().map(|x| float(*x)).collect(),
        Array::Bool(v) => json!(v),
        Array::Str(v) => v.iter().map(|s| json!(s)).collect(),
        Array::Array(v) => v.iter().map(array_to_json).collect(),
    }
}

fn to_json(v: &Value) -> Json {
    match v {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F32(v) => float(*v),
        Value::F64(v) => float(*v),
        Value::Bool(v) => json!(v),
        Value::Str(v) => json!(v),
        Value::Array(v) => array_to_json(v),
    }
}

#[test]
fn every_value_type_and_tensor_reads_as_written() {
    let file = GgufFile::open(&data("all_types.gguf")).unwrap();
    let held: Json =
        serde_json::from_slice(&std::fs::read(data("all_types.json")).unwrap()).unwrap();

    let kv = held["metadata"].as_array().unwrap();
    // The package writes two entries more: the architecture and the alignment.
    assert_eq!(file.metadata().len(), kv.len() + 2);
    assert_eq!(file.metadata().u32("general.alignment").unwrap(), Some(64));
    let ours = file
        .metadata()
        .iter()
        .filter(|(k, _)| k.starts_with("test."));
    for ((key, value), wanted) in ours.zip(kv) {
        assert_eq!(key, wanted["key"]);
        assert_eq!(value.type_name(), wanted["type"], "{key}");
        assert_eq!(to_json(value), wanted["value"], "{key}");
    }
    let u16s = file.metadata().get("test.u16.array");
    assert_eq!(u16s, Some(&Value::Array(Array::U16(vec![0, 65535, 0]))));

    let tensors = held["tensors"].as_array().unwrap();
    assert_eq!(file.tensors().len(), tensors.len());
    for (t, wanted) in file.tensors().iter().zip(tensors) {
        assert_eq!(t.name, wanted["name"]);
        assert_eq!(t.ty.name(), wanted["type"]);
        assert_eq!(json!(t.dims), wanted["ne"]);
        assert_eq!(t.offset % 64, 0);
        assert_eq!(hex(file.data(t)), wanted["hex"], "{}", t.name);
    }
}

#[test]
fn split_model_of_the_package() {
    let file = GgufFile::open(&data("split-00001-of-00003.gguf")).unwrap();
    assert_eq!(
        file.metadata().str("general.architecture").unwrap(),
        Some("llama")
    );
    assert_eq!(file.parts().count(), 3);
    assert_eq!(file.tensors().len(), 5);
    for (i, t) in file.tensors().iter().enumerate() {
        assert_eq!((t.name.clone(), t.part), (format!("blk.{i}.weight"), i / 2));
        assert_eq!(file.data(t), (i as f32).to_le_bytes().repeat(8));
    }
}

#[test]
fn big_endian_file_of_the_package() {
    let message = GgufFile::open(&data("big_endian.gguf"))
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("big_endian.gguf: big-endian GGUF (version 3)"),
        "{message}"
    );
}
