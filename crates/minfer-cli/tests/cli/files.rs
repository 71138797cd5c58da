//! What is not a model, and models that can't be run: one line, exit 1, by every command.

use minfer::gguf::GgufFile;
use minfer::numeric::GgmlType;

use crate::models::{Model, Variant, tiny};
use crate::process::run;

/// Each command that reads a model, with what else it needs.
const COMMANDS: [(&str, &[&str]); 6] = [
    ("run", &["hi", "-n", "1"]),
    ("inspect", &[]),
    ("tokenize", &["hi"]),
    ("logits", &["--ids", "1", "--json"]),
    ("graph", &["--dot", "-"]),
    ("bench", &["-p", "4", "-n", "1", "-r", "1"]),
];

fn refused_by_all(model: &str, needles: &[&str]) {
    for (command, rest) in COMMANDS {
        run([&[command, model][..], rest].concat()).refused(1, needles);
    }
}

#[test]
fn mistral_rs_1050_no_model_at_that_path() {
    refused_by_all("no/such/model.gguf", &["no/such/model.gguf"]);
}

#[test]
fn ollama_8099_a_folder_or_a_text_is_no_model() {
    refused_by_all(env!("CARGO_MANIFEST_DIR"), &["folder"]);
    refused_by_all(
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        &["Cargo.toml", "not a GGUF file"],
    );
}

#[test]
fn an_unknown_name_is_told_the_four_kinds_of_names() {
    refused_by_all(
        "nosuchmodel",
        &["`nosuchmodel`", "source", "alias", "path", "cached file"],
    );
    run(["run", "ftp:x", "hi"]).refused(1, &["`ftp:`", "hf:", "pypi:"]);
}

#[test]
fn llama_cpp_6774_a_cut_model_is_refused_by_every_command() {
    let bytes = std::fs::read(tiny("llama")).unwrap();
    let header_end = GgufFile::from_bytes(bytes.clone()).unwrap().tensors()[0].offset as usize;
    for (length, what) in [
        (0, "empty"),
        (3, ""),
        (23, "truncated"),
        (1000, "truncated"),
        (header_end, "tensor `"),
        (bytes.len() / 2, "tensor `"),
        (bytes.len() - 1, "tensor `"),
    ] {
        let cut = Model::new(&bytes[..length]);
        refused_by_all(cut.path(), &[cut.path(), what]);
    }
}

#[test]
fn llama_cpp_27188_hostile_files_are_refused_by_every_command() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/gguf");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("bad_") {
            let path = entry.path();
            let path = path.to_str().unwrap();
            refused_by_all(path, &[path]);
            count += 1;
        }
    }
    assert!(count >= 25, "{count} files in {folder}");
}

#[test]
fn cve_2026_7482_data_beyond_the_file_is_refused_before_it_is_read() {
    let good = std::fs::read(tiny("llama")).unwrap();
    let name = b"output_norm.weight";
    let found = good.windows(name.len()).position(|w| w == name);
    // Behind the name: the number of sizes (1), the size, the type, the offset.
    let at = found.unwrap() + name.len() + 4 + 8 + 4;
    let length = good.len() as u64;
    for offset in [length, length - 64, 1 << 40, u64::MAX - 31] {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&(offset & !31).to_le_bytes());
        let model = Model::new(&bytes);
        refused_by_all(model.path(), &["`output_norm.weight`"]);
    }
}

#[test]
fn an_unknown_architecture_is_refused_by_name_and_can_be_inspected() {
    let model = Variant::of("llama")
        .text("general.architecture", "mamba9")
        .write();
    run(["run", model.path(), "hi"]).refused(1, &["'mamba9'", "gemma3", model.path()]);
    assert!(run(["inspect", model.path()]).ok().contains("mamba9"));
}

#[test]
fn a_type_that_cannot_be_run_is_refused_by_tensor_and_type_and_can_be_inspected() {
    let mut v = Variant::of("llama");
    let tensor = v.tensor("blk.1.ffn_up.weight");
    (tensor.1, tensor.3) = (GgmlType::IQ4_NL, vec![0; tensor.3.len() / 128 * 18]);
    let model = v.write();
    let needles = ["'blk.1.ffn_up.weight'", "IQ4_NL", "Q4_K"];
    run(["run", model.path(), "hi"]).refused(1, &needles);
    run(["bench", model.path()]).refused(1, &needles);
    let shown = run(["inspect", model.path(), "--json"]).json();
    let tensors = shown["tensors"].as_array().unwrap();
    let is_it = |t: &&serde_json::Value| t["name"] == "blk.1.ffn_up.weight";
    assert_eq!(tensors.iter().find(is_it).unwrap()["type"], "IQ4_NL");
}

