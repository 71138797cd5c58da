//! Root-mean-square norm.
//!
//! Contract, a function of the width alone: element `i` goes to accumulator `(i / 16) % 4`, lane
//! `i % 16`, as `acc = fma(x, x, acc)` in order of `i` (a last, partial vector is filled with zeros);
//! the sum is the horizontal tree of `(a0 + a1) + (a2 + a3)`; the scale is
//! `1 / sqrt(sum / width + eps)`, each step rounded; the result is `(x * scale) * weight`.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use super::tail::{load_part, store_part};
use crate::lanes::{LANES, Lanes, Machine, kernel};

/// 1 / rms of a group: what `x` is multiplied by before the weight.
pub fn rms_scale(machine: Machine, x: &[f32], eps: f32) -> f32 {
    // SAFETY: the kernel reads only the slice.
    unsafe { scale_kernel(machine, x, eps) }
}

/// Normalises every group of `weight.len()` channels of a row: `out = (x * scale) * weight`.
///
/// # Panics
/// If `x` is not a whole number of groups, or `out` has another length.
pub fn rms_norm(machine: Machine, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() % weight.len() == 0 && out.len() == x.len());
    // SAFETY: lengths are checked above.
    unsafe { norm_kernel(machine, x, weight, eps, out) }
}

kernel! {
    /// No precondition.
    unsafe fn scale_kernel<L>(x: &[f32], eps: f32) -> f32 {
        scale::<L>(x, eps)
    }
}

kernel! {
    /// `out` is as long as `x`, which is a multiple of `weight`'s length.
    unsafe fn norm_kernel<L>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let n = weight.len();
        let w = weight.as_ptr();
        let mut g = 0;
        while g < x.len() {
            let s = L::f_set1(scale::<L>(&x[g..g + n], eps));
            let (x, o) = (x.as_ptr().add(g), out.as_mut_ptr().add(g));
            let mut i = 0;
            while i + LANES <= n {
                let y = L::f_mul(L::f_mul(L::f_load(x.add(i)), s), L::f_load(w.add(i)));
                L::f_store(o.add(i), y);
                i += LANES;
            }
            if i < n {
                let y = L::f_mul(load_part::<L>(x.add(i), n - i), s);
                store_part::<L>(o.add(i), n - i, L::f_mul(y, load_part::<L>(w.add(i), n - i)));
            }
            g += n;
        }
    }
}

/// The scale of one group (see the contract above).
#[inline(always)]
unsafe fn scale<L: Lanes>(x: &[f32], eps: f32) -> f32 {
    let (p, n) = (x.as_ptr(), x.len());
    let mut acc = [L::f_zero(); 4];
    let mut i = 0;
    while i + 4 * LANES <= n {
        let mut j = 0;
        while j < 4 {
            let v = L::f_load(p.add(i + j * LANES));
            acc[j] = L::f_fma(v, v, acc[j]);
            j += 1;
        }
        i += 4 * LANES;
    }
    let mut j = 0;
    while i < n {
        let v = load_part::<L>(p.add(i), (n - i).min(LANES));
        acc[j] = L::f_fma(v, v, acc[j]);
        j += 1;
        i += LANES;
    }
    let sum = L::f_hsum(L::f_add(L::f_add(acc[0], acc[1]), L::f_add(acc[2], acc[3])));
    1.0 / (sum / n as f32 + eps).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_same_bits, on_machines};
    use super::*;
    use crate::numeric::test_rng::Rng;

    #[test]
    fn every_machine_gives_the_same_bits_at_every_width() {
        let mut rng = Rng::new(7);
        for n in [1, 15, 16, 17, 63, 64, 65, 80, 128, 576, 896, 1000] {
            let x = rng.vec(3 * n, 2.0);
            let w = rng.vec(n, 1.0);
            on_machines(|m| {
                let mut out = vec![0.0; 3 * n];
                rms_norm(m, &x, &w, 1e-5, &mut out);
                out.push(rms_scale(m, &x[..n], 1e-5));
                out
            });
        }
    }

    #[test]
    fn close_to_f64() {
        let mut rng = Rng::new(8);
        for n in [64usize, 576, 2000] {
            let (x, w) = (rng.vec(n, 5.0), rng.vec(n, 1.0));
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
            let scale = 1.0 / (mean + f64::from(1e-6f32)).sqrt();
            let mut out = vec![0.0; n];
            rms_norm(Machine::detect(), &x, &w, 1e-6, &mut out);
            for i in 0..n {
                let want = f64::from(x[i]) * scale * f64::from(w[i]);
                assert!(
                    (f64::from(out[i]) - want).abs() <= 1e-6 * want.abs(),
                    "{n} {i}"
                );
            }
        }
    }

    #[test]
    fn the_fused_form_rounds_like_the_plain_one() {
        let mut rng = Rng::new(9);
        let (x, w) = (rng.vec(576, 3.0), rng.vec(576, 1.0));
        let m = Machine::detect();
        let mut out = vec![0.0; 576];
        rms_norm(m, &x, &w, 1e-5, &mut out);
        let s = rms_scale(m, &x, 1e-5);
        let fused: Vec<f32> = x.iter().zip(&w).map(|(x, w)| (x * s) * w).collect();
        assert_same_bits(&out, &fused, "fused");
    }
}
