//! Downloads over HTTP that go on where they stopped, and are checked.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::{HubError, Progress, cache};

/// Hubs may be out of reach: another source is next.
const CONNECT: Duration = Duration::from_secs(3);
/// The longest silence in the middle of an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// Breaks in a row without a new byte, after which a download is given up.
const TRIES: u32 = 3;
/// The longest list of files that is read, bytes.
const MAX_LIST: u64 = 64 << 20;

/// A file on a server, and what is known of it.
pub struct Remote<'a> {
    /// Its address.
    pub url: String,
    /// The name to show.
    pub name: &'a str,
    /// Its size, bytes.
    pub size: Option<u64>,
    /// Its SHA-256, in hex.
    pub sha256: Option<&'a str>,
}

/// An HTTP client with this project's time-outs.
pub struct Client {
    agent: ureq::Agent,
}

/// What one connection brought.
enum Outcome {
    Complete,
    /// It broke; the reason.
    Broken(String),
    /// What is kept does not fit what the server has: start anew.
    Stale,
}

impl Client {
    /// A client; `silence` is the longest pause in an answer (30 s by default).
    pub fn new(silence: Option<Duration>) -> Client {
        let config = ureq::Agent::config_builder()
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(silence.unwrap_or(SILENCE)))
            .http_status_as_error(false)
            .max_redirects(10)
            .user_agent(concat!("minfer/", env!("CARGO_PKG_VERSION")))
            .build();
        Client {
            agent: config.into(),
        }
    }

    /// A JSON document. Errors: unreachable, a status other than 200, no JSON.
    pub fn json(&self, url: &str) -> Result<serde_json::Value, HubError> {
        let mut answer = self.agent.get(url).call().map_err(|e| network(url, &e))?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Err(HubError::Status {
                url: url.to_owned(),
                status,
            });
        }
        let body = answer
            .body_mut()
            .with_config()
            .limit(MAX_LIST)
            .read_to_string();
        let body = body.map_err(|e| network(url, &e))?;
        serde_json::from_str(&body).map_err(|e| HubError::Network {
            url: url.to_owned(),
            why: format!("not JSON: {e}"),
        })
    }

    /// Downloads to `to`. What an earlier try left is used only where the SHA-256 is known, which
    /// then vouches for the whole. `to` appears at once, complete and checked.
    pub fn download(
        &self,
        remote: &Remote<'_>,
        to: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        if let Some(dir) = to.parent() {
            std::fs::create_dir_all(dir).map_err(HubError::io(dir))?;
        }
        let part = part_path(to, remote.sha256);
        if remote.sha256.is_none() {
            truncate(&part)?;
        }
        let resumed = length(&part) > 0;
        self.fill(remote, &part, progress)?;
        let mut check = verify(remote, &part);
        if check.is_err() && resumed {
            // The old bytes may be at fault.
            truncate(&part)?;
            self.fill(remote, &part, progress)?;
            check = verify(remote, &part);
        }
        if let Err(error) = check {
            std::fs::remove_file(&part).map_err(HubError::io(&part))?;
            return Err(error);
        }
        cache::place(&part, to)
    }

    /// Connects until the part is complete; gives up after some tries that bring nothing.
    fn fill(
        &self,
        remote: &Remote<'_>,
        part: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        let mut idle = 0_u32;
        loop {
            let before = length(part);
            let outcome = self.connect(remote, part, progress);
            progress.finish();
            let why = match outcome? {
                Outcome::Complete => return Ok(()),
                Outcome::Stale => {
                    truncate(part)?;
                    "the server's file is another one than the part".to_owned()
                }
                Outcome::Broken(why) => why,
            };
            let got = length(part);
            idle = if got > before {
                0
            } else {
                idle.saturating_add(1)
            };
            if idle >= TRIES {
                let want = remote.size.unwrap_or(0);
                return Err(HubError::Cut {
                    url: remote.url.clone(),
                    got,
                    want,
                    why,
                });
            }
        }
    }

    /// One connection: asks for what is missing and appends it.
    fn connect(
        &self,
        remote: &Remote<'_>,
        part: &Path,
        progress: &mut dyn Progress,
    ) -> Result<Outcome, HubError> {
        let have = length(part);
        if have > 0 && remote.size == Some(have) {
            return Ok(Outcome::Complete);
        }
        let mut request = self
            .agent
            .get(&remote.url)
            .header("Accept-Encoding", "identity");
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
        }
        let answer = match request.call() {
            Ok(answer) => answer,
            // With something in hand, a broken connection is worth another try.
            Err(e) if have > 0 => return Ok(Outcome::Broken(e.to_string())),
            Err(e) => return Err(network(&remote.url, &e)),
        };
        let start = match answer.status().as_u16() {
            200 => 0,
            206 if content_range_start(&answer) == Some(have) => have,
            206 | 416 => return Ok(Outcome::Stale),
            status => {
                return Err(HubError::Status {
                    url: remote.url.clone(),
                    status,
                });
            }
        };
        let body = answer.body().content_length();
        let total = remote
            .size
            .or_else(|| body.map(|n| n.saturating_add(start)));
        progress.start(remote.name, start, total);
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .append(start > 0)
            .truncate(start == 0)
            .open(part)
            .map_err(HubError::io(part))?;
        let mut body = answer
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader();
        append(&mut body, &mut file, part, (start, total), progress)
    }
}

