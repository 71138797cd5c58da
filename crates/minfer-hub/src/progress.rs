//! How a fetch tells what it is doing.

/// Receives the course of a fetch; the command draws bars with it. Every method does nothing by
/// default.
pub trait Progress {
    /// A file of `total` bytes (where known) starts; `done` of them were there already.
    fn start(&mut self, name: &str, done: u64, total: Option<u64>) {
        let _ = (name, done, total);
    }
    /// `done` bytes of it are there now.
    fn advance(&mut self, done: u64) {
        let _ = done;
    }
    /// The file is complete, or given up.
    fn finish(&mut self) {}
    /// One line worth telling: a source that failed and which is next, a wait for another process.
    fn note(&mut self, text: &str) {
        let _ = text;
    }
}

/// Says nothing.
pub struct Silent;

impl Progress for Silent {}
