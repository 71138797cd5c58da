//! GGUF files: reader (mmap, split parts), metadata, tensor index, writer.

mod value;

pub use value::{Array, Metadata, StrArray, Value};
