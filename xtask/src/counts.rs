//! `cargo xtask counts`: how many instructions each CPU kernel takes, beside committed bounds.
//!
//! A lane method that stays a function (because its caller lacks the instruction set, or it sits in a
//! closure) gives the same bits, many times slower. No test of values sees that, and on a shared machine no
//! time does; the number of instructions does, the same in every run. So `examples/count_kernels.rs` runs each
//! kernel once under callgrind, which counts within one function of it and nothing else, and the count is
//! compared with `xtask/counts.txt`.
//!
//! What is counted is release code: the tests' profile has other checks within kernels and another inliner. The
//! engine is built without its default features, which no kernel has a part in: two minutes of compiling less.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::venv;

/// The bounds, from the workspace's root.
const BOUNDS: &str = "xtask/counts.txt";
/// The program that runs the kernels, and the function in which callgrind counts.
const EXAMPLE: &str = "count_kernels";
const COUNTED: &str = "counted_call";
/// How far a count may be from its bound, in percent: compilers differ by less, and a method that is called by
/// far more.
const ROOM: f64 = 10.0;
/// What a kernel's instructions are counted for.
const UNIT: &str = "16 values";

const HEAD: &str = "\
# Instructions of each CPU kernel for 16 multiply-adds (products, attention) or 16 values (all else), under
# callgrind: machine, kernel, count. `cargo xtask counts` fails where more than 10 % are added;
# `cargo xtask counts --write` writes what it counts.
";

/// Machines that are counted here and those that can't be: valgrind does not know their instructions.
fn machines() -> (&'static [&'static str], &'static [&'static str]) {
    if cfg!(target_arch = "x86_64") {
        (&["scalar", "avx2"], &["avxvnni", "avx512"])
    } else if cfg!(target_arch = "aarch64") {
        // The portable code's count is another one on each architecture: x86-64's stands for it.
        (&["neon-nodot"], &["neon"])
    } else {
        (&[], &["scalar"])
    }
}

/// A machine and a kernel.
type Key = (String, String);
/// Instructions for a unit of work.
type Counts = BTreeMap<Key, f64>;

/// Counts, and compares with the bounds, or with `write` makes them anew. An error when a kernel has more
/// instructions than its bound allows, and when one that should be counted is not. Where this machine has no
/// bounds at all, nothing can be compared: that is said, and no error.
pub fn run(root: &Path, write: bool) -> Result<(), String> {
    let (counted, left_out) = machines();
    if counted.is_empty() && write {
        return Err(format!("counts: {}", uncounted()));
    }
    let path = root.join(BOUNDS);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{BOUNDS}: {e}"))?;
    let bounds = bounds(&text).map_err(|e| format!("{BOUNDS}: {e}"))?;
    if let Some(why) = not_run(&bounds, counted).filter(|_| !write) {
        println!("NOT RUN: {why}");
        return Ok(());
    }
    let valgrind = Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        return Err("counts: no valgrind; on Debian: apt-get install valgrind".to_owned());
    }

    let program = build(root)?;
    let mut counts = Counts::new();
    for machine in counted {
        counts.append(&mut count(root, &program, machine)?);
    }
    let failures = if write {
        let text = written(&counts, bounds, counted);
        std::fs::write(&path, text).map_err(|e| format!("{BOUNDS}: {e}"))?;
        println!("{BOUNDS}: {} kernels", counts.len());
        0
    } else {
        report(&counts, &bounds, counted)
    };
    println!(
        "NOT RUN: {}: valgrind does not know all of their instructions",
        left_out.join(", ")
    );
    match failures {
        0 => Ok(()),
        n => Err(format!(
            "counts: {n} kernels are not as {BOUNDS} has them, see above. Is a lane method not inlined \
             (#[inline(always)] missing, or called from a closure)? If the change is meant: \
             cargo xtask counts --write"
        )),
    }
}

