//! A sequence outside an engine: its tokens, its pages, its sampler's and constraint's state; in memory and in a file.
//!
//! Of an answer that was cut at its length, the text that was held back (what may become a stop string, the start of a
//! character) is in it, too: who goes on with it says what an undisturbed answer would have said.
//! Not kept: how far a reading (`Generate::reading`) has come, and what is left of a reasoning budget.
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

use super::answer::{Answer, Held};
use super::core::Core;
use super::model::Model;
use super::sequence::{Sequence, Want};
use crate::Error;
use crate::graph::{LayerKind, PAGE};
use crate::kv::SeqPages;
use crate::sampling::{ConstraintSpec, SamplerState, SamplingError};

const MAGIC: &[u8; 15] = b"minfer session\n";
/// Version 1 had nothing held back.
const VERSION: u32 = 2;
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
    /// Which pages of windowed layers are in it: places in the sequence, in order.
    pub windowed_at: Vec<u32>,
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
    windowed_at: Vec<u32>,
    tokens: Vec<u32>,
    sampler: SamplerState,
    /// A constraint that the answer has not fulfilled yet, and the token it began with.
    constraint: Option<(ConstraintSpec, usize)>,
    /// Text that the answer has not said yet.
    #[serde(default)]
    held: Held,
}

impl Head {
    /// Whether its numbers can be those of a sequence.
    fn is_sound(&self) -> bool {
        let known = self.n_past.checked_add(self.dropped);
        let pages = self.n_past.div_ceil(PAGE) as u64;
        self.n_past > 0
            && self.dropped % PAGE == 0
            && known.is_some_and(|known| known <= self.tokens.len())
            && self.windowed_at.is_sorted_by(|a, b| a < b)
            && self.windowed_at.iter().all(|at| u64::from(*at) < pages)
    }
}

/// What to do with the session of another model.
const OTHER_FILE: &str = "it belongs to another file";

fn same(
    what: &'static str,
    theirs: &str,
    ours: &str,
    way_out: &'static str,
) -> Result<(), SessionError> {
    match theirs == ours {
        true => Ok(()),
        false => Err(SessionError::Other {
            what,
            theirs: theirs.to_owned(),
            ours: ours.to_owned(),
            way_out,
        }),
    }
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
            1 | VERSION => {}
            other => return Err(format!("version {other}, this build reads 1 to {VERSION}")),
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
        if !head.is_sound() {
            return Err("its numbers contradict each other".into());
        }
        let content = Content {
            n_past: head.n_past,
            dropped: head.dropped,
            full: parts[1].to_vec(),
            windowed_at: head.windowed_at.clone(),
            windowed: parts[2].to_vec(),
        };
        Ok(Session {
            head,
            content: Arc::new(content),
        })
    }

    /// Whether it was made by this model.
    ///
    /// # Errors
    /// [`SessionError::Other`] if not.
    pub fn belongs_to(&self, model: &Model) -> Result<(), SessionError> {
        same("model", &self.head.model, model.fingerprint(), OTHER_FILE)
    }

    /// Whether an engine can go on with it.
    ///
    /// # Errors
    /// [`SessionError::Other`] naming what differs.
    pub(super) fn check(&self, fits: &Fits<'_>) -> Result<(), SessionError> {
        let h = &self.head;
        same("model", &h.model, fits.model, OTHER_FILE)?;
        let type_k = "use --cache-type-k as it was";
        same("format of keys", &h.type_k, fits.type_k, type_k)?;
        let type_v = "use --cache-type-v as it was";
        same("format of values", &h.type_v, fits.type_v, type_v)?;
        let sizes = [
            h.n_past.div_ceil(PAGE) * fits.full_page,
            h.windowed_at.len() * fits.windowed_page,
        ];
        let have = [self.content.full.len(), self.content.windowed.len()];
        same(
            "size in bytes",
            &format!("{have:?}"),
            &format!("{sizes:?}"),
            OTHER_FILE,
        )?;
        if let Some(token) = h.tokens.iter().find(|t| **t as usize >= fits.n_vocab) {
            same("token", &token.to_string(), "in the vocabulary", OTHER_FILE)?;
        }
        match h.n_past > fits.n_ctx {
            true => same(
                "length",
                &h.n_past.to_string(),
                &fits.n_ctx.to_string(),
                "raise --n-ctx",
            ),
            false => Ok(()),
        }
    }

    /// Brings an answer's sampler to where it was; it has seen all tokens already.
    pub(super) fn restore(&self, answer: &mut Answer) -> Result<(), SamplingError> {
        answer.sampler.restore(&self.head.sampler)
    }

    /// Text that the answer has not said yet: an answer that goes on says it.
    pub(super) fn held(&self) -> &Held {
        &self.head.held
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
            windowed_at: content.windowed_at.clone(),
            tokens: seq.tokens.clone(),
            sampler: answer.sampler.state(),
            constraint: answer.open_constraint(),
            held: answer.held(),
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
        let windowed = pages.pages(LayerKind::Windowed).into_iter().take(n);
        for (at, page) in windowed.enumerate() {
            if let Some(page) = page {
                content.windowed_at.push(at as u32);
                self.scheduler
                    .kv_read(LayerKind::Windowed, page, &mut content.windowed)?;
            }
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
