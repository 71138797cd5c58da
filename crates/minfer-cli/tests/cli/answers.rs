//! `run`: its JSON, its stop strings, its seeds, and what must not change an answer.

use minfer::gguf::Value;
use serde_json::json;

use crate::models::{IM_END, Variant, saying, tiny};
use crate::process::run;

/// Runs with `--json` and gives prompt ids, ids, text and finish reason as one value.
fn answer(args: &[&str]) -> serde_json::Value {
    let mut all = run([args, &["--json"]].concat()).json();
    all.as_object_mut().unwrap().remove("timings");
    all
}

const FOX: [&[u8]; 8] = [
    b"The", b" quick", b" br", b"own", b" f", b"ox", b" jumps", b".",
];

#[test]
fn json_is_one_object_of_the_documented_shape() {
    let model = saying(&FOX).write();
    let out = run(["run", model.path(), "x", "--json", "--no-template"]).json();
    let keys =
        |v: &serde_json::Value| -> Vec<String> { v.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(
        keys(&out),
        [
            "prompt_ids",
            "ids",
            "text",
            "held",
            "finish_reason",
            "seed",
            "timings"
        ]
    );
    let timings = &out["timings"];
    assert_eq!(
        keys(timings),
        [
            "load_ms",
            "prompt_n",
            "prompt_ms",
            "predicted_n",
            "predicted_ms",
            "cached_n",
            "drafted_n",
            "accepted_n"
        ]
    );
    assert_eq!(out["prompt_ids"], json!([120]));
    let ids = [262, 263, 264, 265, 266, 267, 268, 46, IM_END];
    assert_eq!(out["ids"], json!(ids));
    assert_eq!(out["text"], "The quick brown fox jumps.");
    assert_eq!(out["held"], "");
    assert_eq!(out["finish_reason"], "stop");
    assert_eq!(
        (&timings["prompt_n"], &timings["predicted_n"]),
        (&json!(1), &json!(9))
    );
    for name in ["load_ms", "prompt_ms", "predicted_ms"] {
        assert!(timings[name].as_f64().unwrap() > 0.0, "{name}");
    }
}

#[test]
fn text_goes_to_stdout_and_timings_to_stderr_also_without_the_word_run() {
    let model = saying(&FOX).write();
    for args in [
        &["run", model.path(), "x", "--no-template"][..],
        &[model.path(), "x", "--no-template"],
        &["--no-template", model.path(), "x"],
    ] {
        let out = run(args.iter().copied());
        assert_eq!(out.ok(), "The quick brown fox jumps.\n");
        assert!(out.stderr.contains("generated 9 tokens"), "{out:?}");
    }
}

#[test]
fn n_predict_ends_an_answer_with_length() {
    let model = saying(&FOX).write();
    let with = |n: &str| answer(&["run", model.path(), "x", "--no-template", "-n", n]);
    let out = with("3");
    assert_eq!(
        (&out["text"], &out["finish_reason"]),
        (&json!("The quick br"), &json!("length"))
    );
    let out = with("0");
    assert_eq!((&out["text"], &out["ids"]), (&json!(""), &json!([])));
    assert_eq!(out["finish_reason"], "length");
    assert_eq!(with("-1")["finish_reason"], "stop");
}

#[test]
fn llama_cpp_11538_stop_over_tokens() {
    let model = saying(&FOX).write();
    let with = |stops: &[&str]| {
        let mut args = vec!["run", model.path(), "x", "--no-template"];
        stops.iter().for_each(|s| args.extend(["--stop", s]));
        // The same in the stream as in the whole.
        let printed = run(&args).ok().to_owned();
        let out = answer(&args);
        assert_eq!(printed, format!("{}\n", out["text"].as_str().unwrap()));
        (out["text"].clone(), out["finish_reason"].clone())
    };
    let stop = |text: &str| (json!(text), json!("stop"));
    assert_eq!(with(&["own fox"]), stop("The quick br"));
    assert_eq!(with(&["k brown f"]), stop("The quic"));
    assert_eq!(with(&["x jumps."]), stop("The quick brown fo"));
    assert_eq!(with(&["fox", "quick"]), stop("The "));
    assert_eq!(with(&["The"]), stop(""));
    assert_eq!(with(&["own foxes"]), stop("The quick brown fox jumps."));
    assert_eq!(with(&["jumps. "]), stop("The quick brown fox jumps."));
}

#[test]
fn ollama_586_the_seed_decides() {
    let model = tiny("qwen3");
    let with = |seed: &str| answer(&["run", &model, "Hello", "-n", "24", "--seed", seed]);
    let first = with("1");
    assert_eq!(first, with("1"));
    assert_ne!(first["ids"], with("2")["ids"]);
    // 42 is what goes without saying.
    assert_eq!(answer(&["run", &model, "Hello", "-n", "24"]), with("42"));
}

#[test]
fn llama_cpp_7052_threads_and_chunks_change_nothing() {
    let model = tiny("gemma3");
    let prompt = "the quick brown fox jumps over the lazy dog and then in the end rests";
    let with = |extra: &[&str]| {
        let args = [
            "run",
            &model,
            prompt,
            "-n",
            "32",
            "--temp",
            "0",
            "--ignore-eos",
        ];
        answer(&[&args[..], extra].concat())
    };
    let first = with(&["-t", "1"]);
    assert_eq!(first["ids"].as_array().unwrap().len(), 32);
    for extra in [
        &["-t", "2"][..],
        &["-t", "3"],
        &["-t", "2", "-b", "1"],
        &["-t", "3", "-b", "7"],
        &["-t", "1", "-b", "32"],
        &["-t", "2", "--no-fuse"],
        &["-t", "2", "--no-pack"],
    ] {
        assert_eq!(first, with(extra), "{extra:?}");
    }
}

#[test]
fn no_pack_says_what_it_costs_once() {
    let model = tiny("llama");
    let args = ["run", &model, "Hello", "-n", "2", "--no-pack"];
    let (with, without) = (run(args), run(&args[..5]));
    assert_eq!(with.ok(), without.ok());
    let notes = |stderr: &str| {
        stderr
            .lines()
            .filter(|l| l.starts_with("--no-pack: "))
            .count()
    };
    assert_eq!((notes(&with.stderr), notes(&without.stderr)), (1, 0));
}

#[test]
fn sampling_flags_come_before_the_models_own_and_those_before_the_defaults() {
    let plain = tiny("llama");
    let greedy = Variant::of("llama")
        .set("general.sampling.temp", Value::F32(0.0))
        .set("general.sampling.penalty_repeat", Value::F32(1.0))
        .write();
    let with = |model: &str, extra: &[&str]| {
        answer(
            &[
                &["run", model, "Hello", "-n", "24", "--ignore-eos"][..],
                extra,
            ]
            .concat(),
        )
    };
    let own = with(greedy.path(), &[]);
    let flags = ["--temp", "0", "--repeat-penalty", "1"];
    assert_eq!(own, with(&plain, &flags));
    assert_ne!(own, with(&plain, &[]));
    let flags = ["--temp", "0.8", "--repeat-penalty", "1.1"];
    assert_eq!(with(greedy.path(), &flags), with(&plain, &[]));

    let broken = Variant::of("llama")
        .set("general.sampling.top_p", Value::F32(2.0))
        .write();
    run(["run", broken.path(), "hi"]).refused(1, &["top_p is 2"]);
}

#[test]
fn a_bias_can_ban_and_force_a_token() {
    let model = saying(&FOX).write();
    let with = |bias: &str| {
        let args = [
            "run",
            model.path(),
            "x",
            "--no-template",
            "--temp",
            "0",
            "-n",
            "1",
        ];
        answer(&[&args[..], &["--logit-bias", bias]].concat())["ids"].clone()
    };
    assert_eq!(with("262+0"), json!([262]));
    assert_eq!(with("97+1000"), json!([97]));
    assert_ne!(with("262=-inf"), json!([262]));
    assert_ne!(with("262-1000"), json!([262]));
}
