//! What the thread pool refuses or reports.

use super::MAX_THREADS;

/// A failure of the pool or of a region.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// A number of threads that makes no pool.
    #[error("cannot run on {asked} threads: give a number from 1 to {MAX_THREADS}")]
    Count {
        /// What was asked for.
        asked: usize,
    },
    /// The system starts no more threads.
    #[error("cannot start thread {index} of {n_threads}: {source}; give fewer threads")]
    Spawn {
        /// Which thread.
        index: usize,
        /// Of how many.
        n_threads: usize,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A thread panicked in the region; results of the region are not complete.
    #[error("CPU thread {thread} of {n_threads} failed: {message}")]
    Panicked {
        /// Which thread (the first that did).
        thread: usize,
        /// Of how many.
        n_threads: usize,
        /// What it said.
        message: String,
    },
    /// Threads made different numbers of barriers or loops: a fault of the region's code.
    #[error(
        "CPU thread {thread} left a parallel region after {barriers} barriers and {loops} loops, thread 0 after {barriers_0} and {loops_0}"
    )]
    Uneven {
        /// The first thread that differs from thread 0.
        thread: usize,
        /// Its barriers.
        barriers: u64,
        /// Its loops.
        loops: u64,
        /// Barriers of thread 0.
        barriers_0: u64,
        /// Loops of thread 0.
        loops_0: u64,
    },
    /// `run` was called by code that runs inside a region.
    #[error("a parallel region cannot start another one")]
    Nested,
}
