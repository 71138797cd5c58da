//! What can be wrong with a GGUF file.

use std::io;
use std::path::PathBuf;

/// An error of the `gguf` room. Each prints as one line that names the file, the field or tensor,
/// and the value.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file can't be opened or mapped (missing, no permission, no regular file).
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A path that names a directory.
    #[error("cannot open {}: it is a directory, not a GGUF file", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The bytes of a file don't make a GGUF file.
    #[error("{}: {fault}", .path.display())]
    File {
        /// The file; `(bytes in memory)` for one that never was a file.
        path: PathBuf,
        /// What is wrong.
        fault: Fault,
    },
    /// A metadata value has another type than its reader needs.
    #[error("metadata key `{}` has type {found}, but {wanted} is needed", shown(.key))]
    WrongType {
        /// The key.
        key: String,
        /// The type and, but of an array, the value found.
        found: String,
        /// The type needed.
        wanted: &'static str,
    },
    /// A metadata key that is needed is not there.
    #[error("metadata key `{}` is missing", shown(.key))]
    MissingKey {
        /// The key.
        key: String,
    },
    /// The writer was asked for a file that this room's own reader would refuse.
    #[error("cannot write: {0}")]
    Unwritable(String),
    /// Writing failed.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// What is wrong with the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No byte at all.
    #[error("the file is empty")]
    Empty,
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it starts with \"{0}\", not with \"GGUF\"")]
    Magic(String),
    /// The version number reads as 1, 2 or 3 with its bytes swapped.
    #[error(
        "big-endian GGUF (version {0}) can't be read: only little-endian files can; convert it"
    )]
    BigEndian(u32),
    /// Version 1, which had 32-bit lengths.
    #[error("GGUF version 1 can't be read: versions 2 and 3 can; convert it")]
    Version1,
    /// Another version.
    #[error("GGUF version {0} is unknown: versions 2 and 3 can be read")]
    Version(u32),
    /// The file ends inside a field.
    #[error("truncated: {field} needs {need} bytes at offset {offset}, the file has {left} more")]
    Truncated {
        /// What was being read.
        field: String,
        /// Bytes that it needs.
        need: u64,
        /// Where it starts.
        offset: u64,
        /// Bytes left from there.
        left: u64,
    },
    /// A count that the bytes that are left can't hold.
    #[error("truncated: {field} is {count}, more than the {left} bytes after it can hold")]
    Count {
        /// What is counted.
        field: String,
        /// The count in the file.
        count: u64,
        /// Bytes left after it.
        left: u64,
    },
    /// A large file whose header would take more than this reader takes.
    #[error("the header is too large: {field} ends beyond its limit of {limit} bytes")]
    HeaderSize {
        /// What was being read.
        field: String,
        /// Bytes that a header may take.
        limit: u64,
    },
    /// A number is above what this reader takes.
    #[error("{field} is {value}, more than the limit of {limit}")]
    Limit {
        /// What is limited.
        field: String,
        /// The value found.
        value: u64,
        /// The highest value taken.
        limit: u64,
    },
    /// A metadata type id, or an array's element type id, that GGUF does not have.
    #[error("{field} has the unknown value type {id}")]
    ValueType {
        /// The field.
        field: String,
        /// The id found.
        id: u32,
    },
    /// A bool that is neither 0 nor 1.
    #[error("{field} is a bool with the value {byte}: it must be 0 or 1")]
    Bool {
        /// The field.
        field: String,
        /// The byte found.
        byte: u8,
    },
    /// Text that is not UTF-8.
    #[error("{field} is not valid UTF-8")]
    Utf8 {
        /// The field.
        field: String,
    },
    /// A key that occurs twice.
    #[error("metadata key `{}` occurs twice", shown(.0))]
    DuplicateKey(String),
    /// `general.alignment` is unusable.
    #[error("`general.alignment` is {0}: it must be a u32, a power of two, and at most {1}")]
    Alignment(String, u64),
    /// A tensor that can't be: the tensor, and why.
    #[error("tensor `{}`: {why}", shown(.name))]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file that is one of several was given in a way that does not lead to the others.
    #[error("{0}")]
    Split(String),
}

impl Fault {
    pub(super) fn tensor(name: &str, why: impl Into<String>) -> Fault {
        Fault::Tensor {
            name: name.to_owned(),
            why: why.into(),
        }
    }

    /// Says which file this is about.
    pub(super) fn at(self, path: impl Into<PathBuf>) -> GgufError {
        GgufError::File {
            path: path.into(),
            fault: self,
        }
    }
}

/// A name or a text from a file as it may stand in a one-line message: control characters escaped, and cut
/// after 80 characters (with `…`).
pub(crate) fn shown(name: &str) -> String {
    const MOST: usize = 80;
    let mut out: String = name
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if name.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}
