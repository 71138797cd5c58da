//! Files that a command reads and writes: texts with a limit and a name, results that are put in their place when they are whole.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

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
    if path.as_os_str() == "-" {
        return read_stdin();
    }
    not_a_folder(path)?;
    let file = File::open(path).map_err(named(path))?;
    text(&name_of(path), file)
}

/// What a path is called in messages.
pub fn name_of(path: &Path) -> String {
    match path.as_os_str() == "-" {
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
    /// Where it is until then; none where its place is stdout, a pipe or a device.
    part: Option<PathBuf>,
}

impl OutFile {
    /// `-` is stdout.
    pub fn create(path: &Path) -> Result<OutFile, Failure> {
        let (path, part) = place(path);
        let out: Box<dyn Write> = match path.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(make(&path, part.as_deref())?),
        };
        Ok(OutFile {
            out: BufWriter::new(out),
            path,
            part,
        })
    }

    /// Whether a result could be put here: found out before the work that makes it. What is there stays as it is.
    pub fn try_place(path: &Path) -> Result<(), Failure> {
        match place(path) {
            (path, Some(part)) => {
                make(&path, Some(&part))?;
                std::fs::remove_file(&part).map_err(named(&path))
            }
            (path, None) => not_a_folder(&path),
        }
    }

    /// Adds to it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(named(&self.path))
    }

    /// Puts it in its place.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(named(&self.path))?;
        if let Some(part) = &self.part {
            std::fs::rename(part, &self.path).map_err(named(&self.path))?;
        }
        self.part = None;
        Ok(())
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Best effort: there is an error already.
            let _ = std::fs::remove_file(part);
        }
    }
}

/// Makes the file to write to: the one beside the place, or the place itself.
fn make(path: &Path, part: Option<&Path>) -> Result<File, Failure> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|f| !f.is_dir()) {
        let (path, folder) = (path.display(), folder.display());
        return Err(Failure::Error(format!(
            "{path}: there is no folder {folder}"
        )));
    }
    not_a_folder(path)?;
    File::create(part.unwrap_or(path)).map_err(named(path))
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

/// The place that a path means (of a link, what it leads to), and the file beside it.
fn place(path: &Path) -> (PathBuf, Option<PathBuf>) {
    if path.as_os_str() == "-" {
        return (path.to_owned(), None);
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let part = path.metadata().map_or(true, |m| m.is_file()).then(|| {
        let mut name = path.clone().into_os_string();
        name.push(format!(".{}.part", std::process::id()));
        PathBuf::from(name)
    });
    (path, part)
}
