//! Small files that claim what they don't hold, after public reports.

use minfer::gguf::GgufFile;

use crate::allocs::spent;
use crate::raw::Raw;

const HUGE: u64 = 1 << 63;

/// Parses bytes that must be refused: the message, once it is seen to be one line and cheap. What followed a claim of 2^63 things
/// instead of refusing it would not come back.
pub fn refused(bytes: Vec<u8>) -> String {
    let len = bytes.len();
    let (result, spent) = spent(|| GgufFile::from_bytes(bytes));
    let message = result.expect_err("a broken file was accepted").to_string();
    // The room's promise: a small factor of the bytes that are there, and the message.
    assert!(
        spent.bytes <= 16 * len + 8192,
        "{message}: allocated {} bytes for {len}",
        spent.bytes
    );
    assert!(
        !message.contains(['\n', '\r']) && message.len() < 400,
        "no single line: {message}"
    );
    message
}

#[track_caller]
fn check(bytes: Vec<u8>, parts: &[&str]) {
    let message = refused(bytes);
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

/// One F32 tensor `t` of these sizes at this offset, and 64 bytes of data.
fn one_tensor(dims: &[u64], type_id: u32, offset: u64) -> Vec<u8> {
    Raw::header(1, 0)
        .tensor("t", dims, type_id, offset)
        .data(64)
}

fn alignment(value: u32) -> Vec<u8> {
    Raw::header(1, 1)
        .key("general.alignment", 4)
        .u32(value)
        .tensor("t", &[4], 0, 0)
        .data(64)
}

#[test]
fn not_a_gguf_file() {
    check(vec![], &["the file is empty"]);
    check(b"hello, world".to_vec(), &["not a GGUF file", "\"hell\""]);
    check(b"\x00\n\xff\x1b".to_vec(), &[r"\x00\n\xff\x1b"]);
    check(b"GG".to_vec(), &["truncated", "magic"]);
}

#[test]
fn versions_are_refused_by_name() {
    let version = |v: [u8; 4]| {
        Raw::default()
            .bytes(b"GGUF")
            .bytes(&v)
            .u64(0)
            .u64(0)
            .data(0)
    };
    check(
        version([1, 0, 0, 0]),
        &["GGUF version 1 can't be read", "2 and 3"],
    );
    check(version([4, 0, 0, 0]), &["GGUF version 4 is unknown"]);
    check(version([0, 0, 0, 0]), &["GGUF version 0 is unknown"]);
    for v in 1..=3 {
        check(
            version([0, 0, 0, v]),
            &["big-endian", &format!("version {v}")],
        );
    }
}

#[test]
fn llama_cpp_27188_counts_and_lengths_of_2_63() {
    for n in [HUGE, u64::MAX, 1 << 62, 1 << 33] {
        let n_text = &n.to_string();
        check(Raw::header(n, 0).0, &["number of tensors", n_text]);
        check(Raw::header(0, n).0, &["number of metadata entries", n_text]);
        check(
            Raw::header(0, 1).u64(n).u64(0).data(9),
            &["the key of metadata entry 0"],
        );
        check(
            Raw::header(0, 1).key("k", 8).u64(n).0,
            &["value of `k`", n_text],
        );
        check(Raw::header(1, 0).u64(n).data(30), &["the name of tensor 0"]);
        for id in 0..13 {
            check(
                Raw::header(0, 1).key("k", 9).u32(id).u64(n).data(64),
                &["value of `k`", n_text],
            );
        }
    }
    // The second string of an array.
    check(
        Raw::header(0, 1)
            .key("k", 9)
            .u32(8)
            .u64(2)
            .str("a")
            .u64(HUGE)
            .0,
        &["element 1 of `k`", "truncated"],
    );
}

#[test]
fn llama_cpp_27188_nested_arrays() {
    let mut deep = Raw::header(0, 1).key("k", 9);
    for _ in 0..100_000 {
        deep = deep.u32(9).u64(1);
    }
    check(deep.0, &["nesting", "`k`", "limit of 4"]);
    let wide = Raw::header(0, 1)
        .key("k", 9)
        .u32(9)
        .u64(1 << 62)
        .u32(9)
        .u64(1 << 62);
    check(
        wide.0,
        &["length of the array", "`k`", "4611686018427387904"],
    );
    let mut many = Raw::header(0, 1).key("k", 9).u32(9).u64((1 << 20) + 1);
    many.0.resize(many.0.len() + 12 * ((1 << 20) + 1), 0);
    check(many.0, &["number of arrays in arrays", "`k`"]);
}

#[test]
fn llama_cpp_27188_alignments() {
    for n in [0, 3, 24, (1 << 30) - 1, 1 << 30, 1 << 31, u32::MAX] {
        check(
            alignment(n),
            &["`general.alignment`", &n.to_string(), "power of two"],
        );
    }
    let text = Raw::header(0, 1).key("general.alignment", 8).str("32");
    check(text.data(0), &["`general.alignment` is string"]);
    let wide = Raw::header(0, 1).key("general.alignment", 10).u64(32);
    check(wide.data(0), &["`general.alignment` is u64 32"]);
    // A large one that is in bounds moves the data past the end.
    check(alignment(1 << 20), &["tensor `t`", "truncated"]);
}

#[test]
fn llama_cpp_27188_dimensions() {
    check(
        one_tensor(&[1, 1, 1, 1, 1], 0, 0),
        &["tensor `t`", "5 dimensions"],
    );
    let many = Raw::header(1, 0).str("t").u32(u32::MAX).data(64);
    check(many, &["tensor `t`", "4294967295 dimensions"]);
    for dims in [&[0][..], &[4, 0], &[0, HUGE], &[HUGE, HUGE, 0]] {
        check(one_tensor(dims, 0, 0), &["tensor `t`", "empty"]);
    }
    for dims in [
        &[HUGE][..],
        &[u64::MAX, 1],
        &[1 << 32, 1 << 32],
        &[1 << 16; 4],
        &[4, 1 << 62],
    ] {
        check(one_tensor(dims, 0, 0), &["tensor `t`", "does not fit"]);
    }
    // A product that wraps to a small number of bytes.
    check(
        one_tensor(&[(1 << 62) + 1], 0, 0),
        &["tensor `t`", "does not fit"],
    );
    check(
        one_tensor(&[100], 12, 0),
        &["tensor `t`", "rows of 100", "Q4_K", "256"],
    );
}

#[test]
fn ollama_17042_offsets_that_wrap_or_are_unaligned() {
    for offset in [u64::MAX - 31, u64::MAX - 63, HUGE + (HUGE - 32)] {
        check(one_tensor(&[4], 0, offset), &["tensor `t`", "overflow"]);
    }
    for offset in [1, 4, 31, u64::MAX] {
        check(
            one_tensor(&[4], 0, offset),
            &["tensor `t`", "no multiple of the alignment 32"],
        );
    }
    for offset in [64, 1 << 40, HUGE] {
        check(one_tensor(&[4], 0, offset), &["tensor `t`", "truncated"]);
    }
    let overlap = Raw::header(2, 0)
        .tensor("a", &[16], 0, 0)
        .tensor("b", &[4], 0, 32)
        .data(128);
    check(overlap, &["tensor `b`", "overlaps", "`a`"]);
    let same = Raw::header(2, 0)
        .tensor("a", &[4], 0, 0)
        .tensor("b", &[4], 0, 0)
        .data(128);
    check(same, &["overlaps"]);
}

#[test]
fn cve_2026_7482_data_beyond_the_file() {
    check(
        one_tensor(&[1024], 0, 0),
        &["tensor `t`", "data ends at byte 4160", "the file has 128"],
    );
    check(one_tensor(&[17], 0, 0), &["tensor `t`", "truncated"]);
    check(one_tensor(&[9], 0, 32), &["tensor `t`", "truncated"]);
    check(
        one_tensor(&[256, 1 << 40], 12, 0),
        &["tensor `t`", "truncated"],
    );
    assert!(GgufFile::from_bytes(one_tensor(&[8], 0, 32)).is_ok());
}

#[test]
fn ggml_pr_1516_ids_and_duplicates() {
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 1 << 31, u32::MAX] {
        check(
            one_tensor(&[4], id, 0),
            &["tensor `t`", &format!("unknown type id {id}")],
        );
    }
    for id in [13, 255, u32::MAX] {
        check(
            Raw::header(0, 1).key("k", id).data(64),
            &["`k`", &format!("unknown value type {id}")],
        );
        check(
            Raw::header(0, 1).key("k", 9).u32(id).u64(0).0,
            &["`k`", &format!("value type {id}")],
        );
    }
    let keys = Raw::header(0, 2)
        .key("k", 7)
        .bytes(&[1])
        .key("k", 7)
        .bytes(&[0]);
    check(keys.data(0), &["metadata key `k` occurs twice"]);
    let tensors = Raw::header(2, 0)
        .tensor("t", &[4], 0, 0)
        .tensor("t", &[4], 0, 32);
    check(tensors.data(64), &["tensor `t`", "occurs twice"]);
}

