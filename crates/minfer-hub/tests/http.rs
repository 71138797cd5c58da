//! Downloads over HTTP against a small local server: resume, redirects, cuts, other bytes. (The
//! public model hub itself is not asked.)

mod common;

use std::time::Duration;

use common::{Answer, Server, Told, bytes, hub, sha256, tiny};
use minfer_hub::{HubError, Silent};

const SOURCE: &str = "hf:owner/repo:tiny.gguf";
const SIZE: usize = 300_000;

/// The alias `tiny` fetched from a server that answers so; what came, and the server.
fn fetch(
    dir: &std::path::Path,
    answer: impl Fn(usize, &common::Request) -> Answer + Send + Sync + 'static,
) -> (Result<Vec<u8>, HubError>, Server, Told) {
    let server = Server::start(answer);
    let hub = hub(dir, &server).with_alias(tiny(&bytes(SIZE), &[SOURCE]));
    let hub = hub.silence(Duration::from_millis(300));
    let mut told = Told::default();
    let path = hub.resolve("tiny", &mut told);
    (
        path.map(|p| std::fs::read(p).expect("readable")),
        server,
        told,
    )
}

/// The reason of the only source.
fn reason(result: Result<Vec<u8>, HubError>) -> HubError {
    match result {
        Err(HubError::Sources { mut reasons, .. }) if reasons.len() == 1 => reasons.remove(0).1,
        other => panic!("{other:?}"),
    }
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder");
    let names = entries.map(|e| {
        e.expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let mut names: Vec<String> = names.filter(|n| !n.starts_with('.')).collect();
    names.sort();
    names
}

#[test]
fn a_whole_file_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let (got, server, told) = fetch(dir.path(), |_, _| Answer::Bytes(bytes(SIZE)));
    assert_eq!(got.unwrap(), bytes(SIZE));
    assert_eq!(
        told.starts,
        [("tiny-f32.gguf".to_owned(), 0, Some(SIZE as u64))]
    );
    assert_eq!((told.done, told.finished), (SIZE as u64, 1));
    assert_eq!(
        server.requests()[0].path,
        "/owner/repo/resolve/main/tiny.gguf"
    );
    assert_eq!(names(dir.path()), ["tiny-f32.gguf"]);

    let again = hub(dir.path(), &server).with_alias(tiny(&bytes(SIZE), &[SOURCE]));
    again.resolve("tiny", &mut Silent).unwrap();
    again.pull("tiny", &mut Silent).unwrap();
    assert_eq!(
        server.requests().len(),
        1,
        "a cached file is not fetched again"
    );
}

#[test]
fn a_cut_download_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (got, server, told) = fetch(dir.path(), |n, _| match n {
        0 => Answer::CutAfter(bytes(SIZE), 100_000),
        1 => Answer::CutAfter(bytes(SIZE), 50_000),
        _ => Answer::Bytes(bytes(SIZE)),
    });
    assert_eq!(got.unwrap(), bytes(SIZE));
    let ranges: Vec<_> = server.requests().iter().map(|r| r.range).collect();
    assert_eq!(ranges, [None, Some(100_000), Some(150_000)]);
    assert_eq!(
        told.starts.iter().map(|s| s.1).collect::<Vec<_>>(),
        [0, 100_000, 150_000]
    );
}

#[test]
fn a_later_run_goes_on_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let (got, server, _) = fetch(dir.path(), |n, _| match n {
        0 => Answer::CutAfter(bytes(SIZE), 100_000),
        _ => Answer::CutAfter(bytes(SIZE), 0),
    });
    let error = reason(got);
    assert!(
        matches!(
            error,
            HubError::Cut {
                got: 100_000,
                want: 300_000,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("100000 of 300000 bytes"),
        "{error}"
    );
    assert_eq!(
        server.requests().len(),
        4,
        "three tries without a new byte are enough"
    );

    let (got, server, _) = fetch(dir.path(), |_, _| Answer::Bytes(bytes(SIZE)));
    assert_eq!(got.unwrap(), bytes(SIZE));
    assert_eq!(server.requests()[0].range, Some(100_000));
}

#[test]
fn a_server_without_ranges_starts_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (got, ..) = fetch(dir.path(), |n, _| match n {
        0 => Answer::CutAfter(bytes(SIZE), 100_000),
        _ => Answer::NoRanges(bytes(SIZE)),
    });
    assert_eq!(got.unwrap(), bytes(SIZE));
}

#[test]
fn a_range_that_was_not_asked_for_starts_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (got, server, _) = fetch(dir.path(), |n, _| match n {
        0 => Answer::CutAfter(bytes(SIZE), 100_000),
        1 => Answer::WrongRange(bytes(SIZE)),
        _ => Answer::Bytes(bytes(SIZE)),
    });
    assert_eq!(got.unwrap(), bytes(SIZE));
    assert_eq!(server.requests()[2].range, None);
}

