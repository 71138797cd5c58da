//! `inspect`: metadata and tensors.

use minfer::gguf::Value;
use minfer::numeric::GgmlType;
use serde_json::json;

use crate::models::{Variant, tiny};
use crate::process::run;

#[test]
fn inspect_shows_all_metadata_and_tensors() {
    let model = tiny("llama");
    let out = run(["inspect", &model, "--json"]).json();
    assert_eq!(out["version"], 3);
    let meta = &out["metadata"];
    assert_eq!(meta["general.architecture"], "llama");
    assert_eq!(meta["llama.context_length"], 512);
    assert_eq!(meta["llama.attention.layer_norm_rms_epsilon"], json!(1e-5));
    assert_eq!(meta["tokenizer.ggml.tokens"].as_array().unwrap().len(), 272);
    let tensors = out["tensors"].as_array().unwrap();
    let embd = tensors.iter().find(|t| t["name"] == "token_embd.weight");
    let embd = embd.unwrap();
    assert_eq!(
        (&embd["type"], &embd["dims"]),
        (&json!("F32"), &json!([64, 272]))
    );
    assert_eq!(embd["bytes"], 64 * 272 * 4);
    let text = run(["inspect", &model]);
    for part in [
        "general.architecture",
        "token_embd.weight",
        "[64, 272]",
        "(272)",
    ] {
        assert!(text.ok().contains(part), "{part}");
    }
}

#[test]
fn names_from_a_file_do_not_reach_the_terminal_raw() {
    let mut v = Variant::of("llama").set("evil\u{1b}[2J", Value::Bool(true));
    let evil = "evil\u{1b}]0;\u{7}".to_owned();
    v.tensors.push((evil, GgmlType::F32, vec![4], vec![0; 16]));
    let model = v.text("general.name", "evil\u{1b}[2J").write();
    let out = run(["inspect", model.path()]);
    assert!(!out.ok().contains(['\u{1b}', '\u{7}']), "{out:?}");
    let out = run(["run", model.path(), "hi"]);
    out.refused(1, &["evil\\u{1b}]0;"]);
    assert!(!out.stderr.contains(['\u{1b}', '\u{7}']), "{out:?}");
}

#[test]
fn numbers_that_json_lacks_are_shown_as_text() {
    let model = Variant::of("llama")
        .set("x.nan", Value::F32(f32::NAN))
        .set("x.inf", Value::F64(f64::NEG_INFINITY))
        .write();
    let out = run(["inspect", model.path(), "--json"]).json();
    assert_eq!(out["metadata"]["x.nan"], "NaN");
    assert_eq!(out["metadata"]["x.inf"], "-inf");
}
