//! The CPU backend: threads, packed weights, kernels, executor.

pub mod threads;
