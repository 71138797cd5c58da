//! Who may import whom: rooms, crates, and nothing that is an ML framework.

use super::safety::words;
use super::{Finding, Source, Tree};

/// The engine's rooms, in import order: a room uses only itself and rooms before it.
const ROOMS: &[&str] = &[
    "words",
    "place",
    "numeric",
    "lanes",
    "gguf",
    "tokenizer",
    "chat",
    "sampling",
    "graph",
    "backend",
    "models",
    "kv",
    "engine",
];

/// The crates, in import order.
const CRATES: &[&str] = &["minfer", "minfer-hub", "minfer-server", "minfer-cli"];

/// ML frameworks and wrappers of one; a name that ends in `*` stands for all that start so.
const BANNED: &[&str] = &[
    "autograph*",
    "burn",
    "burn-*",
    "candle*",
    "coreml*",
    "ct2rs*",
    "cubecl*",
    "dfdx*",
    "drama_llama",
    "ggml*",
    "kalosm*",
    "llama-cpp*",
    "llama-rs*",
    "llama_cpp*",
    "llm",
    "llm-*",
    "luminal*",
    "mistralrs*",
    "mlx*",
    "onnxruntime*",
    "openvino*",
    "ort",
    "ort-*",
    "rust-bert",
    "rustformers*",
    "tch",
    "tensorflow*",
    "tflite*",
    "torch*",
    "tract-*",
    "whisper-rs*",
    "wonnx*",
];

/// A room imports only rooms before it.
pub fn rooms(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.rust() {
        let Some(below) = file.path.strip_prefix("crates/minfer/src/") else {
            continue;
        };
        let room = below.split(['/', '.']).next().unwrap_or("");
        let Some(own) = ROOMS.iter().position(|r| *r == room) else {
            continue;
        };
        for (at, name) in imported(file, below) {
            let what = match ROOMS.iter().position(|r| *r == name) {
                Some(other) if other <= own => continue,
                Some(_) => format!("{room} imports {name}, which comes after it"),
                // What the root itself defines wraps the rooms: `minfer::Error`.
                None if own + 1 < ROOMS.len() && name.starts_with(char::is_uppercase) => {
                    format!("{room} imports {name} from the crate's root, which comes after it")
                }
                None => continue,
            };
            let (path, line) = (file.path.clone(), file.line_of(at));
            found.push(Finding {
                path,
                line,
                rule: "rooms",
                what,
            });
        }
    }
}

/// What `file` (at `below` in the crate's `src`) names at the crate's root: offset and name.
fn imported<'a>(file: &'a Source, below: &str) -> Vec<(usize, &'a str)> {
    let code = &file.code;
    let mut names = Vec::new();
    for at in words(code, "crate") {
        let rest = &code[at + "crate".len()..];
        // `pub(crate)` and `$crate` in a macro's text (then the path is written out as well).
        if let Some(path) = rest.trim_start().strip_prefix("::") {
            names.extend(first_names(path).into_iter().map(|n| (at, n)));
        }
    }
    // As many `super` as the file is deep lead to the root as well.
    let depth = below.trim_end_matches("/mod.rs").split('/').count();
    let climb = "super::".repeat(depth);
    for (at, _) in code.match_indices(&climb) {
        let rest = &code[at + climb.len()..];
        names.extend(
            first_names(rest)
                .into_iter()
                .filter(|n| ROOMS.contains(n))
                .map(|n| (at, n)),
        );
    }
    names
}

/// `a` of `a::b`, or the first names of every part of `{a::b, c}`.
fn first_names(path: &str) -> Vec<&str> {
    let path = path.trim_start();
    let word = |text: &str| -> usize {
        text.bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
            .count()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![&path[..word(path)]];
    };
    let (mut names, mut depth, mut fresh, mut at) = (Vec::new(), 0, true, 0);
    while at < group.len() {
        let rest = &group[at..];
        let length = word(rest);
        if length > 0 {
            if fresh && depth == 0 {
                names.push(&rest[..length]);
            }
            fresh = false;
            at += length;
            continue;
        }
        match rest.as_bytes()[0] {
            b'{' => depth += 1,
            b'}' if depth == 0 => break,
            b'}' => depth -= 1,
            b',' if depth == 0 => fresh = true,
            _ => {}
        }
        at += 1;
    }
    names
}

/// A crate depends only on crates before it (its tests may use more).
pub fn crates(tree: &Tree, found: &mut Vec<Finding>) {
    for (own, name) in CRATES.iter().enumerate() {
        let path = format!("crates/{name}/Cargo.toml");
        let Some(file) = tree.files.get(&path) else {
            continue;
        };
        let mut section = "";
        for (n, line) in file.text.lines().enumerate() {
            if line.starts_with('[') {
                section = line.trim();
            }
            let dependency = section.ends_with("dependencies]") && !section.contains("dev-");
            let key = line.split(['=', '.', ' ']).next().unwrap_or("");
            if dependency && CRATES.iter().skip(own + 1).any(|later| *later == key) {
                let what = format!("{name} depends on {key}, which comes after it");
                found.push(Finding {
                    path: path.clone(),
                    line: n + 1,
                    rule: "crates",
                    what,
                });
            }
        }
    }
}

/// No ML framework and no wrapper of one, anywhere below.
pub fn banned(tree: &Tree, found: &mut Vec<Finding>) {
    let Some(lock) = tree.files.get("Cargo.lock") else {
        return;
    };
    for (n, line) in lock.text.lines().enumerate() {
        let Some(name) = line
            .strip_prefix("name = \"")
            .and_then(|l| l.strip_suffix('"'))
        else {
            continue;
        };
        let hit = BANNED
            .iter()
            .find(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == **pattern,
            });
        if let Some(pattern) = hit {
            let what = format!("{name} is banned (`{pattern}`): every operator is written here");
            found.push(Finding {
                path: lock.path.clone(),
                line: n + 1,
                rule: "banned",
                what,
            });
        }
    }
}
