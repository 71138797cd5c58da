//! Rules on plain text: length, words that must not appear, unfinished code, golden headers.

use super::{Finding, Tree};

/// The longest a source file may be, in lines.
const MAX_LINES: usize = 600;

/// What counts as a source file, by extension (or name).
const SOURCES: &[&str] = &[
    "rs", "py", "cu", "cuh", "metal", "js", "ts", "css", "html", "sh", "c", "h", "run",
];

/// No source file over 600 lines.
pub fn size(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.files.values().filter(|f| SOURCES.contains(&f.kind())) {
        let lines = file.text.lines().count();
        if lines > MAX_LINES {
            found.push(Finding {
                path: file.path.clone(),
                line: MAX_LINES + 1,
                rule: "size",
                what: format!("{lines} lines, at most {MAX_LINES}: split it by purpose"),
            });
        }
    }
}

/// Nothing names the place where the project is worked on: it must make sense anywhere.
pub fn workplace(tree: &Tree, found: &mut Vec<Finding>) {
    // In pieces, so that this file passes.
    let words: Vec<String> = [
        ["/wo", "rk/"],
        ["/tm", "p/w/"],
        ["/tm", "p/ref"],
        ["/tm", "p/models"],
        ["/tm", "p/hub"],
        ["../sha", "red"],
        ["shared/DES", "IGN"],
    ]
    .iter()
    .map(|pieces| pieces.concat())
    .collect();
    for file in tree.files.values() {
        for (n, line) in file.text.lines().enumerate() {
            for word in words.iter().filter(|w| line.contains(w.as_str())) {
                found.push(Finding {
                    path: file.path.clone(),
                    line: n + 1,
                    rule: "workplace",
                    what: format!("`{word}` means nothing outside one machine"),
                });
            }
        }
    }
}

/// No unfinished code and no test that never runs.
pub fn unfinished(tree: &Tree, found: &mut Vec<Finding>) {
    const WORDS: &[&str] = &["#[ignore", "todo!", "unimplemented!", "dbg!"];
    for file in tree.rust() {
        for (n, line) in file.code.lines().enumerate() {
            let tight: String = line.chars().filter(|c| !c.is_whitespace()).collect();
            for word in WORDS.iter().filter(|w| tight.contains(**w)) {
                found.push(Finding {
                    path: file.path.clone(),
                    line: n + 1,
                    rule: "unfinished",
                    what: format!("`{word}` does not land"),
                });
            }
        }
    }
}

/// Each script that makes reference data says with which packages.
pub fn golden_headers(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.files.values() {
        let name = ["golden", "show", "peers"]
            .iter()
            .find_map(|d| file.path.strip_prefix(&format!("xtask/{d}/")));
        // What lies deeper, or has a name that starts with `_`, is a module of the scripts.
        let script =
            name.is_some_and(|n| n.ends_with(".py") && !n.starts_with('_') && !n.contains('/'));
        if let Some(Err(what)) = script.then(|| crate::venv::packages(&file.text)) {
            found.push(Finding {
                path: file.path.clone(),
                line: 1,
                rule: "golden",
                what,
            });
        }
    }
}
