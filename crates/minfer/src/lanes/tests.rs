//! Every lane operation of every machine of this CPU against the scalar machine, bit for bit, and the
//! elementary functions against f64.

use std::io::Write;
use std::sync::Once;

use super::{Isa, Kernel, LANES, Lanes, Machine, MachineError, math};
use crate::numeric::test_rng::Rng;

/// The machines that tests run on. What this CPU lacks is said on the real stderr (once), never passed over.
pub(crate) fn machines() -> Vec<Machine> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let lacking: Vec<_> = Isa::ALL.into_iter().filter(|i| !i.is_available()).collect();
        let mut note = format!(
            "\nmachines not run: {} of {}\n",
            lacking.len(),
            Isa::ALL.len()
        );
        for isa in &lacking {
            note += &format!("NOT RUN: {} (this CPU lacks it)\n", isa.name());
        }
        #[cfg(target_arch = "x86_64")]
        if super::avx2::stand_in::needed() {
            note += "avxvnni runs with AVX-512's encoding of its instruction (this CPU lacks its own)\n";
        }
        // One write, past the capture of the test harness.
        let _ = std::io::stderr().write_all(note.as_bytes());
    });
    Machine::available()
}

type Outputs = Vec<(&'static str, Vec<u32>)>;

/// All operations on one set of operands; float results with NaNs made equal.
struct Operations<'a> {
    a: &'a [f32; LANES],
    b: &'a [f32; LANES],
    c: &'a [f32; LANES],
    i: &'a [i32; LANES],
    j: &'a [i32; LANES],
    bytes: &'a [u8; 64],
    more: &'a [u8; 64],
    halves: &'a [u16; LANES],
}

fn canonical(x: f32) -> u32 {
    if x.is_nan() {
        f32::NAN.to_bits()
    } else {
        x.to_bits()
    }
}

/// # Safety
/// As for `Lanes`.
#[inline(always)]
unsafe fn floats<L: Lanes>(v: L::F) -> Vec<u32> {
    let mut out = [0f32; LANES];
    // SAFETY: `out` has 16 elements; the rest is the caller's.
    unsafe { L::f_store(out.as_mut_ptr(), v) };
    out.map(canonical).to_vec()
}

/// # Safety
/// As for `Lanes`.
#[inline(always)]
unsafe fn ints<L: Lanes>(v: L::I) -> Vec<u32> {
    let mut out = [0i32; LANES];
    // SAFETY: `out` has 16 elements; the rest is the caller's.
    unsafe { L::i_store(out.as_mut_ptr(), v) };
    out.map(|x| x as u32).to_vec()
}

/// # Safety
/// As for `Lanes`.
#[inline(always)]
unsafe fn bytes<L: Lanes>(v: L::B) -> Vec<u32> {
    let mut out = [0u8; 64];
    // SAFETY: `out` has 64 elements; the rest is the caller's.
    unsafe { L::b_store(out.as_mut_ptr(), v) };
    out.map(u32::from).to_vec()
}

