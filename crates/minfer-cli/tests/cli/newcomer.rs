//! What a newcomer met with bad input: each report by its number.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::models::tiny;
use crate::process::{Output, finish, minfer, run, spawn, wrapped};

/// `run` with these flags; the model says something whatever it is asked.
fn ask(model: &str, flags: &[&str]) -> Output {
    let args = ["run", model, "Once", "--no-template", "--ignore-eos"];
    run([&args[..], &["-n", "4"], flags].concat())
}

/// A session of a short answer: its file and what is in it.
fn kept(dir: &Path, model: &str) -> (String, Vec<u8>) {
    let path = dir.join("s");
    let file = path.to_str().unwrap().to_owned();
    ask(model, &["--session", &file]).ok();
    let bytes = std::fs::read(&path).unwrap();
    (file, bytes)
}

#[test]
fn report_1_a_session_that_can_not_be_kept_is_refused_before_the_answer() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let folder = dir.path().to_str().unwrap();
    let nowhere = format!("{folder}/no/such/s");
    ask(&model, &["--session", &nowhere]).refused(1, &[&nowhere, "no folder"]);
    ask(&model, &["--session", folder, "--json"]).refused(1, &[folder, "folder"]);
    let (file, bytes) = kept(dir.path(), &model);
    let within = format!("{file}/s");
    ask(&model, &["--session", &within]).refused(1, &[&within]);
    // A file that its owner has locked is not replaced.
    let mut rights = std::fs::metadata(&file).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(&file, rights).unwrap();
    ask(&model, &["--session", &file]).refused(1, &[&file, "written"]);
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    let names = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(names, 1, "nothing else is left in the folder");
}

#[test]
#[cfg(unix)]
fn report_1_an_answer_outlives_a_session_that_can_not_be_kept() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let (file, bytes) = kept(dir.path(), &model);
    let new = dir.path().join("new");
    let new = new.to_str().unwrap();
    // No file may be longer than a block: the disk is full.
    let full = ["sh", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""];
    let said = ask(&model, &[]);
    let ask = |file: &str, flags: &[&str]| {
        let args = ["run", &model, "Once", "--no-template", "--ignore-eos"];
        let rest = ["-n", "4", "--session", file];
        let args = [&args[..], &rest, flags].concat();
        finish(spawn(&mut wrapped(&full, args)))
    };
    let out = ask(new, &[]);
    assert_eq!((out.code, &out.stdout), (Some(1), &said.stdout), "{out:?}");
    let last = out.stderr.lines().last().unwrap();
    let words = ["error: ", new, "could not be kept", "8 tokens"];
    assert!(words.iter().all(|w| last.contains(w)), "{last}");
    let out = ask(new, &["--json"]);
    assert_eq!(out.code, Some(1), "{out:?}");
    let answer: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(
        format!("{}\n", answer["text"].as_str().unwrap()),
        said.stdout
    );
    assert!(!Path::new(new).exists());
    // What was there goes on.
    let out = ask(&file, &[]);
    assert_eq!(out.code, Some(1));
    assert!(out.stderr.contains("still there"), "{out:?}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

#[test]
#[cfg(unix)]
fn report_1_a_session_keeps_its_rights_and_its_link() {
    use std::os::unix::fs::PermissionsExt;
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let (file, bytes) = kept(dir.path(), &model);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    ask(&model, &["--session", link.to_str().unwrap()]).ok();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_ne!(std::fs::read(&file).unwrap(), bytes, "it went on");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
#[cfg(unix)]
fn a_link_to_no_file_yet_stays_and_what_it_leads_to_is_written() {
    use std::os::unix::fs::symlink;
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let at = |name: &str| dir.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    symlink("s", at("link")).unwrap();
    ask(&model, &["--session", &text("link")]).ok();
    assert!(at("link").is_symlink());
    // It is a session, and goes on by either name.
    let said = ask(&model, &["--session", &text("s"), "--json"]).json();
    assert_ne!(said["text"], "");
    let (dot, link) = (text("g"), text("to g"));
    symlink("g", &link).unwrap();
    let both = ["graph", &model, "--dot", &link, "--json", &dot];
    run(both).refused(2, &["--dot and --json"]);
    run(["graph", &model, "--dot", &link]).ok();
    assert!(std::fs::read(&dot).unwrap().starts_with(b"digraph"));
    let round = text("round");
    symlink(&round, &round).unwrap();
    ask(&model, &["--session", &round]).refused(1, &[&round, "symbolic links"]);
    assert!(at("round").is_symlink());
}

#[test]
#[cfg(unix)]
fn report_2_a_device_or_a_pipe_is_no_session() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let pipe = dir.path().join("pipe");
    let pipe = pipe.to_str().unwrap();
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    for path in ["/dev/zero", "/dev/full", "/dev/null", pipe] {
        ask(&model, &["--session", path]).refused(1, &[path, "regular file"]);
    }
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not to be deleted").unwrap();
    let text = text.to_str().unwrap();
    let out = ask(&model, &["--session", text]);
    out.refused(1, &[text, "no session file", "another path"]);
    assert!(!out.stderr.contains("delete"), "{out:?}");
    std::fs::write(text, "").unwrap();
    ask(&model, &["--session", text]).refused(1, &[text, "empty"]);
}

/// A file without end in it, but for the first bytes: nothing is read that its lengths do not allow.
#[test]
fn report_2_a_session_of_absurd_lengths_is_refused() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let (file, bytes) = kept(dir.path(), &model);
    let mut huge = bytes[..19].to_vec();
    huge.extend_from_slice(&(1_u64 << 40).to_le_bytes());
    std::fs::write(&file, huge).unwrap();
    let sparse = std::fs::File::options().write(true).open(&file).unwrap();
    sparse.set_len(1 << 42).unwrap();
    ask(&model, &["--session", &file]).refused(1, &[&file, "damaged"]);
}

