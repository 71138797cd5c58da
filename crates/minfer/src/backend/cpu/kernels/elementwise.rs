//! Element by element: sums, products, activation functions, conversion to half precision.
//!
//! Each is one IEEE operation or one function of [`math`], so results depend on nothing but the
//! element. `out` may be exactly one of the sources (in place) or disjoint from them.

#![allow(unsafe_op_in_unsafe_fn)] // lane methods' precondition is stated at `Lanes`

use super::tail::{load_part, store_part};
use crate::graph::Activation;
use crate::lanes::{LANES, Lanes, Machine, kernel, math};

/// Writes a kernel of two sources: `out[i] = op(a[i], b[i])` for `i < n`.
macro_rules! binary {
    ($(#[$meta:meta])* $name:ident, $lanes:ident, |$a:ident, $b:ident| $op:expr) => {
        kernel! {
            $(#[$meta])*
            ///
            /// # Safety
            /// `n` elements can be read at `a` and `b` and written at `out`; `out` equals a source or
            /// overlaps neither.
            pub unsafe fn $name<$lanes>(a: *const f32, b: *const f32, out: *mut f32, n: usize) {
                let mut i = 0;
                while i + LANES <= n {
                    let ($a, $b) = ($lanes::f_load(a.add(i)), $lanes::f_load(b.add(i)));
                    $lanes::f_store(out.add(i), $op);
                    i += LANES;
                }
                if i < n {
                    let $a = load_part::<$lanes>(a.add(i), n - i);
                    let $b = load_part::<$lanes>(b.add(i), n - i);
                    store_part::<$lanes>(out.add(i), n - i, $op);
                }
            }
        }
    };
}

/// Writes a kernel of one source and a parameter: `out[i] = op(x[i])` for `i < n`.
macro_rules! unary {
    ($(#[$meta:meta])* $name:ident, $lanes:ident, |$x:ident, $p:ident: $ty:ty| $op:expr) => {
        kernel! {
            $(#[$meta])*
            ///
            /// # Safety
            /// `n` elements can be read at `x` and written at `out`, which equals `x` or does not overlap it.
            pub unsafe fn $name<$lanes>(x: *const f32, $p: $ty, out: *mut f32, n: usize) {
                let mut i = 0;
                while i + LANES <= n {
                    let $x = $lanes::f_load(x.add(i));
                    $lanes::f_store(out.add(i), $op);
                    i += LANES;
                }
                if i < n {
                    let $x = load_part::<$lanes>(x.add(i), n - i);
                    store_part::<$lanes>(out.add(i), n - i, $op);
                }
            }
        }
    };
}

binary! {
    /// `out = a + b`.
    add, L, |a, b| L::f_add(a, b)
}
binary! {
    /// `out = a * b`.
    mul, L, |a, b| L::f_mul(a, b)
}
binary! {
    /// `out = silu(gate) * up`.
    swiglu, L, |a, b| L::f_mul(math::silu::<L>(a), b)
}
binary! {
    /// `out = gelu(gate) * up`.
    geglu, L, |a, b| L::f_mul(math::gelu::<L>(a), b)
}
unary! {
    /// `out = x * factor`.
    scale, L, |x, factor: f32| L::f_mul(x, L::f_set1(factor))
}
unary! {
    /// `out = act(x)`.
    act, L, |x, act: Activation| activate::<L>(act, x)
}

/// `out = act(gate) * up`, the same bits as [`act`] then [`mul`].
///
/// # Safety
/// As [`swiglu`].
pub unsafe fn glu(
    machine: Machine,
    act: Activation,
    gate: *const f32,
    up: *const f32,
    out: *mut f32,
    n: usize,
) {
    match act {
        Activation::Silu => swiglu(machine, gate, up, out, n),
        Activation::Gelu => geglu(machine, gate, up, out, n),
    }
}

/// An activation function of sixteen values.
///
/// # Safety
/// As [`Lanes`] asks.
#[inline(always)]
pub unsafe fn activate<L: Lanes>(act: Activation, x: L::F) -> L::F {
    match act {
        Activation::Silu => math::silu::<L>(x),
        Activation::Gelu => math::gelu::<L>(x),
    }
}

/// f32 to IEEE half precision, rounded half to even; too large becomes infinite.
///
/// # Panics
/// If the lengths differ.
pub fn to_f16(machine: Machine, x: &[f32], out: &mut [u16]) {
    assert_eq!(x.len(), out.len());
    // SAFETY: lengths are checked above.
    unsafe { f16_kernel(machine, x, out) }
}

kernel! {
    /// `out` is as long as `x`.
    unsafe fn f16_kernel<L>(x: &[f32], out: &mut [u16]) {
        let n = x.len();
        let mut i = 0;
        while i + LANES <= n {
            L::f_store_f16(out.as_mut_ptr().add(i), L::f_load(x.as_ptr().add(i)));
            i += LANES;
        }
        if i < n {
            let mut buf = [0u16; LANES];
            L::f_store_f16(buf.as_mut_ptr(), load_part::<L>(x.as_ptr().add(i), n - i));
            out[i..].copy_from_slice(&buf[..n - i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_same_bits, on_machines};
    use super::*;
    use crate::numeric::test_rng::Rng;

    type Binary = unsafe fn(Machine, *const f32, *const f32, *mut f32, usize);

    #[test]
    fn binary_kernels_agree_on_every_machine_and_with_plain_arithmetic() {
        let mut rng = Rng::new(3);
        for n in [1usize, 7, 16, 33, 100] {
            let (a, b) = (rng.vec(n, 9.0), rng.vec(n, 9.0));
            let run = |k: Binary| {
                on_machines(|m| {
                    let mut out = vec![0.0; n];
                    // SAFETY: all three have n elements.
                    unsafe { k(m, a.as_ptr(), b.as_ptr(), out.as_mut_ptr(), n) };
                    out
                })
            };
            let plain: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            assert_same_bits(&run(add), &plain, "add");
            let plain: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
            assert_same_bits(&run(mul), &plain, "mul");
            for (k, act_fn) in [
                (swiglu as Binary, Activation::Silu),
                (geglu, Activation::Gelu),
            ] {
                let mut two = a.clone();
                let p = two.as_mut_ptr();
                // SAFETY: in place on n elements.
                unsafe {
                    act(Machine::detect(), p, act_fn, p, n);
                    mul(Machine::detect(), p, b.as_ptr(), p, n);
                }
                assert_same_bits(&run(k), &two, "glu is act then mul");
            }
        }
    }

    #[test]
    fn activations_are_close_to_f64() {
        let x: Vec<f32> = (-400..400).map(|i| i as f32 * 0.05).collect();
        for (kind, name) in [(Activation::Silu, "silu"), (Activation::Gelu, "gelu")] {
            let out = on_machines(|m| {
                let mut out = vec![0.0; x.len()];
                // SAFETY: both have the same length.
                unsafe { act(m, x.as_ptr(), kind, out.as_mut_ptr(), x.len()) };
                out
            });
            for (x, y) in x.iter().zip(&out) {
                let v = f64::from(*x);
                let want = match kind {
                    Activation::Silu => v / (1.0 + (-v).exp()),
                    Activation::Gelu => {
                        let t = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v);
                        0.5 * v * (1.0 + t.tanh())
                    }
                };
                assert!(
                    (f64::from(*y) - want).abs() <= 4e-7 * v.abs().max(1.0),
                    "{name}({x})"
                );
            }
        }
    }

    #[test]
    fn half_precision_is_that_of_the_half_crate() {
        let mut rng = Rng::new(5);
        let mut x = rng.vec(1003, 70_000.0);
        x.extend(rng.vec(100, 1e-6));
        x.extend([0.0, -0.0, 65504.0, 65520.0, f32::INFINITY, 5.9e-8, 2.9e-8]);
        for m in Machine::available() {
            let mut out = vec![0; x.len()];
            to_f16(m, &x, &mut out);
            for (x, y) in x.iter().zip(&out) {
                assert_eq!(*y, half::f16::from_f32(*x).to_bits(), "{} {x:e}", m.name());
            }
        }
    }
}
