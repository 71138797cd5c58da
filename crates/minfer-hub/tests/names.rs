//! What a model's name may be, in which order, and what is said where it is none of it.

mod common;

use std::path::Path;

use common::{bytes, tiny};
use minfer_hub::{Hub, HubError, Silent};

fn hub(dir: &Path) -> Hub {
    Hub::with_cache(dir).with_alias(tiny(&bytes(100), &[]))
}

fn put(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_alias_comes_before_a_path_and_a_path_before_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    put(&cache, "tiny-f32.gguf", &bytes(100));
    put(&cache, "other.gguf", b"cached");
    let resolve = |name: &str| hub(&cache).resolve(name, &mut Silent).unwrap();
    assert_eq!(resolve("tiny"), cache.join("tiny-f32.gguf"));
    assert_eq!(resolve("other"), cache.join("other.gguf"));
    assert_eq!(resolve("other.gguf"), cache.join("other.gguf"));
    put(dir.path(), "here.gguf", b"file");
    let path = dir.path().join("here.gguf");
    assert_eq!(resolve(path.to_str().unwrap()), path);
    // A name with a colon that is a file and no scheme.
    put(dir.path(), "od:d.gguf", b"file");
    let odd = dir.path().join("od:d.gguf");
    assert_eq!(resolve(odd.to_str().unwrap()), odd);
}

#[test]
fn who_asks_for_what_is_here_fetches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cached = |name: &str| hub(dir.path()).cached(name).unwrap();
    assert_eq!(cached("tiny"), None);
    assert_eq!(cached("hf:owner/repo:Q4_0"), None);
    put(dir.path(), "tiny-f32.gguf", &bytes(100));
    assert_eq!(cached("tiny"), Some(dir.path().join("tiny-f32.gguf")));
    assert!(hub(dir.path()).cached("llama-9").is_err());
}

#[test]
fn anything_else_says_all_four() {
    let dir = tempfile::tempdir().unwrap();
    let text = |hub: &Hub| hub.resolve("llama-9", &mut Silent).unwrap_err().to_string();
    let empty = text(&hub(dir.path()));
    for part in [
        "`llama-9`",
        "hf:OWNER/REPO",
        "pypi:",
        "alias (tiny, smollm2)",
        "existing path",
        "none in",
    ] {
        assert!(empty.contains(part), "{part}: {empty}");
    }
    assert!(!empty.contains('\n'));
    put(dir.path(), "a.gguf", b"");
    assert!(text(&hub(dir.path())).contains("cached file (a.gguf)"));
    for n in 0..9 {
        put(dir.path(), &format!("b{n}.gguf"), b"");
    }
    assert!(text(&hub(dir.path())).contains("b3.gguf, …)"));
}

#[test]
fn folders_and_odd_schemes_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str| hub(dir.path()).resolve(name, &mut Silent).unwrap_err();
    assert!(matches!(
        error(dir.path().to_str().unwrap()),
        HubError::Folder { .. }
    ));
    assert!(matches!(error("ollama:llama3"), HubError::Planned { .. }));
    assert!(matches!(error("ftp:x"), HubError::Scheme { .. }));
    assert!(matches!(error("hf:x"), HubError::Form { .. }));
    assert!(matches!(error(""), HubError::Unknown { .. }));
}

#[test]
fn a_changed_alias_file_is_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "tiny-f32.gguf", &bytes(99));
    let text = hub(dir.path())
        .resolve("tiny", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("99 bytes, not 100") && text.contains("minfer pull tiny"),
        "{text}"
    );
}

#[test]
fn the_list_has_names_sizes_and_paths() {
    let dir = tempfile::tempdir().unwrap();
    assert!(hub(&dir.path().join("not-yet")).list().unwrap().is_empty());
    put(dir.path(), "b.gguf", b"12345");
    put(dir.path(), "hf/o/r/a.gguf", b"1");
    put(dir.path(), "hf/o/r/a.gguf.part", b"1");
    put(dir.path(), ".downloads/x/c.gguf", b"1");
    let list = hub(dir.path()).list().unwrap();
    let names: Vec<_> = list.iter().map(|m| (m.name.as_str(), m.size)).collect();
    assert_eq!(names, [("b.gguf", 5), ("hf/o/r/a.gguf", 1)]);
    assert_eq!(list[1].path, dir.path().join("hf/o/r/a.gguf"));
}

#[test]
fn the_same_name_twice_is_ambiguous() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "hf/o/r/a.gguf", b"1");
    put(dir.path(), "hf/o/s/a.gguf", b"1");
    let text = hub(dir.path())
        .resolve("a", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(text.contains("hf/o/r/a.gguf, hf/o/s/a.gguf"), "{text}");
    assert!(hub(dir.path()).resolve("hf/o/s/a", &mut Silent).is_ok());
}
