//! What the kernels' tests share: comparing bits, and running on every machine.

use crate::lanes::Machine;
use crate::lanes::tests::machines;

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

/// Runs on every machine this CPU has and compares bits with the scalar one, whose result it returns.
pub fn on_machines(f: impl Fn(Machine) -> Vec<f32>) -> Vec<f32> {
    let want = f(Machine::scalar());
    for m in machines() {
        assert_same_bits(&f(m), &want, m.name());
    }
    want
}
