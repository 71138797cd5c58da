//! Prompts with a gap: what a model that was taught to fill one reads.

use minfer::engine::Model;
use minfer::gguf::Metadata;
use minfer::tokenizer::{EncodeOptions, Tokenizer};

use crate::prompts::Prompt;

/// The tokens around a gap: before the text that comes before it, before the one after it, and before what fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fim {
    prefix: u32,
    suffix: u32,
    middle: u32,
    files: Option<Files>,
}

/// The tokens around other files: before the name of what they belong to, and before each one's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Files {
    repository: u32,
    file: u32,
}

/// What stands around a gap.
#[derive(Clone, Debug)]
pub struct Gap {
    /// Other texts that may help.
    pub extra: Vec<Extra>,
    /// In front of it.
    pub before: String,
    /// Behind it.
    pub after: String,
    /// How what fills it begins.
    pub begun: Prompt,
}

/// Another text.
#[derive(Clone, Debug)]
pub struct Extra {
    /// Its file's name.
    pub name: Option<String>,
    /// What it says.
    pub text: String,
}

/// llama-server's words where a request has none: a project, an unnamed file, the file with the gap.
const PROJECT: &str = "myproject\n";
const UNNAMED: &str = "tmp";
const OWN: &str = "filename\n";
/// What models call the tokens around files.
const FILE_TEXTS: [[&str; 2]; 2] = [
    ["<|repo_name|>", "<|file_sep|>"],
    ["<reponame>", "<file_sep>"],
];

/// What models call them, where their file does not say which they are.
const FIM_TEXTS: [[&str; 3]; 5] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["<PRE>", "<SUF>", "<MID>"],
];

impl Fim {
    /// A model's, if it was taught to fill gaps: those that its file names, else those known by their text.
    pub fn of(model: &Model) -> Option<Fim> {
        let (md, tokenizer) = (model.metadata(), model.tokenizer());
        let known = |texts: &[&str; 3]| {
            let [prefix, suffix, middle] = texts.map(|t| tokenizer.special_id(t));
            fim(prefix, suffix, middle)
        };
        let fim = Fim::named(md).or_else(|| FIM_TEXTS.iter().find_map(known))?;
        let known = |[repository, file]: &[&str; 2]| {
            Some(Files {
                repository: tokenizer.special_id(repository)?,
                file: tokenizer.special_id(file)?,
            })
        };
        let files = Files::named(md).or_else(|| FILE_TEXTS.iter().find_map(known));
        Some(Fim { files, ..fim })
    }

    fn named(md: &Metadata) -> Option<Fim> {
        // The second names are those of older files.
        let either = |new, old| named(md, new).or_else(|| named(md, old));
        fim(
            either("fim_pre", "prefix"),
            either("fim_suf", "suffix"),
            either("fim_mid", "middle"),
        )
    }

    /// A prompt whose continuation stands between it and `suffix`.
    pub fn encode(&self, tokenizer: &Tokenizer, prompt: &Prompt, suffix: &str) -> Vec<u32> {
        let raw = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        let mut ids = Vec::new();
        ids.extend(tokenizer.bos().filter(|_| tokenizer.adds_bos()));
        ids.push(self.prefix);
        ids.extend(prompt.parts(tokenizer, raw));
        ids.push(self.suffix);
        ids.extend(tokenizer.encode(suffix, raw));
        ids.push(self.middle);
        ids
    }

    /// A gap for the model, in the order that llama-server has. Its texts name no control tokens.
    pub fn encode_gap(&self, tokenizer: &Tokenizer, gap: &Gap) -> Vec<u32> {
        let plain = EncodeOptions {
            add_special: false,
            parse_special: false,
        };
        let text = |text: &str| tokenizer.encode(text, plain);
        let mut ids = Vec::new();
        ids.extend(tokenizer.bos().filter(|_| tokenizer.adds_bos()));
        if !gap.extra.is_empty() {
            ids.extend(self.files.iter().map(|f| f.repository));
            ids.extend(self.files.iter().flat_map(|_| text(PROJECT)));
        }
        for Extra { name, text: of } in &gap.extra {
            ids.extend(self.files.iter().map(|f| f.file));
            let name = name.as_deref().unwrap_or(UNNAMED);
            ids.extend(text(&format!("{name}\n{of}\n")));
        }
        if !gap.extra.is_empty() {
            ids.extend(self.files.iter().map(|f| f.file));
            ids.extend(self.files.iter().flat_map(|_| text(OWN)));
        }
        ids.push(self.prefix);
        ids.extend(text(&gap.before));
        ids.push(self.suffix);
        ids.extend(text(&gap.after));
        ids.push(self.middle);
        ids.extend(gap.begun.parts(tokenizer, plain));
        ids
    }
}

impl Files {
    fn named(md: &Metadata) -> Option<Files> {
        Some(Files {
            repository: named(md, "fim_rep")?,
            file: named(md, "fim_sep")?,
        })
    }
}

/// A token that a model's file names.
fn named(md: &Metadata, name: &str) -> Option<u32> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    md.u32(&key).ok().flatten()
}

fn fim(prefix: Option<u32>, suffix: Option<u32>, middle: Option<u32>) -> Option<Fim> {
    Some(Fim {
        prefix: prefix?,
        suffix: suffix?,
        middle: middle?,
        files: None,
    })
}
