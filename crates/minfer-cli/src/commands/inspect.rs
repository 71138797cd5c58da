//! `minfer inspect`: what a file holds, also one that can't be run.

use std::collections::BTreeMap;

use minfer::gguf::{Array, GgufFile, TensorInfo, Value};
use serde_json::{Map, Value as Json, json};

use crate::args::InspectArgs;
use crate::models;
use crate::output::{Outcome, print, print_line};

/// Longest text or array shown in full outside of JSON.
const SHOWN: usize = 72;

/// Prints metadata and tensors.
pub fn inspect(a: &InspectArgs) -> Outcome {
    models::known(&a.model.model)?;
    let file = GgufFile::open(&models::resolve(&a.model.model)?)?;
    if a.json {
        return print_line(as_json(&file));
    }
    let mut out = format!(
        "{}: GGUF v{}, {} bytes, {} metadata keys, {} tensors\n\n",
        file.path().display(),
        file.version(),
        file.size(),
        file.metadata().len(),
        file.tensors().len()
    );
    for (key, value) in file.metadata().iter() {
        out += &format!("{:<44} {}\n", shown(key), short(value));
    }
    out.push('\n');
    let mut by_type: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for t in file.tensors() {
        out += &format!("{:<36} {:<8} {:?}\n", shown(&t.name), t.ty.name(), t.dims);
        let sum = by_type.entry(t.ty.name()).or_default();
        *sum = (sum.0 + 1, sum.1 + t.n_bytes);
    }
    out.push('\n');
    for (ty, (count, bytes)) in by_type {
        out += &format!("{ty:<8} {count:>5} tensors {bytes:>14} bytes\n");
    }
    print(out)
}

/// A name from a file, safe for a terminal: control characters escaped.
fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

/// One line for a value: long texts and arrays are cut, and say so.
fn short(value: &Value) -> String {
    match value {
        Value::Array(array) => {
            let all = array_json(array);
            let n = all.as_array().map_or(0, Vec::len);
            let first: Vec<String> = all
                .as_array()
                .into_iter()
                .flatten()
                .take(6)
                .map(Json::to_string)
                .collect();
            let more = if n > first.len() { ", …" } else { "" };
            format!("[{}{more}] ({n})", cut(&first.join(", ")))
        }
        Value::Str(s) => cut(&format!("{s:?}")),
        other => value_json(other).to_string(),
    }
}

fn cut(s: &str) -> String {
    match s.char_indices().nth(SHOWN) {
        None => s.to_owned(),
        Some((at, _)) => format!("{}… ({} bytes)", s.get(..at).unwrap_or_default(), s.len()),
    }
}

fn as_json(file: &GgufFile) -> Json {
    let metadata: Map<String, Json> = file
        .metadata()
        .iter()
        .map(|(k, v)| (k.to_owned(), value_json(v)))
        .collect();
    let tensor = |t: &TensorInfo| json!({ "name": t.name, "type": t.ty.name(), "dims": t.dims, "part": t.part, "offset": t.offset, "bytes": t.n_bytes });
    json!({
        "path": file.path(),
        "version": file.version(),
        "size": file.size(),
        "metadata": metadata,
        "tensors": file.tensors().iter().map(tensor).collect::<Vec<_>>(),
    })
}

/// A float as JSON; one that JSON has no number for as text, never as null.
fn float_json(x: f64) -> Json {
    if x.is_finite() {
        json!(x)
    } else {
        json!(x.to_string())
    }
}

/// The shortest decimal that reads back as this f32.
fn f32_json(x: f32) -> Json {
    float_json(x.to_string().parse().unwrap_or(f64::from(x)))
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::U8(x) => json!(x),
        Value::I8(x) => json!(x),
        Value::U16(x) => json!(x),
        Value::I16(x) => json!(x),
        Value::U32(x) => json!(x),
        Value::I32(x) => json!(x),
        Value::U64(x) => json!(x),
        Value::I64(x) => json!(x),
        Value::F32(x) => f32_json(*x),
        Value::F64(x) => float_json(*x),
        Value::Bool(x) => json!(x),
        Value::Str(x) => json!(x),
        Value::Array(x) => array_json(x),
    }
}

fn array_json(array: &Array) -> Json {
    match array {
        Array::U8(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::U64(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::F32(v) => v.iter().map(|x| f32_json(*x)).collect(),
        Array::F64(v) => v.iter().map(|x| float_json(*x)).collect(),
        Array::Bool(v) => json!(v),
        Array::Str(v) => v.iter().map(Json::from).collect(),
        Array::Array(v) => v.iter().map(array_json).collect(),
    }
}
