//! `logits` against the committed logits of `transformers` (see `xtask/golden/tiny_models.py`).

use serde_json::Value;

use crate::models::{N_VOCAB, Variant, folder, tiny};
use crate::process::run;

/// The tiny models' prompts.
fn prompts() -> Vec<Vec<u32>> {
    let text = std::fs::read(folder().join("prompts.json")).unwrap();
    let all: Value = serde_json::from_slice(&text).unwrap();
    serde_json::from_value(all["prompts"].clone()).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// The reference's rows for prompt `i`.
fn golden(name: &str, i: usize) -> Vec<f32> {
    let all = floats(&std::fs::read(folder().join(format!("{name}.logits"))).unwrap());
    let lengths: Vec<usize> = prompts().iter().map(Vec::len).collect();
    let from = lengths[..i].iter().sum::<usize>() * N_VOCAB;
    all[from..from + lengths[i] * N_VOCAB].to_vec()
}

/// Asserts that values agree within 1e-4 of the reference's range.
fn assert_near(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let (low, high) = want
        .iter()
        .fold((f32::MAX, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
    let worst = got.iter().zip(want).map(|(g, w)| (g - w).abs());
    // By total order, which puts a NaN above all.
    let worst = worst.max_by(f32::total_cmp).unwrap();
    assert!(
        worst <= 1e-4 * (high - low),
        "{what}: {worst} of {}",
        high - low
    );
}

/// Prompt `i` as the command line has it.
fn ids(i: usize) -> String {
    let ids: Vec<String> = prompts()[i].iter().map(u32::to_string).collect();
    ids.join(",")
}

const F32: [&str; 4] = ["--cache-type-k", "f32", "--cache-type-v", "f32"];

/// The values of a NumPy file, and its shape as written.
fn npy(bytes: &[u8]) -> (String, Vec<f32>) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!(header % 64, 0);
    let text = std::str::from_utf8(&bytes[10..header]).unwrap();
    assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': ("));
    assert!(text.ends_with('\n'));
    let shape = text.split(['(', ')']).nth(1).unwrap().to_owned();
    (shape, floats(&bytes[header..]))
}

/// The shape of a NumPy file.
fn npy_of(path: &std::path::Path) -> String {
    npy(&std::fs::read(path).unwrap()).0
}

fn check_model(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.npy");
    let out = out.to_str().unwrap();
    let model = tiny(name);
    for i in [0, 5, 9] {
        let (ids, want) = (ids(i), golden(name, i));
        let what = format!("{name}, prompt {i}");
        let args = [&["logits", &model, "--ids", &ids][..], &F32].concat();

        let all = run([&args[..], &["--all", "--npy", out]].concat());
        assert_eq!(all.ok(), "");
        let (shape, values) = npy(&std::fs::read(out).unwrap());
        assert_eq!(shape, format!("{}, {N_VOCAB}", want.len() / N_VOCAB));
        assert_near(&values, &want, &what);
        let mut piped = std::process::Command::new(env!("CARGO_BIN_EXE_minfer"));
        let piped = piped.args([&args[..], &["--all", "--npy", "-"]].concat());
        assert_eq!(npy(&piped.output().unwrap().stdout).1, values, "{what}");

        let last = run([&args[..], &["--json"]].concat()).json();
        assert_eq!(last["ids"], serde_json::json!(prompts()[i]));
        let rows: Vec<Vec<f32>> = serde_json::from_value(last["logits"].clone()).unwrap();
        assert_eq!(rows.len(), 1);
        assert_near(&rows[0], &want[want.len() - N_VOCAB..], &what);
        // The very bits of the last of all rows.
        assert_eq!(rows[0], values[values.len() - N_VOCAB..], "{what}");
    }
}

#[test]
fn llama_logits() {
    check_model("llama");
    check_model("llama3");
}

#[test]
fn qwen2_logits() {
    check_model("qwen2");
    check_model("qwen2-yarn");
}

#[test]
fn qwen3_logits() {
    check_model("qwen3");
}

#[test]
fn gemma3_logits() {
    check_model("gemma3");
}

#[test]
fn ids_come_from_a_file_and_nothing_is_added() {
    let model = tiny("llama");
    let file = crate::models::Model::new(b"5 6,\n7\n");
    let args = [
        "logits",
        &model,
        "--ids-file",
        file.path(),
        "--all",
        "--json",
    ];
    let out = run(args).json();
    assert_eq!(out["ids"], serde_json::json!([5, 6, 7]));
    assert_eq!(out["logits"].as_array().unwrap().len(), 3);
    let same = run([
        "logits", &model, "--ids", "5,6,7", "--all", "--json", "-b", "1",
    ])
    .json();
    assert_eq!(out, same);
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    let mut v = Variant::of("llama");
    v.tensor("output_norm.weight").3[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let model = v.write();
    let logits = ["logits", model.path(), "--ids", "1,2", "--json"];
    run(logits).refused(1, &["logit of token 0 is NaN"]);
    // No part of a file is left, and what was there stays.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.npy");
    let npy = [
        "logits",
        model.path(),
        "--ids",
        "1,2",
        "--npy",
        out.to_str().unwrap(),
    ];
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    run(npy).refused(1, &["logit of token 0 is NaN"]);
    assert_eq!(entries(), 0);
    std::fs::write(&out, "before").unwrap();
    run(npy).refused(1, &["logit of token 0 is NaN"]);
    assert_eq!(
        (entries(), &*std::fs::read(&out).unwrap()),
        (1, &b"before"[..])
    );
    let good = tiny("llama");
    run([
        "logits",
        &good,
        "--ids",
        "1,2",
        "--npy",
        out.to_str().unwrap(),
    ])
    .ok();
    assert!(npy_of(&out).starts_with("1, ") && entries() == 1);
    run(["run", model.path(), "hi", "--no-template"]).refused(1, &["logit of token 0 is NaN"]);
}
