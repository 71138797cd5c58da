//! What the machine can do at best, measured: products and bandwidth are judged as fractions of it.

// The kernels below use local arrays and the slices they are given only.
#![allow(unsafe_op_in_unsafe_fn)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::lanes::{Kernel, LANES, Lanes, Machine, kernel};

/// Independent sums of the peak loops: enough to hide the instruction's latency, few enough for registers.
const SUMS: usize = 12;
const SUMS_NARROW: usize = 4;
const FLOAT_SUMS_NARROW: usize = 5;
/// Steps of one run of a peak loop: some ten microseconds.
const STEPS: usize = 8 * 4000;

/// Integer dot product operations a second (a multiplication and an addition are two) of one thread, with
/// operands in registers or the first cache: the best of runs that take about `time` together.
pub fn int8_peak(machine: Machine, time: Duration) -> f64 {
    best(time, || int8_ops(machine))
}

/// The same for f32 multiply-adds.
pub fn f32_peak(machine: Machine, time: Duration) -> f64 {
    best(time, || f32_ops(machine))
}

fn best(time: Duration, ops: impl Fn() -> f64) -> f64 {
    let start = Instant::now();
    let mut best = 0.0f64;
    while start.elapsed() < time {
        let run = Instant::now();
        let ops = ops();
        best = best.max(ops / run.elapsed().as_secs_f64());
    }
    best
}

/// Runs the integer peak loop once; returns its operations.
pub fn int8_ops(machine: Machine) -> f64 {
    // SAFETY: the kernel reads its own array only.
    let sums = unsafe { machine.run(Peak { steps: STEPS }) };
    (2 * 64 * sums * STEPS) as f64
}

/// Runs the f32 peak loop once; returns its operations.
pub fn f32_ops(machine: Machine) -> f64 {
    // SAFETY: the kernel reads its own array only.
    let sums = unsafe { machine.run(FloatPeak { steps: STEPS }) };
    (2 * LANES * sums * STEPS) as f64
}

struct Peak {
    steps: usize,
}

impl Kernel for Peak {
    /// How many sums were made in each step.
    type Output = usize;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> usize {
        if L::WIDE {
            peak::<L, SUMS>(self.steps)
        } else {
            peak::<L, SUMS_NARROW>(self.steps)
        }
    }
}

#[inline(always)]
unsafe fn peak<L: Lanes, const N: usize>(steps: usize) -> usize {
    let weights = black_box([[3u8; 64]; N]);
    let mut a = black_box(0x0102_0304);
    let mut sums = [L::d_new(L::i_set1(0)); N];
    for _ in 0..steps / 8 {
        for _ in 0..8 {
            a = (a + 0x0101_0101) & 0x3f3f_3f3f;
            let mut i = 0;
            while i < N {
                sums[i] = L::d_step(4, sums[i], L::b_load(weights[i].as_ptr()), a);
                i += 1;
            }
        }
        let mut i = 0;
        while i < N {
            sums[i] = L::d_flush(sums[i]);
            i += 1;
        }
    }
    let mut i = 0;
    while i < N {
        black_box(L::i_hsum(L::d_end(sums[i])));
        i += 1;
    }
    N
}

struct FloatPeak {
    steps: usize,
}

impl Kernel for FloatPeak {
    /// How many sums were made in each step.
    type Output = usize;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> usize {
        if L::WIDE {
            float_peak::<L, SUMS>(self.steps)
        } else {
            float_peak::<L, FLOAT_SUMS_NARROW>(self.steps)
        }
    }
}

#[inline(always)]
unsafe fn float_peak<L: Lanes, const N: usize>(steps: usize) -> usize {
    // Not known to be equal, so that each is computed.
    let start = black_box([[0.0f32; LANES]; N]);
    let factors = black_box([[0.5f32; LANES]; 2]);
    let (a, b) = (
        L::f_load(factors[0].as_ptr()),
        L::f_load(factors[1].as_ptr()),
    );
    let mut sums = [L::f_zero(); N];
    let mut i = 0;
    while i < N {
        sums[i] = L::f_load(start[i].as_ptr());
        i += 1;
    }
    for _ in 0..steps {
        let mut i = 0;
        while i < N {
            sums[i] = L::f_fma(a, b, sums[i]);
            i += 1;
        }
    }
    let mut i = 0;
    while i < N {
        black_box(L::f_hsum(sums[i]));
        i += 1;
    }
    N
}

/// Bytes a second at which one thread reads `bytes` once, prefetching as the products do. From memory, if
/// they are in no cache: read something larger in between.
pub fn read_bandwidth(machine: Machine, bytes: &[u8]) -> f64 {
    let run = Instant::now();
    read(machine, bytes, true);
    bytes.len() as f64 / run.elapsed().as_secs_f64()
}

/// Reads `bytes` once, with software prefetch or without.
pub fn read(machine: Machine, bytes: &[u8], prefetch: bool) {
    // SAFETY: the kernels read the slice only.
    black_box(unsafe {
        match prefetch {
            true => sum_prefetched(machine, bytes),
            false => sum_plain(machine, bytes),
        }
    });
}

kernel! {
    /// Adds up all whole 512 bytes of the slice.
    unsafe fn sum_plain<L>(bytes: &[u8]) -> i32 {
        sum::<L, false>(bytes)
    }
}

kernel! {
    /// The same, asking for lines ahead.
    unsafe fn sum_prefetched<L>(bytes: &[u8]) -> i32 {
        sum::<L, true>(bytes)
    }
}

#[inline(always)]
unsafe fn sum<L: Lanes, const PREFETCH: bool>(bytes: &[u8]) -> i32 {
    const STEP: usize = 8 * 4 * LANES;
    let mut sums = [L::i_set1(0); 8];
    for chunk in bytes.chunks_exact(STEP) {
        let p = chunk.as_ptr();
        let mut i = 0;
        while i < 8 {
            if PREFETCH {
                L::ask_ahead(p.wrapping_add(64 * i), true);
            }
            sums[i] = L::i_add(sums[i], L::i_load(p.add(64 * i).cast()));
            i += 1;
        }
    }
    let mut all = sums[0];
    let mut i = 1;
    while i < 8 {
        all = L::i_add(all, sums[i]);
        i += 1;
    }
    L::i_hsum(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_peak_and_a_bandwidth() {
        let bytes = vec![1u8; 1 << 20];
        for m in Machine::available() {
            assert!(int8_peak(m, Duration::from_millis(1)) > 1e6, "{}", m.name());
            assert!(read_bandwidth(m, &bytes) > 1e6, "{}", m.name());
            assert!(f32_peak(m, Duration::from_millis(1)) > 1e6, "{}", m.name());
            // SAFETY: the kernels read the slice only.
            let sums = unsafe { [sum_plain(m, &bytes), sum_prefetched(m, &bytes)] };
            let want = 0x0101_0101i32.wrapping_mul(1 << 18);
            assert_eq!(sums, [want; 2], "{}", m.name());
        }
    }
}
