//! The context's limits: what is too long is refused with both numbers, never cut.

use crate::models::{endless, tiny};
use crate::process::{run, run_with_stdin};

/// Tokens of the tiny models' context.
const LIMIT: usize = 512;

#[test]
fn llama_cpp_3969_the_end_of_the_context_is_an_end() {
    let model = tiny("llama");
    for (flags, n_ctx) in [(&["--n-ctx", "40"][..], 40), (&[], LIMIT)] {
        for n_predict in ["-1", "100000"] {
            let args = [
                "run",
                &model,
                "x",
                "--no-template",
                "--ignore-eos",
                "--json",
            ];
            let out = run([&args[..], flags, &["-n", n_predict]].concat()).json();
            assert_eq!(out["finish_reason"], "length");
            // The last token needs no place: nothing is computed after it.
            assert_eq!(out["ids"].as_array().unwrap().len(), n_ctx);
            assert_eq!(out["timings"]["predicted_n"], n_ctx);
        }
    }
}

#[test]
fn llama_cpp_4967_a_prompt_longer_than_the_context_is_refused_on_every_way_in() {
    let model = tiny("llama");
    let long = "a".repeat(600); // a token each
    let ids = vec!["97"; 600].join(",");
    let (raw, few) = (["--no-template"], ["--no-template", "--n-ctx", "20"]);
    let run_long = |flags: &[&str]| run([&["run", &model, &long][..], flags].concat());
    run_long(&raw).refused(1, &["600 tokens", "512", "shorten"]);
    run_long(&few).refused(1, &["600 tokens", "context 20", "--n-ctx", "limit is 512"]);
    run_long(&["--n-ctx", "512", "--json"]).refused(1, &["context 512"]);
    run_with_stdin([&["run", &model][..], &raw].concat(), long.as_bytes())
        .refused(1, &["600 tokens", "512"]);
    let logits = ["logits", &model, "--ids", &ids, "--json"];
    run(logits).refused(1, &["600 tokens", "512"]);
    let few = ["logits", &model, "--ids", "1,2,3", "--json", "--n-ctx", "2"];
    run(few).refused(1, &["3 tokens", "context 2"]);
    run(["bench", &model, "-p", "600"]).refused(1, &["600 tokens", "512"]);
    run(["bench", &model, "-p", "1", "-n", "513"]).refused(1, &["tg513", "513 tokens", "512"]);
    run([
        "bench", &model, "-p", "1", "-n", "2", "-d", "0,511", "-b", "1,8",
    ])
    .refused(1, &["tg2 @ d511", "513 tokens", "512"]);
}

#[test]
fn a_prompt_that_just_fits_is_answered() {
    let model = tiny("llama");
    let text = "a".repeat(LIMIT);
    let out = run(["run", &model, &text, "--no-template", "--json"]).json();
    assert_eq!(out["timings"]["prompt_n"], LIMIT);
    assert_eq!(out["timings"]["predicted_n"], 1);
}

#[test]
fn without_n_ctx_the_context_is_what_prompt_and_answer_need() {
    let model = endless(); // its limit is 131072
    let counts = |prompt: usize, n_predict: &str| {
        let text = "a".repeat(prompt);
        let raw = ["--no-template", "--ignore-eos", "--json", "-n", n_predict];
        let out = run([&["run", model.path(), &text][..], &raw].concat()).json();
        let count = |key: &str| out["timings"][key].as_u64().unwrap();
        (count("prompt_n"), count("predicted_n"))
    };
    assert_eq!(counts(1, "4200"), (1, 4200));
    assert_eq!(counts(5000, "40"), (5000, 40));
    // An answer without a bound has room for 4096 tokens; the last one needs none.
    assert_eq!(counts(1000, "-1"), (1000, 4097));
}