/// Appends `body` to the file; `(start, total)` are the bytes there and the bytes there will be.
fn append(
    body: &mut dyn Read,
    file: &mut File,
    part: &Path,
    (start, total): (u64, Option<u64>),
    progress: &mut dyn Progress,
) -> Result<Outcome, HubError> {
    let (mut done, mut buffer) = (start, vec![0; 1 << 16]);
    loop {
        let n = match body.read(&mut buffer) {
            Ok(n) => n,
            Err(e) => return Ok(Outcome::Broken(e.to_string())),
        };
        let Some(bytes) = buffer.get(..n).filter(|b| !b.is_empty()) else {
            break;
        };
        file.write_all(bytes).map_err(HubError::io(part))?;
        done = done.saturating_add(bytes.len() as u64);
        progress.advance(done);
    }
    file.sync_all().map_err(HubError::io(part))?;
    match total {
        Some(total) if done < total => Ok(Outcome::Broken("the server closed early".to_owned())),
        _ => Ok(Outcome::Complete),
    }
}

/// Checks size and SHA-256, where known.
fn verify(remote: &Remote<'_>, part: &Path) -> Result<(), HubError> {
    let got = length(part);
    if let Some(want) = remote.size.filter(|want| *want != got) {
        let why = format!("{got} bytes came, not {want}");
        return Err(HubError::Network {
            url: remote.url.clone(),
            why,
        });
    }
    let Some(want) = remote.sha256 else {
        return Ok(());
    };
    let mut hash = Sha256::new();
    cache::hash_into(part, &mut hash)?;
    let got = cache::hex(hash);
    if got == want {
        return Ok(());
    }
    Err(HubError::OtherBytes {
        what: remote.url.clone(),
        want: want.to_owned(),
        got,
    })
}

/// Where the unfinished file lies: one a content, so that parts of other versions do not mix.
fn part_path(to: &Path, sha256: Option<&str>) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    if let Some(start) = sha256.and_then(|s| s.get(..12)) {
        name.push(format!(".{start}"));
    }
    name.push(".part");
    PathBuf::from(name)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

fn truncate(path: &Path) -> Result<(), HubError> {
    if path.exists() {
        File::create(path).map_err(HubError::io(path))?;
    }
    Ok(())
}

/// The first byte of `Content-Range: bytes FIRST-LAST/TOTAL`.
fn content_range_start<T>(answer: &ureq::http::Response<T>) -> Option<u64> {
    let value = answer.headers().get("content-range")?.to_str().ok()?;
    value
        .strip_prefix("bytes ")?
        .split('-')
        .next()?
        .trim()
        .parse()
        .ok()
}

fn network(url: &str, error: &ureq::Error) -> HubError {
    HubError::Network {
        url: url.to_owned(),
        why: error.to_string(),
    }
}
