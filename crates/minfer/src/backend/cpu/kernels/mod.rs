//! Kernels of the CPU backend, each written once on the 16-lane machine.

pub mod attention;
pub mod elementwise;
pub mod kv;
pub mod matmul;
pub mod norm;
pub mod probe;
pub mod rope;
pub mod shift;
mod tail;
#[cfg(test)]
mod testing;
