//! One file a command.

pub mod bench;
pub mod graph;
pub mod inspect;
pub mod logits;
pub mod perplexity;
pub mod pull;
pub mod run;
pub mod serve;
pub mod tokenize;
