//! A session's file: how it is read without believing it, and written without harming what was there.
//!
//! `minfer session\n`, the version (u32), then three parts, each with its length (u64) in front: a head as JSON, the pages of full
//! layers, those of windowed ones; last the SHA-256 of all before it. Numbers are little-endian.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::memory;
use super::session::SessionError;
use crate::place::Place;
use crate::words::size;

const MAGIC: &[u8; 15] = b"minfer session\n";
/// Version 1 had nothing held back, version 2 nothing that is shown and not read.
const VERSION: u32 = 3;
/// Bytes of a head that is still believed: 4 million tokens take less.
const MAX_HEAD: u64 = 1 << 26;
/// Bytes of the checksum.
const SUM: u64 = 32;

/// The parts, and what they are called where one is wrong.
pub(super) const PARTS: [&str; 3] = ["head", "full pages", "windowed pages"];

const BEGIN_ANEW: &str = "delete it to begin anew";
const NO_SESSION: &str = "give the session another path";

/// What is wrong with a file, and what to do.
type Fault = (String, &'static str);

fn named(path: &Path) -> impl Fn(io::Error) -> SessionError + '_ {
    |source| SessionError::Io {
        path: path.display().to_string(),
        source,
    }
}

/// An error that says what is wrong with a file and what to do.
pub(super) fn broken(path: &Path, reason: String) -> SessionError {
    fault(path)((reason, BEGIN_ANEW))
}

/// The parts of a file whose checksum is right. A device or a pipe is not opened: it could be read for ever.
pub(super) fn read(path: &Path) -> Result<[Vec<u8>; 3], SessionError> {
    let told = path.metadata().map_err(named(path))?;
    let fault = fault(path);
    if !told.is_file() {
        return Err(fault(no_file(&told)));
    }
    let file = File::open(path).map_err(named(path))?;
    let len = file.metadata().map_err(named(path))?.len();
    let mut reader = Reader {
        file: BufReader::new(file),
        sum: Sha256::new(),
        at: 0,
        len,
    };
    match reader.parts() {
        Ok(parts) => Ok(parts),
        Err(Stop::Io(e)) => Err(named(path)(e)),
        Err(Stop::Fault(f)) => Err(fault(f)),
    }
}

/// Says what is wrong with a session's file.
fn fault(path: &Path) -> impl Fn(Fault) -> SessionError {
    |(reason, way_out)| SessionError::Broken {
        path: path.display().to_string(),
        reason,
        way_out,
    }
}

/// What stands where a file should.
fn no_file(told: &std::fs::Metadata) -> Fault {
    let kind = match told.is_dir() {
        true => "a folder",
        false => "a device or a pipe",
    };
    (
        format!("this is {kind}, a session is a regular file"),
        NO_SESSION,
    )
}

enum Stop {
    Io(io::Error),
    Fault(Fault),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Stop {
        Stop::Io(e)
    }
}

struct Reader {
    file: BufReader<File>,
    sum: Sha256,
    /// Bytes read.
    at: u64,
    /// Bytes there are.
    len: u64,
}

