//! Commands that are planned, so that one who tries them is not told of a model that there is not.

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
    (
        "quantize",
        "llama.cpp's llama-quantize writes files that can be run here",
    ),
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
const CHAT: &str = "`minfer run MODEL PROMPT --session FILE` keeps a conversation, `minfer serve MODEL` has a chat page";

/// Why the command that was given is none yet, and what to do; nothing where `is_model` says that it is a model's name.
pub fn planned(argv: &[OsString], is_model: impl Fn(&str) -> bool) -> Option<String> {
    let first = argv.get(1)?.to_str()?;
    let (name, meanwhile) = PLANNED.iter().find(|p| p.0 == first)?;
    (!is_model(first)).then(|| format!("`{name}` is planned for later; for now {meanwhile}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn what_is_planned_is_no_command_and_no_model() {
        let argv = |a: &[&str]| -> Vec<OsString> { a.iter().map(Into::into).collect() };
        for (name, _) in PLANNED {
            let there = Cli::command()
                .get_subcommands()
                .any(|c| c.get_name() == *name);
            assert!(!there, "{name} is there: it is no longer planned");
            let asked = argv(&["minfer", name, "x"]);
            let said = planned(&asked, |_| false).unwrap();
            assert!(said.starts_with(&format!("`{name}` is planned")), "{said}");
            assert_eq!(planned(&asked, |model| model == *name), None);
        }
        for other in [
            &["minfer", "run", "chat"][..],
            &["minfer"],
            &["minfer", "chatter"],
        ] {
            assert_eq!(planned(&argv(other), |_| false), None);
        }
    }
}
