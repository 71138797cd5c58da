//! Matrix products with packed weights.
//!
//! Activations are written into [`ActTiles`] once ([`quantize`], [`interleave`]; [`fill`] on one thread) and
//! multiplied with any number of matrices ([`matmul_strips`], [`glu_strips`]; [`matmul`] on one thread). Values are those of `numeric::dot_quantized` and
//! `numeric::dot_float`, bit for bit, for every machine, number of columns and split.

mod dispatch;
mod driver;
mod float;
mod format;
mod micro;
mod quantize;
#[cfg(test)]
mod tests;
mod tiles;

pub use driver::{Epilogue, Scratch, glu_strips, matmul, matmul_strips};
pub(super) use quantize::codes;
pub use quantize::{Norm, fill, interleave, quantize};
pub use tiles::{ActKind, ActTiles};
