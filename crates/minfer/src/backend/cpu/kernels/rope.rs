//! Rotary position embedding: the table of angles, and the rotation.
//!
//! Contract. Frequencies and angles are f64, from [`numeric::elementary`](crate::numeric::elementary)
//! alone; cos and sin are rounded to f32 once, after the magnitude. A pair (a, b) becomes
//! `fma(a, cos, -(b * sin))` and `fma(b, cos, a * sin)`: the product with sin is rounded, the rest is
//! rounded once.

use crate::graph::{RopeKind, RopeScaling, RopeTable};
use crate::lanes::{Machine, kernel};
use crate::numeric::elementary;

/// The frequencies of one [`RopeTable`], computed once an op.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeFreqs {
    /// Radians a position, one a channel pair: `[n_dims / 2]`.
    pub freqs: Vec<f64>,
    /// Multiplies cos and sin (YaRN's attention factor; 1 without it, and for [`RopeTable::turn_only`]).
    pub magnitude: f64,
}

impl RopeFreqs {
    /// Pair `i` turns by `freq_base^(-2i / n_dims)`, divided by `factors[i]` where there are factors,
    /// then stretched: by `1 / factor` (linear), or by YaRN's blend of stretched and plain frequencies
    /// (Peng et al. 2023; the ramp's borders are rounded outwards, as all implementations do).
    ///
    /// # Panics
    /// If `factors` has not `n_dims / 2` values: whoever loads the tensor checks its shape.
    pub fn new(table: &RopeTable, factors: Option<&[f32]>) -> RopeFreqs {
        let (n, base) = (table.n_dims, f64::from(table.freq_base));
        if let Some(f) = factors {
            assert_eq!(f.len(), n / 2, "one frequency factor a channel pair");
        }
        let plain = |i: usize| {
            let f = elementary::powf(base, -((2 * i) as f64) / n as f64);
            factors.map_or(f, |d| f / f64::from(d[i]))
        };
        let plain = (0..n / 2).map(plain);
        match table.scaling {
            RopeScaling::None => RopeFreqs {
                freqs: plain.collect(),
                magnitude: 1.0,
            },
            RopeScaling::Linear { factor } => {
                let factor = f64::from(factor);
                RopeFreqs {
                    freqs: plain.map(|f| f / factor).collect(),
                    magnitude: 1.0,
                }
            }
            RopeScaling::Yarn {
                factor,
                n_ctx_orig,
                ext_factor,
                attn_factor,
                beta_fast,
                beta_slow,
            } => {
                let (factor, ext) = (f64::from(factor), f64::from(ext_factor));
                let border = |beta: f32| rotations_dim(n, base, n_ctx_orig, f64::from(beta));
                let low = border(beta_fast).floor().max(0.0);
                let high = border(beta_slow).ceil().min(n as f64 - 1.0);
                let blend = |(i, f): (usize, f64)| {
                    let ramp = (i as f64 - low) / (high - low).max(0.001);
                    let keep = (1.0 - ramp.clamp(0.0, 1.0)) * ext;
                    f / factor * (1.0 - keep) + f * keep
                };
                let own = if ext == 0.0 {
                    1.0
                } else {
                    1.0 + 0.1 * elementary::ln(factor)
                };
                RopeFreqs {
                    freqs: plain.enumerate().map(blend).collect(),
                    magnitude: match table.turn_only {
                        true => 1.0,
                        false => f64::from(attn_factor) * own,
                    },
                }
            }
        }
    }

    /// The angles of one position: cos of all pairs, then sin; `out` is f32 `[n_dims]`.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn fill_row(&self, position: i32, out: &mut [f32]) {
        let half = self.freqs.len();
        assert_eq!(out.len(), 2 * half);
        let (cos, sin) = out.split_at_mut(half);
        for (i, (c, s)) in cos.iter_mut().zip(sin).enumerate() {
            (*c, *s) = self.angle(position, i);
        }
    }

    /// Cos and sin of channel pair `pair` at a position.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn angle(&self, position: i32, pair: usize) -> (f32, f32) {
        let (sin, cos) = elementary::sin_cos(f64::from(position) * self.freqs[pair]);
        ((cos * self.magnitude) as f32, (sin * self.magnitude) as f32)
    }
}

/// The (fractional) channel pair that turns `rotations` times within the trained context.
fn rotations_dim(n_dims: usize, base: f64, n_ctx_orig: u32, rotations: f64) -> f64 {
    let turns = f64::from(n_ctx_orig) / (rotations * 2.0 * std::f64::consts::PI);
    n_dims as f64 * elementary::ln(turns) / (2.0 * elementary::ln(base))
}

/// Rotates the first `n_dims` channels of every head of one row, in place. `row` is f32
/// `[heads * head_dim]`, `table` one row of [`RopeFreqs::fill_row`] (its length is `n_dims`).
///
/// # Panics
/// If `row` is not a multiple of `head_dim`, or `table` is longer than a head.
pub fn rope_row(machine: Machine, kind: RopeKind, row: &mut [f32], head_dim: usize, table: &[f32]) {
    assert!(row.len() % head_dim == 0 && table.len() <= head_dim && table.len() % 2 == 0);
    // SAFETY: the kernel has no precondition beyond the machine's.
    unsafe { rotate(machine, kind, row, head_dim, table) }
}

kernel! {
    /// Plain IEEE operations on slices, which the compiler makes vectors of: they have one meaning.
    /// No precondition.
    unsafe fn rotate<L>(kind: RopeKind, row: &mut [f32], head_dim: usize, table: &[f32]) {
        let half = table.len() / 2;
        let (cos, sin) = table.split_at(half);
        for head in row.chunks_exact_mut(head_dim) {
            match kind {
                RopeKind::Interleaved => {
                    for ((x, c), s) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                        let (a, b) = (x[0], x[1]);
                        x[0] = a.mul_add(*c, -(b * s));
                        x[1] = b.mul_add(*c, a * s);
                    }
                }
                RopeKind::Halves => {
                    let (x, y) = head.split_at_mut(half);
                    for (((a, b), c), s) in x.iter_mut().zip(y).zip(cos).zip(sin) {
                        let (u, v) = (*a, *b);
                        *a = u.mul_add(*c, -(v * s));
                        *b = v.mul_add(*c, u * s);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "rope_tests.rs"]
mod tests;