impl Operations<'_> {
    /// # Safety
    /// As for `Lanes`.
    #[inline(always)]
    unsafe fn float_ops<L: Lanes>(&self, out: &mut Outputs) {
        // SAFETY: all arrays have 16 elements; the machine is the caller's.
        unsafe {
            let (a, b) = (L::f_load(self.a.as_ptr()), L::f_load(self.b.as_ptr()));
            let c = L::f_load(self.c.as_ptr());
            out.push(("f_add", floats::<L>(L::f_add(a, b))));
            out.push(("f_sub", floats::<L>(L::f_sub(a, b))));
            out.push(("f_mul", floats::<L>(L::f_mul(a, b))));
            out.push(("f_div", floats::<L>(L::f_div(a, b))));
            out.push(("f_fma", floats::<L>(L::f_fma(a, b, c))));
            out.push(("f_sqrt", floats::<L>(L::f_sqrt(a))));
            out.push(("f_max", floats::<L>(L::f_max(a, b))));
            out.push(("f_min", floats::<L>(L::f_min(a, b))));
            out.push(("f_select", floats::<L>(L::f_select(L::f_gt(a, b), b, c))));
            out.push(("f_neg", floats::<L>(L::f_neg(a))));
            out.push(("f_abs", floats::<L>(L::f_abs(a))));
            out.push(("f_set1", floats::<L>(L::f_set1(self.a[3]))));
            out.push(("f_zero", floats::<L>(L::f_zero())));
            out.push(("f_bits", ints::<L>(L::f_bits(L::f_load(self.c.as_ptr())))));
            out.push(("f_hsum", vec![canonical(L::f_hsum(a))]));
            out.push(("f_hmax", vec![canonical(L::f_hmax(a))]));
            out.push((
                "f_load_f16",
                floats::<L>(L::f_load_f16(self.halves.as_ptr())),
            ));
            out.push((
                "f_load_bf16",
                floats::<L>(L::f_load_bf16(self.halves.as_ptr())),
            ));
            let mut h = [0u16; LANES];
            for x in [a, b, c, L::f_load_f16(self.halves.as_ptr())] {
                L::f_store_f16(h.as_mut_ptr(), x);
                let nan = |h: u16| h & 0x7fff > 0x7c00;
                out.push((
                    "f_store_f16",
                    h.map(|h| if nan(h) { 0x7e00 } else { h.into() }).to_vec(),
                ));
            }
        }
    }

    /// # Safety
    /// As for `Lanes`.
    #[inline(always)]
    unsafe fn int_ops<L: Lanes>(&self, out: &mut Outputs) {
        // SAFETY: all arrays have 16 elements (`bytes` 64); the machine is the caller's.
        unsafe {
            let (i, j) = (L::i_load(self.i.as_ptr()), L::i_load(self.j.as_ptr()));
            out.push(("i_add", ints::<L>(L::i_add(i, j))));
            out.push(("i_sub", ints::<L>(L::i_sub(i, j))));
            out.push(("i_and", ints::<L>(L::i_and(i, j))));
            out.push(("i_or", ints::<L>(L::i_or(i, j))));
            for n in [0, 1, 6, 23, 30, 31] {
                out.push(("i_shl", ints::<L>(L::i_shl(i, n))));
                out.push(("i_shr", ints::<L>(L::i_shr(i, n))));
            }
            let (one, zero) = (L::f_set1(1.0), L::f_zero());
            out.push(("i_gt", floats::<L>(L::f_select(L::i_gt(i, j), one, zero))));
            out.push(("i_hsum", vec![L::i_hsum(i) as u32]));
            out.push(("i_to_f", floats::<L>(L::i_to_f(i))));
            out.push(("i_bits", floats::<L>(L::i_bits(i))));
            out.push(("i_set1", ints::<L>(L::i_set1(self.i[5]))));
            out.push((
                "i_load_i8",
                ints::<L>(L::i_load_i8(self.bytes.as_ptr().cast())),
            ));
            let mut low = [0i8; LANES];
            L::i_store_i8(low.as_mut_ptr(), i);
            out.push(("i_store_i8", low.map(|x| x as u32).to_vec()));
            // In the range that f_to_i is specified for: fractions that include halves.
            let small = self.i.map(|x| (x >> 8) as f32 * 0.5);
            out.push(("f_to_i", ints::<L>(L::f_to_i(L::f_load(small.as_ptr())))));
            let tiny = self.j.map(|x| (x >> 24) as f32 * 0.25);
            out.push(("f_to_i", ints::<L>(L::f_to_i(L::f_load(tiny.as_ptr())))));
        }
    }

    /// # Safety
    /// As for `Lanes`.
    #[inline(always)]
    unsafe fn byte_ops<L: Lanes>(&self, out: &mut Outputs) {
        // SAFETY: both arrays have 64 elements; the machine is the caller's.
        unsafe {
            let (x, h) = (
                L::b_load(self.bytes.as_ptr()),
                L::b_load(self.more.as_ptr()),
            );
            out.push(("b_load", bytes::<L>(x)));
            out.push(("b_lo", bytes::<L>(L::b_lo(x))));
            out.push(("b_hi", bytes::<L>(L::b_hi(x))));
            for from in 0..8 {
                out.push(("b_merge", bytes::<L>(L::b_merge(L::b_lo(x), h, from, 16))));
            }
            for from in [0, 2, 4, 6] {
                out.push(("b_merge 2", bytes::<L>(L::b_merge(L::b_lo(x), h, from, 48))));
            }
        }
    }

    /// # Safety
    /// As for `Lanes`.
    #[inline(always)]
    unsafe fn dots<L: Lanes>(&self, out: &mut Outputs) {
        for bits in [4, 5, 6, 8] {
            let mask = (0xff >> (8 - bits)) as u8;
            let random = [self.bytes.map(|x| x & mask), self.more.map(|x| x & mask)];
            let sets = [random, [[mask; 64]; 2], [[0; 64]; 2]]; // with both extremes
            for (n, w) in sets.into_iter().enumerate() {
                for extreme in [None, Some(0x7f7f_7f7f), Some(i32::from_le_bytes([129; 4]))] {
                    // SAFETY: 64 bytes each; the machine is the caller's.
                    let v = unsafe { self.dot::<L>(bits, &w, extreme) };
                    out.push((["d random", "d max", "d zero"][n], v));
                }
            }
        }
    }

    /// Eight steps, with start values as a kernel gives them.
    ///
    /// # Safety
    /// As for `Lanes`.
    #[inline(always)]
    unsafe fn dot<L: Lanes>(
        &self,
        bits: usize,
        w: &[[u8; 64]; 2],
        extreme: Option<i32>,
    ) -> Vec<u32> {
        let steps: [i32; 8] = std::array::from_fn(|s| {
            let a = self.i[s]
                .to_le_bytes()
                .map(|x| if x == 128 { 129 } else { x });
            extreme.unwrap_or(i32::from_le_bytes(a))
        });
        let sum: i32 = steps
            .iter()
            .flat_map(|a| a.to_le_bytes())
            .map(|x| i32::from(x as i8))
            .sum();
        let start = if bits == 8 && !L::SIGNED8 {
            -128 * sum
        } else {
            0
        };
        let start = start + if bits == 8 { 0 } else { -7 * sum };
        // SAFETY: 64 bytes each; the machine is the caller's.
        unsafe {
            let mut d = L::d_new(L::i_set1(start));
            for (s, a) in steps.into_iter().enumerate() {
                d = L::d_step(bits, d, L::b_load(w[s % 2].as_ptr()), a);
                if (s + 1) % L::steps(bits) == 0 {
                    d = L::d_flush(d);
                }
            }
            ints::<L>(L::d_end(d))
        }
    }
}

