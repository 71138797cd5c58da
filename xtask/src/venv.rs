//! Scratch Python environments for scripts whose head lists their packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// The names of the scripts in a folder, in order; `_name.py` is a module of theirs, not one.
pub fn scripts(dir: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".py").map(str::to_owned))
        .filter(|name| !name.starts_with('_'))
        .collect();
    names.sort();
    Ok(names)
}

/// The packages of a script: the words of the line `packages: NAME==VERSION …` in its head, as a
/// comment or in its docstring. An error says what is wrong with the line.
pub fn packages(script: &str) -> Result<Vec<String>, String> {
    let line = script
        .lines()
        .find_map(|l| l.trim_start_matches(['#', ' ']).strip_prefix("packages:"))
        .ok_or("no line `packages: NAME==VERSION …`")?;
    let list: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match list.iter().find(|p| !p.contains("==")) {
        Some(loose) => Err(format!(
            "package `{loose}` has no version: write NAME==VERSION"
        )),
        None => Ok(list),
    }
}

/// The Python of an environment that has `packages`; made on first use under `target/venv`, one
/// folder a set of packages.
pub fn python(root: &Path, packages: &[String]) -> Result<PathBuf, String> {
    let mut sorted = packages.to_vec();
    sorted.sort();
    let digest = Sha256::digest(sorted.join(" ").as_bytes());
    let name: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
    let dir = crate::target(root).join("venv").join(name);
    let python = dir.join(if cfg!(windows) {
        "Scripts/python.exe"
    } else {
        "bin/python"
    });
    let ready = dir.join("ready");
    if ready.is_file() {
        return Ok(python);
    }
    eprintln!("making a Python environment with {}", sorted.join(" "));
    let dir_arg = dir.as_os_str();
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(dir_arg))?;
    if !sorted.is_empty() {
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet"])
            .args(&sorted))?;
    }
    std::fs::write(&ready, sorted.join("\n")).map_err(|e| format!("{}: {e}", ready.display()))?;
    Ok(python)
}

/// Runs a script in the environment its head asks for, with `args`, in the workspace's root.
pub fn script(root: &Path, path: &Path) -> Result<Command, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list = packages(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut command = Command::new(python(root, &list)?);
    command.arg(path).current_dir(root);
    Ok(command)
}

/// Runs a command to its end; an error names it and how it ended.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::packages;

    #[test]
    fn packages_come_from_the_head() {
        let text = "\"\"\"Text.\"\"\"\n# packages: b==2 a==1.0\nimport b\n";
        assert_eq!(
            packages(text),
            Ok(vec!["b==2".to_owned(), "a==1.0".to_owned()])
        );
        assert_eq!(packages("# packages:\n"), Ok(vec![]));
        assert!(packages("# packages: b>=2\n").is_err_and(|e| e.contains("`b>=2`")));
        assert!(packages("import b\n").is_err());
    }
}
