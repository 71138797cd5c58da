//! SmolLM2, by its alias: fetched once, through the command's own code.

use std::sync::OnceLock;
use std::time::Duration;

use minfer::gguf::GgufFile;
use minfer::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::process::{Output, finish_within, minfer, run, spawn};

/// The ids of the chat prompt "Why is the sky blue?", with the template's own system message:
/// `transformers` 5.24.0 and llama-cpp-python 0.3.36, both from this very file.
const PROMPT: [u32; 36] = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407,
    19712, 8182, 2, 198, 1, 4093, 198, 4898, 314, 260, 6376, 4461, 47, 2, 198, 1, 520, 9531, 198,
];

/// The file's path; the first call fetches it, if this machine does not have it yet.
fn fetched() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let download = spawn(&mut minfer(["pull", "smollm2"]));
        let out = finish_within(download, Duration::from_secs(1800));
        out.ok().trim_end().to_owned()
    })
}

fn ask(extra: &[&str]) -> Output {
    let args = [
        "run",
        "smollm2",
        "Why is the sky blue?",
        "--temp",
        "0",
        "-n",
        "48",
    ];
    run([&args[..], extra].concat())
}

#[test]
fn smollm2_answers_and_llama_cpp_11538_stops_over_tokens() {
    fetched();
    let answer: Value = ask(&["--json"]).json();
    assert_eq!(answer["prompt_ids"], json!(PROMPT[..]));
    let text = answer["text"].as_str().unwrap();
    for word in ["sunlight", "atmosphere"] {
        assert!(text.contains(word), "{text}");
    }

    // A stop from the middle of one token to the middle of the next but one.
    let file = GgufFile::open(fetched().as_ref()).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.metadata()).unwrap();
    let ids: Vec<u32> = serde_json::from_value(answer["ids"].clone()).unwrap();
    let end = |n: usize| tokenizer.decode(&ids[..n], false).len();
    let (from, to) = (end(12) - 1, end(14) + 1);
    let stop = &text[from..to];
    let stopped = ask(&["--stop", stop]);
    let want = &text[..text.find(stop).unwrap()];
    assert_eq!(stopped.ok(), format!("{want}\n"));
    assert!(stopped.stderr.trim_end().ends_with("stop"), "{stopped:?}");
}

#[test]
fn smollm2_is_listed_and_inspected() {
    let path = fetched();
    let all = run(["list", "--json"]).json();
    assert!(
        all.as_array()
            .unwrap()
            .iter()
            .any(|m| m["path"] == json!(path))
    );
    let shown = run(["inspect", "smollm2"]);
    assert!(shown.ok().contains("Q4_1"), "{}", shown.stdout);
}