#[test]
fn report_3_a_size_is_told_in_the_unit_that_shows_it() {
    let model = tiny("llama");
    let little = ask(&model, &["--kv-memory", "1K"]);
    little.refused(1, &["at least 132 KB", "--kv-memory gives 1 KB"]);
    ask(&model, &["--kv-memory", "132K"]).ok();
    let much = ask(&model, &["--kv-memory", "99999999999999G"]);
    much.refused(2, &["--kv-memory", "too large", "1000000T"]);
    ask(&model, &["--kv-memory", "0"]).refused(2, &["--kv-memory", "at least 1 byte"]);
}

/// What the memory is, only Linux is asked.
#[test]
#[cfg(target_os = "linux")]
fn more_kv_than_there_can_be_memory_for_is_refused() {
    let model = tiny("llama");
    let much = ask(&model, &["--kv-memory", "900T"]);
    much.refused(1, &["--kv-memory is 900 TB", "of memory", "lower it"]);
    let draft = ["--draft", &model, "--kv-memory", "900T"];
    ask(&model, &draft).refused(1, &["--kv-memory is 900 TB"]);
}

#[test]
fn report_4_a_damaged_head_is_told_by_its_field() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let (file, bytes) = kept(dir.path(), &model);
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        std::fs::write(&file, bytes).unwrap();
        ask(&model, &["--session", &file])
    };
    with(15, 0xff).refused(1, &[&file, "version 255", "byte 15", "damaged"]);
    with(25, 0xff).refused(1, &[&file, "damaged", "length of its head", "byte 19"]);
    with(40, 0xff).refused(1, &[&file, "checksum", "damaged"]);
    let head = u64::from_le_bytes(bytes[19..27].try_into().unwrap()) as usize;
    let place = format!("byte {}", 27 + head);
    let pages = with(27 + head + 7, 1);
    pages.refused(1, &[&file, "damaged", "length of its full pages", &place]);
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    ask(&model, &["--session", &file]).refused(1, &[&file, "damaged", "31 bytes"]);
}

