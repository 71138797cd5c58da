//! Rotary positions.

use super::super::{RopeKind, RopeScaling, RopeTable};
use super::Matrix;

/// Cosines then sines, `[positions][n_dims]`.
pub(super) fn table(positions: &Matrix, table: &RopeTable, factors: Option<&[f64]>) -> Matrix {
    let half = table.n_dims / 2;
    Matrix::from_fn(positions.rows, table.n_dims, |r, c| {
        let pair = c % half;
        let exponent = -2.0 * pair as f64 / table.n_dims as f64;
        let frequency = f64::from(table.freq_base).powf(exponent);
        let angle = positions.at(r, 0) * frequency / factors.map_or(1.0, |f| f[pair]);
        let (angle, magnitude) = stretch(angle, pair, table);
        let magnitude = if table.turn_only { 1.0 } else { magnitude };
        magnitude * if c < half { angle.cos() } else { angle.sin() }
    })
}

/// The angle after scaling, and what multiplies cosine and sine.
fn stretch(angle: f64, pair: usize, table: &RopeTable) -> (f64, f64) {
    match table.scaling {
        RopeScaling::None => (angle, 1.0),
        RopeScaling::Linear { factor } => (angle / f64::from(factor), 1.0),
        RopeScaling::Yarn {
            factor,
            n_ctx_orig,
            ext_factor,
            attn_factor,
            beta_fast,
            beta_slow,
        } => {
            let (factor, attn) = (f64::from(factor), f64::from(attn_factor));
            let ext = f64::from(ext_factor);
            if ext == 0.0 {
                return (angle / factor, attn);
            }
            // The pair that turns `rotations` times over the trained context.
            let pair_of = |rotations: f32| {
                let turns =
                    f64::from(n_ctx_orig) / (f64::from(rotations) * 2.0 * std::f64::consts::PI);
                table.n_dims as f64 * turns.ln() / (2.0 * f64::from(table.freq_base).ln())
            };
            let low = pair_of(beta_fast).floor().max(0.0);
            let high = pair_of(beta_slow).ceil().min(table.n_dims as f64 - 1.0);
            let ramp = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let keep = (1.0 - ramp) * ext;
            let mixed = angle / factor * (1.0 - keep) + angle * keep;
            (mixed, attn * (1.0 + 0.1 * factor.ln()))
        }
    }
}

/// Each head's first `n_dims` channels turned; the others as they are.
pub(super) fn rotate(
    x: &Matrix,
    table: &Matrix,
    kind: RopeKind,
    head_dim: usize,
    n_dims: usize,
) -> Matrix {
    let half = n_dims / 2;
    let mut out = x.clone();
    for r in 0..x.rows {
        for head in (0..x.cols).step_by(head_dim) {
            for pair in 0..half {
                let (a, b) = match kind {
                    RopeKind::Interleaved => (head + 2 * pair, head + 2 * pair + 1),
                    RopeKind::Halves => (head + pair, head + pair + half),
                };
                let (cos, sin) = (table.at(r, pair), table.at(r, half + pair));
                let (p, q) = (x.at(r, a), x.at(r, b));
                out.data[r * x.cols + a] = p * cos - q * sin;
                out.data[r * x.cols + b] = p * sin + q * cos;
            }
        }
    }
    out
}
