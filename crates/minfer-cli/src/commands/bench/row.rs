//! One test's figures, and what they are of the machine's limits.

use std::time::Duration;

use minfer::backend::cpu::roofline::Limits;
use minfer::engine::{EngineOptions, Measured, Work};

use super::case::Case;

/// Two probes that differ by more than this share say that the machine was not the same in between.
const DISTURBED: f64 = 0.1;

/// One test's figures.
pub struct Row<'a> {
    /// What was measured.
    pub case: &'a Case,
    /// On what engine.
    pub options: &'a EngineOptions,
    /// Layers of the model.
    pub n_layer: usize,
    /// What a repetition takes.
    pub work: Work,
    /// Repetitions.
    pub samples: Vec<Measured>,
    /// The machine before and after.
    pub limits: Option<(Limits, Limits)>,
}

/// Shares of the machine's limits, from the better probe and the median speed.
pub struct Shares {
    /// Bytes that must be read, of what can be read in the time.
    pub read: f64,
    /// Operations of the products with weights, of what can be done in the time.
    pub products: f64,
    /// With attention's own.
    pub products_and_attention: f64,
    /// The probes before and after differ.
    pub disturbed: bool,
}

impl Row<'_> {
    /// Tokens a second, one a repetition.
    pub fn speeds(&self) -> Vec<f64> {
        let tokens = self.case.tokens() as f64;
        self.samples
            .iter()
            .map(|s| tokens / s.elapsed.as_secs_f64())
            .collect()
    }

    /// Mean of the speeds.
    pub fn mean(&self) -> f64 {
        let speeds = self.speeds();
        speeds.iter().sum::<f64>() / speeds.len() as f64
    }

    /// Standard deviation of the speeds; 0 of a single one.
    pub fn stddev(&self) -> f64 {
        let (speeds, mean) = (self.speeds(), self.mean());
        if speeds.len() < 2 {
            return 0.0;
        }
        let squares: f64 = speeds.iter().map(|x| (x - mean).powi(2)).sum();
        (squares / (speeds.len() - 1) as f64).sqrt()
    }

    /// Median of the speeds.
    pub fn median(&self) -> f64 {
        let mut s = self.speeds();
        s.sort_by(f64::total_cmp);
        (s[(s.len() - 1) / 2] + s[s.len() / 2]) / 2.0
    }

    /// A count of a whole repetition, by token.
    pub fn per_token(&self, count: u64) -> f64 {
        count as f64 / self.case.tokens() as f64
    }

    /// The most barriers of a repetition.
    pub fn barriers(&self) -> u64 {
        let all = self.samples.iter().map(|s| s.counters.barriers);
        all.max().unwrap_or(0)
    }

    /// Barriers of a forward pass by layer; those outside of layers are counted in.
    pub fn barriers_per_layer(&self) -> f64 {
        self.barriers() as f64 / (self.work.passes as f64 * self.n_layer as f64)
    }

    /// The most allocations of a repetition.
    pub fn allocations(&self) -> u64 {
        let all = self.samples.iter().map(|s| s.allocations);
        all.max().unwrap_or(0)
    }

    /// Forward passes of a repetition.
    pub fn steps(&self) -> u64 {
        self.samples.iter().map(|s| s.steps).max().unwrap_or(0)
    }

    /// Mean of a time of all repetitions, by step, in seconds.
    pub fn per_step(&self, time: impl Fn(&Measured) -> Duration) -> f64 {
        let steps: u64 = self.samples.iter().map(|s| s.steps).sum();
        let all: Duration = self.samples.iter().map(time).sum();
        all.as_secs_f64() / steps.max(1) as f64
    }

    /// Bytes that a repetition reads at least.
    pub fn bytes(&self) -> u64 {
        self.work.weight_bytes + self.work.kv_bytes
    }

    /// What the speed is of the machine's limits.
    pub fn shares(&self) -> Option<Shares> {
        let (before, after) = self.limits.as_ref()?;
        let (best, w) = (before.best(after), &self.work);
        let seconds = self.case.tokens() as f64 / self.median();
        let products = w.int8_ops as f64 / best.int8 + w.f32_ops as f64 / best.f32;
        Some(Shares {
            read: self.bytes() as f64 / best.read / seconds,
            products: products / seconds,
            products_and_attention: (products + w.attention_ops as f64 / best.f32) / seconds,
            disturbed: before.difference(after) > DISTURBED,
        })
    }
}