impl Kernel for Operations<'_> {
    type Output = Outputs;
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> Outputs {
        let mut out = Vec::new();
        // SAFETY: the caller's machine.
        unsafe {
            self.float_ops::<L>(&mut out);
            self.int_ops::<L>(&mut out);
            self.byte_ops::<L>(&mut out);
            self.dots::<L>(&mut out);
        }
        out
    }
}

const SPECIAL: [f32; LANES] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MIN_POSITIVE,
    -1e-40, // denormal
    f32::MAX,
    65519.0, // rounds to the largest half
    65520.0, // rounds to infinity in half precision
    2.98e-8, // half of the smallest half
    6.1e-5,
    -2049.0, // a tie in half precision
    0.1,
];

#[test]
fn operations_equal_scalar() {
    let mut r = Rng::new(0x1234_5678_9abc_def1);
    for round in 0..300 {
        let mut float = |k: usize| -> [f32; LANES] {
            std::array::from_fn(|l| match round % 4 {
                0 => f32::from_bits(r.next() as u32), // any bits
                1 => SPECIAL[(l * (2 * k + 1) + round / 4) % LANES],
                _ => r.unit() * 10f32.powi((r.next() % 13) as i32 - 6),
            })
        };
        let (a, b, c) = (float(0), float(1), float(2));
        let ops = |m: Machine, r: &mut Rng| {
            let (i, j) = (
                std::array::from_fn(|_| r.next() as i32),
                std::array::from_fn(|_| r.next() as i32),
            );
            let bytes = std::array::from_fn(|_| r.next() as u8);
            let more = std::array::from_fn(|_| r.next() as u8);
            let halves = std::array::from_fn(|_| r.next() as u16);
            let (a, b, c, i, j) = (&a, &b, &c, &i, &j);
            let k = Operations {
                a,
                b,
                c,
                i,
                j,
                bytes: &bytes,
                more: &more,
                halves: &halves,
            };
            // SAFETY: the kernel reads and writes its own arrays only.
            unsafe { m.run(k) }
        };
        let seed = r.next();
        let expected = ops(Machine::scalar(), &mut Rng::new(seed));
        for m in machines() {
            for (want, got) in expected.iter().zip(ops(m, &mut Rng::new(seed))) {
                assert_eq!(
                    *want,
                    got,
                    "{} on {} differs from scalar (round {round})",
                    want.0,
                    m.name()
                );
            }
        }
    }
}

