//! One vector for a prompt: the hidden states after the last norm, pooled.

use super::EngineError;
use crate::gguf::{Metadata, Value};

/// Which vector, of a prompt's many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
}

/// What is wanted of a prompt's embedding.
#[derive(Clone, Copy, Debug)]
pub struct Embed {
    /// Which vector; `None`: as the file's `pooling_type` says, else the mean.
    pub pooling: Option<Pooling>,
    /// Scaled to length 1.
    pub normalize: bool,
}

impl Default for Embed {
    /// As the file says, of length 1.
    fn default() -> Embed {
        Embed {
            pooling: None,
            normalize: true,
        }
    }
}

impl Pooling {
    /// `ARCH.pooling_type` of a file: 1 mean, 2 cls, 3 last; the mean where it is absent or 0.
    ///
    /// # Errors
    /// [`EngineError::Pooling`] for a kind this engine has not.
    pub fn of(metadata: &Metadata) -> Result<Pooling, EngineError> {
        let arch = metadata.str("general.architecture").ok().flatten();
        let key = format!("{}.pooling_type", arch.unwrap_or_default());
        let value = match metadata.get(&key) {
            None => 0,
            Some(Value::U32(kind)) => i64::from(*kind),
            Some(Value::I32(kind)) => i64::from(*kind),
            Some(_) => -1,
        };
        match value {
            0 | 1 => Ok(Pooling::Mean),
            2 => Ok(Pooling::Cls),
            3 => Ok(Pooling::Last),
            _ => {
                let value = metadata.get(&key).map(Value::summary);
                let value = value.unwrap_or_default();
                Err(EngineError::Pooling { key, value })
            }
        }
    }
}

/// A prompt's vectors on their way to one.
#[derive(Debug)]
pub(super) struct Pool {
    pooling: Pooling,
    normalize: bool,
    /// Sums in f64, in order of rows: the chunks of a prompt leave no trace.
    sum: Vec<f64>,
    rows: usize,
}

impl Pool {
    /// For vectors of `n_embd` values.
    pub fn new(pooling: Pooling, normalize: bool, n_embd: usize) -> Pool {
        Pool {
            pooling,
            normalize,
            sum: vec![0.0; n_embd],
            rows: 0,
        }
    }

    /// Takes the next row's vector in.
    pub fn push(&mut self, values: &[f32]) {
        let first = self.rows == 0;
        self.rows += 1;
        for (sum, x) in self.sum.iter_mut().zip(values) {
            match self.pooling {
                Pooling::Mean => *sum += f64::from(*x),
                Pooling::Cls if first => *sum = f64::from(*x),
                Pooling::Cls => {}
                Pooling::Last => *sum = f64::from(*x),
            }
        }
    }

    /// The one vector.
    pub fn finish(&self) -> Vec<f32> {
        let scale = match self.pooling {
            Pooling::Mean => 1.0 / self.rows.max(1) as f64,
            _ => 1.0,
        };
        let length: f64 = self.sum.iter().map(|x| (x * scale) * (x * scale)).sum();
        let length = length.sqrt();
        let scale = match self.normalize && length > 0.0 {
            true => scale / length,
            false => scale,
        };
        self.sum.iter().map(|x| (x * scale) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_pooled() {
        let pooled = |pooling, normalize| {
            let mut pool = Pool::new(pooling, normalize, 2);
            for row in [[3.0, 0.0], [0.0, 0.0], [3.0, 12.0]] {
                pool.push(&row);
            }
            pool.finish()
        };
        assert_eq!(pooled(Pooling::Mean, false), [2.0, 4.0]);
        assert_eq!(pooled(Pooling::Cls, false), [3.0, 0.0]);
        assert_eq!(pooled(Pooling::Last, false), [3.0, 12.0]);
        assert_eq!(pooled(Pooling::Cls, true), [1.0, 0.0]);
    }
}
