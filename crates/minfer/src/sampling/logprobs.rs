//! Log-probabilities of the chosen and the likeliest tokens.

use super::{Candidate, SamplingError, math, select};
use crate::lanes::scan;

/// Log-probabilities (natural) under the softmax of all logits.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbs {
    /// Of the chosen token.
    pub chosen: f32,
    /// The likeliest tokens, best first: (token, log-probability).
    pub top: Vec<(u32, f32)>,
}

/// Log-probabilities of `chosen` and of the `n` likeliest tokens, over the whole vocabulary. Give the model's own logits: [`super::Sampler::sample`]
/// writes bias and penalties into its slice. Errors: a non-finite logit, `chosen` outside the vocabulary.
pub fn log_probs(logits: &[f32], chosen: u32, n: usize) -> Result<LogProbs, SamplingError> {
    if let Some(token) = scan::first_non_finite(logits) {
        let value = logits[token];
        return Err(SamplingError::NonFinite { token, value });
    }
    let logit = logits
        .get(chosen as usize)
        .ok_or_else(|| SamplingError::Parameter {
            field: "chosen",
            value: format!("token {chosen}"),
            range: "a token of the vocabulary",
        })?;
    let max = scan::max(logits);
    let log_total = math::ln(scan::sum_exp(logits, max));
    let log_prob = |logit: f32| (f64::from(logit) - f64::from(max) - log_total) as f32;
    let mut top: Vec<Candidate> = Vec::new();
    match n {
        0 => {}
        n if n < logits.len() => select::top_k(logits, n, &mut top),
        _ => {
            select::all(logits, &mut top);
            top.sort_unstable_by(select::better);
        }
    }
    Ok(LogProbs {
        chosen: log_prob(*logit),
        top: top.iter().map(|c| (c.id, log_prob(c.logit))).collect(),
    })
}
