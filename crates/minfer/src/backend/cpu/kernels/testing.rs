//! What the kernels' tests share: random data, and running on every machine.

use crate::lanes::{Isa, Machine};

/// A small generator with a fixed stream.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() >> 20) as usize % n
    }

    /// Uniform in -amp..amp.
    pub fn f32(&mut self, amp: f32) -> f32 {
        ((self.next_u64() >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * amp
    }

    pub fn vec(&mut self, n: usize, amp: f32) -> Vec<f32> {
        (0..n).map(|_| self.f32(amp)).collect()
    }
}

/// Fails at the first element whose bits differ.
pub fn assert_same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}: lengths");
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert_eq!(
            x.to_bits(),
            y.to_bits(),
            "{what}: element {i}: {x:e} and {y:e}"
        );
    }
}

/// Runs on every machine this CPU has and compares bits with the scalar one, whose result it returns;
/// says which machines were NOT RUN.
pub fn on_machines(f: impl Fn(Machine) -> Vec<f32>) -> Vec<f32> {
    let want = f(Machine::scalar());
    for m in Machine::available() {
        assert_same_bits(&f(m), &want, m.name());
    }
    let lacking: Vec<_> = Isa::ALL
        .iter()
        .filter(|i| !i.is_available())
        .map(|i| i.name())
        .collect();
    eprintln!(
        "NOT RUN: {} machines this CPU lacks ({})",
        lacking.len(),
        lacking.join(", ")
    );
    want
}
