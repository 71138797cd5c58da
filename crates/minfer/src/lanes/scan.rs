//! Passes over a whole row of logits: safe functions on the fastest machine, equal bits on all.

#![allow(unsafe_op_in_unsafe_fn)] // the kernels' only precondition is that of `Lanes`: the machine has it

use super::{LANES, Machine, kernel, math};

/// Values that one step of a scan looks at.
const STEP: usize = 4 * LANES;

/// The largest value; minus infinity for an empty slice. NaN must not occur.
pub fn max(values: &[f32]) -> f32 {
    max_on(Machine::detect(), values)
}

/// The first value that is not finite.
pub fn first_non_finite(values: &[f32]) -> Option<usize> {
    non_finite_on(Machine::detect(), values)
}

/// Where the first 64 values (an aligned group, the last may be shorter) with one above `least` begin,
/// from `start` on: a multiple of 64. NaN must not occur.
pub fn group_above(values: &[f32], start: usize, least: f32) -> Option<usize> {
    above_on(Machine::detect(), values, start, least)
}

/// The sum of e^(x - max) over all values: per block of 1024 a sum of 16 lanes in f32, then lanes and
/// blocks in f64, in order. Differences below -87 count as -87 (1.6e-38).
pub fn sum_exp(values: &[f32], max: f32) -> f64 {
    sum_exp_on(Machine::detect(), values, max)
}

fn max_on(machine: Machine, values: &[f32]) -> f32 {
    // SAFETY: the kernel reads the slice only.
    unsafe { max_kernel(machine, values) }
}

fn non_finite_on(machine: Machine, values: &[f32]) -> Option<usize> {
    // SAFETY: the kernel reads the slice only.
    if unsafe { all_finite(machine, values) } {
        return None;
    }
    values.iter().position(|x| !x.is_finite())
}

fn above_on(machine: Machine, values: &[f32], start: usize, least: f32) -> Option<usize> {
    if start >= values.len() {
        return None;
    }
    assert!(start % STEP == 0, "{start} is inside a group of {STEP}");
    // SAFETY: the kernel reads the slice only, from a start within it.
    let at = unsafe { above_kernel(machine, values, start, least) };
    (at < values.len()).then_some(at)
}

fn sum_exp_on(machine: Machine, values: &[f32], max: f32) -> f64 {
    let blocks = values.chunks(64 * LANES);
    // SAFETY: the kernel reads the slice only.
    blocks
        .map(|block| unsafe { sum_exp_kernel(machine, block, max) })
        .sum()
}

kernel! {
    /// No precondition.
    unsafe fn max_kernel<L>(values: &[f32]) -> f32 {
        let (p, n) = (values.as_ptr(), values.len());
        let mut best = [L::f_set1(f32::NEG_INFINITY); 4];
        let mut i = 0;
        while i + STEP <= n {
            let mut j = 0;
            while j < 4 {
                best[j] = L::f_max(L::f_load(p.add(i + j * LANES)), best[j]);
                j += 1;
            }
            i += STEP;
        }
        let best = L::f_max(L::f_max(best[0], best[1]), L::f_max(best[2], best[3]));
        let mut best = L::f_hmax(best);
        while i < n {
            best = if *p.add(i) > best { *p.add(i) } else { best };
            i += 1;
        }
        best
    }
}

kernel! {
    /// No precondition.
    unsafe fn all_finite<L>(values: &[f32]) -> bool {
        let (p, n) = (values.as_ptr(), values.len());
        // 0 * x is a zero for every finite x, else NaN, which no addition takes away.
        let mut zeros = [L::f_zero(); 4];
        let mut i = 0;
        while i + STEP <= n {
            let mut j = 0;
            while j < 4 {
                zeros[j] = L::f_fma(L::f_load(p.add(i + j * LANES)), L::f_zero(), zeros[j]);
                j += 1;
            }
            i += STEP;
        }
        let mut sum = L::f_hsum(L::f_add(L::f_add(zeros[0], zeros[1]), L::f_add(zeros[2], zeros[3])));
        while i < n {
            sum += *p.add(i) * 0.0;
            i += 1;
        }
        sum == 0.0
    }
}

