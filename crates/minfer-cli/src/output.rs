//! Writing to stdout, whose reader may go away, and what a command can fail with.

use std::fmt::Display;
use std::io::{self, Write};

use crate::flags;

/// Why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// A user's, a model's or the machine's error: exit code 1.
    Error(String),
    /// Wrong usage that the parser could not see: exit code 2.
    Usage(String),
    /// The reader of stdout has gone away: exit code 0.
    ClosedPipe,
}

/// Library errors become one line, in the words of the command line.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure::Error(flags::in_flags(&e))
    }
}

/// What commands return.
pub type Outcome = Result<(), Failure>;

/// Writes text to stdout and flushes it, so that it is seen as it comes.
pub fn print(text: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        Err(e) => Err(Failure::Error(format!("stdout: {e}"))),
    }
}

/// A line to stderr. Its reader may have gone away too; then there is nobody left to tell.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says why in one line on stderr, and ends.
pub fn exit(code: i32, message: &str) -> ! {
    note(format_args!("error: {}", one_line(message)));
    std::process::exit(code)
}

/// Lines joined, and control characters escaped: messages quote what users and files say.
fn one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).collect();
    let mut out = String::new();
    for c in lines.join(" ").trim_end().chars() {
        match c.is_control() {
            true => out.extend(c.escape_debug()),
            false => out.push(c),
        }
    }
    out
}

/// A line to stdout.
pub fn print_line(text: impl Display) -> Outcome {
    print(format_args!("{text}\n"))
}