/// Every half converts exactly, and back to itself.
#[test]
fn all_halves() {
    struct Halves<'a>(&'a [u16; LANES], &'a mut [f32; LANES], &'a mut [u16; LANES]);
    impl Kernel for Halves<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn run<L: Lanes>(self) {
            // SAFETY: 16 elements each; the machine is the caller's.
            unsafe {
                let v = L::f_load_f16(self.0.as_ptr());
                L::f_store(self.1.as_mut_ptr(), v);
                L::f_store_f16(self.2.as_mut_ptr(), v);
            }
        }
    }
    for m in machines() {
        for first in (0..=u16::MAX).step_by(LANES) {
            let h: [u16; LANES] = std::array::from_fn(|l| first + l as u16);
            let (mut f, mut back) = ([0f32; LANES], [0u16; LANES]);
            // SAFETY: the kernel uses these arrays only.
            unsafe { m.run(Halves(&h, &mut f, &mut back)) };
            for l in 0..LANES {
                let exact = half::f16::from_bits(h[l]);
                assert_eq!(
                    canonical(f[l]),
                    canonical(exact.to_f32_const()),
                    "{} {:#x}",
                    m.name(),
                    h[l]
                );
                assert!(
                    back[l] == h[l] || exact.is_nan(),
                    "{} {:#x}",
                    m.name(),
                    h[l]
                );
            }
        }
    }
}

struct Map<'a, F>(&'a [f32], &'a mut [f32], F);

/// A function of one vector, as a type, so that it is inlined without a closure.
trait Function {
    /// # Safety
    /// As for `Lanes`.
    unsafe fn at<L: Lanes>(x: L::F) -> L::F;
}

impl<F: Function> Kernel for Map<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for (x, y) in self
            .0
            .chunks_exact(LANES)
            .zip(self.1.chunks_exact_mut(LANES))
        {
            // SAFETY: chunks of 16; the machine is the caller's.
            unsafe { L::f_store(y.as_mut_ptr(), F::at::<L>(L::f_load(x.as_ptr()))) }
        }
    }
}

/// |got - exact| in units of the last place of `exact`.
fn ulps(got: f32, exact: f64) -> f64 {
    let e = (exact as f32).abs().max(f32::MIN_POSITIVE);
    let ulp = f64::from(f32::from_bits(e.to_bits() + 1)) - f64::from(e);
    (f64::from(got) - exact).abs() / ulp
}

