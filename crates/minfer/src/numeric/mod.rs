//! Numeric formats: GGUF's tensor types and their scalar meaning (encode and decode).
//!
//! The scalar code of this room is the specification that every kernel is held against:
//!
//! - [`decode_row`] and [`encode_row`] turn bytes of a file into `f32` and back, bit for bit as the
//!   PyPI package `gguf` does;
//! - [`SmallBlock`], [`KBlock`] and [`Q6KBlock`] are the fields of one block as the file stores them
//!   (what a packer wants); [`SubBlock`] is the meaning of 32 weights in one shape for all formats;
//! - [`QuantizedRow`] is the engine's own form of activations;
//! - [`dot_quantized`] and [`dot_float`] are the products, in the order of operations that every
//!   kernel keeps.

mod activations;
mod block;
pub mod elementary;
mod error;
mod float;
mod ggml_type;
mod k_quants;
mod q4;
mod q5;
mod q6_k;
mod q8;
mod reference;
mod row;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
pub(crate) mod test_rng;

pub use activations::{ActBlock, QuantizedRow, quantize_block, quantize_kv_block};
pub use block::{QuantFormat, SmallBlock, SubBlock, for_each_sub_block};
pub use error::NumericError;
pub use ggml_type::GgmlType;
pub use k_quants::{KBlock, q4_k, q5_k, unpack_k_scales};
pub use q4::{q4_0, q4_1};
pub use q5::{q5_0, q5_1};
pub use q6_k::{Q6KBlock, q6_k};
pub use q8::q8_0;
pub use reference::{dot_float, dot_quantized};
pub use row::{RUNNABLE, decode_row, encode_row, is_encodable, is_float, is_runnable};
