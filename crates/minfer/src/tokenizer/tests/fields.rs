//! Fields that are missing or wrong: an error that names the key and the value.

use super::metadata;
use crate::gguf::{Array, Metadata, StrArray, Value};
use crate::tokenizer::Tokenizer;

/// The metadata of a family with one field changed, or without it.
fn with(family: &str, key: &str, value: Option<Value>) -> Metadata {
    let mut out = Metadata::new();
    for (k, v) in metadata(family).iter().filter(|e| e.0 != key) {
        assert!(out.insert(k, v.clone()));
    }
    if let Some(v) = value {
        assert!(out.insert(key, v));
    }
    out
}

fn error(family: &str, key: &str, value: Option<Value>) -> String {
    match Tokenizer::from_metadata(&with(family, key, value)) {
        Ok(_) => panic!("{key} was accepted"),
        Err(e) => e.to_string(),
    }
}

fn string(s: &str) -> Option<Value> {
    Some(Value::Str(s.to_owned()))
}

fn strings(s: &[&str]) -> Option<Value> {
    Some(Value::Array(Array::Str(s.iter().collect::<StrArray>())))
}

#[test]
fn missing_fields_are_named() {
    for (family, key) in [
        ("gpt-2", "tokenizer.ggml.model"),
        ("gpt-2", "tokenizer.ggml.tokens"),
        ("gpt-2", "tokenizer.ggml.merges"),
        ("llama-spm", "tokenizer.ggml.scores"),
    ] {
        assert!(error(family, key, None).contains(key));
    }
}

#[test]
fn fields_of_another_type_are_named() {
    for (family, key) in [
        ("gpt-2", "tokenizer.ggml.model"),
        ("gpt-2", "tokenizer.ggml.pre"),
        ("gpt-2", "tokenizer.ggml.tokens"),
        ("gpt-2", "tokenizer.ggml.merges"),
        ("gpt-2", "tokenizer.ggml.token_type"),
        ("llama-spm", "tokenizer.ggml.scores"),
        ("llama-spm", "tokenizer.ggml.bos_token_id"),
        ("llama-spm", "tokenizer.ggml.add_bos_token"),
        ("llama-spm", "tokenizer.ggml.add_space_prefix"),
    ] {
        assert!(
            error(family, key, Some(Value::F32(1.0))).contains(key),
            "{key}"
        );
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let e = error("gpt-2", "tokenizer.ggml.pre", string("no-such"));
    assert!(e.contains("\"no-such\"") && e.contains("llama-bpe, falcon3") && e.contains("smollm"));
    for name in ["bert", "t5", "rwkv", "no_vocab", ""] {
        let e = error("gpt-2", "tokenizer.ggml.model", string(name));
        assert!(e.contains(&format!("{name:?}")) && e.contains("gpt2") && e.contains("llama"));
    }
}

#[test]
fn lengths_and_ids_must_fit_the_vocabulary() {
    let ints = Some(Value::Array(Array::I32(vec![1, 2])));
    let e = error("gpt-2", "tokenizer.ggml.token_type", ints);
    assert!(e.contains("tokenizer.ggml.token_type has 2 entries"), "{e}");
    let floats = Some(Value::Array(Array::F32(vec![0.0])));
    assert!(error("llama-spm", "tokenizer.ggml.scores", floats).contains("has 1 entries"));
    let e = error(
        "gpt-2",
        "tokenizer.ggml.eos_token_id",
        Some(Value::U32(1 << 30)),
    );
    assert!(
        e.contains("tokenizer.ggml.eos_token_id is 1073741824"),
        "{e}"
    );
    let e = error("gpt-2", "tokenizer.ggml.bos_token_id", Some(Value::I32(-1)));
    assert!(e.contains("tokenizer.ggml.bos_token_id is -1"), "{e}");
    assert!(error("gpt-2", "tokenizer.ggml.tokens", strings(&[])).contains("0 entries"));
}

#[test]
fn broken_vocabularies_name_the_entry() {
    let n = crate::tokenizer::tests::tokenizer("llama-spm").n_vocab();
    let nan = Some(Value::Array(Array::F32(vec![f32::NAN; n])));
    assert!(error("llama-spm", "tokenizer.ggml.scores", nan).contains("token 0"));
    let types = Some(Value::Array(Array::I32(vec![7; n])));
    assert!(error("llama-spm", "tokenizer.ggml.token_type", types).contains("is 7"));
    let bytes = Some(Value::Array(Array::I32(vec![6; n])));
    assert!(error("llama-spm", "tokenizer.ggml.token_type", bytes).contains("<0xNN>"));
    for (rule, why) in [
        ("ab", "two parts"),
        (" a", "two parts"),
        ("a ", "two parts"),
        ("a b c", "alphabet"),
        ("a qqqqq", "part that is not a token"),
        ("q \u{120}", "text that is not a token"),
        ("😀 a", "alphabet"),
    ] {
        let e = error("gpt-2", "tokenizer.ggml.merges", strings(&["Ġ t", rule]));
        assert!(e.contains("rule 1") && e.contains(why), "{e}");
    }
}

#[test]
fn a_flag_without_its_token_is_refused() {
    let mut md = with("gpt-2", "tokenizer.ggml.bos_token_id", None);
    assert!(md.insert("tokenizer.ggml.add_bos_token", Value::Bool(true)));
    let e = Tokenizer::from_metadata(&md).err().unwrap().to_string();
    assert!(
        e.contains("add_bos_token") && e.contains("bos_token_id"),
        "{e}"
    );
}

/// The tokens that end a generation, by id and by known name.
#[test]
fn end_of_generation() {
    let t = crate::tokenizer::tests::tokenizer("qwen2");
    let texts: Vec<&str> = t.eog().iter().filter_map(|id| t.token_text(*id)).collect();
    assert_eq!(texts, ["<|endoftext|>", "<|im_end|>"]);
    assert_eq!(t.eot(), t.special_id("<|im_end|>"));
    let t = crate::tokenizer::tests::tokenizer("phi-3");
    let texts: Vec<&str> = t.eog().iter().filter_map(|id| t.token_text(*id)).collect();
    assert_eq!(texts, ["<|endoftext|>", "<|end|>"]);
    // `</s>` is a token that users may write there, not the end of anything.
    assert!(
        t.special_id("</s>")
            .is_some_and(|id| !t.is_eog(id) && !t.is_control(id))
    );
    let t = crate::tokenizer::tests::tokenizer("llama-spm");
    assert_eq!(t.eog(), [t.eos().unwrap()]);
}