kernel! {
    /// The first group, or the slice's length.
    ///
    /// # Safety
    /// `start` lies within the slice.
    unsafe fn above_kernel<L>(values: &[f32], start: usize, least: f32) -> usize {
        let (p, n) = (values.as_ptr(), values.len());
        let mut i = start;
        while i + STEP <= n {
            let a = L::f_max(L::f_load(p.add(i)), L::f_load(p.add(i + LANES)));
            let b = L::f_max(L::f_load(p.add(i + 2 * LANES)), L::f_load(p.add(i + 3 * LANES)));
            if L::f_hmax(L::f_max(a, b)) > least {
                return i;
            }
            i += STEP;
        }
        let mut t = i;
        while t < n {
            if *p.add(t) > least {
                return i;
            }
            t += 1;
        }
        n
    }
}

kernel! {
    /// No precondition.
    unsafe fn sum_exp_kernel<L>(block: &[f32], max: f32) -> f64 {
        let (p, n) = (block.as_ptr(), block.len());
        let top = L::f_set1(max);
        let mut sums = L::f_zero();
        let mut i = 0;
        while i + LANES <= n {
            sums = L::f_add(sums, math::exp::<L>(L::f_sub(L::f_load(p.add(i)), top)));
            i += LANES;
        }
        let mut lanes = [0.0f32; LANES];
        L::f_store(lanes.as_mut_ptr(), sums);
        let mut total = 0.0;
        let mut l = 0;
        while l < LANES {
            total += lanes[l] as f64;
            l += 1;
        }
        // The last values stand in a vector of their own, whose other lanes are not looked at.
        let mut rest = [max; LANES];
        let mut r = 0;
        while i + r < n {
            rest[r] = *p.add(i + r);
            r += 1;
        }
        L::f_store(lanes.as_mut_ptr(), math::exp::<L>(L::f_sub(L::f_load(rest.as_ptr()), top)));
        let mut l = 0;
        while l < r {
            total += lanes[l] as f64;
            l += 1;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::machines;
    use super::*;

    /// Values that are all different, in no order.
    fn values(n: usize) -> Vec<f32> {
        (0..n).map(|i| -((i * 7919 % 5003) as f32) * 0.01).collect()
    }

    const LENGTHS: [usize; 9] = [0, 1, 15, 16, 63, 64, 65, 1030, 5000];

    #[test]
    fn every_machine_finds_the_same() {
        for n in LENGTHS {
            let v = values(n);
            let largest = v.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for m in machines() {
                assert_eq!(max_on(m, &v), largest, "{} {n}", m.name());
                assert_eq!(non_finite_on(m, &v), None);
                for least in [-50.0, -3.0, -0.015, 0.0, 1.0] {
                    let first = v.iter().position(|x| *x > least).map(|i| i / STEP * STEP);
                    assert_eq!(above_on(m, &v, 0, least), first, "{} {n}", m.name());
                    let from = 2 * STEP;
                    let later = v.iter().skip(from).position(|x| *x > least);
                    let later = later.map(|i| (from + i) / STEP * STEP);
                    assert_eq!(above_on(m, &v, from, least), later, "{} {n}", m.name());
                }
                let same = sum_exp_on(m, &v, 0.25) == sum_exp_on(Machine::scalar(), &v, 0.25);
                assert!(same, "{} {n}", m.name());
            }
        }
    }

    /// A start this large plus a step would wrap around, and be read.
    #[test]
    fn nothing_is_above_beyond_the_end() {
        for n in LENGTHS {
            let v = values(n);
            for start in [n, n + 1, usize::MAX, usize::MAX & !(STEP - 1)] {
                assert_eq!(group_above(&v, start, -1e9), None, "{n} {start}");
            }
        }
    }

    #[test]
    fn a_value_that_is_not_finite_is_found_wherever_it_stands() {
        for m in machines() {
            for at in [0, 17, 63, 64, 999] {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut v = values(1000);
                    v[at] = bad;
                    v[999] = bad;
                    assert_eq!(non_finite_on(m, &v), Some(at), "{}", m.name());
                }
            }
        }
    }

    #[test]
    fn the_sum_is_close_to_the_true_value() {
        let v = values(5000);
        let want: f64 = v.iter().map(|x| f64::from(*x).exp()).sum();
        assert!((sum_exp(&v, 0.0) / want - 1.0).abs() < 1e-6);
    }
}
