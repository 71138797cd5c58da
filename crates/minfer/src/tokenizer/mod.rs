//! Tokenizers built from GGUF metadata alone: byte-level BPE and SentencePiece BPE.
//!
//! Ids equal those of Hugging Face `tokenizers` with the family's own pre-tokenizer, and of
//! llama.cpp where the two agree. Where they do not, this follows the former:
//! - `</s>` is a control token, and ends a generation, only where the file says so;
//! - white space beyond ASCII belongs to DeepSeek LLM's character classes, and `'ſ` is a
//!   contraction where case is folded;
//! - Unicode is version 16.0.
//!
//! And where a vocabulary lacks a byte's token, the byte gives none and nothing merges across it,
//! as in llama.cpp. BOS is never added twice, unlike there. Text is never normalised: a file does
//! not say how.

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

mod bpe;
mod decode;
mod error;
mod fields;
mod hash;
mod ids;
mod merge;
mod pre;
mod special;
mod spm;
#[cfg(test)]
mod tests;
mod unicode;
mod vocab;

pub use decode::Decoder;
pub use error::TokenizerError;

use crate::gguf::Metadata;
use hash::Memo;
use merge::Scratch;
use special::{Special, Specials};
use vocab::{Alphabet, Kind, Vocab};

/// How a text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds the tokens that the file asks for at the start and end, where they are not there yet.
    pub add_special: bool,
    /// Lets the text name control tokens. For text from a user: false, and then no text gives one.
    pub parse_special: bool,
}

impl Default for EncodeOptions {
    /// User text: special tokens are added, and none is parsed.
    fn default() -> EncodeOptions {
        EncodeOptions {
            add_special: true,
            parse_special: false,
        }
    }
}

/// A part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// What a chat template writes: it may name control tokens.
    Template(&'a str),
    /// What a user wrote: it never gives a control token.
    User(&'a str),
}

enum Model {
    Bpe(bpe::Bpe, pre::PreTokenizer),
    Spm(spm::Spm),
}

/// A tokenizer: text to token ids and back.
///
/// It is immutable and may be shared between threads.
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    specials: Specials,
    ids: ids::Ids,
    add_bos: bool,
    add_eos: bool,
    space_prefix: bool,
}

impl Tokenizer {
    /// Builds the tokenizer that a file's `tokenizer.ggml.*` fields describe. A file that holds
    /// nothing but a vocabulary will do.
    ///
    /// # Errors
    /// A field that is missing or has another type, length or range than it must, an unsupported
    /// kind of tokenizer, and an unknown pre-tokenizer, by name.
    pub fn from_metadata(md: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let key = "tokenizer.ggml.model";
        match md.required(key, md.str(key)?)? {
            "gpt2" => Tokenizer::byte_level(md),
            "llama" => Tokenizer::sentence_piece(md),
            name => Err(TokenizerError::Model {
                name: name.to_owned(),
                known: "gpt2 (byte-level BPE), llama (SentencePiece BPE)",
            }),
        }
    }

    fn byte_level(md: &Metadata) -> Result<Tokenizer, TokenizerError> {
        // llama.cpp treats files from before this field existed in the same way.
        let name = md.str("tokenizer.ggml.pre")?.unwrap_or("default");
        let pre = pre::PreTokenizer::by_name(name)?;
        let mut vocab = Vocab::new(md, Alphabet::ByteLevel)?;
        let ids = ids::Ids::new(md, &mut vocab, [None; 3])?;
        let model = Model::Bpe(bpe::Bpe::new(md, &vocab, pre.ignore_merges)?, pre);
        Tokenizer::assemble(md, vocab, model, ids, pre.add_bos)
    }

    fn sentence_piece(md: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let mut vocab = Vocab::new(md, Alphabet::SentencePiece)?;
        // SentencePiece's own numbers for `<s>`, `</s>` and `<unk>`.
        let ids = ids::Ids::new(md, &mut vocab, [Some(1), Some(2), Some(0)])?;
        let model = Model::Spm(spm::Spm::new(md, &vocab, ids.unknown)?);
        Tokenizer::assemble(md, vocab, model, ids, true)
    }

