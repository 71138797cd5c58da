//! Embeddings that a client wants shorter than the model makes them.

use crate::ApiError;
use crate::fields::Fields;

/// The `dimensions` field, if it is there: 1 to `n_embd`.
///
/// # Errors
/// More than the model has, or none.
pub fn take_dimensions(f: &mut Fields, n_embd: usize) -> Result<Option<usize>, ApiError> {
    let dimensions: Option<usize> = f.take("dimensions")?;
    match dimensions.filter(|n| !(1..=n_embd).contains(n)) {
        Some(n) => {
            let why = format!("must be 1 to this model's {n_embd}, is {n}");
            Err(ApiError::field("dimensions", why))
        }
        None => Ok(dimensions),
    }
}

/// Its first `n` values, scaled to length 1 again.
pub fn shorten(vector: &mut Vec<f32>, n: usize) {
    vector.truncate(n);
    let squares = vector.iter().map(|x| f64::from(*x) * f64::from(*x));
    let length = squares.sum::<f64>().sqrt();
    if length > 0.0 {
        let scale = |x: &mut f32| *x = (f64::from(*x) / length) as f32;
        vector.iter_mut().for_each(scale);
    }
}
