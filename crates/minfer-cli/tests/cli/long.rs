//! Sessions, shifts, guesses, memory, and what a text is worth to a model.

use minfer::gguf::Value;
use serde_json::json;

use crate::models::{Variant, tiny};
use crate::process::{Output, run};

fn answer(model: &str, prompt: &[&str], flags: &[&str]) -> Output {
    let args = ["run", model, "--no-template", "--ignore-eos", "--json"];
    run([&args[..], prompt, flags].concat())
}

/// The ids of an answer.
fn ids(out: Output) -> Vec<u64> {
    let ids = out.json()["ids"].clone();
    serde_json::from_value(ids).unwrap()
}

#[test]
fn a_session_goes_on_as_if_there_had_been_one_run() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let file = dir.path().join("s");
    let file = file.to_str().unwrap();
    let whole = ids(answer(&model, &["Once"], &["-n", "30"]));
    let first = ids(answer(&model, &["Once"], &["-n", "12", "--session", file]));
    // No prompt, no terminal: the last answer goes on.
    let on = answer(&model, &[], &["-n", "18", "--session", file]);
    let computed = on.json()["timings"]["prompt_n"].as_u64().unwrap()
        - on.json()["timings"]["cached_n"].as_u64().unwrap();
    assert!(computed <= 1, "{computed}");
    assert_eq!([first, ids(on)].concat(), whole);
    // A new turn sees what was said.
    let out = answer(&model, &[" and"], &["-n", "4", "--session", file]).json();
    let count = |name: &str| out["timings"][name].as_u64().unwrap();
    assert!(
        count("cached_n") > 30 && count("prompt_n") - count("cached_n") <= 5,
        "{out}"
    );
}

/// Wherever it is cut: what may become a stop text is said by whom it belongs to.
#[test]
fn a_sessions_text_goes_on_as_if_there_had_been_one_run() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let rule = ["--regex", "(ab|ac|ad){40}", "-n", "60"];
    let text = |out: &Output| out.json()["text"].as_str().unwrap().to_owned();
    let all = text(&answer(&model, &["Once"], &rule));
    let stop = &all[20..26];
    let with = [&rule[..], &["--stop", stop]].concat();
    let whole = text(&answer(&model, &["Once"], &with));
    assert!(whole.len() <= 20 && all.starts_with(&whole), "{whole}");
    let mut held = false;
    for n in 1..whole.len() {
        let path = dir.path().join(n.to_string());
        let (file, n) = (path.to_str().unwrap(), n.to_string());
        let keep = [&rule[..2], &["--stop", stop, "--session", file]].concat();
        let first = answer(&model, &["Once"], &[&keep[..], &["-n", &n]].concat());
        let on = answer(&model, &[], &[&keep[..], &["-n", "60"]].concat());
        assert_eq!(text(&first) + &text(&on), whole, "after {n} tokens");
        held |= first.json()["held"] != json!("");
    }
    assert!(held, "no cut was within what may become {stop:?}");
}

#[test]
fn llama_cpp_27068_a_damaged_session_is_refused_and_stays() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let path = dir.path().join("s");
    let file = path.to_str().unwrap();
    answer(&model, &["Once"], &["-n", "4", "--session", file]).json();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 16;
    std::fs::write(&path, &bytes).unwrap();
    let refused = answer(&model, &["x"], &["--session", file]);
    refused.refused(1, &[file, "checksum", "delete it"]);
    assert_eq!(
        std::fs::read(&path).unwrap(),
        bytes,
        "nothing was overwritten"
    );
    let other = tiny("qwen2");
    std::fs::remove_file(&path).unwrap();
    answer(&model, &["Once"], &["-n", "4", "--session", file]).json();
    answer(&other, &["x"], &["--session", file]).refused(1, &["model", file, "qwen2.gguf"]);
    let system = ["--session", file, "--system", "Be brief."];
    let args = ["run", model.as_str(), "x", "--json"];
    run([&args[..], &system].concat()).refused(2, &["--system"]);
}

