//! A sequence outside an engine: its tokens, its pages, its sampler's and constraint's state; in memory and in a file.
//!
//! Of an answer that was cut at its length, the text that was held back (what may become a stop string, the start of a
//! character) is in it, too: who goes on with it says what an undisturbed answer would have said.
//! Not kept: how far a reading (`Generate::reading`) has come, and what is left of a reasoning budget.
//! Files of them: [`super::session_file`]. A page is what [`crate::graph::Scheduler::kv_read`] gives: the same bytes on every CPU.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::answer::{Answer, Held};
use super::core::Core;
use super::model::Model;
use super::options::EngineOptions;
use super::sequence::{Sequence, Want};
use super::session_file;
use crate::Error;
use crate::graph::{LayerKind, PAGE};
use crate::kv::SeqPages;
use crate::sampling::{ConstraintSpec, SamplerState, SamplingError};

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
    #[error("{path}: {reason}; {way_out}")]
    Broken {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        way_out: &'static str,
    },
    /// It was made by another model.
    #[error(
        "the session was made with the model {theirs}, this is {ours}: go on with that model, or begin another session"
    )]
    OtherModel {
        /// The session's.
        theirs: String,
        /// The engine's.
        ours: String,
    },
    /// It was made with another kind of cache.
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
    /// The model's file; older sessions do not tell.
    #[serde(default)]
    model_file: String,
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
    /// The field that can't be that of a sequence.
    fn unsound(&self) -> Option<String> {
        let known = self.n_past.checked_add(self.dropped);
        let (tokens, pages) = (self.tokens.len(), self.n_past.div_ceil(PAGE) as u64);
        if self.n_past == 0 {
            return Some("n_past is 0".into());
        }
        if self.dropped % PAGE != 0 {
            return Some(format!(
                "dropped is {}, no multiple of {PAGE}",
                self.dropped
            ));
        }
        if known.is_none_or(|known| known > tokens) {
            let (n_past, dropped) = (self.n_past, self.dropped);
            return Some(format!(
                "n_past is {n_past}, dropped {dropped}, and tokens are {tokens}"
            ));
        }
        let sound = self.windowed_at.is_sorted_by(|a, b| a < b)
            && self.windowed_at.iter().all(|at| u64::from(*at) < pages);
        (!sound).then(|| format!("windowed_at is no rising list of pages below {pages}"))
    }

    /// The model, in words: its file, and the beginning of its fingerprint.
    fn model_name(&self) -> String {
        name(&self.model_file, &self.model)
    }
}

fn name(file: &str, fingerprint: &str) -> String {
    let short: String = fingerprint.chars().take(12).collect();
    match file {
        "" => format!("of fingerprint {short}"),
        file => format!("{file} (fingerprint {short})"),
    }
}

/// The name of a model's file.
fn file_name(model: &Model) -> String {
    let name = model.file().path().file_name();
    name.map_or_else(String::new, |n| n.to_string_lossy().into_owned())
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

    /// Bytes of its pages.
    pub fn bytes(&self) -> u64 {
        (self.content.full.len() + self.content.windowed.len()) as u64
    }

    /// Whether [`Session::write`] can put a session here, as far as can be told before there is one: a file is made beside the
    /// path and taken away again. What is there stays as it is.
    ///
    /// # Errors
    /// [`SessionError::Io`]; [`SessionError::Broken`] where something else than a file is there, or one that may not be changed.
    pub fn try_place(path: &Path) -> Result<(), SessionError> {
        session_file::try_place(path)
    }

    /// Writes it to a file: beside it first, then in its place, so that a failure leaves what was there.
    ///
    /// # Errors
    /// [`SessionError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), SessionError> {
        let head = serde_json::to_vec(&self.head).map_err(|e| SessionError::Io {
            path: path.display().to_string(),
            source: std::io::Error::other(e),
        })?;
        session_file::write(path, [&head, &self.content.full, &self.content.windowed])
    }

    /// Reads it from a file. What it holds is checked when an engine takes it.
    ///
    /// # Errors
    /// [`SessionError::Io`]; [`SessionError::Broken`] for any byte that is not as it was written, and for what is no file.
    pub fn read(path: &Path) -> Result<Session, SessionError> {
        let [head, full, windowed] = session_file::read(path)?;
        let broken = |reason| session_file::broken(path, reason);
        let head: Head =
            serde_json::from_slice(&head).map_err(|e| broken(format!("its head: {e}")))?;
        if let Some(field) = head.unsound() {
            return Err(broken(format!("its head contradicts itself: {field}")));
        }
        let content = Content {
            n_past: head.n_past,
            dropped: head.dropped,
            full,
            windowed_at: head.windowed_at.clone(),
            windowed,
        };
        Ok(Session {
            head,
            content: Arc::new(content),
        })
    }

    /// Whether it was made by this model.
    ///
    /// # Errors
    /// [`SessionError::OtherModel`] if not.
    pub fn belongs_to(&self, model: &Model) -> Result<(), SessionError> {
        match self.head.model == model.fingerprint() {
            true => Ok(()),
            false => Err(SessionError::OtherModel {
                theirs: self.head.model_name(),
                ours: name(&file_name(model), model.fingerprint()),
            }),
        }
    }

    /// Whether an engine of this model and these options can go on with it. `page_bytes`: bytes of a page of full and of
    /// windowed layers, where the weights are loaded already.
    ///
    /// # Errors
    /// [`SessionError::OtherModel`], or [`SessionError::Other`] naming what differs.
    pub(super) fn check(
        &self,
        model: &Model,
        options: &EngineOptions,
        page_bytes: Option<[usize; 2]>,
    ) -> Result<(), SessionError> {
        let h = &self.head;
        self.belongs_to(model)?;
        let type_k = "use --cache-type-k as it was";
        same("format of keys", &h.type_k, options.type_k.name(), type_k)?;
        let type_v = "use --cache-type-v as it was";
        same("format of values", &h.type_v, options.type_v.name(), type_v)?;
        if let Some([full, windowed]) = page_bytes {
            let sizes = [
                h.n_past.div_ceil(PAGE) * full,
                h.windowed_at.len() * windowed,
            ];
            let have = [self.content.full.len(), self.content.windowed.len()];
            same(
                "size in bytes",
                &format!("{have:?}"),
                &format!("{sizes:?}"),
                OTHER_FILE,
            )?;
        }
        let n_vocab = model.hparams().n_vocab;
        if let Some(token) = h.tokens.iter().find(|t| **t as usize >= n_vocab) {
            same("token", &token.to_string(), "in the vocabulary", OTHER_FILE)?;
        }
        match h.n_past > options.n_ctx {
            true => same(
                "length",
                &h.n_past.to_string(),
                &options.n_ctx.to_string(),
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

impl Core {
    /// A sequence as it is now.
    pub(super) fn save(&mut self, seq: &Sequence) -> Result<Arc<Session>, Error> {
        let content = self.read_content(&seq.pages, seq.n_past, seq.dropped)?;
        let Want::Answer(answer) = &seq.want else {
            return Err(super::EngineError::Stopped.into());
        };
        let head = Head {
            model: self.model.fingerprint().to_owned(),
            model_file: file_name(&self.model),
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
