//! Files that a command reads and writes: texts with a limit and a name, results that are put in their place when they are whole.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use minfer::place::Place;
use minfer::words::size;

use crate::output::Failure;

/// Most bytes of a text: what has no end (a device) must not fill the memory.
const MAX_TEXT: u64 = 1 << 30;

fn named(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    |e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Error(format!("{}: {e}", path.display())),
    }
}

/// A UTF-8 file's text; `-` is stdin.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    if is_stream(path) {
        return read_stdin();
    }
    not_a_folder(path)?;
    let file = File::open(path).map_err(named(path))?;
    text(&name_of(path), file)
}

/// Whether it is no path, but stdin or stdout.
fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a path is called in messages.
pub fn name_of(path: &Path) -> String {
    match is_stream(path) {
        true => "stdin".to_owned(),
        false => path.display().to_string(),
    }
}

/// All of stdin, as text.
pub fn read_stdin() -> Result<String, Failure> {
    text(&name_of(Path::new("-")), io::stdin())
}

fn text(name: &str, from: impl Read) -> Result<String, Failure> {
    let fault = |why: String| Failure::Error(format!("{name}: {why}"));
    let mut bytes = Vec::new();
    let read = from.take(MAX_TEXT + 1).read_to_end(&mut bytes);
    read.map_err(|e| fault(e.to_string()))?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(fault(format!(
            "longer than any text that is read ({})",
            size(MAX_TEXT)
        )));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let bytes = e.into_bytes();
        let line = 1 + bytes.iter().take(at).filter(|b| **b == b'\n').count();
        let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
        fault(format!(
            "no UTF-8 at byte {at} (line {line}){}: save it as UTF-8",
            if utf16 {
                ", it begins as UTF-16 does"
            } else {
                ""
            }
        ))
    })
}

/// A result under way. It is written beside its place and put there when it is whole: an error leaves what was there before.
pub struct OutFile {
    /// Where it is written to.
    pub out: BufWriter<Box<dyn Write>>,
    path: PathBuf,
    /// Where it goes then; none of what is written at once: stdout, a pipe, a device, a file in a folder that takes no other.
    place: Option<Place>,
}

impl OutFile {
    /// `-` is stdout.
    pub fn create(path: &Path) -> Result<OutFile, Failure> {
        let (out, place): (Box<dyn Write>, _) = match beside(path)? {
            Some((file, place)) => (Box::new(file), Some(place)),
            None if is_stream(path) => (Box::new(io::stdout()), None),
            None => (Box::new(File::create(path).map_err(named(path))?), None),
        };
        Ok(OutFile {
            out: BufWriter::new(out),
            path: path.to_owned(),
            place,
        })
    }

    /// Whether a result could be put here: found out before the work that makes it. What is there stays as it is.
    pub fn try_place(path: &Path) -> Result<(), Failure> {
        beside(path).map(drop)
    }

    /// Whether a result at one path would overwrite one at the other.
    pub fn same_place(one: &Path, other: &Path) -> Result<bool, Failure> {
        let whole = |path: &Path| -> Result<PathBuf, Failure> {
            let place = place(path)?;
            Ok(place.map_or(path.to_owned(), |place| place.path().to_owned()))
        };
        Ok(whole(one)? == whole(other)?)
    }

    /// Adds to it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(named(&self.path))
    }

    /// Puts it in its place.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(named(&self.path))?;
        let put = self.place.map_or(Ok(()), Place::put);
        put.map_err(named(&self.path))
    }
}

/// The place that a result is put in when it is whole; none of stdout, a pipe or a device.
fn place(path: &Path) -> Result<Option<Place>, Failure> {
    if is_stream(path) {
        return Ok(None);
    }
    not_a_folder(path)?;
    match path.metadata() {
        Ok(told) if !told.is_file() => Ok(None),
        Ok(told) if told.permissions().readonly() => Err(Failure::Error(format!(
            "{}: the file may not be written to, and the result would take its place: allow it, or give another path",
            path.display()
        ))),
        _ => Place::of(path).map(Some).map_err(named(path)),
    }
}

/// The file to write to, beside its place. None where there can't be one, but what is there can be written to.
fn beside(path: &Path) -> Result<Option<(File, Place)>, Failure> {
    let Some(mut place) = place(path)? else {
        return Ok(None);
    };
    match place.create() {
        Ok(file) => Ok(Some((file, place))),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && may_write(path) => Ok(None),
        Err(e) => Err(named(path)(e)),
    }
}

fn may_write(path: &Path) -> bool {
    File::options().write(true).open(path).is_ok()
}

fn not_a_folder(path: &Path) -> Result<(), Failure> {
    match path.is_dir() {
        true => Err(Failure::Error(format!(
            "{}: this is a folder, not a file",
            path.display()
        ))),
        false => Ok(()),
    }
}
