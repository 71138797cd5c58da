//! ggml-org/llama.cpp 6774 and 18991: files that end too early.

use minfer::gguf::{Array, GgufFile, GgufWriter, StrArray, Value};
use minfer::numeric::GgmlType;

use crate::hostile::refused;

/// A model of the usual form: 25 tensors, a vocabulary, 170 KB.
pub fn tiny() -> Vec<u8> {
    let mut w = GgufWriter::new(3).unwrap();
    let tokens: StrArray = (0..300).map(|i| format!("tok{i}")).collect();
    w.set("general.architecture", Value::Str("llama".into()))
        .unwrap();
    w.set("llama.block_count", Value::U32(3)).unwrap();
    w.set("llama.rope.freq_base", Value::F32(1e4)).unwrap();
    w.set("tokenizer.ggml.tokens", Value::Array(Array::Str(tokens)))
        .unwrap();
    w.set(
        "tokenizer.ggml.token_type",
        Value::Array(Array::I32(vec![1; 300])),
    )
    .unwrap();
    w.set(
        "test.nested",
        Value::Array(Array::Array(vec![Array::Bool(vec![true]); 2])),
    )
    .unwrap();
    let mut sizes = Vec::new();
    let mut add = |name: String, ty: GgmlType, dims: &[u64]| {
        w.tensor(&name, ty, dims).unwrap();
        sizes.push(
            dims[0] as usize / ty.block_len()
                * ty.block_bytes()
                * dims.get(1).map_or(1, |d| *d as usize),
        );
    };
    add("token_embd.weight".into(), GgmlType::Q8_0, &[64, 300]);
    for i in 0..3 {
        add(format!("blk.{i}.attn_norm.weight"), GgmlType::F32, &[64]);
        for part in [
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_gate",
            "ffn_up",
            "ffn_down",
        ] {
            add(format!("blk.{i}.{part}.weight"), GgmlType::F16, &[64, 53]);
        }
    }
    let mut out = w.start(Vec::new()).unwrap();
    for (i, n) in sizes.iter().enumerate() {
        out.tensor(&vec![i as u8 + 1; *n]).unwrap();
    }
    out.finish().unwrap()
}

#[test]
fn ggml_6774_cut_in_the_header() {
    // Every byte, so every field border too.
    let whole = tiny();
    let data_start = GgufFile::from_bytes(whole.clone()).unwrap().tensors()[0].offset as usize;
    for n in 0..data_start {
        let message = refused(whole[..n].to_vec());
        let named = [
            "`",
            "the number of",
            "the key of",
            "the magic",
            "the version",
            "the name of",
            "empty",
        ];
        assert!(
            named.iter().any(|w| message.contains(w)),
            "cut at {n}: {message}"
        );
    }
}

#[test]
fn ggml_18991_cut_in_the_data() {
    let whole = tiny();
    let file = GgufFile::from_bytes(whole.clone()).unwrap();
    let first = file.tensors()[0].offset as usize;
    let ends = file
        .tensors()
        .iter()
        .map(|t| (t.offset + t.n_bytes) as usize);
    let starts = file.tensors().iter().map(|t| t.offset as usize);
    let last = ends.clone().max().unwrap();
    let every_kib = (first..last).step_by(1024);
    for n in every_kib.chain(starts).chain(ends.map(|e| e - 1)) {
        let message = refused(whole[..n].to_vec());
        assert!(
            message.contains("tensor `") && message.contains(&format!("the file has {n}")),
            "cut at {n}: {message}"
        );
    }
    // Only padding is gone: nothing is missing.
    assert!(GgufFile::from_bytes(whole[..last].to_vec()).is_ok());
}