#[test]
fn report_5_a_rule_without_end_is_named() {
    let model = tiny("llama");
    let lark = |text: &str| ask(&model, &["--lark", text]);
    lark("start: start").refused(1, &["Lark", "rule start", "no end"]);
    lark("start: \"a\" b\nb: \"x\" c\nc: b | \"(\" b \")\"").refused(1, &["rule b", "b -> c -> b"]);
    lark("start: \"(\" start \")\" | \"x\"").ok();
    let schema = r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##;
    ask(&model, &["-j", schema]).refused(1, &["JSON schema", "without end"]);
    let optional = r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##;
    ask(&model, &["-j", optional]).ok();
}

#[test]
fn report_6_errors_name_flags() {
    let model = tiny("llama");
    ask(&model, &["--n-ctx", "513"]).refused(1, &["--n-ctx is 513"]);
    ask(&model, &["--temp", "-1"]).refused(2, &["--temp is -1"]);
    ask(&model, &["--typical", "2"]).refused(2, &["--typical is 2"]);
    let shift = ["-c", "96", "--context-shift", "--keep", "80"];
    ask(&model, &shift).refused(1, &["--keep"]);
}

#[test]
fn report_7_one_token_is_no_tokens() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let text = dir.path().join("t");
    std::fs::write(&text, "x").unwrap();
    let text = text.to_str().unwrap();
    run(["perplexity", &model, "-f", text]).refused(1, &[text, "has 1 token,"]);
    let out = run(["run", &model, "x", "--no-template", "-n", "1"]);
    assert!(out.stderr.contains("prefill 1 token, "), "{out:?}");
    assert!(out.stderr.contains("generated 1 token, "), "{out:?}");
}

#[test]
fn report_8_a_session_of_another_model_names_file_and_models() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let (file, _) = kept(dir.path(), &model);
    let other = ask(&tiny("qwen2"), &["--session", &file]);
    other.refused(1, &["--session", &file, "llama.gguf", "qwen2.gguf"]);
    let other = ask(&model, &["--session", &file, "--cache-type-k", "f32"]);
    other.refused(1, &["--session", &file, "f16", "f32", "--cache-type-k"]);
}

#[test]
fn report_9_text_that_is_no_utf_8_is_told_by_file_and_byte() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let path = dir.path().join("t");
    std::fs::write(&path, b"abc\nde\xfff").unwrap();
    let file = path.to_str().unwrap();
    for flag in ["--grammar-file", "--json-schema-file", "--lark-file"] {
        ask(&model, &[flag, file]).refused(1, &[file, "byte 6", "line 2", "UTF-8"]);
    }
    run(["tokenize", &model, "-f", file]).refused(1, &[file, "byte 6"]);
    run(["perplexity", &model, "-f", file]).refused(1, &[file, "byte 6"]);
    let piped = crate::process::run_with_stdin(["run", &model], b"ab\xff");
    piped.refused(1, &["stdin", "byte 2"]);
    std::fs::write(&path, b"\xff\xfea\0").unwrap();
    ask(&model, &["--grammar-file", file]).refused(1, &[file, "UTF-16"]);
    std::fs::write(&path, "root ::= \"a").unwrap();
    ask(&model, &["--grammar-file", file]).refused(1, &[file, "line 1"]);
}

