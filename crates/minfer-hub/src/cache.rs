//! The folder of fetched models: names, locks, unfinished parts.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256};

use crate::{HubError, Progress};

/// A model file in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// Its path below the cache's folder, with forward slashes: a name that `resolve` takes.
    pub name: String,
    /// Its size, bytes.
    pub size: u64,
    /// Where it lies.
    pub path: PathBuf,
}

/// Held while a file is fetched; other processes wait for it.
pub struct Lock(#[allow(dead_code)] File);

/// A cache in one folder.
#[derive(Debug, Clone)]
pub struct Cache {
    pub dir: PathBuf,
}

impl Cache {
    /// The path of a name.
    pub fn path(&self, name: &str) -> PathBuf {
        name.split('/')
            .fold(self.dir.clone(), |path, part| path.join(part))
    }

    /// All `.gguf` files, by name. A cache that does not exist yet is empty.
    pub fn list(&self) -> Result<Vec<CachedModel>, HubError> {
        let mut found = Vec::new();
        if self.dir.is_dir() {
            self.walk(&self.dir, &mut found)?;
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn walk(&self, dir: &Path, found: &mut Vec<CachedModel>) -> Result<(), HubError> {
        for entry in std::fs::read_dir(dir).map_err(HubError::io(dir))? {
            let path = entry.map_err(HubError::io(dir))?.path();
            // A file may go while the folder is read.
            let Ok(about) = std::fs::metadata(&path) else {
                continue;
            };
            if about.is_dir() {
                // Hidden folders hold locks and downloads.
                let hidden = path
                    .file_name()
                    .is_some_and(|n| n.to_string_lossy().starts_with('.'));
                if !hidden {
                    self.walk(&path, found)?;
                }
            } else if path
                .extension()
                .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
                && let Ok(below) = path.strip_prefix(&self.dir)
            {
                let parts: Vec<_> = below.iter().map(|p| p.to_string_lossy()).collect();
                found.push(CachedModel {
                    name: parts.join("/"),
                    size: about.len(),
                    path,
                });
            }
        }
        Ok(())
    }

    /// The cached file of a name: its full name or its last part, with or without `.gguf`; none
    /// where there is none. Two files with the same last part are an error.
    pub fn find(&self, name: &str) -> Result<Option<CachedModel>, HubError> {
        let files = self.list()?;
        let with = format!("{name}.gguf");
        let is = |candidate: &str| candidate == name || candidate == with;
        if let Some(exact) = files.iter().find(|f| is(&f.name)) {
            return Ok(Some(exact.clone()));
        }
        let last = |f: &&CachedModel| f.name.rsplit('/').next().is_some_and(is);
        let mut hits = files.iter().filter(last);
        match (hits.next(), hits.next()) {
            (None, _) => Ok(None),
            (Some(one), None) => Ok(Some(one.clone())),
            (Some(_), Some(_)) => Err(HubError::Ambiguous {
                name: name.to_owned(),
                candidates: files.iter().filter(last).map(|f| f.name.clone()).collect(),
            }),
        }
    }

    /// Waits until no other process fetches `name`, and keeps others out until the lock is dropped.
    pub fn lock(&self, name: &str, progress: &mut dyn Progress) -> Result<Lock, HubError> {
        let dir = self.dir.join(".locks");
        std::fs::create_dir_all(&dir).map_err(HubError::io(&dir))?;
        let path = dir.join(name.replace('/', "__"));
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(HubError::io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.note(&format!(
                    "another process is fetching {name}: waiting for it"
                ));
                file.lock().map_err(HubError::io(&path))?;
            }
            Err(TryLockError::Error(source)) => return Err(HubError::Io { path, source }),
        }
        Ok(Lock(file))
    }

    /// A new empty folder inside the cache, so that what lands in it can be renamed into place.
    pub fn scratch(&self) -> Result<Scratch, HubError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let all = self.dir.join(".downloads");
        remove_abandoned(&all);
        let path = all.join(format!("{}-{n}", std::process::id()));
        // Left over by an earlier process of the same id.
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(HubError::io(&path))?;
        }
        std::fs::create_dir_all(&path).map_err(HubError::io(&path))?;
        Ok(Scratch(path))
    }
}

/// Removes folders whose process was killed before it could. Best effort, and only where the system
/// tells which processes live (Linux).
fn remove_abandoned(all: &Path) {
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return;
    }
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name
            .to_str()
            .and_then(|n| n.split_once('-')?.0.parse().ok());
        let dead = id.is_some_and(|id: u32| !processes.join(id.to_string()).exists());
        if dead {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder that goes when it is dropped.
pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: what is left over is hidden, and goes with the next download.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Copies `from` to a new file at `to` and returns the SHA-256 of what went through, in hex.
/// `unreadable` makes the error of a `from` that can't be read: no failure of the cache.
pub fn copy(
    from: &mut dyn Read,
    to: &Path,
    unreadable: impl FnOnce(std::io::Error) -> HubError,
    progress: &mut dyn Progress,
) -> Result<String, HubError> {
    let mut file = File::create(to).map_err(HubError::io(to))?;
    let (mut hash, mut done) = (Sha256::new(), 0_u64);
    let mut buffer = vec![0; 1 << 18];
    loop {
        let n = match from.read(&mut buffer) {
            Ok(n) => n,
            Err(e) => return Err(unreadable(e)),
        };
        let Some(bytes) = buffer.get(..n).filter(|b| !b.is_empty()) else {
            break;
        };
        file.write_all(bytes).map_err(HubError::io(to))?;
        hash.update(bytes);
        done = done.saturating_add(bytes.len() as u64);
        progress.advance(done);
    }
    file.sync_all().map_err(HubError::io(to))?;
    Ok(hex(hash))
}

/// The SHA-256 of a file, in hex.
pub fn sha256(path: &Path) -> Result<String, HubError> {
    let mut hash = Sha256::new();
    hash_into(path, &mut hash)?;
    Ok(hex(hash))
}

/// Feeds a file to `hash`.
pub fn hash_into(path: &Path, hash: &mut Sha256) -> Result<(), HubError> {
    let mut file = File::open(path).map_err(HubError::io(path))?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        let n = file.read(&mut buffer).map_err(HubError::io(path))?;
        match buffer.get(..n) {
            Some(bytes) if !bytes.is_empty() => hash.update(bytes),
            _ => return Ok(()),
        }
    }
}

/// The hash's value in hex.
pub fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Puts a complete file in its place: at once, or not at all.
pub fn place(from: &Path, to: &Path) -> Result<(), HubError> {
    if let Some(dir) = to.parent() {
        std::fs::create_dir_all(dir).map_err(HubError::io(dir))?;
    }
    std::fs::rename(from, to).map_err(HubError::io(to))
}
