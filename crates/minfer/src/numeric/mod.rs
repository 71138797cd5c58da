//! Numeric formats: GGUF's tensor types and their scalar meaning (encode and decode).
//!
//! The scalar code of this room is the specification that every kernel is held against.

mod ggml_type;

pub use ggml_type::GgmlType;
