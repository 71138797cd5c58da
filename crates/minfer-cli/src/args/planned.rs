//! Commands that there are not, so that one who tries them is not told of a model that there is not: planned ones, and what others
//! call what is done here.

use std::ffi::OsString;

/// What is planned, and what does it, or a part of it, meanwhile.
const PLANNED: &[(&str, &str)] = &[
    ("chat", CHAT),
    ("--cnv", CHAT),
    (
        "viz",
        "`minfer graph MODEL --dot F` writes the compute graph",
    ),
    (
        "rm",
        "`minfer list --json` shows the paths of cached models: delete the file",
    ),
    ("quantize", QUANTIZE),
    (
        "convert",
        "llama.cpp's convert_hf_to_gguf.py writes files that can be run here",
    ),
    ("split", "llama.cpp's llama-gguf-split does it"),
    (
        "merge",
        "a split model is run by its first part, as it is; llama.cpp's llama-gguf-split joins the parts",
    ),
];
/// What there is instead of a chat in the terminal.
pub const CHAT: &str = "`minfer run MODEL PROMPT --session FILE` keeps a conversation, `minfer serve MODEL` has a chat page";
const QUANTIZE: &str = "llama.cpp's llama-quantize writes files that can be run here";

/// Ollama's and llama.cpp's names, and some that come to mind: what does it here.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["ls", "models"], "`minfer list` shows the cached models"),
    (
        &["show", "info", "gguf-dump", "llama-gguf"],
        "`minfer inspect MODEL` shows a file's metadata and tensors",
    ),
    (
        &["ps"],
        "a `minfer serve` has the models it was given, and its GET /api/ps tells which are loaded",
    ),
    (
        &["stop"],
        "Ctrl-C ends `minfer run` and `minfer serve`; POST /api/generate with \"keep_alive\": 0 unloads a model of a server",
    ),
    (
        &["create"],
        "a GGUF file is run as it is, by its path; what a Modelfile says are flags (--system, --temp, …)",
    ),
    (
        &["cp"],
        "a model is a file: copy that; `minfer serve NAME=MODEL` gives one another name",
    ),
    (
        &["push", "signin", "signout", "login", "logout"],
        "there is none, since nothing is published from here",
    ),
    (
        &["remove", "delete"],
        "`minfer list --json` shows the paths of cached models: delete the file",
    ),
    (
        &["download", "get", "fetch"],
        "`minfer pull MODEL` fetches a model",
    ),
    (
        &["embed", "embedding", "embeddings", "llama-embedding"],
        "`minfer serve MODEL` answers POST /v1/embeddings, /api/embed and /embedding",
    ),
    (
        &["detokenize"],
        "`minfer serve MODEL` answers POST /detokenize",
    ),
    (
        &[
            "cli",
            "completion",
            "complete",
            "generate",
            "llama-cli",
            "llama-completion",
            "llama-run",
            "llama-simple",
        ],
        "`minfer run MODEL PROMPT` answers a prompt",
    ),
    (
        &["server", "llama-server"],
        "`minfer serve MODEL` answers over HTTP",
    ),
    (
        &[
            "benchmark",
            "batched-bench",
            "llama-bench",
            "llama-batched-bench",
        ],
        "`minfer bench MODEL` measures speed, -b of several sequences together",
    ),
    (
        &["ppl", "llama-perplexity"],
        "`minfer perplexity MODEL -f FILE` judges a text",
    ),
    (
        &["llama-tokenize"],
        "`minfer tokenize MODEL TEXT` shows the tokens of a text",
    ),
    (&["llama-quantize"], QUANTIZE),
    (
        &["imatrix", "llama-imatrix"],
        "there is none; llama.cpp's llama-imatrix makes what llama-quantize takes",
    ),
    (&["version"], "`minfer --version` tells it"),
];

/// Why the command that was given is none, and what to do; nothing where `is_model` says that it is a model's name.
pub fn no_command(argv: &[OsString], is_model: impl Fn(&str) -> bool) -> Option<String> {
    let name = argv.get(1)?.to_str()?;
    let planned = PLANNED.iter().find(|p| p.0 == name);
    let planned = planned.map(|p| format!("`{name}` is planned for later; for now {}", p.1));
    let elsewhere = || {
        let other = ELSEWHERE.iter().find(|e| e.0.contains(&name))?;
        Some(format!("`{name}` is no command here: {}", other.1))
    };
    planned.or_else(elsewhere).filter(|_| !is_model(name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn what_is_said_to_be_no_command_is_none_and_no_model() {
        let argv = |a: &[&str]| -> Vec<OsString> { a.iter().map(Into::into).collect() };
        let planned = PLANNED.iter().map(|p| (p.0, "is planned for later"));
        let elsewhere = ELSEWHERE.iter().flat_map(|e| e.0.iter());
        let elsewhere = elsewhere.map(|name| (*name, "is no command here: "));
        for (name, words) in planned.chain(elsewhere) {
            let there = Cli::command().find_subcommand(name).is_some();
            assert!(!there, "{name} is there");
            let asked = argv(&["minfer", name, "x"]);
            let said = no_command(&asked, |_| false).unwrap();
            assert!(said.starts_with(&format!("`{name}` {words}")), "{said}");
            assert_eq!(no_command(&asked, |model| model == name), None);
        }
        for other in [
            &["minfer", "run", "chat"][..],
            &["minfer"],
            &["minfer", "chatter"],
            &["minfer", "list"],
        ] {
            assert_eq!(no_command(&argv(other), |_| false), None);
        }
    }

    #[test]
    fn the_commands_that_are_pointed_to_are_there() {
        let planned = PLANNED.iter().map(|p| p.1);
        let mut pointed = 0;
        for said in planned.chain(ELSEWHERE.iter().map(|e| e.1)) {
            // Behind each "`minfer " stands a name.
            for after in said.split("`minfer ").skip(1) {
                let name = after.split([' ', '`']).next().unwrap();
                let there = Cli::command().find_subcommand(name).is_some();
                assert!(there || name == "--version", "{said}");
                pointed += 1;
            }
        }
        assert!(pointed > ELSEWHERE.len() / 2, "{pointed} are pointed to");
    }
}
