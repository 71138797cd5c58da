//! The CPU backend's own thread pool: one parallel region at a time, barriers inside it, static
//! shares with stealing from the far end.
//!
//! A region ([`ThreadPool::run`]) calls one closure once on each of n threads; the caller is thread 0.
//! Inside it, threads meet at [`Worker::barrier`] and share work by [`Worker::range`] (fixed) or
//! [`Worker::for_each`] (own range first, then the ends of others'). Which thread computes an item
//! never changes a value, so results don't depend on the number of threads or on stealing.
//!
//! Who waits spins for [`SPIN`] and then parks; with fewer CPUs than threads it parks at once. A panic
//! in one thread, or threads that don't make the same calls, release every barrier and end the region
//! with an error; the pool stays usable.

mod cpus;
mod error;
mod float_env;
mod lines;
mod share;
mod worker;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lines::{Job, Shared};

pub use cpus::{available_cpus, default_threads};
pub use error::ThreadsError;
pub use float_env::DefaultFloatEnv;
pub use worker::Worker;

/// How long a thread spins at a barrier, or for the next region, before it parks. Parking and waking
/// cost about 30 µs, a spinning barrier 0.05-0.25 µs.
pub const SPIN: Duration = Duration::from_micros(100);
/// An idle engine is quiet: its threads are parked within a millisecond.
const _: () = assert!(SPIN.as_micros() < 1000);

/// The greatest number of threads a pool takes.
pub const MAX_THREADS: usize = 512;

thread_local! {
    /// Whether this thread is inside a region of any pool.
    static IN_REGION: Cell<bool> = const { Cell::new(false) };
}

/// A fixed set of threads that live as long as the pool.
pub struct ThreadPool {
    shared: Arc<Shared>,
    /// What one region leaves to the next; locked while a region runs.
    region: Mutex<Region>,
    workers: Vec<JoinHandle<()>>,
}

/// The region counter and the number of loops all threads have made.
#[derive(Default)]
struct Region {
    generation: u64,
    loops: u64,
}

/// Counters since the pool's start, for benches and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Regions started.
    pub regions: u64,
    /// Barriers inside regions that have ended (one for all threads counts once).
    pub barriers: u64,
    /// Times that a thread gave its CPU back while it waited.
    pub parks: u64,
    /// Pieces of work that were taken from another thread's share.
    pub steals: u64,
}

impl ThreadPool {
    /// A pool of `n_threads`, of which the caller of [`run`](Self::run) is one: `n_threads - 1` are
    /// started.
    ///
    /// Refuses 0 and more than [`MAX_THREADS`]; fails if the system starts no more threads.
    pub fn new(n_threads: usize) -> Result<ThreadPool, ThreadsError> {
        if n_threads == 0 || n_threads > MAX_THREADS {
            return Err(ThreadsError::Count { asked: n_threads });
        }
        let spin = if available_cpus() < n_threads {
            Duration::ZERO
        } else {
            SPIN
        };
        let mut pool = ThreadPool {
            shared: Arc::new(Shared::new(n_threads, spin)),
            region: Mutex::default(),
            workers: Vec::new(),
        };
        for index in 1..n_threads {
            let shared = Arc::clone(&pool.shared);
            let started = std::thread::Builder::new()
                .name(format!("minfer-cpu-{index}"))
                .spawn(move || serve(&shared, index));
            // On an error the pool is dropped, which ends and joins those already started.
            let worker = started.map_err(|source| ThreadsError::Spawn {
                index,
                n_threads,
                source,
            })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// The number of threads, the caller's included.
    pub fn n_threads(&self) -> usize {
        self.shared.n_threads()
    }

    /// Calls `f` once on each thread, with that thread's [`Worker`], and returns when all have
    /// returned. The caller is thread 0.
    ///
    /// Every thread must make the same sequence of `barrier` and `for_each` calls, with the same
    /// numbers. Regions of one pool follow one another: a second caller waits.
    ///
    /// Errors: a thread panicked (named, with its message); threads made different numbers of barriers
    /// or loops; the call came from inside a region.
    pub fn run(&self, f: impl Fn(&Worker<'_>) + Sync) -> Result<(), ThreadsError> {
        if IN_REGION.get() {
            return Err(ThreadsError::Nested);
        }
        let mut region = lock(&self.region);
        let shared = &*self.shared;
        shared.set_handle(0, std::thread::current());
        region.generation += 1;
        // SAFETY: `f` lives until this function returns, which is after `wait_all` has seen every
        // thread leave this region; nothing between the two can unwind (`share` catches panics).
        // `f` is `Sync`. No thread reads the job now: all have left the region before.
        unsafe { shared.set_job(Job::new(&f, region.loops)) };
        shared.start(region.generation);
        {
            let _env = DefaultFloatEnv::enter();
            in_region(|| shared.share(0, region.generation, region.loops, &f));
        }
        shared.wait_all(region.generation);
        shared.end(&mut region.loops)
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        // Without the region's lock: a region's own code may ask.
        self.shared.stats()
    }

    /// How many threads are parked now.
    #[cfg(test)]
    fn parked(&self) -> usize {
        self.shared
            .parked
            .0
            .load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl Drop for ThreadPool {
    /// Ends and joins the threads. No region runs now: one would borrow the pool.
    fn drop(&mut self) {
        let generation = lock(&self.region).generation + 1;
        self.shared.shut_down();
        self.shared.start(generation);
        for worker in self.workers.drain(..) {
            // A worker catches every panic of a region, so there is none to pass on.
            let _ = worker.join();
        }
    }
}

/// The life of worker `index`: one share of each region, until shutdown.
fn serve(shared: &Shared, index: usize) {
    let _env = DefaultFloatEnv::enter();
    shared.set_handle(index, std::thread::current());
    for generation in 1.. {
        if !shared.wait_start(index, generation) {
            return;
        }
        // SAFETY: this generation has started and this thread has not left it: the job is set,
        // nobody writes it, and the closure it points to is alive.
        in_region(|| unsafe { shared.run_job(index, generation) });
        debug_assert!(
            float_env::is_default(),
            "a kernel changed the rounding mode or flush-to-zero"
        );
    }
}

/// Marks this thread as inside a region for the time of `f`, which does not unwind.
fn in_region(f: impl FnOnce()) {
    IN_REGION.set(true);
    f();
    IN_REGION.set(false);
}

/// Locks; a poisoned lock is as good as any: nothing here panics while it holds one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