    fn assemble(
        md: &Metadata,
        vocab: Vocab,
        model: Model,
        ids: ids::Ids,
        add_bos: bool,
    ) -> Result<Tokenizer, TokenizerError> {
        let flag = |flag: &'static str, key, default, id: Option<u32>| match md.bool(flag)? {
            Some(true) if id.is_none() => Err(TokenizerError::NoSpecial { flag, key }),
            asked => Ok(asked.unwrap_or(default) && id.is_some()),
        };
        let add_bos = flag(
            "tokenizer.ggml.add_bos_token",
            "tokenizer.ggml.bos_token_id",
            add_bos,
            ids.bos,
        )?;
        let add_eos = flag(
            "tokenizer.ggml.add_eos_token",
            "tokenizer.ggml.eos_token_id",
            false,
            ids.eos,
        )?;
        let space_prefix = matches!(model, Model::Spm(_))
            && md.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let specials = Specials::new(specials(md, &vocab)?);
        Ok(Tokenizer {
            vocab,
            model,
            specials,
            ids,
            add_bos,
            add_eos,
            space_prefix,
        })
    }

    /// Token ids of a text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        self.run(text, options.add_special, |_, _| options.parse_special)
    }

    /// Token ids of a prompt in parts. The parts are one text: words and merges cross their
    /// borders, as they do where a rendered template is encoded as a whole; only a control token
    /// must lie within a [`Part::Template`].
    pub fn encode_parts(&self, parts: &[Part<'_>], add_special: bool) -> Vec<u32> {
        let mut text = String::new();
        let mut template = Vec::new();
        for part in parts {
            let start = text.len();
            match part {
                Part::Template(t) => text.push_str(t),
                Part::User(t) => text.push_str(t),
            }
            if matches!(part, Part::Template(_)) {
                template.push((start, text.len()));
            }
        }
        self.run(&text, add_special, |start, end| {
            let after = template.partition_point(|t| t.0 <= start);
            let within = after.checked_sub(1).and_then(|i| template.get(i));
            within.is_some_and(|t| end <= t.1)
        })
    }

    /// Encodes `text`; `control` says where (start, end) a control token may stand.
    fn run(&self, text: &str, add: bool, control: impl Fn(usize, usize) -> bool) -> Vec<u32> {
        let mut run = Run {
            tokenizer: self,
            text,
            escaped: String::new(),
            memo: Memo::for_text(text.len()),
            scratch: Scratch::default(),
            out: Vec::with_capacity(text.len() / 3),
        };
        let bos = self.ids.bos.filter(|_| add && self.add_bos);
        run.out.extend(bos);
        let mut at = 0usize;
        while let Some((start, token)) = self.specials.find(text.as_bytes(), at, &control) {
            run.fragment(at, start);
            // A BOS that the text begins with is the one that would have been added.
            if !(start == 0 && bos == Some(token.id)) {
                run.out.push(token.id);
            }
            at = start.wrapping_add(token.text.len());
            if token.strip_after {
                let rest = text.get(at..).unwrap_or("");
                at = text.len().saturating_sub(rest.trim_start().len());
            }
        }
        run.fragment(at, text.len());
        let mut out = run.out;
        if let Some(eos) = self.ids.eos.filter(|_| add && self.add_eos)
            && out.last() != Some(&eos)
        {
            out.push(eos);
        }
        out
    }

    /// Number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The bytes that a token stands for, special tokens included; `None` past the vocabulary.
    /// They need not be UTF-8: a character may be spread over tokens.
    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// The text of a token as the file has it, in the vocabulary's own alphabet.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The special token (control, unknown or user-defined) with exactly this text.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        self.specials.exact(text.as_bytes()).map(|t| t.id)
    }

    /// True for control and unknown tokens: those that are not part of the text.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocab.kind(id), Some(Kind::Control | Kind::Unknown))
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.ids.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.ids.eos
    }

    /// The token that ends a turn: the file's, or the one of a known text.
    pub fn eot(&self) -> Option<u32> {
        self.ids.eot
    }

    /// The token that ends a message within a turn.
    pub fn eom(&self) -> Option<u32> {
        self.ids.eom
    }

    /// The token for what the vocabulary can't express.
    pub fn unknown(&self) -> Option<u32> {
        self.ids.unknown
    }

    /// The token that fills batches in training.
    pub fn pad(&self) -> Option<u32> {
        self.ids.pad
    }

    /// Whether encoding adds BOS.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether encoding adds EOS.
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether encoding puts a space before each text, as SentencePiece does; decoding a whole
    /// text takes it away.
    pub fn adds_space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// Whether a token ends a generation.
    pub fn is_eog(&self, id: u32) -> bool {
        self.ids.eog.binary_search(&id).is_ok()
    }

    /// All tokens that end a generation, ascending.
    pub fn eog(&self) -> &[u32] {
        &self.ids.eog
    }
}

/// One text being encoded.
struct Run<'a> {
    tokenizer: &'a Tokenizer,
    text: &'a str,
    /// SentencePiece's form of the fragments so far.
    escaped: String,
    memo: Memo,
    scratch: Scratch,
    out: Vec<u32>,
}

impl Run<'_> {
    /// Appends the ids of a stretch of text without special tokens.
    fn fragment(&mut self, start: usize, end: usize) {
        let Some(part) = self.text.get(start..end).filter(|p| !p.is_empty()) else {
            return;
        };
        let Run {
            tokenizer,
            text,
            escaped,
            memo,
            scratch,
            out,
        } = self;
        match &tokenizer.model {
            Model::Bpe(bpe, pre) => pre.words(part, |from, to| {
                let span = (start.wrapping_add(from), start.wrapping_add(to));
                memo.word(text.as_bytes(), span, out, |word, out| {
                    bpe.word(&tokenizer.vocab, word, scratch, out);
                });
            }),
            Model::Spm(spm) => {
                let from = escaped.len();
                if tokenizer.space_prefix {
                    escaped.push_str(vocab::SPACE);
                }
                spm::escape(part, escaped);
                spm.fragment(&tokenizer.vocab, (escaped, from), memo, scratch, out);
            }
        }
    }
}

/// The tokens to look for before everything else.
fn specials(md: &Metadata, vocab: &Vocab) -> Result<Vec<Special>, TokenizerError> {
    // Phi-3's tokens take the white space after them. Files have no field for that; llama.cpp
    // goes by the model's name too.
    let name = md.str("general.name")?.unwrap_or("").to_lowercase();
    let phi3 = name.contains("phi-3") || name.contains("phi3");
    let special = |id: u32| {
        let kind = vocab.kind(id)?;
        let control = matches!(kind, Kind::Control | Kind::Unknown);
        if !control && kind != Kind::UserDefined {
            return None;
        }
        let text = vocab.text(id)?;
        let strip_after = phi3 && !matches!(text, "<unk>" | "<s>" | "<|endoftext|>");
        Some(Special {
            text: text.as_bytes().into(),
            id,
            control,
            strip_after,
        })
    };
    Ok((0..vocab.len() as u32).filter_map(special).collect())
}
