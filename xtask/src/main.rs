//! The project's own tasks. `cargo xtask` without a task lists them.

mod counts;
mod golden;
mod models;
mod peers;
mod show;
mod tidy;
mod venv;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  tidy            check the house rules (docs/ARCHITECTURE.md)
  counts          count the instructions of each CPU kernel under callgrind, and compare with the bounds
                  in xtask/counts.txt (10 % more fail); needs valgrind
  counts --write  write what is counted there
  golden [NAME]   make reference data again, with the packages its script names; all without NAME
  golden --list   the scripts there are
  models [DIR]    fetch the three real models for development (default: the cache of `minfer`)
  peers [MODEL…]  measure llama.cpp and minfer in turn on the same files, and check the promised
                  marks; builds llama.cpp on first use (peers --help; peers --list)
  show NAME       run one of the longer checks and write its output to docs/show/NAME.txt
  show --list     the checks there are";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let done = match args[..] {
        ["tidy"] => tidy::run(&root),
        ["counts"] => counts::run(&root, false),
        ["counts", "--write"] => counts::run(&root, true),
        ["golden", "--list"] => golden::list(&root),
        ["golden"] => golden::all(&root),
        ["golden", name] => golden::one(&root, name),
        ["models"] => models::cache().and_then(|dir| models::fetch(&dir)),
        ["models", dir] if !dir.starts_with('-') => models::fetch(&PathBuf::from(dir)),
        ["peers", ref rest @ ..] => peers::run(&root, rest),
        ["show", "--list"] => show::list(&root),
        ["show", name] => show::one(&root, name),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: the folder above this crate's.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// Where cargo puts what it builds.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}
