//! Paths that are no model, split models, and what opening costs.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use minfer::gguf::{Array, GgufFile, GgufWriter, StrArray, Value};
use minfer::numeric::GgmlType;
use tempfile::TempDir;

use crate::allocs::spent;
use crate::cut::tiny;
use crate::raw::Raw;

#[track_caller]
fn open_error(path: &Path, parts: &[&str]) {
    let message = GgufFile::open(path).expect_err("opened").to_string();
    assert!(!message.contains('\n'), "{message}");
    for part in parts
        .iter()
        .chain(&[path.file_name().unwrap().to_str().unwrap()])
    {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn mistral_rs_1050_paths_that_are_no_model() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    open_error(&at("missing.gguf"), &["cannot open"]);
    open_error(dir.path(), &["directory"]);
    fs::write(at("notes.txt"), "Dear diary,\n").unwrap();
    open_error(&at("notes.txt"), &["not a GGUF file", "\"Dear\""]);
    fs::write(at("empty.gguf"), "").unwrap();
    open_error(&at("empty.gguf"), &["empty"]);
    fs::write(at("cut.gguf"), &tiny()[..5000]).unwrap();
    open_error(
        &at("cut.gguf"),
        &["truncated", "`tokenizer.ggml.token_type`"],
    );
    #[cfg(unix)]
    open_error(Path::new("/dev/null"), &["not a regular file"]);
}

/// Three parts in the way of gguf-split; `change` may spoil the metadata of a part.
fn write_split(dir: &Path, change: impl Fn(usize, &mut Vec<(&str, Value)>)) -> Vec<PathBuf> {
    let name = |i: usize| dir.join(format!("m-0000{}-of-00003.gguf", i + 1));
    for i in 0..3 {
        let mut kv = vec![
            ("split.no", Value::U16(i as u16)),
            ("split.count", Value::U16(3)),
            ("split.tensors.count", Value::I32(3)),
        ];
        change(i, &mut kv);
        let mut w = GgufWriter::new(3).unwrap();
        for (k, v) in kv {
            w.set(k, v).unwrap();
        }
        w.tensor(&format!("t{i}"), GgmlType::F32, &[2]).unwrap();
        let mut out = w.start(File::create(name(i)).unwrap()).unwrap();
        out.tensor(&[i as u8; 8]).unwrap();
        out.finish().unwrap();
    }
    (0..3).map(name).collect()
}

#[test]
fn split_parts_are_one_model() {
    let dir = TempDir::new().unwrap();
    let parts = write_split(dir.path(), |_, _| {});
    let file = GgufFile::open(&parts[0]).unwrap();
    assert_eq!(file.parts().collect::<Vec<_>>(), parts);
    assert_eq!(file.path(), parts[0]);
    assert_eq!(
        file.size(),
        parts
            .iter()
            .map(|p| fs::metadata(p).unwrap().len())
            .sum::<u64>()
    );
    for i in 0..3 {
        let t = file.tensor(&format!("t{i}")).unwrap();
        assert_eq!((t.part, file.data(t)), (i, &[i as u8; 8][..]));
    }
}

/// What a test does to the metadata of part `usize`.
type Change<'a> = &'a dyn Fn(usize, &mut Vec<(&str, Value)>);

#[test]
fn split_parts_that_do_not_fit_are_refused() {
    let dir = TempDir::new().unwrap();
    let parts = write_split(dir.path(), |_, _| {});
    open_error(&parts[1], &["part 2 of 3", "open `m-00001-of-00003.gguf`"]);
    let renamed = dir.path().join("renamed.gguf");
    fs::copy(&parts[0], &renamed).unwrap();
    open_error(
        &renamed,
        &["part 1 of 3", "does not end in `-00001-of-00003.gguf`"],
    );
    let message = GgufFile::from_bytes(fs::read(&parts[2]).unwrap())
        .err()
        .unwrap()
        .to_string();
    assert!(message.contains("part 3 of 3"), "{message}");

    let message = |change: Change<'_>| {
        let parts = write_split(dir.path(), change);
        GgufFile::open(&parts[0]).err().unwrap().to_string()
    };
    let swapped = message(&|i, kv| {
        if i == 2 {
            kv[0].1 = Value::U16(1)
        }
    });
    assert!(
        swapped.contains("m-00003-of-00003.gguf: it says that it is part 2 of 3, not 3 of 3"),
        "{swapped}"
    );
    let plain = message(&|i, kv| {
        if i == 1 {
            kv.clear()
        }
    });
    assert!(
        plain.contains("m-00002-of-00003.gguf: it says nothing of being part 2 of 3"),
        "{plain}"
    );
    let total = message(&|_, kv| kv[2].1 = Value::I32(4));
    assert!(
        total.contains("`split.tensors.count` is 4, but the parts hold 3"),
        "{total}"
    );
    let number = message(&|_, kv| kv[0].1 = Value::U16(3));
    assert!(
        number.contains("`split.no` is 3, but `split.count` is 3"),
        "{number}"
    );
    let negative = message(&|_, kv| kv[1].1 = Value::I32(-1));
    assert!(
        negative.contains("`split.count`") && negative.contains("i32 -1"),
        "{negative}"
    );
    let none = message(&|_, kv| drop(kv.remove(0)));
    assert!(none.contains("`split.no` is missing"), "{none}");
}

