//! What the writer writes, the reader reads; and what chance makes of it never panics.

use minfer::gguf::{Array, GgufFile, GgufWriter, StrArray, Value};
use minfer::numeric::GgmlType;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::allocs::spent;
use crate::cut::tiny;

fn array() -> impl Strategy<Value = Array> {
    let strings = vec(any::<String>(), 0..5).prop_map(|v| Array::Str(StrArray::from_iter(v)));
    let flat = prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::U8),
        vec(any::<i8>(), 0..9).prop_map(Array::I8),
        vec(any::<u16>(), 0..9).prop_map(Array::U16),
        vec(any::<i16>(), 0..9).prop_map(Array::I16),
        vec(any::<u32>(), 0..9).prop_map(Array::U32),
        vec(any::<i32>(), 0..9).prop_map(Array::I32),
        vec(any::<u64>(), 0..9).prop_map(Array::U64),
        vec(any::<i64>(), 0..9).prop_map(Array::I64),
        vec(any::<f32>(), 0..9).prop_map(Array::F32),
        vec(any::<f64>(), 0..9).prop_map(Array::F64),
        vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        strings,
    ];
    flat.prop_recursive(3, 20, 4, |inner| vec(inner, 0..4).prop_map(Array::Array))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f32>().prop_map(Value::F32),
        any::<f64>().prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::Str),
        array().prop_map(Value::Array),
    ]
}

/// A type, blocks a row, and the other sizes.
fn tensor() -> impl Strategy<Value = (GgmlType, u64, Vec<u64>)> {
    let types: Vec<GgmlType> = GgmlType::all().collect();
    (prop::sample::select(types), 1..4u64, vec(1..4u64, 0..4))
}

fn bytes_of(file: &GgufFile) -> Vec<u8> {
    let mut w = GgufWriter::new(file.version()).unwrap();
    for (k, v) in file.metadata().iter() {
        w.set(k, v.clone()).unwrap();
    }
    for t in file.tensors() {
        w.tensor(&t.name, t.ty, &t.dims).unwrap();
    }
    let mut out = w.start(Vec::new()).unwrap();
    for t in file.tensors() {
        out.tensor(file.data(t)).unwrap();
    }
    out.finish().unwrap()
}

proptest! {
    #[test]
    fn reader_gives_what_the_writer_was_given(
        version in 2..=3u32,
        align in prop::option::of(0..13u32),
        entries in btree_map("[a-z]{1,9}\\.\\PC{0,9}", value(), 0..8),
        tensors in btree_map("\\PC{0,20}", tensor(), 0..6),
    ) {
        let mut w = GgufWriter::new(version).unwrap();
        for (k, v) in &entries {
            w.set(k, v.clone()).unwrap();
        }
        if let Some(a) = align {
            w.set("general.alignment", Value::U32(1 << a)).unwrap();
        }
        let dims = |(ty, row, rest): &(GgmlType, u64, Vec<u64>)| {
            [vec![row * ty.block_len() as u64], rest.clone()].concat()
        };
        let data = |i: usize, t: &(GgmlType, u64, Vec<u64>)| {
            let n = t.0.row_bytes(dims(t).iter().product::<u64>() as usize).unwrap();
            (0..n).map(|b| (b * 31 + i) as u8).collect::<Vec<u8>>()
        };
        for (name, t) in &tensors {
            w.tensor(name, t.0, &dims(t)).unwrap();
        }
        let mut out = w.start(Vec::new()).unwrap();
        for (i, t) in tensors.values().enumerate() {
            out.tensor(&data(i, t)).unwrap();
        }
        let bytes = out.finish().unwrap();

        let file = GgufFile::from_bytes(bytes.clone()).unwrap();
        prop_assert_eq!(file.version(), version);
        let read: Vec<_> = file.metadata().iter().filter(|(k, _)| *k != "general.alignment").collect();
        let written: Vec<_> = entries.iter().map(|(k, v)| (k.as_str(), v)).collect();
        prop_assert_eq!(read, written);
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (i, (name, t)) in tensors.iter().enumerate() {
            let info = file.tensor(name).unwrap();
            prop_assert_eq!((info.ty, &info.dims), (t.0, &dims(t)));
            prop_assert_eq!(info.offset % (1 << align.unwrap_or(5)), 0);
            prop_assert_eq!(file.data(info), data(i, t));
        }
        prop_assert_eq!(bytes_of(&file), bytes);
    }

    #[test]
    fn flipped_bytes_never_panic(flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let mut bytes = tiny();
        let header = GgufFile::from_bytes(bytes.clone()).unwrap().tensors()[0].offset as usize;
        for (at, byte) in flips {
            bytes[at.index(header)] = byte;
        }
        let (result, spent) = spent(|| GgufFile::from_bytes(bytes));
        prop_assert!(spent.bytes < 16 * header, "allocated {} for {header}", spent.bytes);
        match result {
            Ok(file) => prop_assert!(file.tensors().iter().all(|t| file.data(t).len() as u64 == t.n_bytes)),
            Err(e) => prop_assert!(!e.to_string().contains('\n')),
        }
    }

    #[test]
    fn noise_never_panics(noise in vec(any::<u8>(), 0..200), n_tensors in 0..3u64, n_entries in 0..3u64) {
        let mut bytes = crate::raw::Raw::header(n_tensors, n_entries).0;
        bytes.extend(noise);
        let _ = GgufFile::from_bytes(bytes);
    }
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let w = || GgufWriter::new(3).unwrap();
    let text = |e: Option<minfer::gguf::GgufError>| e.unwrap().to_string();
    assert!(text(GgufWriter::new(1).err()).contains("version 1"));
    assert!(
        text(w().set("general.alignment", Value::U32(3)).err())
            .contains("`general.alignment` is u32 3")
    );
    assert!(text(w().tensor("t", GgmlType::Q8_0, &[33]).err()).contains("`t`"));
    assert!(text(w().tensor("t", GgmlType::F32, &[]).err()).contains("0 dimensions"));
    assert!(text(w().tensor("t", GgmlType::F32, &[1; 5]).err()).contains("5 dimensions"));
    assert!(text(w().tensor("t", GgmlType::F32, &[1, 0]).err()).contains("empty"));
    let mut nested = Array::U8(vec![]);
    for _ in 0..4 {
        nested = Array::Array(vec![nested]);
    }
    assert!(text(w().set("k", Value::Array(nested)).err()).contains("5 deep"));

    let long = "x".repeat(1 << 16);
    assert!(text(w().set(&long, Value::U8(1)).err()).contains("longer than 65535"));
    assert!(text(w().tensor(&long, GgmlType::F32, &[1]).err()).contains("longer than 65535"));

    let mut twice = w();
    twice.set("k", Value::U8(1)).unwrap();
    assert!(text(twice.set("k", Value::U8(1)).err()).contains("`k` occurs twice"));
    twice.tensor("t", GgmlType::F32, &[2]).unwrap();
    assert!(text(twice.tensor("t", GgmlType::F32, &[2]).err()).contains("`t`: it occurs twice"));

    let mut out = twice.start(Vec::new()).unwrap();
    assert!(text(out.tensor(&[0; 7]).err()).contains("take 8 bytes, got 7"));
    out.tensor(&[0; 8]).unwrap();
    assert!(text(out.tensor(&[0; 8]).err()).contains("more than the 1 tensors"));
    let mut short = w();
    short.tensor("t", GgmlType::F32, &[2]).unwrap();
    assert!(
        text(short.start(Vec::new()).unwrap().finish().err())
            .contains("`t`: its data was not given")
    );
}