#[test]
fn report_10_counts_that_no_answer_reaches_are_refused() {
    let model = tiny("llama");
    for (schema, place) in [
        (
            json!({"type": "array", "minItems": 1_000_000_000}),
            "#/minItems",
        ),
        (
            json!({"properties": {"a": {"type": "string", "minLength": 10_001}}}),
            "#/properties/a/minLength",
        ),
        (
            json!({"type": "object", "minProperties": 1e9}),
            "#/minProperties",
        ),
        (
            json!({"type": "string", "pattern": "^a{1000000}$"}),
            "#/pattern",
        ),
    ] {
        let out = ask(&model, &["-j", &schema.to_string()]);
        out.refused(1, &[place, "10000"]);
    }
    ask(&model, &["--regex", "ab{1000000000}"]).refused(1, &["column 3", "1000000000", "10000"]);
    ask(&model, &["--lark", "start: \"a\"{20000}"]).refused(1, &["column 11", "20000", "10000"]);
    ask(&model, &["--lark", "start: \"a\"~20000"]).refused(1, &["column 11", "20000", "10000"]);
    let comment = "# and/or\nstart: \"{20000}\"";
    ask(&model, &["--lark", comment]).ok();
    // What may come so often, and need not, costs nothing.
    let most = json!({"type": "array", "maxItems": 1_000_000_000});
    ask(&model, &["-j", &most.to_string()]).ok();
    ask(&model, &["--regex", "a{1,1000000000}"]).ok();
}

#[test]
fn report_11_what_only_nothing_fulfils_is_refused() {
    let model = tiny("llama");
    for flags in [
        ["--regex", ""],
        ["--regex", "a{0}"],
        ["--grammar", "root ::= \"\""],
        ["--lark", "start: \"\""],
    ] {
        ask(&model, &flags).refused(1, &["only the empty text"]);
    }
    ask(&model, &["--regex", "a*"]).ok();
}

#[test]
fn an_expression_that_matches_nothing_is_not_called_complex() {
    let model = tiny("llama");
    for nothing in [r"[^\s\S]", r"a[^\s\S]b|[^\x00-\x{10ffff}]+"] {
        let out = ask(&model, &["--regex", nothing]);
        out.refused(1, &["regular expression", "matches nothing"]);
        assert!(!out.stderr.contains("complex"), "{out:?}");
    }
    ask(&model, &["--regex", r"[^\s\S]|a+"]).ok();
}

/// A backend that can't be made is told when the weights are to be loaded: what comes before that is told instead.
#[test]
fn report_12_what_needs_no_model_is_told_before_loading() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let (file, _) = kept(dir.path(), &model);
    let nowhere = dir.path().join("no/such/file");
    let nowhere = nowhere.to_str().unwrap();
    let early = |args: &[&str]| {
        let all = [&["run", &model, "x", "--no-template"][..], args].concat();
        finish(spawn(minfer(all).env("MINFER_CPU", "pentium")))
    };
    early(&[]).refused(1, &["MINFER_CPU"]);
    for (args, code, needle) in [
        (&["--temp", "-1"][..], 2, "--temp"),
        (&["--lark", "start: start"], 1, "no end"),
        (&["--regex", "a("], 1, "regular expression"),
        (&["-j", "{\"type\":\"strin\"}"], 1, "strin"),
        (&["--grammar", "root ::= a"], 1, "GBNF"),
        (&["--grammar-file", nowhere], 1, nowhere),
        (&["--session", nowhere], 1, nowhere),
        (&["--session", &file, "--cache-type-v", "f32"], 1, "f32"),
        (&["--session", &file, "--system", "x"], 2, "--no-template"),
        (&["--draft", nowhere], 1, nowhere),
        (
            &["-c", "96", "--context-shift", "--keep", "80"],
            1,
            "--keep",
        ),
    ] {
        early(args).refused(code, &[needle]);
    }
    let early = |args: &[&str]| finish(spawn(minfer(args).env("MINFER_CPU", "pentium")));
    let npy = ["logits", &model, "--ids", "1", "--npy", nowhere];
    early(&npy).refused(1, &[nowhere, "no folder"]);
    early(&["graph", &model, "--dot", nowhere]).refused(1, &[nowhere, "no folder"]);
    let few = ["perplexity", &model, "-f", nowhere, "-c", "3"];
    early(&few).refused(2, &["--n-ctx is 3"]);
}

