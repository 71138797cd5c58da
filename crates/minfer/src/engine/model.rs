//! A model: a file, what its metadata says, its tokenizer, its template and its graph maker.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::Error;
use crate::chat::{ChatTemplate, RenderRequest};
use crate::gguf::{GgufFile, Metadata};
use crate::graph::WeightSet;
use crate::models::{self, Architecture, HParams};
use crate::tokenizer::Tokenizer;

/// A model file, read and checked, ready for an [`super::Engine`]. No weight is loaded yet.
pub struct Model {
    file: Arc<GgufFile>,
    arch: Box<dyn Architecture>,
    weights: WeightSet,
    tokenizer: Arc<Tokenizer>,
    template: OnceLock<ChatTemplate>,
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
        let (arch, weights, tokenizer) = (loaded.arch, loaded.weights, Arc::new(tokenizer));
        Ok(Arc::new(Model {
            arch,
            weights,
            tokenizer,
            template: OnceLock::new(),
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

    /// A conversation as token ids, and a notice for the user if the file has no template.
    /// Scaffolding becomes control tokens, what people wrote never does.
    pub fn chat_prompt(
        &self,
        request: &RenderRequest,
    ) -> Result<(Vec<u32>, Option<String>), Error> {
        let rendered = self.chat_template()?.render(request)?;
        Ok((
            self.tokenizer.encode_parts(&rendered.parts(), true),
            rendered.notice,
        ))
    }
}
