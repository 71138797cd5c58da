//! Means, spreads and quantiles of what two models say of the same tokens.

use std::fmt::{Display, Formatter};

use serde_json::{Value, json};

/// Log-likelihoods of tokens.
#[derive(Default)]
pub struct Likelihood {
    count: usize,
    sum: f64,
    squares: f64,
}

impl Likelihood {
    /// One token's log-probability.
    pub fn push(&mut self, log_prob: f64) {
        self.count += 1;
        self.sum -= log_prob;
        self.squares += log_prob * log_prob;
    }

    /// Tokens judged.
    pub fn count(&self) -> usize {
        self.count
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// `exp` of the mean negative log-likelihood.
    pub fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Its standard error: that of the mean, times its slope.
    pub fn error(&self) -> f64 {
        let n = self.count.max(2) as f64;
        let variance = (self.squares / n - self.mean() * self.mean()).max(0.0);
        self.perplexity() * (variance / (n - 1.0)).sqrt()
    }

    /// `{"perplexity", "error", "tokens"}`.
    pub fn as_json(&self) -> Value {
        json!({ "perplexity": self.perplexity(), "error": self.error(), "tokens": self.count })
    }
}

/// What two models say of one token.
#[derive(Clone, Copy)]
pub struct Pair {
    /// Log-probability of the token by the model.
    pub own: f64,
    /// By the base.
    pub base: f64,
    /// KL divergence of the base's distribution from the model's, in nats.
    kl: f64,
    /// Whether both expect the same token most.
    same_top: bool,
}

/// Compares two rows of logits `[n_vocab]`; `token` is what came.
pub fn kl_of(own: &[f32], base: &[f32], token: u32) -> Pair {
    let ((own_total, own_top), (base_total, base_top)) = (log_total(own), log_total(base));
    let log_prob = |logits: &[f32], total: f64, id: usize| f64::from(logits[id]) - total;
    let terms = base.iter().zip(own).map(|(b, o)| {
        let (b, o) = (f64::from(*b) - base_total, f64::from(*o) - own_total);
        b.exp() * (b - o)
    });
    Pair {
        own: log_prob(own, own_total, token as usize),
        base: log_prob(base, base_total, token as usize),
        kl: terms.sum::<f64>().max(0.0),
        same_top: own_top == base_top,
    }
}

/// The logarithm of the sum of exponentials, and the place of the maximum.
fn log_total(logits: &[f32]) -> (f64, usize) {
    let mut top = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[top] {
            top = i;
        }
    }
    let max = f64::from(logits[top]);
    let sum: f64 = logits.iter().map(|x| (f64::from(*x) - max).exp()).sum();
    (max + sum.ln(), top)
}

/// Divergences of all tokens.
#[derive(Default)]
pub struct Kl {
    pairs: Vec<Pair>,
}

impl Kl {
    /// One more token.
    pub fn push(&mut self, pair: Pair) {
        self.pairs.push(pair);
    }

    /// Mean KL divergence.
    pub fn mean(&self) -> f64 {
        self.sum(|p| p.kl) / self.n()
    }

    fn n(&self) -> f64 {
        self.pairs.len().max(1) as f64
    }

    fn sum(&self, f: impl Fn(&Pair) -> f64) -> f64 {
        self.pairs.iter().map(f).sum()
    }

    /// Root mean square of the difference of the tokens' probabilities.
    fn rms_p(&self) -> f64 {
        (self.sum(|p| (p.own.exp() - p.base.exp()).powi(2)) / self.n()).sqrt()
    }

    fn same_top(&self) -> f64 {
        self.sum(|p| f64::from(u8::from(p.same_top))) / self.n()
    }

    /// The divergence that this fraction of the tokens stays below.
    fn quantile(&self, q: f64) -> f64 {
        let mut all: Vec<f64> = self.pairs.iter().map(|p| p.kl).collect();
        all.sort_by(f64::total_cmp);
        let at = (q * (all.len().max(1) - 1) as f64).round() as usize;
        all.get(at).copied().unwrap_or(0.0)
    }

    /// All figures.
    pub fn as_json(&self) -> Value {
        json!({
            "mean": self.mean(),
            "median": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "max": self.quantile(1.0),
            "rms_dp": self.rms_p(),
            "same_top": self.same_top(),
        })
    }
}

impl Display for Kl {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "KL mean {:.6}, median {:.6}, 99 % {:.6}, max {:.6}\nRMS Δp {:.3} %, same top token {:.2} %",
            self.mean(),
            self.quantile(0.5),
            self.quantile(0.99),
            self.quantile(1.0),
            100.0 * self.rms_p(),
            100.0 * self.same_top()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_known_distributions() {
        let mut even = Likelihood::default();
        (0..10).for_each(|_| even.push(0.25_f64.ln()));
        assert!((even.perplexity() - 4.0).abs() < 1e-12 && even.error() < 1e-6);

        // (1/2, 1/4, 1/4) against (1/4, 1/2, 1/4): KL = 1/2 ln 2 - 1/4 ln 2.
        let logits = |p: [f32; 3]| p.map(|p| p.ln() + 3.0);
        let pair = kl_of(&logits([0.25, 0.5, 0.25]), &logits([0.5, 0.25, 0.25]), 1);
        assert!((pair.kl - 0.25 * std::f64::consts::LN_2).abs() < 1e-6);
        assert!((pair.own - 0.5_f64.ln()).abs() < 1e-6 && (pair.base - 0.25_f64.ln()).abs() < 1e-6);
        let mut kl = Kl::default();
        kl.push(pair);
        kl.push(kl_of(&[1.0, 2.0], &[1.0, 2.0], 0));
        assert!((kl.mean() - pair.kl / 2.0).abs() < 1e-12);
        assert_eq!(kl.same_top(), 0.5);
        assert_eq!(kl.quantile(1.0), pair.kl);
    }
}