#[test]
fn a_missing_a_left_over_and_a_misshapen_tensor_are_refused_by_name() {
    let mut v = Variant::of("qwen2");
    v.tensors.retain(|t| t.0 != "blk.1.attn_k.weight");
    let model = v.write();
    run(["run", model.path(), "hi"]).refused(1, &["'blk.1.attn_k.weight'", "missing"]);

    let mut v = Variant::of("qwen2");
    let more = (
        "blk.1.extra.weight".into(),
        GgmlType::F32,
        vec![4],
        vec![0; 16],
    );
    v.tensors.push(more);
    let model = v.write();
    run(["run", model.path(), "hi"]).refused(1, &["'blk.1.extra.weight'", "qwen2"]);

    let mut v = Variant::of("qwen2");
    let tensor = v.tensor("output_norm.weight");
    (tensor.2, tensor.3) = (vec![32], vec![0; 128]);
    let model = v.write();
    let needles = ["'output_norm.weight'", "[32]", "[64]"];
    run(["run", model.path(), "hi"]).refused(1, &needles);
}

#[test]
fn a_vocabulary_alone_can_be_tokenized_but_not_run() {
    let mut v = Variant::of("llama");
    v.tensors.clear();
    let model = v.write();
    // The merges of the file: "Ġ t", "h e", "Ġt he".
    let out = run(["tokenize", model.path(), "a the", "--json"]).json();
    assert_eq!(out["ids"], serde_json::json!([97, 258]));
    assert_eq!(out["pieces"], serde_json::json!(["a", " the"]));
    run(["run", model.path(), "hi"]).refused(1, &["'token_embd.weight'", "missing"]);
}

#[test]
fn known_keys_that_would_change_the_result_are_refused_and_harmless_values_are_not() {
    use minfer::gguf::{Array, Value};
    let bools = || Value::Array(Array::Bool(vec![true, false]));
    let ones = || Value::Array(Array::U32(vec![1, 1]));
    for (arch, key, bad, harmless) in [
        (
            "llama",
            "attention.sliding_window",
            Value::U32(4),
            Some(Value::U32(512)),
        ),
        (
            "qwen2",
            "attention.sliding_window",
            Value::U32(511),
            Some(Value::U32(4096)),
        ),
        (
            "qwen3",
            "attention.sliding_window",
            Value::U32(1),
            Some(Value::U32(0)),
        ),
        (
            "gemma3",
            "attention.sliding_window_pattern",
            bools(),
            Some(Value::U32(6)),
        ),
        ("gemma3", "attention.sliding_window_pattern", ones(), None),
        (
            "gemma3",
            "final_logit_softcapping",
            Value::F32(30.0),
            Some(Value::F32(0.0)),
        ),
        ("llama", "final_logit_softcapping", Value::F32(30.0), None),
        (
            "qwen2",
            "attn_logit_softcapping",
            Value::F32(50.0),
            Some(Value::F32(0.0)),
        ),
        (
            "llama",
            "attention.scale",
            Value::F32(0.5),
            Some(Value::F32(0.0)),
        ),
        (
            "llama",
            "attention.clamp_kqv",
            Value::F32(8.0),
            Some(Value::F32(0.0)),
        ),
        ("llama", "attention.max_alibi_bias", Value::F32(8.0), None),
        (
            "llama",
            "logit_scale",
            Value::F32(0.0625),
            Some(Value::F32(1.0)),
        ),
        (
            "llama",
            "embedding_scale",
            Value::F32(12.0),
            Some(Value::F32(1.0)),
        ),
        (
            "llama",
            "residual_scale",
            Value::F32(0.22),
            Some(Value::F32(1.0)),
        ),
        (
            "qwen2",
            "rope.scaling.attn_factor",
            Value::F32(1.2),
            Some(Value::F32(1.0)),
        ),
        (
            "qwen2",
            "attention.causal",
            Value::Bool(false),
            Some(Value::Bool(true)),
        ),
        (
            "llama",
            "use_parallel_residual",
            Value::Bool(true),
            Some(Value::Bool(false)),
        ),
    ] {
        let full = format!("{arch}.{key}");
        let with = |value| Variant::of(arch).set(&full, value).write();
        let bad = with(bad);
        run(["run", bad.path(), "hi"]).refused(1, &[&format!("'{full}'"), bad.path()]);
        if let Some(harmless) = harmless {
            let good = with(harmless);
            run(["run", good.path(), "hi", "--no-template", "-n", "1"]).ok();
        }
    }
}

#[test]
fn a_tokenizer_that_is_not_known_is_refused_with_the_file() {
    let model = Variant::of("llama")
        .text("tokenizer.ggml.pre", "klingon")
        .write();
    for command in ["tokenize", "run"] {
        run([command, model.path(), "hi"]).refused(1, &["klingon", model.path(), "qwen2"]);
    }
}
