//! `unsafe`: only in the rooms that need it, and each use with its reason.

use super::{Finding, Source, Tree};

/// Where `unsafe` may stand: the machine's instructions, the devices, the file mapping, and
/// allocators that count.
const ALLOWED: &[&str] = &[
    "crates/minfer/src/lanes/",
    "crates/minfer/src/backend/",
    "crates/minfer/src/gguf/mapping.rs",
    // Kernels measured alone.
    "crates/minfer/examples/bench_",
    "crates/minfer/examples/count_",
    "crates/minfer-cli/src/allocations.rs",
    "crates/minfer/tests/allocations.rs",
    "crates/minfer/tests/gguf/allocs.rs",
];

/// The heading under which a function says what its caller must ensure.
const SECTION: &str = "# Safety";

/// Every `unsafe` block and impl has a `SAFETY:` line, every `unsafe fn` that other files can
/// call a `# Safety` section: its own, or one for all in its file or in its folder's `mod.rs`.
pub fn safety(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust() {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let head = tree.files.get(&format!("{folder}/mod.rs"));
        let stated = file.text.contains(SECTION) || head.is_some_and(|h| h.text.contains(SECTION));
        for at in words(&file.code, "unsafe") {
            let mut add = |what: String| {
                let (path, line) = (file.path.clone(), file.line_of(at));
                found.push(Finding {
                    path,
                    line,
                    rule: "safety",
                    what,
                });
            };
            if !ALLOWED.iter().any(|room| file.path.starts_with(room)) {
                add(format!("unsafe outside of {}", ALLOWED.join(", ")));
            }
            match kind(&file.code[at..]) {
                Kind::Pointer => {}
                Kind::Block if !reasoned(file, at) => {
                    add("no `// SAFETY:` line says which precondition holds".to_owned());
                }
                Kind::Declaration if !stated && called_elsewhere(&file.code[..at]) => {
                    add("no `# Safety` section says what the caller must ensure".to_owned());
                }
                Kind::Block | Kind::Declaration => {}
            }
        }
    }
}

enum Kind {
    /// `unsafe { … }`, `unsafe impl`, `unsafe extern { … }`, `#[unsafe(…)]`.
    Block,
    /// `unsafe fn name`, `unsafe trait name`.
    Declaration,
    /// The type `unsafe fn(…)`.
    Pointer,
}

/// What the `unsafe` at the start of `code` is.
fn kind(code: &str) -> Kind {
    let mut rest = code["unsafe".len()..].trim_start();
    if let Some(after) = rest.strip_prefix("extern") {
        // The ABI's name is blanked.
        rest = after.trim_start();
        if !rest.starts_with("fn") {
            return Kind::Block;
        }
    }
    match rest.strip_prefix("fn") {
        Some(after) if after.trim_start().starts_with('(') => Kind::Pointer,
        Some(_) => Kind::Declaration,
        None if rest.starts_with("trait") => Kind::Declaration,
        None => Kind::Block,
    }
}

/// Byte offsets of `word` as a whole word.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let bytes = code.as_bytes();
            let before = at.checked_sub(1).and_then(|i| bytes.get(i));
            !part(before) && !part(bytes.get(at + word.len()))
        })
}

/// Whether the declaration behind `code` says `pub`, or stands in a trait's definition.
fn called_elsewhere(code: &str) -> bool {
    let line = &code[code.rfind('\n').map_or(0, |i| i + 1)..];
    if words(line, "pub").next().is_some() {
        return true;
    }
    let mut open = Vec::new();
    for (i, b) in code.bytes().enumerate() {
        match b {
            b'{' => open.push(i),
            b'}' => {
                open.pop();
            }
            _ => {}
        }
    }
    let Some(brace) = open.last() else {
        return false;
    };
    let head = &code[..*brace];
    let head = &head[head.rfind(['{', '}', ';']).map_or(0, |i| i + 1)..];
    words(head, "trait").next().is_some()
}

/// Whether a `SAFETY:` stands on the line of `at`, or in the comments and attributes straight
/// above the statement that holds it.
fn reasoned(file: &Source, at: usize) -> bool {
    let raw: Vec<&str> = file.text.lines().collect();
    let code: Vec<&str> = file.code.lines().collect();
    let here = file.line_of(at) - 1;
    let marked = |n: usize| raw[n].contains("SAFETY:");
    if marked(here) {
        return true;
    }
    for n in (0..here).rev() {
        let code = code[n].trim();
        let comment = code.is_empty() && !raw[n].trim().is_empty();
        let attribute = code.starts_with("#[");
        let statement_goes_on = !code.is_empty() && !code.ends_with([';', '{', '}', ',']);
        if comment && marked(n) {
            return true;
        }
        if !(comment || attribute || statement_goes_on) {
            return false;
        }
    }
    false
}