#[test]
#[cfg(unix)]
fn a_result_keeps_the_rights_and_the_link_of_the_file_that_it_replaces() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let path = dir.path().join("g");
    let rights = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    std::fs::write(&path, "old").unwrap();
    rights(0o600);
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    run(["graph", &model, "--dot", link.to_str().unwrap()]).ok();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let dot = std::fs::read(&path).unwrap();
    assert!(dot.starts_with(b"digraph"));
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A file that its owner has locked is not replaced.
    rights(0o400);
    for flag in ["--dot", "--json"] {
        let file = path.to_str().unwrap();
        run(["graph", &model, flag, file]).refused(1, &[file, "may not be written to"]);
    }
    assert_eq!(std::fs::read(&path).unwrap(), dot);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// A file in a folder that takes no other is written to where it is.
#[test]
#[cfg(unix)]
fn a_file_is_written_to_in_a_folder_that_is_locked() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let path = dir.path().join("g");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "old").unwrap();
    for (path, mode) in [(&*path, 0o666), (dir.path(), 0o555)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    // Nothing is locked for root, but for one without capabilities. Where there is no setpriv (util-linux), this fails: it can't be seen
    // then, and must not pass.
    let by: &[&str] = match dir.path().metadata().unwrap().uid() {
        0 => &["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
        _ => &[],
    };
    let dot = |file: &str| finish(spawn(&mut wrapped(by, ["graph", &model, "--dot", file])));
    let new = dir.path().join("new");
    let (there, beside) = (dot(file), dot(new.to_str().unwrap()));
    // Or the folder could not be cleared away.
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    there.ok();
    assert!(std::fs::read(&path).unwrap().starts_with(b"digraph"));
    beside.refused(1, &[new.to_str().unwrap(), "denied"]);
}

/// What was tried after the twelve.
#[test]
fn more_bad_input_is_told_in_clear_words() {
    let (model, dir) = (tiny("llama"), tempfile::tempdir().unwrap());
    let text = dir.path().join("t");
    std::fs::write(&text, "x").unwrap();
    let text = text.to_str().unwrap();
    ask(&model, &["--sampling-seq", ""]).refused(2, &["--sampling-seq names no sampler"]);
    ask(&model, &["--kv-memory", "-5M"]).refused(2, &["'-5M' for '--kv-memory", "a size"]);
    ask(&model, &["--lark", "start: \"a\" \"b"]).refused(1, &["line 1, column 14"]);
    ask(&model, &["--json-schema-file", "-"]).refused(1, &["stdin: ", "no JSON"]);
    run(["run", "", "hi"]).refused(2, &["MODEL is empty"]);
    let few = ["-c", "32", "--context-shift"];
    ask(&model, &few).refused(1, &["32 tokens", "--n-ctx must be at least 64"]);
    let (file, _) = kept(dir.path(), &model);
    let mirostat = ["--session", &file, "--mirostat", "2"];
    ask(&model, &mirostat).refused(1, &["--session", &file, "without mirostat"]);
    for place in ["-", text] {
        let both = ["graph", &model, "--dot", place, "--json", place];
        run(both).refused(2, &["--dot and --json"]);
    }
    for name in ["t", "new"] {
        let paths = [name.to_owned(), format!("./{name}")].map(|p| dir.path().join(p));
        let [dot, json] = paths.each_ref().map(|p| p.to_str().unwrap());
        let both = ["graph", &model, "--dot", dot, "--json", json];
        run(both).refused(2, &["--dot and --json"]);
    }
    let long = ["perplexity", &model, "-f", text, "-c", "513"];
    run(long).refused(1, &["--n-ctx is 513", "512"]);
}

#[test]
#[cfg(unix)]
fn more_bad_input_has_an_end() {
    use std::os::unix::ffi::OsStrExt;
    let model = tiny("llama");
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let args = ["serve", &model, "--port", "0", "--tls-cert", "/dev/zero"];
    let out = run([&args[..], &["--tls-key", own]].concat());
    out.refused(1, &["/dev/zero", "longer than"]);
    let bad = std::ffi::OsStr::from_bytes(b"h\xffi");
    let args = ["run".as_ref(), model.as_ref(), bad];
    run(args).refused(2, &["argument 3", "UTF-8"]);
}