#[test]
fn a_part_of_other_bytes_is_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    let part = format!("tiny-f32.gguf.{}.part", &sha256(&bytes(SIZE))[..12]);
    std::fs::write(dir.path().join(&part), vec![7; 1000]).unwrap();
    let (got, server, _) = fetch(dir.path(), |_, _| Answer::Bytes(bytes(SIZE)));
    assert_eq!(got.unwrap(), bytes(SIZE));
    let ranges: Vec<_> = server.requests().iter().map(|r| r.range).collect();
    assert_eq!(ranges, [Some(1000), None]);
    assert_eq!(names(dir.path()), ["tiny-f32.gguf"]);
}

#[test]
fn other_bytes_are_refused_with_both_sums() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = bytes(SIZE);
    wrong[1234] ^= 1;
    let sums = [sha256(&bytes(SIZE)), sha256(&wrong)];
    let (got, ..) = fetch(dir.path(), move |_, _| Answer::Bytes(wrong.clone()));
    let text = reason(got).to_string();
    assert!(sums.iter().all(|s| text.contains(s.as_str())), "{text}");
    assert!(names(dir.path()).is_empty(), "nothing of it is kept");
}

#[test]
fn statuses_say_what_they_mean() {
    for (status, hint) in [
        (404, "no such repository or file"),
        (401, "gated"),
        (500, "500"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (got, ..) = fetch(dir.path(), move |_, _| Answer::Status(status));
        let text = reason(got).to_string();
        assert!(
            text.contains(&status.to_string()) && text.contains(hint),
            "{text}"
        );
    }
}

#[test]
fn redirects_are_followed_and_loops_are_not() {
    let other = Server::start(|_, _| Answer::Bytes(bytes(SIZE)));
    let to = format!("{}/elsewhere", other.url);
    let dir = tempfile::tempdir().unwrap();
    let (got, ..) = fetch(dir.path(), move |_, _| Answer::Redirect(to.clone()));
    assert_eq!(got.unwrap(), bytes(SIZE));
    assert_eq!(other.requests()[0].path, "/elsewhere");

    let (got, ..) = fetch(tempfile::tempdir().unwrap().path(), |_, r| {
        Answer::Redirect(r.path.clone())
    });
    assert!(matches!(reason(got), HubError::Network { .. }));
}

#[test]
fn a_silent_server_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (got, server, _) = fetch(dir.path(), |_, _| Answer::StallAfter(bytes(SIZE), 0));
    assert!(matches!(reason(got), HubError::Cut { got: 0, .. }));
    // It was asked again, and not without end.
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn nobody_there_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let hub = minfer_hub::Hub::with_cache(dir.path()).hf_endpoint(&format!("http://{closed}"));
    let error = hub.resolve("hf:a/b", &mut Silent).unwrap_err();
    assert!(matches!(error, HubError::Network { .. }), "{error}");
}

#[test]
fn the_next_source_is_tried_and_every_reason_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_, r| match r.path.contains("good") {
        true => Answer::Bytes(bytes(SIZE)),
        false => Answer::Status(404),
    });
    let sources = ["hf:o/bad:x.gguf", "hf:o/good:x.gguf"];
    let mut told = Told::default();
    hub(dir.path(), &server)
        .with_alias(tiny(&bytes(SIZE), &sources))
        .resolve("tiny", &mut told)
        .unwrap();
    assert!(
        told.notes
            .iter()
            .any(|n| n.starts_with("not from hf:o/bad:x.gguf: ") && n.contains("404"))
    );

    let dir = tempfile::tempdir().unwrap();
    let sources = ["hf:o/bad:x.gguf", "hf:o/worse:y.gguf"];
    let hub = hub(dir.path(), &server).with_alias(tiny(&bytes(SIZE), &sources));
    let text = hub.resolve("tiny", &mut Silent).unwrap_err().to_string();
    assert!(
        text.starts_with("`tiny`") && sources.iter().all(|s| text.contains(s)),
        "{text}"
    );
}

#[test]
fn two_at_once_fetch_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| {
        std::thread::sleep(Duration::from_millis(100));
        Answer::Bytes(bytes(SIZE))
    });
    let hub = hub(dir.path(), &server).with_alias(tiny(&bytes(SIZE), &[SOURCE]));
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| assert!(hub.resolve("tiny", &mut Silent).unwrap().is_file()));
        }
    });
    assert_eq!(server.requests().len(), 1);
}

/// `/dev/full` takes no byte.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let part = format!("tiny-f32.gguf.{}.part", &sha256(&bytes(SIZE))[..12]);
    std::os::unix::fs::symlink("/dev/full", dir.path().join(part)).unwrap();
    let (got, ..) = fetch(dir.path(), |_, _| Answer::Bytes(bytes(SIZE)));
    let text = got.unwrap_err().to_string();
    assert!(
        text.contains("tiny-f32.gguf") && text.contains("free some space"),
        "{text}"
    );
}