#[test]
fn a_missing_or_repeated_part_is_named() {
    let dir = TempDir::new().unwrap();
    let parts = write_split(dir.path(), |_, _| {});
    fs::remove_file(&parts[1]).unwrap();
    let message = GgufFile::open(&parts[0]).err().unwrap().to_string();
    assert!(
        message.contains("cannot open") && message.contains("m-00002-of-00003.gguf"),
        "{message}"
    );

    let twice = Raw::header(1, 2)
        .key("split.no", 2)
        .bytes(&[1, 0])
        .key("split.count", 2)
        .bytes(&[3, 0]);
    fs::write(&parts[1], twice.tensor("t0", &[2], 0, 0).data(8)).unwrap();
    let message = GgufFile::open(&parts[0]).err().unwrap().to_string();
    assert!(
        message.contains("m-00002-of-00003.gguf: tensor `t0`: it occurs twice"),
        "{message}"
    );
}

/// A file of this many bytes, almost all of them a hole, with one F32 tensor over them.
fn sparse(path: &Path, values: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(&Raw::header(1, 0).tensor("t", &[values], 0, 0).data(0))
        .unwrap();
    file.set_len(file.metadata().unwrap().len() + 4 * values)
        .unwrap();
}

/// Resident KiB of the mapping of `path` in this process; `None` where the system does not say.
fn resident(path: &Path) -> Option<u64> {
    let maps = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut lines = maps
        .lines()
        .skip_while(|l| !l.ends_with(path.to_str().unwrap()));
    let rss = lines.find_map(|l| l.strip_prefix("Rss:"))?;
    rss.trim().strip_suffix(" kB")?.parse().ok()
}

/// Says on the real stderr, which the test harness does not hold back, what a test did not run.
fn not_run(what: &str) {
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {what}\n").as_bytes());
}

#[test]
fn opening_touches_no_tensor_data() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sparse.gguf");
    sparse(&path, 1 << 31);
    let (file, spent) = spent(|| GgufFile::open(&path).unwrap());
    assert!(spent.bytes < 8192, "{spent:?}");
    assert_eq!(file.data(file.tensor("t").unwrap()).len(), 1 << 33);
    match resident(&path) {
        // The header's page, and those that the system brings along.
        Some(kib) => assert!(kib <= 256, "{kib} KiB of an 8 GiB tensor are in memory"),
        None => not_run("what stays in memory: no /proc/self/smaps here"),
    }
}

