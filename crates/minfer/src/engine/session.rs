//! A sequence outside an engine: its tokens, its pages, its sampler's and constraint's state; in memory and in a file.
//!
//! # The file
//! `minfer session\n`, the version (u32), then three parts, each with its length (u64) in front: a head as JSON, the
//! pages of full layers, those of windowed ones; last the SHA-256 of all before it. Numbers are little-endian. A page
//! is what [`crate::graph::Scheduler::kv_read`] gives: the same bytes on every CPU.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::answer::Answer;
use super::core::Core;
use super::sequence::{Sequence, Want};
use crate::Error;
use crate::graph::{LayerKind, PAGE};
use crate::kv::SeqPages;
use crate::sampling::{ConstraintSpec, SamplerState, SamplingError};

const MAGIC: &[u8; 15] = b"minfer session\n";
const VERSION: u32 = 1;
/// Bytes of a head that is still believed: 4 million tokens take less.
const MAX_HEAD: u64 = 1 << 26;

/// Why a session can't be saved or used.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Reading or writing failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is none, is cut, or was changed.
    #[error("{path}: {reason}; delete it to begin anew")]
    Broken {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// It was made by another model, or with another kind of cache.
    #[error("the session's {what} is {theirs}, this engine's is {ours}: {way_out}")]
    Other {
        /// What differs.
        what: &'static str,
        /// The session's.
        theirs: String,
        /// The engine's.
        ours: String,
        /// What to do.
        way_out: &'static str,
    },
}

/// The pages' content of one sequence.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Positions in it.
    pub n_past: usize,
    /// Tokens that were dropped by shifts.
    pub dropped: usize,
    full: Vec<u8>,
    /// First windowed pages that are not in it.
    pub unseen: usize,
    windowed: Vec<u8>,
}

/// A sequence to go on with. See [`super::Generate::save`] and [`super::Request::session`].
#[derive(Debug)]
pub struct Session {
    head: Head,
    pub(super) content: Arc<Content>,
}

/// What a session holds beside its pages.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    model: String,
    type_k: String,
    type_v: String,
    n_past: usize,
    dropped: usize,
    unseen: usize,
    tokens: Vec<u32>,
    sampler: SamplerState,
    /// A constraint that the answer has not fulfilled yet, and the token it began with.
    constraint: Option<(ConstraintSpec, usize)>,
}

impl Session {
    /// All its tokens: prompts and answers.
    pub fn tokens(&self) -> &[u32] {
        &self.head.tokens
    }

    /// Positions of a context that its tokens take, the newest included.
    pub fn positions(&self) -> usize {
        self.head.tokens.len() - self.head.dropped
    }

    /// Writes it to a file: beside it first, then in its place, so that a failure leaves what was there.
    ///
    /// # Errors
    /// [`SessionError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), SessionError> {
        let named = |source| SessionError::Io {
            path: path.display().to_string(),
            source,
        };
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let written = self.write_new(Path::new(&part));
        written
            .and_then(|()| std::fs::rename(&part, path))
            .map_err(|e| {
                // Best effort: there is an error already.
                let _ = std::fs::remove_file(&part);
                named(e)
            })
    }

    fn write_new(&self, path: &Path) -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        let mut sum = Sha256::new();
        let mut put = |bytes: &[u8]| {
            sum.update(bytes);
            file.write_all(bytes)
        };
        put(MAGIC)?;
        put(&VERSION.to_le_bytes())?;
        let head = serde_json::to_vec(&self.head).map_err(std::io::Error::other)?;
        for part in [&head, &self.content.full, &self.content.windowed] {
            put(&(part.len() as u64).to_le_bytes())?;
            put(part)?;
        }
        let digest = sum.finalize();
        file.write_all(&digest)?;
        file.sync_all()
    }

    /// Reads it from a file. What it holds is checked when an engine takes it.
    ///
    /// # Errors
    /// [`SessionError::Io`]; [`SessionError::Broken`] for any byte that is not as it was written.
    pub fn read(path: &Path) -> Result<Session, SessionError> {
        let named = |source| SessionError::Io {
            path: path.display().to_string(),
            source,
        };
        let mut bytes = Vec::new();
        let mut file = std::fs::File::open(path).map_err(named)?;
        file.read_to_end(&mut bytes).map_err(named)?;
        Session::parse(&bytes).map_err(|reason| SessionError::Broken {
            path: path.display().to_string(),
            reason,
        })
    }

    fn parse(bytes: &[u8]) -> Result<Session, String> {
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or("this is no session file of minfer")?;
        let cut = || "the file ends too early".to_owned();
        let (version, mut rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(format!("version {other}, this build reads {VERSION}")),
        }
        let mut parts = Vec::with_capacity(3);
        for limit in [MAX_HEAD, u64::MAX, u64::MAX] {
            let (len, after) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
            let len = u64::from_le_bytes(*len);
            if len > limit || len > after.len() as u64 {
                return Err(cut());
            }
            let (part, after) = after.split_at(len as usize);
            parts.push(part);
            rest = after;
        }
        let body = &bytes[..bytes.len() - rest.len()];
        if rest != Sha256::digest(body).as_slice() {
            return Err("its checksum is wrong: the file is damaged".into());
        }
        let head: Head = serde_json::from_slice(parts[0]).map_err(|e| e.to_string())?;
        let content = Content {
            n_past: head.n_past,
            dropped: head.dropped,
            full: parts[1].to_vec(),
            unseen: head.unseen,
            windowed: parts[2].to_vec(),
        };
        Ok(Session {
            head,
            content: Arc::new(content),
        })
    }

    /// Whether an engine can go on with it.
    ///
    /// # Errors
    /// [`SessionError::Other`] naming what differs.
    pub(super) fn check(&self, fits: &Fits<'_>) -> Result<(), SessionError> {
        let h = &self.head;
        let same = |what, theirs: &str, ours: &str, way_out| match theirs == ours {
            true => Ok(()),
            false => Err(SessionError::Other {
                what,
                theirs: theirs.to_owned(),
                ours: ours.to_owned(),
                way_out,
            }),
        };
        let other_file = "it belongs to another file";
        same("model", &h.model, fits.model, other_file)?;
        let type_k = "use --cache-type-k as it was";
        same("format of keys", &h.type_k, fits.type_k, type_k)?;
        let type_v = "use --cache-type-v as it was";
        same("format of values", &h.type_v, fits.type_v, type_v)?;
        let pages = h.n_past.div_ceil(PAGE);
        let windowed = match fits.windowed_page {
            0 => 0,
            size => pages.saturating_sub(h.unseen) * size,
        };
        let sizes = format!("{} + {}", pages * fits.full_page, windowed);
        let have = format!(
            "{} + {}",
            self.content.full.len(),
            self.content.windowed.len()
        );
        same("size in bytes", &have, &sizes, other_file)?;
        let sound = h.n_past > 0
            && h.dropped % PAGE == 0
            && h.n_past + h.dropped <= h.tokens.len()
            && h.unseen <= pages
            && h.tokens.iter().all(|t| (*t as usize) < fits.n_vocab);
        let state = if sound { "sound" } else { "not" };
        same("content", state, "sound", other_file)?;
        match h.n_past + 1 > fits.n_ctx {
            true => Err(SessionError::Other {
                what: "length",
                theirs: h.n_past.to_string(),
                ours: fits.n_ctx.to_string(),
                way_out: "raise --n-ctx",
            }),
            false => Ok(()),
        }
    }

    /// Brings an answer's sampler to where it was; it has seen all tokens already.
    pub(super) fn restore(&self, answer: &mut Answer) -> Result<(), SamplingError> {
        answer.sampler.restore(&self.head.sampler)
    }

    /// A constraint that goes on, and the tokens it has seen.
    pub(super) fn constraint(&self) -> Option<(&ConstraintSpec, &[u32])> {
        let (spec, from) = self.head.constraint.as_ref()?;
        Some((spec, self.head.tokens.get(*from..)?))
    }
}

