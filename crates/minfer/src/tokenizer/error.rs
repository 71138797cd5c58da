//! What can be wrong with a file's tokenizer fields.

use crate::gguf::GgufError;

/// A tokenizer that cannot be built. Each variant names the metadata key or the entry, and the
/// value found there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A field that is missing or of another type than the GGUF specification gives it.
    #[error("tokenizer: {0}")]
    Field(#[from] GgufError),
    /// A per-token array of another length than the vocabulary.
    #[error("{key} has {got} entries for a vocabulary of {want}")]
    Length {
        /// Metadata key.
        key: &'static str,
        /// Entries found.
        got: usize,
        /// Entries of `tokenizer.ggml.tokens`.
        want: usize,
    },
    /// A vocabulary that is empty or too large for 32-bit ids and offsets.
    #[error("tokenizer.ggml.tokens has {tokens} entries of {bytes} bytes together: not usable")]
    Size {
        /// Number of tokens.
        tokens: usize,
        /// Bytes of all texts.
        bytes: usize,
    },
    /// A special token id outside the vocabulary.
    #[error("{key} is {value}, the vocabulary has {n_vocab} tokens")]
    Id {
        /// Metadata key.
        key: &'static str,
        /// The id found.
        value: i64,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// The file asks for a token at the start or end that it does not name.
    #[error("{flag} is true, but the file has no {key}")]
    NoSpecial {
        /// The flag that asks.
        flag: &'static str,
        /// The id that is missing.
        key: &'static str,
    },
    /// A token type outside 0..=6, or a byte token not of the form `<0xNN>`.
    #[error("token {id} ({text:?}): {why}")]
    Token {
        /// Token id.
        id: usize,
        /// Its text.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// A score that is not a number.
    #[error("tokenizer.ggml.scores: the score of token {id} is not a number")]
    Score {
        /// Token id.
        id: usize,
    },
    /// A merge rule without two parts, or whose parts or result are not tokens.
    #[error("tokenizer.ggml.merges: rule {index} ({text:?}) {why}")]
    Merge {
        /// Index of the rule.
        index: usize,
        /// The rule.
        text: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A kind of tokenizer that is not built in.
    #[error("tokenizer.ggml.model {name:?} is not supported; supported: {known}")]
    Model {
        /// The name found.
        name: String,
        /// The supported names.
        known: &'static str,
    },
    /// A pre-tokenizer that is not built in: guessing would give wrong ids without a sign.
    #[error("tokenizer.ggml.pre {name:?} is not a known pre-tokenizer; known: {known}")]
    Pre {
        /// The name found.
        name: String,
        /// The known names.
        known: String,
    },
}
