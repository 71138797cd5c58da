//! The command as its users meet it: a process with arguments, pipes, signals and exit codes.
//! Tests that come from a public bug report are named after it.

mod answers;
mod bench;
mod context;
mod ends;
mod events;
mod files;
mod flags;
mod inspect;
mod logits;
mod long;
mod models;
mod newcomer;
mod process;
mod prompts;
mod serve;
mod smollm2;
mod tables;
