//! Tests of the whole room: passes, memory, execution over one and several backends.

mod backends;
mod execution;
mod fusion;
mod random;
mod toy;