#[test]
fn a_cache_that_cannot_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (got, ..) = fetch(&file.join("models"), |_, _| Answer::Bytes(bytes(SIZE)));
    let text = got.unwrap_err().to_string();
    assert!(
        text.contains("MINFER_CACHE") && text.contains("models"),
        "{text}"
    );
}

/// A repository as the hub lists it.
fn repo(files: &'static [&'static str]) -> Server {
    Server::start(move |_, request| {
        if request.path.starts_with("/api/models/o/r/") {
            let siblings: Vec<_> = files
                .iter()
                .map(|name| {
                    let body = name.as_bytes();
                    let lfs = serde_json::json!({ "sha256": sha256(body), "size": body.len() });
                    serde_json::json!({ "rfilename": name, "size": body.len(), "lfs": lfs })
                })
                .collect();
            let list = serde_json::json!({ "siblings": siblings });
            return Answer::Bytes(list.to_string().into_bytes());
        }
        match files
            .iter()
            .find(|f| request.path == format!("/o/r/resolve/main/{f}"))
        {
            Some(name) => Answer::Bytes(name.as_bytes().to_vec()),
            None => Answer::Status(404),
        }
    })
}

#[test]
fn a_repository_gives_the_file_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let server = repo(&["README.md", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "../evil.gguf"]);
    let hub = hub(dir.path(), &server);
    for (spec, want) in [
        ("hf:o/r", "m-Q4_K_M.gguf"),
        ("hf:o/r:q8_0", "m-Q8_0.gguf"),
        ("hf:o/r:m-Q8_0.gguf", "m-Q8_0.gguf"),
    ] {
        let path = hub.resolve(spec, &mut Silent).unwrap();
        assert!(
            path.ends_with(format!("hf/o/r/{want}")),
            "{}",
            path.display()
        );
        assert_eq!(std::fs::read(path).unwrap(), want.as_bytes());
    }
    let text = hub
        .resolve("hf:o/r:Q2_K", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("`Q2_K`") && text.contains("m-Q8_0.gguf"),
        "{text}"
    );
    assert!(!text.contains("evil"), "{text}");

    let before = server.requests().len();
    hub.resolve("hf:o/r:Q8_0", &mut Silent).unwrap();
    hub.resolve("hf:o/r", &mut Silent).unwrap();
    hub.resolve("m-Q8_0", &mut Silent).unwrap();
    assert_eq!(
        server.requests().len(),
        before,
        "what is cached needs no network"
    );
}

#[test]
fn a_split_file_comes_with_all_its_parts() {
    let dir = tempfile::tempdir().unwrap();
    let parts = ["m-f16-00001-of-00002.gguf", "m-f16-00002-of-00002.gguf"];
    let server = repo(&["m-f16-00001-of-00002.gguf", "m-f16-00002-of-00002.gguf"]);
    let hub = hub(dir.path(), &server);
    let path = hub.resolve("hf:o/r:F16", &mut Silent).unwrap();
    assert!(path.ends_with(parts[0]));
    assert_eq!(names(&dir.path().join("hf/o/r")), parts);
    assert_eq!(hub.list().unwrap().len(), 2);

    let server = repo(&["m-f16-00001-of-00003.gguf", "m-f16-00003-of-00003.gguf"]);
    let hub = hub.hf_endpoint(&server.url);
    let text = hub.resolve("hf:o/r", &mut Silent).unwrap_err().to_string();
    assert!(text.contains("missing"), "{text}");
}

#[test]
fn a_repository_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let server = repo(&[]);
    let text = hub(dir.path(), &server)
        .resolve("hf:o/gone", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(text.contains("404"), "{text}");
    let text = hub(dir.path(), &server)
        .resolve("hf:o/r", &mut Silent)
        .unwrap_err()
        .to_string();
    assert!(text.contains("no model file"), "{text}");
}

/// A hub that states no checksum: sizes are checked, and nothing is resumed.
#[test]
fn without_a_checksum_the_size_counts() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|n, request| match request.path.starts_with("/api/") {
        true => {
            let entry = serde_json::json!({ "rfilename": "m.gguf", "size": 1000 });
            let list = serde_json::json!({ "siblings": [entry] });
            Answer::Bytes(list.to_string().into_bytes())
        }
        false if n < 2 => Answer::Bytes(bytes(1001)),
        false => Answer::Bytes(bytes(1000)),
    });
    std::fs::create_dir_all(dir.path().join("hf/o/r")).unwrap();
    std::fs::write(dir.path().join("hf/o/r/m.gguf.part"), vec![7; 10]).unwrap();
    let hub = hub(dir.path(), &server);
    let text = hub.resolve("hf:o/r", &mut Silent).unwrap_err().to_string();
    assert!(text.contains("1001 bytes came, not 1000"), "{text}");
    let path = hub.resolve("hf:o/r", &mut Silent).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), bytes(1000));
    assert!(server.requests().iter().all(|r| r.range.is_none()));
}
