//! The CPU backend: threads, packed weights, kernels, executor.

pub mod buffer;
pub mod kernels;
pub mod pack;
pub mod threads;