#[test]
fn text_and_bools_are_checked() {
    let bad = |r: Raw| r.u64(2).bytes(b"\xc3\x28").data(64);
    check(
        bad(Raw::header(0, 1).key("k", 8)),
        &["value of `k`", "not valid UTF-8"],
    );
    check(
        bad(Raw::header(0, 1)),
        &["the key of metadata entry 0", "not valid UTF-8"],
    );
    check(
        bad(Raw::header(1, 0)),
        &["the name of tensor 0", "not valid UTF-8"],
    );
    let array = Raw::header(0, 1).key("k", 9).u32(8).u64(2).str("a");
    check(bad(array), &["element 1 of `k`", "not valid UTF-8"]);
    // Together, but not one by one.
    let halves = Raw::header(0, 1).key("k", 9).u32(8).u64(3).str("a");
    let halves = halves.u64(1).bytes(b"\xc3").u64(1).bytes(b"\xa9");
    check(halves.data(64), &["element 1 of `k`", "not valid UTF-8"]);
    check(
        Raw::header(0, 1).key("k", 7).bytes(&[2]).0,
        &["value of `k`", "bool with the value 2"],
    );
    let bools = Raw::header(0, 1)
        .key("k", 9)
        .u32(7)
        .u64(3)
        .bytes(&[0, 1, 255]);
    check(bools.0, &["element 2 of `k`", "255"]);
}

#[test]
fn names_in_messages_stay_short_and_on_one_line() {
    let name = format!("a\nb\u{1b}[31m{}", "x".repeat(60_000));
    let bytes = Raw::header(1, 0).tensor(&name, &[0], 0, 0).data(64);
    let (message, spent) = spent(|| GgufFile::from_bytes(bytes).err().unwrap().to_string());
    assert!(
        message.contains(r"a\nb\u{1b}[31mxxx") && message.len() < 200,
        "{message}"
    );
    assert!(spent.bytes < 300_000);
    check(
        Raw::header(0, 1).u64(1 << 16).data(1 << 17),
        &["length of the key", "limit of 65535"],
    );
}

#[test]
fn a_scalar_is_one_value() {
    let file = GgufFile::from_bytes(Raw::header(1, 0).tensor("t", &[], 0, 0).data(4)).unwrap();
    assert_eq!(file.tensors()[0].dims, [1]);
    assert_eq!(file.data(&file.tensors()[0]).len(), 4);
}
