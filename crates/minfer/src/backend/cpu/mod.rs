//! The CPU backend: threads, packed weights, kernels, executor.

pub mod kernels;
pub mod threads;
