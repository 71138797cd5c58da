//! `tokenize`, `graph`, `list`: the shapes of what they print.

use serde_json::{Value, json};

use crate::models::{Model, tiny};
use crate::process::{finish, minfer, run, run_with_stdin, spawn};

#[test]
fn tokenize_takes_its_text_from_an_argument_a_file_or_stdin() {
    let model = tiny("llama");
    let text = "in the é\n";
    // "in" and "Ġthe" are tokens of the vocabulary, all else is bytes.
    let want = json!({
        "ids": [259, 258, 32, 195, 169, 10],
        "pieces": ["in", " the", " ", "\u{fffd}", "\u{fffd}", "\n"],
    });
    assert_eq!(run(["tokenize", &model, text, "--json"]).json(), want);
    let file = Model::new(text.as_bytes());
    let from_file = ["tokenize", &model, "--file", file.path(), "--json"];
    assert_eq!(run(from_file).json(), want);
    let from_stdin = ["tokenize", &model, "--file", "-", "--json"];
    assert_eq!(run_with_stdin(from_stdin, text.as_bytes()).json(), want);
    let lines = run(["tokenize", &model, text]);
    assert_eq!(lines.ok().lines().count(), 6);
    assert_eq!(lines.stdout.lines().next(), Some("    259  \"in\""));
    assert_eq!(
        run(["tokenize", &model, "", "--json"]).json()["ids"],
        json!([])
    );
    let file = Model::new(b"\xff");
    let not_text = ["tokenize", &model, "--file", file.path()];
    run(not_text).refused(1, &[file.path(), "UTF-8"]);
}

#[test]
fn the_graph_is_exported_as_dot_and_as_json() {
    let model = tiny("gemma3");
    let dot = run(["graph", &model, "--dot", "-"]);
    assert!(dot.ok().starts_with("digraph"), "{}", dot.stdout);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.json");
    let file = path.to_str().unwrap();
    run([
        "graph",
        &model,
        "--json",
        file,
        "--no-fuse",
        "--n-tokens",
        "3",
    ])
    .ok();
    let graph: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(graph["nodes"].as_array().unwrap().len() > 100);
    // Fusion makes it smaller.
    let fused = run(["graph", &model, "--json", "-", "--n-tokens", "3"]).json();
    let count = |g: &Value| g["nodes"].as_array().unwrap().len();
    assert!(count(&fused) <= count(&graph));
    assert_ne!(fused, graph);
}

#[test]
fn list_shows_the_cache_and_its_names_are_models() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir(cache.path().join("sub")).unwrap();
    std::fs::copy(tiny("llama"), cache.path().join("sub/one.gguf")).unwrap();
    let with = |args: &[&str]| {
        let mut command = minfer(args);
        finish(spawn(command.env("MINFER_CACHE", cache.path())))
    };
    let all = with(&["list", "--json"]).json();
    assert_eq!(all[0]["name"], "sub/one.gguf");
    assert_eq!(
        all[0]["size"],
        std::fs::metadata(tiny("llama")).unwrap().len()
    );
    assert!(with(&["list"]).ok().contains("sub/one.gguf"));
    for name in ["one", "one.gguf", "sub/one"] {
        assert!(
            with(&["inspect", name]).ok().contains("tiny llama"),
            "{name}"
        );
        let path = with(&["pull", name]);
        assert!(path.ok().trim_end().ends_with("sub/one.gguf"));
    }
    with(&["run", "two", "hi"]).refused(1, &["`two`", "sub/one.gguf"]);
}
