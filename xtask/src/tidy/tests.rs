//! Each rule fails on a tree that breaks it, says where, and passes beside it; and the real tree
//! passes them all.

use std::path::Path;

use super::{Tree, check};

/// What `check` finds in a tree made of `files`, as `path:line: rule` each.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    let tree = Tree::from_dir(dir.path()).expect("a tree");
    check(&tree)
        .iter()
        .map(|f| format!("{}:{}: {}", f.path, f.line, f.rule))
        .collect()
}

#[test]
fn the_real_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let tree = Tree::from_git(root).expect("git lists the files");
    assert!(
        tree.files.len() > 20,
        "only {} files seen",
        tree.files.len()
    );
    let found: Vec<String> = check(&tree).iter().map(|f| f.to_string()).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn size_at_most_600_lines() {
    let long = "x\n".repeat(601);
    let right = "x\n".repeat(600);
    for name in [
        "a.rs", "b/a.py", "k.cu", "k.metal", "p.js", "p.css", ".ci/run",
    ] {
        assert_eq!(found(&[(name, &long)]), [format!("{name}:601: size")]);
        assert!(found(&[(name, &right)]).is_empty());
    }
    assert!(found(&[("data.json", &long), ("Cargo.lock", &long)]).is_empty());
}

#[test]
fn unsafe_has_a_reason() {
    let file = "crates/minfer/src/lanes/a.rs";
    let at = |text: &str| found(&[(file, text)]).len();
    assert_eq!(
        found(&[(file, "fn f() {\n    unsafe { g() }\n}")]),
        [format!("{file}:2: safety")]
    );
    assert_eq!(at("fn f() {\n    // SAFETY: ok.\n    unsafe { g() }\n}"), 0);
    assert_eq!(
        at("fn f() {\n    // SAFETY: ok.\n    let x =\n        unsafe { g() };\n}"),
        0
    );
    assert_eq!(
        at("fn f() {\n    // SAFETY: ok.\n    h();\n    unsafe { g() };\n}"),
        1
    );
    assert_eq!(at("unsafe impl Send for X {}"), 1);
    assert_eq!(at("// SAFETY: ok.\nunsafe impl Send for X {}"), 0);
    assert_eq!(at("/// Text.\npub unsafe fn f() {}"), 1);
    assert_eq!(
        at("/// # Safety\n/// Ok.\n#[inline]\npub unsafe fn f() {}"),
        0
    );
    assert_eq!(at("impl L for X {\n    unsafe fn f() {}\n}"), 0);
    assert_eq!(at("impl X {\n    pub unsafe fn f() {}\n}"), 1);
    assert_eq!(at("impl X {\n    unsafe fn f() {}\n}"), 0);
    assert_eq!(at("pub trait L {\n    unsafe fn f();\n}"), 1);
    let head = (
        "crates/minfer/src/lanes/mod.rs",
        "//! # Safety\n//! As said.\n",
    );
    assert_eq!(found(&[head, (file, "pub unsafe fn f() {}")]).len(), 0);
    assert_eq!(
        found(&[head, (file, "fn f() {\n    unsafe { g() }\n}")]).len(),
        1
    );
    assert_eq!(at("type F = unsafe fn(u8);"), 0);
    assert_eq!(at("// unsafe { }\nconst S: &str = \"unsafe {\";"), 0);
}

#[test]
fn unsafe_only_in_its_rooms() {
    let text = "fn f() {\n    // SAFETY: ok.\n    unsafe { g() }\n}";
    for good in ["lanes/x.rs", "backend/cpu/x.rs", "gguf/mapping.rs"] {
        assert!(found(&[(&format!("crates/minfer/src/{good}"), text)]).is_empty());
    }
    for bad in [
        "crates/minfer/src/kv/x.rs",
        "crates/minfer-cli/src/main.rs",
        "xtask/src/x.rs",
    ] {
        assert_eq!(found(&[(bad, text)]), [format!("{bad}:3: safety")]);
    }
}

