//! The engine's own form of activations: 32 values with one f32 scale and signed bytes.
//!
//! For each 32 values: `amax` is the greatest magnitude; `d = amax / 127` in f32;
//! `q = round half to even(x / d)`, a true division. Two edges complete the definition:
//!
//! - `d` zero or subnormal (`amax` below 1.5e-36): `d = 0`, `q = 0`. Subnormal scales have too few
//!   bits to keep `q` within 127;
//! - a value that is not finite: `d = NaN`, `q = 0`. Every product with the block is NaN then and ends
//!   as the error for logits that are not finite, instead of vanishing in a conversion to integer.
//!
//! So `q` is always in `-127..=127`: the integer products of all machines rely on it.

use half::f16;

use super::block::blocks;

/// 32 activations.
#[derive(Clone, Copy, Debug)]
pub struct ActBlock {
    /// Codes, `-127..=127`.
    pub q: [i8; 32],
    /// Scale: the value is `d * q`.
    pub d: f32,
    /// Sums of the codes of the first and the second 16.
    pub half_sums: [i32; 2],
}

impl ActBlock {
    /// The sum of all 32 codes.
    pub fn sum(&self) -> i32 {
        self.half_sums[0] + self.half_sums[1]
    }
}

/// Quantizes 32 activations.
pub fn quantize_block(x: &[f32; 32]) -> ActBlock {
    if x.iter().any(|v| !v.is_finite()) {
        return ActBlock {
            q: [0; 32],
            d: f32::NAN,
            half_sums: [0; 2],
        };
    }
    let amax = x
        .iter()
        .fold(0.0f32, |m, v| if v.abs() > m { v.abs() } else { m });
    let d = amax / 127.0;
    if d < f32::MIN_POSITIVE {
        return ActBlock {
            q: [0; 32],
            d: 0.0,
            half_sums: [0; 2],
        };
    }
    let q = x.map(|v| (v / d).round_ties_even() as i8);
    let sum = |half: &[i8]| half.iter().map(|&v| i32::from(v)).sum();
    ActBlock {
        q,
        d,
        half_sums: [sum(&q[..16]), sum(&q[16..])],
    }
}

/// Quantizes 32 channels of a key or a value as a Q8_0 KV region keeps them: [`quantize_block`], its
/// scale rounded to half precision (so a scale past 65504 becomes infinite, and one that is not a
/// number stays one). A kept value is `scale * code`, which f32 holds exactly.
pub fn quantize_kv_block(x: &[f32; 32]) -> (f16, [i8; 32]) {
    let block = quantize_block(x);
    (f16::from_f32(block.d), block.q)
}

/// A row of quantized activations: one [`ActBlock`] for each 32 values.
#[derive(Clone, Debug, Default)]
pub struct QuantizedRow {
    /// The blocks in order.
    pub blocks: Vec<ActBlock>,
}

impl QuantizedRow {
    /// Quantizes a row; `None` if its length is no multiple of 32.
    pub fn new(x: &[f32]) -> Option<QuantizedRow> {
        let whole = x.len() % 32 == 0;
        whole.then(|| QuantizedRow {
            blocks: blocks(x).map(quantize_block).collect(),
        })
    }

    /// The number of values.
    pub fn values(&self) -> usize {
        32 * self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_of_the_definition() {
        let zero = quantize_block(&[0.0; 32]);
        assert_eq!((zero.d, zero.q, zero.sum()), (0.0, [0; 32], 0));
        // 190 units of the least subnormal: the scale would round down so far that q passes 127.
        let tiny = quantize_block(&[f32::from_bits(190); 32]);
        assert_eq!((tiny.d, tiny.q), (0.0, [0; 32]));
        let huge = quantize_block(&[-f32::MAX; 32]);
        assert_eq!(
            (huge.d, huge.q, huge.half_sums),
            (f32::MAX / 127.0, [-127; 32], [-127 * 16; 2])
        );
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[17] = bad;
            let block = quantize_block(&x);
            assert!(block.d.is_nan() && block.q == [0; 32] && block.sum() == 0);
        }
        assert!(QuantizedRow::new(&[0.0; 33]).is_none());
    }

    #[test]
    fn kept_keys_and_values_have_a_scale_of_half_precision() {
        let mut x = [0.0; 32];
        (x[3], x[7]) = (-12.7, 1.0);
        let (d, q) = quantize_kv_block(&x);
        // 0.1 in half precision is 0.0999755859375.
        assert_eq!((d.to_f32(), q[3], q[7]), (0.099_975_586, -127, 10));
        let (d, _) = quantize_kv_block(&[1e8; 32]);
        assert!(d.is_infinite());
        let (d, q) = quantize_kv_block(&[f32::NAN; 32]);
        assert!(d.is_nan() && q == [0; 32]);
    }

    proptest::proptest! {
        #[test]
        fn codes_never_pass_127(bits in proptest::array::uniform32(proptest::num::u32::ANY)) {
            let block = quantize_block(&bits.map(f32::from_bits));
            assert!(block.q.iter().all(|q| *q >= -127));
        }

        #[test]
        fn values_come_back_within_half_a_step(x in proptest::array::uniform32(-1e3f32..1e3)) {
            let block = quantize_block(&x);
            for (v, q) in x.iter().zip(block.q) {
                assert!((v - block.d * f32::from(q)).abs() <= block.d * 0.50001);
            }
        }
    }
}
