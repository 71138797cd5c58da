//! Tests of whole tokenizers, on the cut-down vocabularies of `xtask/golden/tokenizer.py`.

mod fields;
mod golden;
mod reports;
mod text;

use super::{EncodeOptions, Tokenizer};
use crate::gguf::{GgufFile, Metadata};
use std::path::PathBuf;

/// A file of the golden data.
fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/tokenizer")
        .join(name)
}

/// The metadata of a family's cut-down vocabulary.
fn metadata(family: &str) -> Metadata {
    GgufFile::open(&data(&format!("{family}.gguf")))
        .unwrap()
        .metadata()
        .clone()
}

/// The tokenizer of a family.
fn tokenizer(family: &str) -> Tokenizer {
    Tokenizer::from_metadata(&metadata(family)).unwrap()
}

/// User text, as the file asks for it.
const PLAIN: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: false,
};

/// Text that may name control tokens.
const PARSED: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

/// No BOS, no EOS, no control tokens.
const BARE: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};
