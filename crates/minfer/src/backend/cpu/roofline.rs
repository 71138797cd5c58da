//! What this machine's threads can do at best, all at once: what speeds are judged by.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::buffer::AlignedBuffer;
use super::kernels::probe;
use super::threads::{ThreadPool, Worker};
use super::{CpuError, machine_of};
use crate::lanes::Machine;

/// Bytes that are read: at least so many, at least [`CACHES`] times what the last caches hold together (each
/// thread finds its own bytes in the one near to it), and no more than `MOST_BYTES`. What stays in a cache from pass to pass would make the limit too high: a cache of
/// 260 MB served 8 % of 256 MB, and nothing that could be measured of 512 MB.
const BYTES: usize = 256 << 20;
const CACHES: usize = 2;
const MOST_BYTES: usize = 1 << 30;
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
    /// The greatest relative difference of a limit that speeds are judged by (the barrier is none): 0 to 1,
    /// and 1 if a limit is no number above 0, since then nothing is known.
    pub fn difference(&self, other: &Limits) -> f64 {
        let known = |x: f64| x > 0.0 && x.is_finite();
        let of = |a: f64, b: f64| match known(a) && known(b) {
            true => (a - b).abs() / a.max(b),
            false => 1.0,
        };
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
        let caches = last_caches(|path| std::fs::read_to_string(path).ok());
        let bytes = caches.saturating_mul(CACHES).clamp(BYTES, MOST_BYTES);
        Roofline::with_memory(n_threads, bytes)
    }

    fn with_memory(n_threads: usize, bytes: usize) -> Result<Roofline, CpuError> {
        let Some(memory) = AlignedBuffer::try_zeroed(bytes) else {
            return Err(CpuError::OutOfMemory { bytes });
        };
        let pool = ThreadPool::new(n_threads)?;
        // Pages that were never written are all one page of zeros; written first by the thread that will
        // read them, they lie near to it.
        pool.run(|w| {
            let own = w.range(memory.len());
            // SAFETY: inside the buffer, which this function owns; each thread's range is its alone.
            unsafe { std::ptr::write_bytes(memory.as_mut_ptr().add(own.start), 1, own.len()) };
        })?;
        Ok(Roofline {
            machine: machine_of(None)?,
            pool,
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
        let each = ops();
        let (start, mut best) = (Instant::now(), 0.0f64);
        // Once at least: under an emulator one loop alone can outlast the time.
        loop {
            let seconds = timed(&self.pool, |_| {
                black_box(ops());
            })?;
            best = best.max(each * self.n_threads() as f64 / seconds);
            if start.elapsed() >= PEAK {
                return Ok(best);
            }
        }
    }
}

/// Bytes of the CPUs' largest caches, each counted once for all that share it; 0 where the system has no files
/// that say (only Linux has). `read` is given paths.
fn last_caches(read: impl Fn(&str) -> Option<String>) -> usize {
    let file = |cpu: usize, index: usize, name: &str| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
        read(&format!("{folder}/index{index}/{name}"))
    };
    let size = |cpu, index| bytes_of(&file(cpu, index, "size")?);
    let largest = |cpu| {
        let sizes = (0..).map_while(|index| size(cpu, index));
        let (bytes, index) = sizes.zip(0..).max()?;
        let shared = file(cpu, index, "shared_cpu_list");
        let sharing = shared.map_or(cpu.to_string(), |list| list.trim().to_owned());
        Some((sharing, bytes))
    };
    let caches: BTreeMap<String, usize> = (0..).map_while(largest).collect();
    caches.into_values().fold(0, usize::saturating_add)
}

/// Bytes of a cache as the kernel prints them: in KiB; in other units only to be sure.
fn bytes_of(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
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
        // How fast is nobody's promise: an emulator on a busy machine is slow.
        assert!(limits.read > 0.0 && limits.int8 > 0.0 && limits.f32 > 0.0);
        assert!(limits.barrier >= 0.0 && limits.read >= limits.read_plain);
        assert_eq!(limits.difference(&limits), 0.0);
        let slower = Limits {
            int8: limits.int8 * 0.75,
            ..limits
        };
        assert!((limits.difference(&slower) - 0.25).abs() < 1e-12);
        assert_eq!(slower.best(&limits), limits);
    }

    /// `cpus`: the sizes of each one's caches, and who shares the largest.
    fn caches(cpus: &[(&[&str], &str)]) -> usize {
        last_caches(|path| {
            let path = path.strip_prefix("/sys/devices/system/cpu/cpu")?;
            let (cpu, path) = path.split_once("/cache/index")?;
            let (index, file) = path.split_once('/')?;
            let (sizes, shared) = cpus.get(cpu.parse::<usize>().ok()?)?;
            let index: usize = index.parse().ok()?;
            let size = sizes.get(index)?;
            match file {
                "size" => Some(format!("{size}\n")),
                "shared_cpu_list" if *size == sizes[sizes.len() - 1] => Some(format!("{shared}\n")),
                "shared_cpu_list" => Some(format!("{cpu}\n")),
                _ => panic!("{file}"),
            }
        })
    }

    #[test]
    fn the_last_caches_are_the_largest_that_the_system_lists() {
        let xeon: &[&str] = &["48K", "64K", "2048K", "266240K"];
        assert_eq!(caches(&[(xeon, "0-1"), (xeon, "0-1")]), 266_240 << 10);
        assert_eq!(caches(&[(&["32K", "8M"], "0")]), 8 << 20);
        assert_eq!(caches(&[(&["large"], "0")]), 0);
        assert_eq!(caches(&[]), 0);
    }

    /// Threads keep what they read in the cache near to them: twelve of 32 MB are 384 MB.
    #[test]
    fn caches_that_not_all_cpus_share_add_up() {
        let core: &[&str] = &["32K", "512K", "32768K"];
        let groups: Vec<String> = (0..12)
            .map(|g| format!("{}-{}", 4 * g, 4 * g + 3))
            .collect();
        let mut cpus: Vec<(&[&str], &str)> = (0..48).map(|i| (core, &*groups[i / 4])).collect();
        assert_eq!(caches(&cpus), 12 * (32 << 20));
        // A small core beside them, whose last cache is its second.
        cpus.push((&["32K", "2M"], "48"));
        assert_eq!(caches(&cpus), 12 * (32 << 20) + (2 << 20));
    }

    #[test]
    fn a_limit_that_was_not_measured_is_like_no_other() {
        let good = Limits {
            read: 2e9,
            read_plain: 1e9,
            int8: 3e9,
            f32: 4e9,
            barrier: 0.0,
        };
        for bad in [0.0, f64::NAN, f64::INFINITY] {
            let none = [
                Limits { read: bad, ..good },
                Limits { int8: bad, ..good },
                Limits { f32: bad, ..good },
            ];
            for none in none {
                let all = [none.difference(&good), good.difference(&none)];
                assert_eq!(all, [1.0, 1.0], "{none:?}");
                assert_eq!(none.difference(&none), 1.0, "{none:?}");
            }
        }
    }

    #[test]
    fn every_byte_that_is_read_was_written() {
        let mut roofline = Roofline::with_memory(3, (1 << 20) + 1).unwrap();
        let bytes = roofline.memory.bytes_mut();
        assert!(bytes.len() == (1 << 20) + 1 && bytes.iter().all(|b| *b == 1));
    }
}