/// Why nothing can be compared on this machine; `None` where something can.
fn not_run(bounds: &Counts, counted: &[&str]) -> Option<String> {
    if counted.is_empty() {
        return Some(uncounted());
    }
    let bound = |(machine, _): &Key| counted.contains(&machine.as_str());
    (!bounds.keys().any(bound)).then(|| {
        format!(
            "no bounds for this machine ({}), so no kernel was counted, and this is no failure; `cargo xtask counts --write` \
             writes what it counts to {BOUNDS}",
            counted.join(", ")
        )
    })
}

/// Says that nothing is counted on this architecture.
fn uncounted() -> String {
    let arch = std::env::consts::ARCH;
    format!("kernels are counted on x86_64 and aarch64, not on {arch}")
}

/// Builds the program; its path.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "-p", "minfer", "--example", EXAMPLE]);
    venv::run(cargo.arg("--no-default-features").current_dir(root))?;
    let program = crate::target(root).join("release/examples").join(EXAMPLE);
    Ok(program)
}

/// The instructions of every kernel on `machine`.
fn count(root: &Path, program: &Path, machine: &str) -> Result<Counts, String> {
    eprintln!("counting {machine} under callgrind");
    let profile = crate::target(root).join(format!("counts-{machine}.callgrind"));
    let named = |e: String| format!("counts: {machine}: {e}");
    // A run before may have left one.
    let _ = std::fs::remove_file(&profile);
    let output = Command::new("valgrind")
        .args(["-q", "--tool=callgrind", "--combine-dumps=yes"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .arg(machine)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| named(format!("valgrind: {e}")))?;
    if !output.status.success() {
        return Err(named(format!("valgrind: {}", output.status)));
    }
    let text = std::fs::read_to_string(&profile)
        .map_err(|e| named(format!("{}: {e}", profile.display())))?;
    let kernels = kernels(&String::from_utf8_lossy(&output.stdout)).map_err(named)?;
    let instructions = instructions(&text).map_err(named)?;
    paired(machine, &kernels, &instructions).map_err(named)
}

/// What the program says: the name and the units of each counted call.
fn kernels(stdout: &str) -> Result<Vec<(String, f64)>, String> {
    let line = |line: &str| {
        let (name, units) = line.split_once('\t')?;
        let units: f64 = units.parse().ok().filter(|u| *u > 0.0)?;
        Some((name.to_owned(), units))
    };
    let read = |l: &str| line(l).ok_or_else(|| format!("no name and units: `{l}`"));
    stdout.lines().map(read).collect()
}

/// The instructions of each counted call: callgrind writes a part for each, and one at the end.
fn instructions(profile: &str) -> Result<Vec<u64>, String> {
    if !profile.lines().any(|l| l == "events: Ir") {
        return Err("callgrind counted other events than instructions (`events: Ir`)".to_owned());
    }
    let mut found = Vec::new();
    let mut counted = false;
    for line in profile.lines() {
        if let Some(trigger) = line.strip_prefix("desc: Trigger: ") {
            counted = trigger.starts_with("--dump-after");
        } else if let Some(total) = line.strip_prefix("totals: ")
            && std::mem::take(&mut counted)
        {
            let total = total.parse().map_err(|_| format!("totals: `{total}`"))?;
            found.push(total);
        }
    }
    Ok(found)
}

/// Instructions for a unit, by kernel.
fn paired(
    machine: &str,
    kernels: &[(String, f64)],
    instructions: &[u64],
) -> Result<Counts, String> {
    if kernels.is_empty() || kernels.len() != instructions.len() {
        return Err(format!(
            "{} kernels ran, callgrind counted {} calls of {COUNTED}",
            kernels.len(),
            instructions.len()
        ));
    }
    let mut counts = Counts::new();
    for ((name, units), n) in kernels.iter().zip(instructions) {
        if *n == 0 {
            return Err(format!("{name}: no instruction was counted"));
        }
        let key = (machine.to_owned(), name.clone());
        if counts.insert(key, *n as f64 / units).is_some() {
            return Err(format!("two kernels are called {name}"));
        }
    }
    Ok(counts)
}

/// Reads the bounds: a machine, a kernel's name and a count a line.
fn bounds(text: &str) -> Result<Counts, String> {
    let mut bounds = Counts::new();
    for (n, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let wrong = |what: &str| format!("line {}: {what}: `{line}`", n + 1);
        let words: Vec<&str> = line.split_whitespace().collect();
        let [machine, kernel @ .., count] = &words[..] else {
            return Err(wrong("not machine, kernel and count"));
        };
        let count: f64 = count.parse().unwrap_or(f64::NAN);
        if kernel.is_empty() || !count.is_finite() || count <= 0.0 {
            return Err(wrong("not machine, kernel and count"));
        }
        let key = ((*machine).to_owned(), kernel.join(" "));
        if bounds.insert(key, count).is_some() {
            return Err(wrong("a second bound"));
        }
    }
    Ok(bounds)
}

/// The bounds' file: what was counted, and the bounds of machines that were not.
fn written(counts: &Counts, bounds: Counts, counted: &[&str]) -> String {
    let mut all = counts.clone();
    let others = bounds.into_iter();
    all.extend(others.filter(|((machine, _), _)| !counted.contains(&machine.as_str())));
    let mut text = HEAD.to_owned();
    let mut last = "";
    for ((machine, kernel), count) in &all {
        if machine != last {
            text.push('\n');
            last = machine;
        }
        text += &format!("{machine:<10} {kernel:<22} {count:>9.3}\n");
    }
    text
}

/// How a count stands to its bound.
#[derive(Debug, PartialEq)]
enum Verdict {
    Good,
    /// So far below that the bound guards little: it should be written anew.
    Loose,
    TooMany,
    /// There is no bound.
    Unbound,
    /// There is a bound, and nothing was counted.
    NotCounted,
}

fn verdict(count: Option<f64>, bound: Option<f64>) -> Verdict {
    match (count, bound) {
        (Some(count), Some(bound)) if count > bound * (1.0 + ROOM / 100.0) => Verdict::TooMany,
        (Some(count), Some(bound)) if count < bound * (1.0 - ROOM / 100.0) => Verdict::Loose,
        (Some(_), Some(_)) => Verdict::Good,
        (Some(_), None) => Verdict::Unbound,
        (None, _) => Verdict::NotCounted,
    }
}

/// Prints all that was counted, and all that should have been; how many fail.
fn report(counts: &Counts, bounds: &Counts, counted: &[&str]) -> usize {
    let mut keys: Vec<&Key> = counts.keys().collect();
    let bound = bounds.keys().filter(|k| !counts.contains_key(*k));
    keys.extend(bound.filter(|(machine, _)| counted.contains(&machine.as_str())));
    keys.sort();
    println!(
        "{:<10} {:<22} {:>9} {:>9}",
        "machine", "kernel", "counted", "bound"
    );
    let mut failures = 0;
    for key in keys {
        let (count, bound) = (counts.get(key).copied(), bounds.get(key).copied());
        let note = match verdict(count, bound) {
            Verdict::Good => String::new(),
            Verdict::Loose => "  fewer: tighten the bound, cargo xtask counts --write".to_owned(),
            Verdict::TooMany => {
                let times = count.unwrap_or_default() / bound.unwrap_or(1.0);
                format!("  FAILED: {times:.2} times the bound")
            }
            Verdict::Unbound => "  FAILED: no bound".to_owned(),
            Verdict::NotCounted => "  FAILED: not counted".to_owned(),
        };
        failures += usize::from(note.contains("FAILED"));
        let shown = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.3}"));
        let (machine, kernel) = key;
        let line = format!(
            "{machine:<10} {kernel:<22} {:>9} {:>9}",
            shown(count),
            shown(bound)
        );
        println!("{line}{note}");
    }
    println!("instructions for {UNIT} (products, attention: multiply-adds)");
    failures
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
