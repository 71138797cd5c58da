//! Tests of the GGUF room through its public interface.

mod allocs;
mod corpus;
mod cut;
mod files;
mod golden;
mod hostile;
mod metadata;
mod raw;
mod roundtrip;