#[test]
fn rooms_import_upwards() {
    let file = "crates/minfer/src/graph/a.rs";
    let at = |text: &str| found(&[(file, text)]).len();
    assert_eq!(
        found(&[(file, "\nuse crate::kv::Page;")]),
        [format!("{file}:2: rooms")]
    );
    assert_eq!(at("use crate::numeric::x;\nuse crate::graph::y;"), 0);
    assert_eq!(at("use crate::{numeric::{kv, y}, lanes};"), 0);
    assert_eq!(at("use crate::{numeric::{a, b}, engine::c};"), 1);
    assert_eq!(at("fn f() { crate::models::g() }"), 1);
    assert_eq!(at("use super::super::backend::x;"), 1);
    assert_eq!(at("use crate::Error;"), 1);
    assert_eq!(at("use crate::words::count;\nuse crate::place::Place;"), 0);
    assert_eq!(
        found(&[("crates/minfer/src/words.rs", "use crate::engine::x;")]).len(),
        1
    );
    assert_eq!(at("// crate::engine\npub(crate) fn f() {}"), 0);
    assert_eq!(
        found(&[("crates/minfer/src/lib.rs", "use crate::engine::x;")]).len(),
        0
    );
    assert_eq!(
        found(&[("crates/minfer/src/kv/mod.rs", "use super::engine::x;")]).len(),
        1
    );
}

#[test]
fn crates_depend_upwards() {
    let bad = "[package]\n[dependencies]\nminfer-cli.workspace = true\n";
    let path = "crates/minfer-hub/Cargo.toml";
    assert_eq!(found(&[(path, bad)]), [format!("{path}:3: crates")]);
    let target = "[target.'cfg(unix)'.dependencies]\nminfer-cli = { path = \"x\" }\n";
    assert_eq!(found(&[(path, target)]).len(), 1);
    assert!(found(&[(path, &bad.replace("[dep", "[dev-dep"))]).is_empty());
    assert!(found(&[(path, &bad.replace("minfer-cli", "minfer"))]).is_empty());
}

#[test]
fn no_ml_framework_in_the_lock() {
    let lock = |name: &str| found(&[("Cargo.lock", &format!("[[package]]\nname = \"{name}\"\n"))]);
    for bad in [
        "candle-core",
        "tch",
        "burn",
        "burn-tensor",
        "ort",
        "onnxruntime",
        "tract-onnx",
        "llama-cpp-2",
        "llama_cpp_sys",
        "ggml-sys",
        "mistralrs-core",
        "torch-sys",
        "tensorflow",
        "dfdx",
        "rust-bert",
        "kalosm-llama",
    ] {
        assert_eq!(lock(bad), ["Cargo.lock:2: banned"], "{bad}");
    }
    for good in [
        "minijinja",
        "portable-atomic",
        "llguidance",
        "tracing",
        "half",
    ] {
        assert!(lock(good).is_empty(), "{good}");
    }
}

#[test]
fn a_block_takes_four_parameters() {
    let file = "crates/minfer/src/models/blocks/mlp.rs";
    let at = |text: &str| found(&[(file, text)]).len();
    assert_eq!(
        found(&[(file, "\nfn f(a: A, b: B, c: C, d: D, e: E) {}")]),
        [format!("{file}:2: blocks")]
    );
    assert_eq!(
        at("fn f(a: A, b: B<C, D>, c: (C, D), d: &[u8; 2],) -> X {}"),
        0
    );
    assert_eq!(at("fn f(&mut self, a: A, b: B, c: C, d: D) {}"), 0);
    assert_eq!(
        at("fn f<F: Fn(A, B) -> C>(\n    a: A,\n    b: B,\n    c: C,\n    d: D,\n) {}"),
        0
    );
    assert_eq!(
        at("fn f<F: Fn(A, B) -> C>(a: A, b: B, c: C, d: D, f: F) {}"),
        1
    );
    let other = "crates/minfer/src/models/llama.rs";
    assert!(found(&[(other, "fn f(a: A, b: B, c: C, d: D, e: E) {}")]).is_empty());
}

