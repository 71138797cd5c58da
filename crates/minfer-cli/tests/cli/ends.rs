//! How a process ends when its surroundings change: readers that leave, interrupts, few CPUs; and
//! prompts from a pipe.

use std::io::Read;
use std::process::Command;

use serde_json::json;

use crate::models::{TALK, endless, tiny};
use crate::process::{finish, minfer, run, run_with_stdin, spawn, wrapped};

#[test]
fn ollama_8099_a_reader_that_leaves_in_mid_answer_is_no_error() {
    let model = endless();
    for stderr_goes_too in [false, true] {
        let mut child = spawn(&mut minfer([&["run", model.path()][..], &TALK].concat()));
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 3]).unwrap();
        if stderr_goes_too {
            drop(child.stderr.take()); // as in `minfer … 2>&1 | head -c 3`
        }
        drop(stdout);
        let out = finish(child);
        assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    }
}

#[test]
fn mistral_rs_1050_every_command_may_write_into_a_closed_pipe() {
    let model = tiny("llama");
    for args in [
        &["run", &model, "hi", "-n", "2"][..],
        &["run", &model, "hi", "-n", "2", "--json"],
        &["inspect", &model],
        &["inspect", &model, "--json"],
        &["tokenize", &model, "some text", "--json"],
        &["logits", &model, "--ids", "1,2,3", "--all", "--json"],
        &["graph", &model, "--dot", "-"],
        &["bench", &model, "-p", "4", "-n", "1", "-r", "1"],
        &["--help"],
    ] {
        let mut child = spawn(&mut minfer(args.iter().copied()));
        drop(child.stdout.take());
        let out = finish(child);
        assert_eq!(out.code, Some(0), "{args:?}: {out:?}");
        assert!(!out.stderr.contains("panicked"), "{args:?}: {out:?}");
    }
}

#[test]
fn errors_whose_reader_has_left_keep_their_exit_code() {
    let mut child = spawn(&mut minfer(["run", "nosuchmodel", "hi"]));
    drop(child.stderr.take());
    assert_eq!(finish(child).code, Some(1));
}

/// Sends SIGINT, as Ctrl-C does.
#[cfg(unix)]
fn interrupt(id: u32) {
    let kill = format!("kill -INT {id}");
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.unwrap().success());
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_what_was_said() {
    let model = endless();
    let args = [&["run", model.path()][..], &TALK].concat();
    let mut child = spawn(&mut minfer(&args));
    let mut stdout = child.stdout.take().unwrap();
    let mut start = [0; 40];
    stdout.read_exact(&mut start).unwrap();
    interrupt(child.id());
    let mut said = start.to_vec();
    stdout.read_to_end(&mut said).unwrap();
    let out = finish(child);
    assert_eq!((out.code, out.stderr.as_str()), (Some(130), ""));
    let said = String::from_utf8(said).unwrap();
    // It is the beginning of what would have been said.
    let whole = run([
        "run",
        model.path(),
        "--no-template",
        "x",
        "--ignore-eos",
        "-n",
        "64",
    ]);
    let whole = whole.ok().trim_end_matches('\n');
    // A character may be unfinished where the shorter one ends.
    let both = said.chars().count().min(whole.chars().count()) - 1;
    assert!(both >= 10, "{said} {whole}");
    let start = |text: &str| text.chars().take(both).collect::<String>();
    assert_eq!(start(&said), start(whole));
}

#[test]
#[cfg(target_os = "linux")]
fn ctrl_c_with_json_leaves_no_half_object() {
    let model = endless();
    let args = [&["run", model.path()][..], &TALK, &["--json"]].concat();
    let child = spawn(&mut minfer(&args));
    // The process is up as soon as it handles SIGINT (bit 1).
    let handled = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let mask = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
        mask.is_some_and(|m| u64::from_str_radix(m.trim(), 16).unwrap() & 2 != 0)
    };
    let started = std::time::Instant::now();
    while !handled() {
        assert!(started.elapsed().as_secs() < 60, "SIGINT is not handled");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    interrupt(child.id());
    let out = finish(child);
    assert_eq!((out.code, out.stdout.as_str()), (Some(130), ""), "{out:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn llama_cpp_10397_eight_threads_on_one_cpu_finish() {
    let model = tiny("llama");
    let args = ["run", &model, "Hello", "-n", "32", "--temp", "0", "--json"];
    let few = finish(spawn(&mut wrapped(
        &["taskset", "-c", "0"],
        [&args[..], &["-t", "8"]].concat(),
    )));
    assert_eq!(
        few.json()["ids"],
        run([&args[..], &["-t", "1"]].concat()).json()["ids"]
    );
}

#[test]
fn a_prompt_may_come_through_a_pipe() {
    let model = tiny("llama");
    let with = |args: &[&str], stdin: &str| {
        let args = [&["run", &model, "-n", "4", "--json"][..], args].concat();
        let out = run_with_stdin(args, stdin.as_bytes()).json();
        (out["prompt_ids"].clone(), out["ids"].clone())
    };
    for template in [&["--no-template"][..], &[]] {
        let given = with(&[&["Once upon"][..], template].concat(), "");
        assert_eq!(with(template, "Once upon"), given);
        assert_eq!(with(template, "Once upon\n"), given);
    }
    let raw = |stdin: &str| with(&["--no-template"], stdin).0;
    assert_eq!(raw("a\n\n"), json!([97, 10]));
    let long = "b".repeat(300);
    assert_eq!(raw(&long).as_array().unwrap().len(), 300);
    // A prompt that is given is the prompt, whatever stdin holds.
    assert_eq!(with(&["--no-template", "a"], "b").0, json!([97]));
    run(["run", &model]).refused(2, &["no prompt", "stdin is empty"]);
    run_with_stdin(["run", &model], b"\xff\xfe").refused(1, &["stdin", "UTF-8"]);
}
