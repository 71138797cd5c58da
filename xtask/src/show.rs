//! `cargo xtask show NAME`: the longer checks, whose output is committed under `docs/show`.
//!
//! A check is a Python script in `xtask/show` that prints what it measured and exits with an error
//! when a promise is broken. The first line of its docstring says what it shows; a line
//! `packages: …` names its packages, a line `models: real` asks for the three real models, a line
//! `peer: llama-server` for llama.cpp's server. It runs from the workspace's root, after
//! `cargo build --release`; `MINFER` is the path of the command just built, `MINFER_CACHE` the
//! folder of the models, `LLAMA_SERVER` the peer: the one named there already, else the one that
//! `peers` builds.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{models, peers, venv};

struct Check {
    name: String,
    script: PathBuf,
    /// What it shows, in one line.
    what: String,
    packages: Vec<String>,
    /// Whether it needs the three real models.
    real_models: bool,
    /// Whether it measures beside llama.cpp's server.
    llama_server: bool,
}

impl Check {
    fn read(root: &Path, name: &str) -> Result<Check, String> {
        let script = root.join("xtask/show").join(format!("{name}.py"));
        let named = |e: String| format!("{}: {e}", script.display());
        let text = std::fs::read_to_string(&script).map_err(|e| named(e.to_string()))?;
        let asks = |line: &str| {
            text.lines()
                .any(|l| l.trim_start_matches(['#', ' ']) == line)
        };
        let what = text.lines().find_map(|l| l.strip_prefix("\"\"\""));
        Ok(Check {
            name: name.to_owned(),
            what: what
                .ok_or_else(|| named("no docstring".to_owned()))?
                .trim_matches('"')
                .to_owned(),
            packages: venv::packages(&text).map_err(named)?,
            real_models: asks("models: real"),
            llama_server: asks("peer: llama-server"),
            script,
        })
    }
}

/// Prints the checks there are.
pub fn list(root: &Path) -> Result<(), String> {
    for name in venv::scripts(&root.join("xtask/show"))? {
        let check = Check::read(root, &name)?;
        println!("{:<14} {}", check.name, check.what);
    }
    Ok(())
}

/// Runs one check, shows its output as it comes and writes it to `docs/show/NAME.txt`.
pub fn one(root: &Path, name: &str) -> Result<(), String> {
    let known = venv::scripts(&root.join("xtask/show"))?;
    if !known.iter().any(|k| k == name) {
        return Err(format!(
            "no check `{name}`; there are: {}",
            known.join(", ")
        ));
    }
    let check = Check::read(root, name)?;

    build(root)?;
    let cache = models::cache()?;
    if check.real_models {
        models::fetch(&cache)?;
    }
    let mut command = venv::script(root, &check.script)?;
    command
        .env("MINFER", minfer(root))
        .env("MINFER_CACHE", &cache);
    if check.llama_server && std::env::var_os("LLAMA_SERVER").is_none_or(|name| name.is_empty()) {
        command.env("LLAMA_SERVER", peers::llama_server(root, &cache)?);
    }
    let header = header(&format!("show {name}"), &check.what, &check.packages);
    if record(root, &cache, name, &mut command, header)? {
        Ok(())
    } else {
        Err(format!("show {name}: a promise is broken, see above"))
    }
}

/// Builds the command under test.
pub fn build(root: &Path) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    venv::run(cargo.args(["build", "--release"]).current_dir(root))
}

/// The path of the command that [`build`] made.
pub fn minfer(root: &Path) -> PathBuf {
    crate::target(root).join("release").join("minfer")
}

/// Runs a check, shows its output as it comes and writes it, after `header`, to
/// `docs/show/NAME.txt`; whether it succeeded.
pub fn record(
    root: &Path,
    cache: &Path,
    name: &str,
    command: &mut Command,
    header: String,
) -> Result<bool, String> {
    let mut output = header;
    print!("{output}");
    let passed = tee(command, &mut output)?;
    // Paths of one machine say nothing elsewhere.
    let output = output
        .replace(&format!("{}/", root.display()), "")
        .replace(&format!("{}/", cache.display()), "");
    let path = root.join("docs/show").join(format!("{name}.txt"));
    std::fs::create_dir_all(root.join("docs/show"))
        .and_then(|()| std::fs::write(&path, output))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(passed)
}

/// Command, machine and versions: what a reader needs to run it again. No date, so that an equal
/// outcome is an equal file.
pub fn header(task: &str, what: &str, packages: &[String]) -> String {
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc = rustc.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    format!(
        "$ cargo xtask {task}\n# {what}\n# machine: {}\n# versions: minfer {}, {}{}\n\n",
        machine(),
        env!("CARGO_PKG_VERSION"),
        rustc.unwrap_or_else(|_| "rustc unknown".to_owned()),
        packages
            .iter()
            .map(|p| format!(", {p}"))
            .collect::<String>(),
    )
}

/// The CPU's model and how many this process may use.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .unwrap_or("");
    let model = model.trim_start_matches(['\t', ' ', ':']);
    let cpus = std::thread::available_parallelism().map_or(0, |n| n.get());
    let model = if model.is_empty() {
        std::env::consts::ARCH
    } else {
        model
    };
    format!("{model}, {cpus} CPUs")
}

/// Runs `command`, prints its standard output and appends it to `output`; whether it succeeded.
fn tee(command: &mut Command, output: &mut String) -> Result<bool, String> {
    let text = |e: std::io::Error| format!("{e}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(text)?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(text)?;
            println!("{line}");
            std::io::stdout().flush().map_err(text)?;
            output.push_str(&line);
            output.push('\n');
        }
    }
    Ok(child.wait().map_err(text)?.success())
}