/// Runs `F` over `xs` on all machines, compares bits with scalar, and returns the scalar results.
fn on_all<F: Function + Copy>(f: F, xs: &[f32]) -> Vec<f32> {
    let mut expected = vec![0f32; xs.len()];
    // SAFETY: the kernel stays within these slices.
    unsafe { Machine::scalar().run(Map(xs, &mut expected, f)) };
    for m in machines() {
        let mut got = vec![0f32; xs.len()];
        // SAFETY: the kernel stays within these slices.
        unsafe { m.run(Map(xs, &mut got, f)) };
        for (i, x) in xs.iter().enumerate() {
            assert_eq!(
                canonical(got[i]),
                canonical(expected[i]),
                "{} at {x}",
                m.name()
            );
        }
    }
    expected
}

/// Values of both signs, spread over `low..=high` in magnitude, and the special ones.
fn arguments(low: f32, high: f32) -> Vec<f32> {
    let mut r = Rng::new(77);
    let mut xs: Vec<f32> = (0..16 * 4000)
        .map(|i| {
            let t = r.unit();
            let x = if i % 2 == 0 {
                t * high
            } else {
                low * (high / low).powf(t.abs())
            };
            if i % 4 == 1 { -x } else { x }
        })
        .collect();
    xs.extend(SPECIAL);
    xs
}

macro_rules! function {
    ($name:ident, $f:path) => {
        #[derive(Clone, Copy)]
        struct $name;
        impl Function for $name {
            #[inline(always)]
            unsafe fn at<L: Lanes>(x: L::F) -> L::F {
                // SAFETY: the caller's.
                unsafe { $f(x) }
            }
        }
    };
}
function!(Exp, math::exp::<L>);
function!(Ln, math::ln::<L>);
function!(Tanh, math::tanh::<L>);
function!(Sigmoid, math::sigmoid::<L>);
function!(Silu, math::silu::<L>);
function!(Gelu, math::gelu::<L>);
function!(Rsqrt, math::rsqrt::<L>);

/// The largest error of `got` over the finite `xs` for which `exact` gives a value; NaN if one of them is.
fn worst(xs: &[f32], got: &[f32], exact: impl Fn(f64) -> Option<f64>) -> f64 {
    let errors = xs.iter().zip(got).filter(|(x, _)| x.is_finite());
    errors
        .filter_map(|(x, y)| Some(ulps(*y, exact(f64::from(*x))?)))
        .max_by(f64::total_cmp)
        .expect("values")
}

#[test]
fn functions_are_close_to_f64() {
    let xs = arguments(1e-6, 100.0);
    let above = |x: f64, f: fn(f64) -> f64| (x > -86.9 && x < 87.9).then(|| f(x));
    let exp = worst(&xs, &on_all(Exp, &xs), |x| above(x, f64::exp));
    assert!(exp <= 1.5, "exp: {exp} ulp");
    let tanh = worst(&xs, &on_all(Tanh, &xs), |x| Some(x.tanh()));
    assert!(tanh <= 2.0, "tanh: {tanh} ulp");
    let sigmoid = worst(&xs, &on_all(Sigmoid, &xs), |x| {
        above(x, |x| 1.0 / (1.0 + (-x).exp()))
    });
    assert!(sigmoid <= 3.0, "sigmoid: {sigmoid} ulp");
    let silu = worst(&xs, &on_all(Silu, &xs), |x| {
        above(x, |x| x / (1.0 + (-x).exp()))
    });
    assert!(silu <= 3.0, "silu: {silu} ulp");
    let wide = arguments(1e-38, 3e38);
    let ln = worst(&wide, &on_all(Ln, &wide), |x| (x > 0.0).then(|| x.ln()));
    assert!(ln <= 1.5, "ln: {ln} ulp");
    let rsqrt = worst(&wide, &on_all(Rsqrt, &wide), |x| {
        (x > 1e-37).then(|| 1.0 / x.sqrt())
    });
    assert!(rsqrt <= 1.5, "rsqrt: {rsqrt} ulp");
    for (x, y) in xs
        .iter()
        .zip(on_all(Gelu, &xs))
        .filter(|(x, _)| x.is_finite())
    {
        let x = f64::from(*x);
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        let error = (f64::from(y) - 0.5 * x * (1.0 + inner.tanh())).abs();
        assert!(error <= 2.5e-7 * x.abs().max(1.0), "gelu({x}): {error}");
    }
}