#[test]
fn a_shifted_answer_outlives_its_context() {
    let model = tiny("llama");
    let flags = ["-c", "96", "-n", "300", "--context-shift", "--keep", "-1"];
    let out = answer(&model, &["Once"], &flags).json();
    assert_eq!(out["ids"].as_array().unwrap().len(), 300);
    let flags = ["-c", "96", "--context-shift", "--keep", "80"];
    answer(&model, &["Once"], &flags).refused(1, &["96 tokens", "80", "--keep"]);
}

#[test]
fn guesses_change_nothing() {
    let model = tiny("llama");
    // Greedy answers of small models go round and round.
    let greedy = ["-n", "300", "--temp", "0", "--repeat-penalty", "1"];
    let ask = |flags: &[&str]| answer(&model, &["abcabcabc"], &[&greedy[..], flags].concat());
    let plain = ids(ask(&[]));
    let lookup = ask(&["--lookup"]);
    assert!(lookup.json()["timings"]["drafted_n"].as_u64().unwrap() > 0);
    assert_eq!(ids(lookup), plain);
    let draft = ask(&["--draft", &model]);
    // It is the model itself: what it guesses is right.
    assert!(draft.json()["timings"]["accepted_n"].as_u64().unwrap() > 100);
    assert_eq!(ids(draft), plain);
}

#[test]
fn a_draft_model_that_stops_guessing_is_noted() {
    let model = tiny("llama");
    let small = Variant::of("llama").set("llama.context_length", Value::U32(64));
    let small = small.write();
    let said = |draft: &str, flags: &[&str]| {
        let flags = [&["-n", "2", "--draft", draft][..], flags].concat();
        let out = answer(&model, &["x"], &flags);
        out.json();
        out.stderr
    };
    let short = said(small.path(), &["-c", "128"]);
    let words = "note: --draft: its context is 64 tokens, the answer's is 128";
    assert!(short.contains(words), "{short}");
    let shifts = said(&model, &["-c", "128", "--context-shift"]);
    let words = "note: --draft guesses nothing any more once --context-shift";
    assert!(shifts.contains(words), "{shifts}");
    for (draft, flags) in [
        (small.path(), &["-c", "64"][..]),
        (model.as_str(), &["-c", "128"]),
    ] {
        assert_eq!(said(draft, flags), "");
    }
}

#[test]
fn kv_that_does_not_fit_is_refused_with_the_numbers() {
    let model = tiny("llama");
    let refused = answer(&model, &["x"], &["--kv-memory", "1K"]);
    refused.refused(1, &["512 tokens", "--kv-memory", "--n-ctx"]);
    answer(&model, &["x"], &["--kv-memory", "lots"]).refused(2, &["--kv-memory", "500M"]);
}

#[test]
fn a_profile_names_operators_and_layers() {
    let model = tiny("llama");
    let out = answer(&model, &["x"], &["-n", "3", "--profile"]);
    out.ok();
    let text = &out.stderr;
    assert!(
        text.contains("matmul") && text.contains("attention") && text.contains("layer"),
        "{text}"
    );
}

#[test]
fn a_model_is_no_distance_from_itself() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let text = dir.path().join("t.txt");
    std::fs::write(
        &text,
        "The quick brown fox jumps over the lazy dog. ".repeat(4),
    )
    .unwrap();
    let text = text.to_str().unwrap();
    let args = ["perplexity", &model, "-f", text, "-c", "64", "--json"];
    let alone = run(args).json();
    let both = run([&args[..], &["--kl-base", &model]].concat()).json();
    let near = |a: &serde_json::Value, b: &serde_json::Value| {
        (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-3 * b.as_f64().unwrap()
    };
    assert!(
        near(&alone["model"]["perplexity"], &both["model"]["perplexity"]),
        "{alone} {both}"
    );
    assert_eq!(both["model"]["perplexity"], both["base"]["perplexity"]);
    assert_eq!(
        (&both["kl"]["max"], &both["kl"]["same_top"]),
        (&json!(0.0), &json!(1.0))
    );
    let short = ["perplexity", &model, "-f", text, "-c", "512"];
    run(short).refused(1, &[text, "512", "--n-ctx"]);
}
