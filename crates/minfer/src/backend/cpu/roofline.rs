//! What this machine's threads can do at best, all at once: what speeds are judged by.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::buffer::AlignedBuffer;
use super::kernels::probe;
use super::threads::{ThreadPool, Worker};
use super::{CpuError, machine_of};
use crate::lanes::Machine;

/// Bytes that are read: far more than a last-level cache holds.
const BYTES: usize = 256 << 20;
/// Passes over them, of each kind.
const PASSES: usize = 4;
/// How long each peak loop is run for.
const PEAK: Duration = Duration::from_millis(20);
/// Barriers of a run, and runs.
const BARRIERS: usize = 1000;
const BARRIER_RUNS: usize = 5;

/// Limits of some threads together, each the best of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes a second read from memory on huge pages where the system has them: the better of a plain loop
    /// and one with software prefetch.
    pub read: f64,
    /// The plain loop's.
    pub read_plain: f64,
    /// Operations a second of the integer dot product (a multiplication and an addition are two).
    pub int8: f64,
    /// Operations a second of f32 multiply-adds.
    pub f32: f64,
    /// Seconds that a barrier takes when all come at once; 0 for one thread.
    pub barrier: f64,
}

impl Limits {
    /// The greatest relative difference of a limit that speeds are judged by (the barrier is none).
    pub fn difference(&self, other: &Limits) -> f64 {
        let of = |a: f64, b: f64| (a - b).abs() / a.max(b);
        of(self.read, other.read)
            .max(of(self.int8, other.int8))
            .max(of(self.f32, other.f32))
    }

    /// The better of each.
    pub fn best(&self, other: &Limits) -> Limits {
        Limits {
            read: self.read.max(other.read),
            read_plain: self.read_plain.max(other.read_plain),
            int8: self.int8.max(other.int8),
            f32: self.f32.max(other.f32),
            barrier: self.barrier.min(other.barrier),
        }
    }
}

/// Threads and memory to measure with.
pub struct Roofline {
    machine: Machine,
    pool: ThreadPool,
    memory: AlignedBuffer,
}

impl Roofline {
    /// For so many threads, on the machine that the CPU backend takes.
    ///
    /// # Errors
    /// No such machine, no threads, or no memory.
    pub fn new(n_threads: usize) -> Result<Roofline, CpuError> {
        Roofline::with_memory(n_threads, BYTES)
    }

    fn with_memory(n_threads: usize, bytes: usize) -> Result<Roofline, CpuError> {
        let Some(mut memory) = AlignedBuffer::try_zeroed(bytes) else {
            return Err(CpuError::OutOfMemory { bytes });
        };
        // Pages that were never written are all one page of zeros.
        memory.bytes_mut().fill(1);
        Ok(Roofline {
            machine: machine_of(None)?,
            pool: ThreadPool::new(n_threads)?,
            memory,
        })
    }

    /// The instruction set's name.
    pub fn machine(&self) -> &'static str {
        self.machine.name()
    }

    /// Threads.
    pub fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    /// Measures everything; takes some tenths of a second.
    ///
    /// # Errors
    /// A thread failed.
    pub fn measure(&mut self) -> Result<Limits, CpuError> {
        let machine = self.machine;
        let (mut read_plain, mut prefetched) = (0.0f64, 0.0f64);
        for _ in 0..PASSES {
            read_plain = read_plain.max(self.read(false)?);
            prefetched = prefetched.max(self.read(true)?);
        }
        let mut barrier = f64::INFINITY;
        for _ in 0..BARRIER_RUNS {
            let seconds = timed(&self.pool, |w| (0..BARRIERS).for_each(|_| w.barrier()))?;
            barrier = barrier.min(seconds / BARRIERS as f64);
        }
        Ok(Limits {
            read: read_plain.max(prefetched),
            read_plain,
            int8: self.peak(|| probe::int8_ops(machine))?,
            f32: self.peak(|| probe::f32_ops(machine))?,
            barrier: if self.n_threads() > 1 { barrier } else { 0.0 },
        })
    }

    /// Bytes a second of one pass.
    fn read(&mut self, prefetch: bool) -> Result<f64, CpuError> {
        let (machine, bytes) = (self.machine, &*self.memory.bytes_mut());
        let seconds = timed(&self.pool, |w| {
            probe::read(machine, &bytes[w.range(bytes.len())], prefetch);
        })?;
        Ok(bytes.len() as f64 / seconds)
    }

    /// Operations a second of a loop that every thread runs, returning how many it did.
    fn peak(&self, ops: impl Fn() -> f64 + Sync) -> Result<f64, CpuError> {
        let (start, mut best) = (Instant::now(), 0.0f64);
        let each = ops();
        while start.elapsed() < PEAK {
            let seconds = timed(&self.pool, |_| {
                black_box(ops());
            })?;
            best = best.max(each * self.n_threads() as f64 / seconds);
        }
        Ok(best)
    }
}

/// Seconds from all threads' start of `work` to the last one's end.
fn timed(pool: &ThreadPool, work: impl Fn(&Worker<'_>) + Sync) -> Result<f64, CpuError> {
    let nanos = AtomicU64::new(0);
    pool.run(|w| {
        w.barrier();
        let start = Instant::now();
        work(w);
        w.barrier();
        if w.index() == 0 {
            nanos.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    })?;
    Ok(nanos.load(Ordering::Relaxed) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_measured_and_compared() {
        let limits = Roofline::with_memory(2, 1 << 20).unwrap().measure();
        let limits = limits.unwrap();
        assert!(limits.read > 1e6 && limits.int8 > 1e6 && limits.f32 > 1e6);
        assert!(limits.barrier > 0.0 && limits.read >= limits.read_plain);
        assert_eq!(limits.difference(&limits), 0.0);
        let slower = Limits {
            int8: limits.int8 * 0.75,
            ..limits
        };
        assert!((limits.difference(&slower) - 0.25).abs() < 1e-12);
        assert_eq!(slower.best(&limits), limits);
    }
}
