//! A model: a file, what its metadata says, its tokenizer, its template and its graph maker.

use std::fmt::{self, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use crate::Error;
use crate::chat::{ChatTemplate, Message, RenderRequest, Rendered};
use crate::gguf::{GgufFile, Metadata};
use crate::graph::WeightSet;
use crate::models::{self, Architecture, HParams, ModelError};
use crate::tokenizer::Tokenizer;

/// Text that goes into a sum.
struct Digested<'a>(&'a mut Sha256);

impl fmt::Write for Digested<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

/// A model file, read and checked, ready for an [`super::Engine`]. No weight is loaded yet.
pub struct Model {
    file: Arc<GgufFile>,
    arch: Box<dyn Architecture>,
    weights: WeightSet,
    tokenizer: Arc<Tokenizer>,
    template: OnceLock<ChatTemplate>,
    fingerprint: OnceLock<String>,
}

impl Model {
    /// Opens a GGUF file (of a split model, the first part).
    pub fn open(path: &Path) -> Result<Arc<Model>, Error> {
        Model::from_file(Arc::new(GgufFile::open(path)?))
    }

    /// From a file that is open already.
    pub fn from_file(file: Arc<GgufFile>) -> Result<Arc<Model>, Error> {
        let named = |source: Error| Error::Model {
            path: file.path().to_owned(),
            source: Box::new(source),
        };
        let loaded = models::load(file.clone()).map_err(|e| named(e.into()))?;
        let tokenizer = Tokenizer::from_metadata(file.metadata()).map_err(|e| named(e.into()))?;
        let (tokens, rows) = (tokenizer.n_vocab(), loaded.arch.hparams().n_vocab);
        // Converters pad the vocabulary where the embedding has more rows; llama.cpp asks for as many, too.
        if tokens != rows {
            return Err(named(ModelError::Vocabulary { tokens, rows }.into()));
        }
        let (arch, weights, tokenizer) = (loaded.arch, loaded.weights, Arc::new(tokenizer));
        Ok(Arc::new(Model {
            arch,
            weights,
            tokenizer,
            template: OnceLock::new(),
            fingerprint: OnceLock::new(),
            file,
        }))
    }

    /// The file's metadata.
    pub fn metadata(&self) -> &Metadata {
        self.file.metadata()
    }

    /// The file.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// The model's numbers.
    pub fn hparams(&self) -> &HParams {
        self.arch.hparams()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The graph maker.
    pub fn arch(&self) -> &dyn Architecture {
        &*self.arch
    }

    /// The weights by id.
    pub fn weights(&self) -> &WeightSet {
        &self.weights
    }

    /// Tells this file's weights from others': SHA-256, in hex, of the metadata, every tensor's name, type and
    /// dimensions, and the first and last 4 KiB of its data.
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| {
            let mut sum = Sha256::new();
            for (key, value) in self.metadata().iter() {
                // Into the sum, piece by piece: as one text, a vocabulary takes tens of MB. A sum takes all that is written.
                let _ = writeln!(Digested(&mut sum), "{key} {value:?}");
            }
            for (_, w) in self.weights.iter() {
                let data = w.data.bytes();
                let ends = data.len().min(4096);
                sum.update(format!(
                    "{} {:?} {:?} {}\n",
                    w.name,
                    w.ty,
                    w.dims,
                    data.len()
                ));
                sum.update(&data[..ends]);
                sum.update(&data[data.len() - ends..]);
            }
            let digest = sum.finalize();
            digest.iter().map(|b| format!("{b:02x}")).collect()
        })
    }

    /// The chat template: the file's own, else ChatML (rendering says so). Compiled at first use,
    /// so that a broken template does not stop raw completion.
    pub fn chat_template(&self) -> Result<&ChatTemplate, Error> {
        if let Some(t) = self.template.get() {
            return Ok(t);
        }
        let template =
            ChatTemplate::from_metadata(self.metadata())?.with_tokenizer(&self.tokenizer);
        Ok(self.template.get_or_init(|| template))
    }

    /// The next turn of a conversation whose tokens are known, as token ids: what a template puts between the end of an
    /// assistant's words and the beginning of the next ones. If `last`, the newest token, ends an answer, it is not repeated.
    ///
    /// # Errors
    /// A template that fails, or that does not show what an assistant said.
    pub fn chat_turn(&self, message: Message, last: Option<u32>) -> Result<Vec<u32>, Error> {
        const ANSWER: &str = "minfer-stands-for-an-answer";
        let before = [Message::new("user", "-"), Message::new("assistant", ANSWER)];
        let messages = before.into_iter().chain([message]).collect();
        let rendered = self
            .chat_template()?
            .render(&RenderRequest::new(messages))?;
        let turn = rendered.after(ANSWER).ok_or(super::EngineError::NoTurn)?;
        let mut ids = self.tokenizer.encode_parts(&turn.parts(), false);
        if last.is_some_and(|id| self.tokenizer.is_eog(id) && ids.first() == Some(&id)) {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// A conversation as token ids, and a notice for the user if the file has no template.
    /// Scaffolding becomes control tokens, what people wrote never does. Nothing is lost: see [`ChatTemplate::render_whole`].
    pub fn chat_prompt(
        &self,
        request: &RenderRequest,
    ) -> Result<(Vec<u32>, Option<String>), Error> {
        let rendered = self.chat_template()?.render_whole(request.clone())?;
        Ok((self.encode_rendered(&rendered), rendered.notice))
    }

    /// A rendered conversation as token ids.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Vec<u32> {
        self.tokenizer.encode_parts(&rendered.parts(), true)
    }
}
