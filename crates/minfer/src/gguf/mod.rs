//! GGUF files: reader (mmap, split parts), metadata, tensor index, writer.
//!
//! [`GgufFile::open`] reads a file's header and checks all of it; the tensors' bytes stay on disk
//! until [`GgufFile::data`] is read. Files are taken for hostile: a broken one gives one line that
//! names the field or tensor, at once, and costs no more memory than its header has bytes, times a
//! small factor.

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

mod alignment;
mod cursor;
mod error;
mod file;
mod mapping;
mod metadata;
mod parse;
mod split;
mod tensor;
mod value;
mod writer;

use alignment::Alignment;

pub(crate) use error::shown;
pub use error::{Fault, GgufError};
pub use file::GgufFile;
pub use metadata::Metadata;
pub use tensor::TensorInfo;
pub use value::{Array, StrArray, Value};
pub use writer::{GgufWriter, TensorWriter};

/// The metadata key of the alignment of tensor data, in bytes (u32; 32 where it is absent).
pub const ALIGNMENT_KEY: &str = "general.alignment";
/// Most dimensions of a tensor (ggml's limit).
pub const MAX_DIMS: u32 = 4;
/// Most bytes of a metadata key or a tensor's name (GGUF's limit for keys).
pub const MAX_NAME: u64 = (1 << 16) - 1;
/// Deepest nesting of arrays: an array of arrays has depth 2.
pub const MAX_ARRAY_DEPTH: u32 = 4;