impl Reader {
    fn parts(&mut self) -> Result<[Vec<u8>; 3], Stop> {
        self.magic()?;
        if let Some(memory) = memory::limit().filter(|m| self.len > *m) {
            let told = [self.len, memory].map(size);
            let reason = format!(
                "it has {}, this machine {} of memory: it is damaged, or of a larger machine",
                told[0], told[1]
            );
            return Err(Stop::Fault((reason, NO_SESSION)));
        }
        let version: [u8; 4] = self.array("version")?;
        match u32::from_le_bytes(version) {
            1..=VERSION => {}
            other => {
                return Err(damaged(format!(
                    "version {other} at byte {}, this build reads 1 to {VERSION}: it is of another build, or damaged",
                    MAGIC.len()
                )));
            }
        }
        let mut parts = [const { Vec::new() }; 3];
        for (part, name) in parts.iter_mut().zip(PARTS) {
            let at = self.at;
            let len: [u8; 8] = self.array(&format!("length of its {name}"))?;
            let len = u64::from_le_bytes(len);
            let left = (self.len - self.at).saturating_sub(SUM);
            if name == "head" && len > MAX_HEAD.min(left) || len > left {
                return Err(damaged(format!(
                    "it is damaged or cut: the length of its {name}, at byte {at}, says {len}, and {left} bytes are there for it"
                )));
            }
            *part = self.bytes(len, name)?;
        }
        let (at, left) = (self.at, self.len - self.at);
        if left != SUM {
            return Err(damaged(format!(
                "it is damaged: its parts end at byte {at}, and {left} bytes follow where {SUM} of checksum belong: the length of a \
                 part is wrong, or its end"
            )));
        }
        let sum = self.sum.clone().finalize();
        match self.bytes(SUM, "checksum")? == sum.as_slice() {
            true => Ok(parts),
            false => Err(damaged("its checksum is wrong: the file is damaged".into())),
        }
    }

    /// The first bytes: of what is no session at all, nothing more is read.
    fn magic(&mut self) -> Result<(), Stop> {
        let fault = |reason: &str| Err(Stop::Fault((reason.to_owned(), NO_SESSION)));
        if self.len == 0 {
            return fault("the file is empty, which no session is");
        }
        let n = self.len.min(MAGIC.len() as u64);
        let found = self.bytes(n, "first line")?;
        match MAGIC.starts_with(&found) {
            true if found.len() == MAGIC.len() => Ok(()),
            true => Err(damaged("it is cut within its first line".into())),
            false => fault("this is no session file of minfer"),
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Stop> {
        let bytes = self.bytes(N as u64, what)?;
        bytes
            .try_into()
            .map_err(|_| Stop::Io(io::ErrorKind::UnexpectedEof.into()))
    }

    /// The next `n` bytes, which are `what`.
    fn bytes(&mut self, n: u64, what: &str) -> Result<Vec<u8>, Stop> {
        let (at, left) = (self.at, self.len - self.at);
        if n > left {
            return Err(damaged(format!(
                "it is cut: of its {what}, at byte {at}, {left} bytes of {n} are there"
            )));
        }
        let mut bytes = Vec::new();
        (&mut self.file).take(n).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != n {
            return Err(Stop::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        self.sum.update(&bytes);
        self.at += n;
        Ok(bytes)
    }
}

fn damaged(reason: String) -> Stop {
    Stop::Fault((reason, BEGIN_ANEW))
}

/// Whether a session can be put here: makes a file beside it, and takes it away again. What is there stays as it is.
pub(super) fn try_place(path: &Path) -> Result<(), SessionError> {
    if let Ok(told) = path.metadata() {
        let fault = fault(path);
        if !told.is_file() {
            return Err(fault(no_file(&told)));
        }
        if told.permissions().readonly() {
            return Err(fault((
                "the file may not be written to, and the session would take its place".into(),
                "copy it, or allow it",
            )));
        }
    }
    Place::of(path)
        .and_then(|mut place| place.create())
        .map_err(named(path))?;
    Ok(())
}

/// Writes the parts beside the path, then puts the file in its place, so that a failure leaves what was there.
pub(super) fn write(path: &Path, parts: [&[u8]; 3]) -> Result<(), SessionError> {
    let written = Place::of(path).and_then(|mut place| {
        write_parts(&mut place.create()?, parts)?;
        place.put()
    });
    written.map_err(named(path))
}

fn write_parts(file: &mut File, parts: [&[u8]; 3]) -> io::Result<()> {
    let mut sum = Sha256::new();
    let mut put = |bytes: &[u8]| {
        sum.update(bytes);
        file.write_all(bytes)
    };
    put(MAGIC)?;
    put(&VERSION.to_le_bytes())?;
    for part in parts {
        put(&(part.len() as u64).to_le_bytes())?;
        put(part)?;
    }
    let digest = sum.finalize();
    file.write_all(&digest)?;
    file.sync_all()
}