#[test]
fn cve_2026_7482_a_large_file_does_not_back_large_claims() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sparse.gguf");
    let one = || Raw::header(0, 1).key("k", 9);
    for (raw, named) in [
        (
            one().u32(0).u64(1 << 33),
            "what the length of the array in the value of `k`, 8589934592, counts",
        ),
        (one().u32(8).u64(1).u64(1 << 33), "element 0 of `k`"),
        (Raw::header(0, 1).key("k", 8).u64(1 << 33), "value of `k`"),
        (
            Raw::header(1 << 63, 0),
            "what the number of tensors, 9223372036854775808, counts",
        ),
        (
            Raw::header(1, 0).tensor("t", &[1 << 40], 0, 0),
            "tensor `t`: truncated",
        ),
    ] {
        fs::write(&path, raw.data(0)).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 34)
            .unwrap();
        let (result, spent) = spent(|| GgufFile::open(&path));
        let message = result.err().unwrap().to_string();
        assert!(message.contains(named), "{message}");
        assert!(spent.bytes < 8192, "{message}: {spent:?}");
    }
}

#[test]
fn advise_done_gives_pages_back_and_keeps_the_bytes() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let bytes = [
        Raw::header(1, 0).tensor("t", &[1 << 20], 0, 0).data(0),
        vec![7; 4 << 20],
    ]
    .concat();
    fs::write(&path, bytes).unwrap();
    let file = GgufFile::open(&path).unwrap();
    let t = file.tensor("t").unwrap();
    let sum = || file.data(t).iter().map(|b| u64::from(*b)).sum::<u64>();
    assert_eq!(sum(), 7 * (4 << 20));
    let before = resident(&path);
    // In two parts: what the second's touches mapped of the first goes too.
    for half in [0..2 << 20, 2 << 20..4 << 20] {
        file.advise_soon(t, half.clone());
        file.advise_now(t, half.clone());
        assert_eq!(file.data(t)[half.clone()][9], 7);
        file.advise_done(t, half);
    }
    match (before, resident(&path)) {
        (Some(before), Some(after)) => assert!(
            before > 4000 && after <= 64,
            "{before} KiB, then {after} KiB"
        ),
        _ => not_run("what stays in memory: no /proc/self/smaps here"),
    }
    assert_eq!(sum(), 7 * (4 << 20));
}

#[test]
fn a_large_vocabulary_takes_few_allocations() {
    let tokens: StrArray = (0..262_144).map(|i| format!("token number {i}")).collect();
    let text: usize = tokens.iter().map(str::len).sum();
    let mut w = GgufWriter::new(3).unwrap();
    w.set("tokenizer.ggml.tokens", Value::Array(Array::Str(tokens)))
        .unwrap();
    w.set(
        "tokenizer.ggml.scores",
        Value::Array(Array::F32(vec![0.5; 262_144])),
    )
    .unwrap();
    let bytes = w.start(Vec::new()).unwrap().finish().unwrap();
    let (file, spent) = spent(|| GgufFile::from_bytes(bytes).unwrap());
    let held = text + (8 + 4) * 262_144;
    assert!(
        spent.calls < 40 && spent.bytes < held + 4096,
        "{spent:?}, held {held}"
    );
    let tokens = file
        .metadata()
        .str_arr("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap();
    assert_eq!(
        (tokens.len(), tokens.get(262_143)),
        (262_144, Some("token number 262143"))
    );
    assert_eq!(tokens.get(262_144), None);
}

#[test]
fn data_of_a_foreign_info_is_empty() {
    let small = GgufFile::from_bytes(Raw::header(1, 0).tensor("t", &[2], 0, 0).data(8)).unwrap();
    let large = GgufFile::from_bytes(Raw::header(1, 0).tensor("t", &[99], 0, 0).data(400)).unwrap();
    assert!(small.data(large.tensor("t").unwrap()).is_empty());
    small.advise_done(large.tensor("t").unwrap(), 0..99);
    small.advise_done(small.tensor("t").unwrap(), 0..99);
    small.advise_now(small.tensor("t").unwrap(), usize::MAX..usize::MAX);
}
