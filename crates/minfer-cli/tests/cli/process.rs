//! Runs the command, with a deadline: a command that hangs is a failure, not a wait.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far more than any command here needs on a busy machine.
const DEADLINE: Duration = Duration::from_secs(240);

/// What a process left behind.
#[derive(Debug)]
pub struct Output {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// All of stdout, which is always UTF-8.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl Output {
    /// Stdout as one JSON value; the command must have ended well.
    pub fn json(&self) -> serde_json::Value {
        self.ok();
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Stdout; the command must have ended well.
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        &self.stdout
    }

    /// Asserts a refusal: this exit code, nothing on stdout, one line on stderr that begins with
    /// `error: ` and holds all of `needles`.
    pub fn refused(&self, code: i32, needles: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        for needle in needles {
            assert!(self.stderr.contains(needle), "no {needle:?} in {self:?}");
        }
    }
}

/// `minfer` with these arguments, an empty stdin, and captured output.
pub fn minfer<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    wrapped(&[], args)
}

/// The same, started by another program (`taskset -c 0`).
pub fn wrapped<S: AsRef<OsStr>>(by: &[&str], args: impl IntoIterator<Item = S>) -> Command {
    let binary = env!("CARGO_BIN_EXE_minfer");
    let mut command = match by.split_first() {
        None => Command::new(binary),
        Some((program, rest)) => {
            let mut command = Command::new(program);
            command.args(rest).arg(binary);
            command
        }
    };
    command
        .args(args)
        .env_remove("MINFER_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs `minfer` with these arguments to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    finish(spawn(&mut minfer(args)))
}

/// Runs it with this text on stdin.
pub fn run_with_stdin<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, stdin: &[u8]) -> Output {
    let mut child = spawn(minfer(args).stdin(Stdio::piped()));
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(stdin).expect("stdin is read");
    drop(pipe);
    finish(child)
}

/// Starts a command.
pub fn spawn(command: &mut Command) -> Child {
    command.spawn().expect("the command starts")
}

/// Waits for the end of a process and reads what is left of its output.
pub fn finish(child: Child) -> Output {
    finish_within(child, DEADLINE)
}

/// The same with another deadline.
pub fn finish_within(mut child: Child, deadline: Duration) -> Output {
    let stdout = child.stdout.take().map(reader);
    let stderr = child.stderr.take().map(reader);
    let code = wait(&mut child, deadline);
    let text = |r: Option<JoinHandle<Vec<u8>>>| {
        let bytes = r.map_or(Vec::new(), |r| r.join().expect("a reader"));
        String::from_utf8(bytes).expect("UTF-8")
    };
    Output {
        code,
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// The exit code of a process, which must end before the deadline.
fn wait(child: &mut Child, deadline: Duration) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code();
        }
        if started.elapsed() > deadline {
            child.kill().expect("it can be ended");
            panic!("the command did not end within {deadline:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}
