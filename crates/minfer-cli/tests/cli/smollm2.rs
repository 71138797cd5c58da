//! SmolLM2, by its alias: fetched once, through the command's own code.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use minfer::gguf::GgufFile;
use minfer::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

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

/// Beside llama.cpp's (of llama-cpp-python 0.3.36, `xtask/golden/perplexity.py`), text by text and over all.
///
/// Both multiply weights of 4 bits with activations of 8 and round on the way, each in its own place. Of that,
/// `cargo xtask show fidelity` allows a mean KL divergence of 0.012 nats, which is a standard deviation of
/// sqrt(2 x 0.012) = 0.155 of a token's log-likelihood: 0.0097 of the mean of 255 tokens, 0.0056 of that of 765. Three of those are
/// allowed.
#[test]
fn smollm2_is_as_surprised_as_in_llama_cpp() {
    const OF_ONE: f64 = 3.0 * 0.0097;
    const OF_ALL: f64 = 3.0 * 0.0056;
    fetched();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let data = std::fs::read_to_string(here.join("tests/data/perplexity.json")).unwrap();
    let want: Map<String, Value> = serde_json::from_str(&data).unwrap();
    assert_eq!(want.len(), 3);
    let mut off = 0.0;
    for (name, want) in &want {
        let text = here.join(format!("../../xtask/show/texts/{name}.txt"));
        let text = text.to_str().unwrap();
        let got = run([
            "perplexity",
            "smollm2",
            "-f",
            text,
            "--chunks",
            "1",
            "--json",
        ])
        .json();
        let got = &got["model"];
        assert_eq!(got["tokens"], want["tokens"], "{name}");
        let [got, want] = [
            got["perplexity"].as_f64().unwrap().ln(),
            want["nll"].as_f64().unwrap(),
        ];
        assert!(
            (got - want).abs() < OF_ONE,
            "{name}: {got} nats, llama.cpp {want}"
        );
        off += (got - want) / 3.0;
    }
    assert!(off.abs() < OF_ALL, "{off} nats over all texts");
}
