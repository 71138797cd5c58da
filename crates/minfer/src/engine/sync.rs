//! What the queue is made of; the schedule explorer in `tests/queue.rs` puts its own in its place.

pub use std::sync::{Condvar, Mutex, MutexGuard};
