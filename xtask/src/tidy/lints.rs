//! Rules on the shape of code: parameters of shared blocks, lints of the rooms that read what
//! users send, documentation that nobody may leave out.

use super::safety::words;
use super::{Finding, Tree};

/// The most parameters a shared block takes: a fifth means a second block.
const MAX_PARAMETERS: usize = 4;

/// Rooms that read what users send.
const READERS: &[&str] = &[
    "crates/minfer/src/gguf/mod.rs",
    "crates/minfer/src/tokenizer/mod.rs",
    "crates/minfer/src/chat/mod.rs",
    "crates/minfer-hub/src/lib.rs",
    "crates/minfer-server/src/lib.rs",
];

/// What they deny themselves outside of tests.
const DENIED: &[&str] = &[
    "unwrap_used",
    "expect_used",
    "panic",
    "indexing_slicing",
    "arithmetic_side_effects",
];

/// A shared building block of models takes at most four parameters (`self` aside).
pub fn block_parameters(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree
        .rust()
        .filter(|f| f.path.starts_with("crates/minfer/src/models/blocks"))
    {
        for at in words(&file.code, "fn") {
            let Some((name, count)) = signature(&file.code[at + 2..]) else {
                continue;
            };
            if count > MAX_PARAMETERS {
                let what = format!("{name} takes {count} parameters, at most {MAX_PARAMETERS}");
                let (path, line) = (file.path.clone(), file.line_of(at));
                found.push(Finding {
                    path,
                    line,
                    rule: "blocks",
                    what,
                });
            }
        }
    }
}

/// Name and number of parameters of the function whose `fn` is just behind; none for `fn(…)`
/// types.
fn signature(code: &str) -> Option<(&str, usize)> {
    let code = code.trim_start();
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let (name, rest) = code.split_at(end);
    if name.is_empty() {
        return None;
    }
    // Past the generics, whose bounds may hold parentheses.
    let (mut angle, mut start, mut last) = (0, None, ' ');
    for (i, c) in rest.char_indices() {
        match c {
            '<' => angle += 1,
            '>' if last != '-' => angle -= 1,
            '(' if angle == 0 => {
                start = Some(i + 1);
                break;
            }
            _ => {}
        }
        last = c;
    }
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    let mut last = ' ';
    for c in rest[start?..].chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' if depth == 0 => break,
            '>' if last == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => {}
        }
        if !(c == ',' && depth == 0) {
            part.push(c);
        }
        last = c;
    }
    parts.push(part);
    let own = |p: &str| {
        words(p.split(':').next().unwrap_or(""), "self")
            .next()
            .is_some()
    };
    Some((
        name,
        parts
            .iter()
            .filter(|p| !p.trim().is_empty() && !own(p))
            .count(),
    ))
}

/// The rooms that read what users send deny what could panic.
pub fn denied_lints(tree: &Tree, found: &mut Vec<Finding>) {
    for file in READERS.iter().filter_map(|path| tree.files.get(*path)) {
        if file.code.trim().is_empty() {
            continue;
        }
        let tight: String = file.code.chars().filter(|c| !c.is_whitespace()).collect();
        let denied = tight.split("#![cfg_attr(not(test),deny(").nth(1);
        let denied: Vec<&str> = denied
            .and_then(|d| d.split(')').next())
            .unwrap_or("")
            .split(',')
            .collect();
        for lint in DENIED {
            if !denied.contains(&format!("clippy::{lint}").as_str()) {
                let what = format!("no `#![cfg_attr(not(test), deny(clippy::{lint}))]`");
                found.push(Finding {
                    path: file.path.clone(),
                    line: 1,
                    rule: "lints",
                    what,
                });
            }
        }
    }
}

/// Nobody allows himself to leave documentation out.
pub fn undocumented(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust() {
        for at in words(&file.code, "missing_docs") {
            let head = file.code[..at].rsplit("#").next().unwrap_or("");
            if words(head, "allow").next().is_some() || words(head, "expect").next().is_some() {
                found.push(Finding {
                    path: file.path.clone(),
                    line: file.line_of(at),
                    rule: "docs",
                    what: "write the documentation instead of allowing that it is missing".into(),
                });
            }
        }
    }
}
