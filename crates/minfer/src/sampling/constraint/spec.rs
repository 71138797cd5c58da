//! What a text is to be like.

use serde::{Deserialize, Serialize};

/// What a text is to be like, as the user wrote it. Saved with a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstraintSpec {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema (JSON Schema, as text: the order of properties counts) allows.
    JsonSchema(String),
    /// A regular expression (the syntax of Rust's `regex`, without look-around and anchors) that matches the whole text.
    Regex(String),
    /// A grammar in llguidance's dialect of Lark; the rule `start`.
    Lark(String),
    /// A grammar in llama.cpp's GBNF; the rule `root`.
    Gbnf(String),
    /// A Lark grammar that names control tokens as `<[id]>`, as [`crate::chat::tools::ToolFormat::grammar`] writes it.
    Marked {
        /// The grammar; the rule `start`.
        lark: String,
        /// The tokens it may name.
        tokens: Vec<u32>,
    },
}

impl ConstraintSpec {
    /// What kind it is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            ConstraintSpec::JsonObject => "JSON object",
            ConstraintSpec::JsonSchema(_) => "JSON schema",
            ConstraintSpec::Regex(_) => "regular expression",
            ConstraintSpec::Lark(_) => "Lark grammar",
            ConstraintSpec::Gbnf(_) => "GBNF grammar",
            ConstraintSpec::Marked { .. } => "Lark grammar with markers",
        }
    }

    /// Whether it can be followed at all, as far as can be told without a vocabulary: early news for who loads a model first.
    ///
    /// # Errors
    /// As [`super::Constraints::compile`]'s, but for what a vocabulary can't write. Of a grammar that names tokens, only the source is looked at.
    pub fn check(&self) -> Result<(), super::ConstraintError> {
        #[cfg(feature = "llguidance")]
        return super::compile::check(self);
        #[cfg(not(feature = "llguidance"))]
        Err(super::ConstraintError::NotBuilt)
    }

    /// Its source.
    pub fn text(&self) -> &str {
        match self {
            ConstraintSpec::JsonObject => "",
            ConstraintSpec::JsonSchema(text)
            | ConstraintSpec::Regex(text)
            | ConstraintSpec::Lark(text)
            | ConstraintSpec::Gbnf(text)
            | ConstraintSpec::Marked { lark: text, .. } => text,
        }
    }
}