#[test]
fn functions_at_the_edges() {
    let mut x = [0f32; LANES];
    x[..6].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, -1.0]);
    let e = on_all(Exp, &x);
    assert!(e[0].is_nan() && e[1].is_finite() && e[2] > 0.0 && e[2] < 1e-37 && e[3] == 1.0);
    let l = on_all(Ln, &x);
    assert!(l[0].is_nan() && l[1] == f32::INFINITY && l[5].is_nan());
    assert!(l[3] == f32::NEG_INFINITY && l[4] == f32::NEG_INFINITY);
    let t = on_all(Tanh, &x);
    assert!(t[0].is_nan() && t[1] == 1.0 && t[2] == -1.0 && t[4] == 0.0);
}

#[test]
fn names_are_refused_with_what_there_is() {
    for m in Machine::available() {
        assert_eq!(Machine::from_name(m.name()), Ok(m));
    }
    assert!(Machine::available().contains(&Machine::detect()));
    let Err(MachineError::Unknown { name, available }) = Machine::from_name("sse9") else {
        panic!("sse9 is not a machine");
    };
    assert!(name == "sse9" && available.starts_with("scalar"));
    let lacking = Isa::ALL.into_iter().find(|i| !i.is_available());
    let lacking = lacking.expect("no CPU has both families");
    let error = Machine::from_name(lacking.name()).unwrap_err().to_string();
    assert!(error.contains("lacks") && error.contains(lacking.name()) && error.contains("scalar"));
}

super::kernel! {
    /// The sum of a slice whose length is a multiple of 16.
    unsafe fn sum<L>(x: &[f32]) -> f32 {
        let mut s = L::f_zero();
        for c in x.chunks_exact(LANES) {
            s = L::f_add(s, L::f_load(c.as_ptr()));
        }
        L::f_hsum(s)
    }
}

#[test]
fn kernel_macro_runs_on_every_machine() {
    let x: Vec<f32> = (0..160).map(|i| i as f32).collect();
    for m in machines() {
        // SAFETY: the kernel reads the slice only.
        assert_eq!(unsafe { sum(m, &x) }, 12720.0);
    }
}

super::kernel! {
    /// No precondition.
    unsafe fn turn<L>(rows: &mut [[f32; LANES]; LANES]) {
        let mut v = [L::f_zero(); LANES];
        for (v, row) in v.iter_mut().zip(rows.iter()) {
            *v = L::f_load(row.as_ptr());
        }
        L::f_turn(&mut v);
        for (v, row) in v.into_iter().zip(rows) {
            L::f_store(row.as_mut_ptr(), v);
        }
    }
}

#[test]
fn sixteen_vectors_turn() {
    let number = |v: usize, l: usize| (LANES * v + l) as f32;
    for m in machines() {
        let mut rows: [[f32; LANES]; LANES] =
            std::array::from_fn(|v| std::array::from_fn(|l| number(v, l)));
        // SAFETY: no precondition.
        unsafe { turn(m, &mut rows) };
        for (v, row) in rows.iter().enumerate() {
            for (l, x) in row.iter().enumerate() {
                assert_eq!(*x, number(l, v), "{}", m.name());
            }
        }
    }
}