#[test]
fn reading_rooms_deny_what_panics() {
    let full = "#![cfg_attr(\n    not(test),\n    deny(\n        clippy::unwrap_used,\n        \
        clippy::expect_used,\n        clippy::panic,\n        clippy::indexing_slicing,\n        \
        clippy::arithmetic_side_effects\n    )\n)]\nmod a;\n";
    for path in [
        "crates/minfer/src/gguf/mod.rs",
        "crates/minfer/src/tokenizer/mod.rs",
        "crates/minfer/src/chat/mod.rs",
        "crates/minfer-hub/src/lib.rs",
        "crates/minfer-server/src/lib.rs",
    ] {
        assert!(found(&[(path, full)]).is_empty());
        assert_eq!(found(&[(path, "//! Text.\nmod a;\n")]).len(), 5);
        let less = full.replace("        clippy::panic,\n", "");
        assert_eq!(found(&[(path, &less)]), [format!("{path}:1: lints")]);
    }
}

#[test]
fn documentation_is_not_left_out() {
    let at = |text: &str| found(&[("crates/minfer/src/error.rs", text)]);
    for bad in [
        "\n#[allow(missing_docs)]\npub enum E {}",
        "\n#![allow(dead_code, missing_docs)]",
        "\n#[cfg_attr(test, expect(missing_docs))]\npub enum E {}",
    ] {
        assert_eq!(at(bad), ["crates/minfer/src/error.rs:2: docs"], "{bad}");
    }
    for good in [
        "#![warn(missing_docs)]",
        "#![deny(missing_docs)]\n#[allow(dead_code)]\nfn f() {}",
        "// #[allow(missing_docs)]",
    ] {
        assert!(at(good).is_empty(), "{good}");
    }
}

#[test]
fn nothing_names_the_workplace() {
    for pieces in [
        ["see /wo", "rk/x"],
        ["in /tm", "p/w/x"],
        ["../sha", "red/README.md"],
    ] {
        let text = format!("fine\n{}\n", pieces.concat());
        assert_eq!(found(&[("docs/a.txt", &text)]), ["docs/a.txt:2: workplace"]);
    }
    assert!(found(&[("docs/a.txt", "a network/x and shared pages\n")]).is_empty());
}

#[test]
fn nothing_unfinished_lands() {
    for bad in [
        "#[ignore]",
        "#[ignore = \"slow\"]",
        "todo!()",
        "unimplemented!()",
        "dbg!(x)",
    ] {
        assert_eq!(
            found(&[("a.rs", &format!("\nfn f() {{ {bad} }}"))]),
            ["a.rs:2: unfinished"]
        );
    }
    assert!(found(&[("a.rs", "// todo!\nconst S: &str = \"todo!\";")]).is_empty());
}

#[test]
fn scripts_name_their_packages() {
    let path = "xtask/golden/a.py";
    assert_eq!(
        found(&[(path, "import gguf\n")]),
        [format!("{path}:1: golden")]
    );
    assert_eq!(
        found(&[(path, "# packages: gguf\n")]),
        [format!("{path}:1: golden")]
    );
    assert!(
        found(&[(
            path,
            "\"\"\"Text.\"\"\"\n# packages: gguf==0.19.0 numpy==2.4.6\n"
        )])
        .is_empty()
    );
}

#[test]
fn links_lead_somewhere() {
    let page = "[a](adr/0001.md) [b](../README.md#top) [c](https://x.y) [d](#here)\n[e](gone.md)\n";
    let adr = ("docs/adr/0001.md", "# One\n\nStatus: accepted\n");
    let tree = [
        ("docs/A.md", page),
        ("README.md", "[docs](docs/) `x`\n"),
        adr,
    ];
    assert_eq!(found(&tree), ["docs/A.md:2: links"]);
    assert_eq!(found(&[("A.md", "[x](../up.md)\n")]), ["A.md:1: links"]);
}

#[test]
fn decisions_have_a_status() {
    assert_eq!(
        found(&[("docs/adr/0001-x.md", "# X\n")]),
        ["docs/adr/0001-x.md:1: adr"]
    );
    assert!(found(&[("docs/adr/0001-x.md", "# X\n- **Status**: accepted\n")]).is_empty());
    assert!(found(&[("docs/adr/README.md", "# Decisions\n")]).is_empty());
}