/// What a session must agree with.
pub(super) struct Fits<'a> {
    pub model: &'a str,
    pub type_k: &'a str,
    pub type_v: &'a str,
    pub full_page: usize,
    pub windowed_page: usize,
    pub n_vocab: usize,
    pub n_ctx: usize,
}

impl Core {
    /// A sequence as it is now.
    pub(super) fn save(&mut self, seq: &Sequence) -> Result<Arc<Session>, Error> {
        let content = self.read_content(&seq.pages, seq.n_past, seq.dropped)?;
        let Want::Answer(answer) = &seq.want else {
            return Err(super::EngineError::Stopped.into());
        };
        let head = Head {
            model: self.model.fingerprint().to_owned(),
            type_k: self.context.type_k.name().to_owned(),
            type_v: self.context.type_v.name().to_owned(),
            n_past: seq.n_past,
            dropped: seq.dropped,
            unseen: content.unseen,
            tokens: seq.tokens.clone(),
            sampler: answer.sampler.state(),
            constraint: answer.open_constraint(),
        };
        Ok(Arc::new(Session {
            head,
            content: Arc::new(content),
        }))
    }

    /// Copies the content of a sequence's pages out.
    pub(super) fn read_content(
        &mut self,
        pages: &SeqPages,
        n_past: usize,
        dropped: usize,
    ) -> Result<Content, Error> {
        let mut content = Content {
            n_past,
            dropped,
            ..Content::default()
        };
        let n = n_past.div_ceil(PAGE);
        for page in pages.pages(LayerKind::Full).into_iter().take(n).flatten() {
            self.scheduler
                .kv_read(LayerKind::Full, page, &mut content.full)?;
        }
        let windowed: Vec<_> = pages
            .pages(LayerKind::Windowed)
            .into_iter()
            .take(n)
            .collect();
        // What a shift keeps may lie before a gap: the gap is then filled with what will not be seen.
        content.unseen = windowed.iter().take_while(|p| p.is_none()).count();
        for page in windowed.into_iter().skip(content.unseen) {
            self.scheduler.kv_read(
                LayerKind::Windowed,
                page.unwrap_or(0),
                &mut content.windowed,
            )?;
        }
        Ok(content)
    }

    /// Writes saved content into pages that were reserved for it.
    pub(super) fn write_content(
        &mut self,
        pages: &SeqPages,
        content: &Content,
    ) -> Result<(), Error> {
        for (kind, bytes) in [
            (LayerKind::Full, &content.full),
            (LayerKind::Windowed, &content.windowed),
        ] {
            let size = self.scheduler.kv_page_bytes(kind);
            let held = pages.pages(kind).into_iter().flatten();
            for (page, bytes) in held.zip(bytes.chunks_exact(size.max(1))) {
                self.scheduler.kv_write(kind, page, bytes)?;
            }
        }
        Ok(())
    }
}
