//! The sampler chain: logits in, a token out; stop strings; log-probabilities; the constraint hook.
//!
//! The order is llama.cpp's: logit bias, penalties, top-k, typical, top-p, min-p, temperature, draw. Everything is computed
//! with this room's own `exp` and `ln` and sums of fixed order, so the same logits give the same token on every machine.

mod constraint;
mod draw;
mod history;
mod logprobs;
mod math;
mod params;
mod sampler;
mod select;
mod stop;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

pub use constraint::Constraint;
pub use draw::draw;
pub use logprobs::{LogProbs, log_probs};
pub use params::SamplerParams;
pub use sampler::{Candidate, Sampler};
pub use stop::{StopMatcher, Stopped};

/// Why no token could be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// A parameter lies outside its range.
    #[error("{field} is {value}: it must be {range}")]
    Parameter {
        /// The parameter's name.
        field: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// A sampling field of the model file has a wrong type.
    #[error("{key} in the model file must be a number, is {value}")]
    Metadata {
        /// The metadata key.
        key: &'static str,
        /// What it was.
        value: String,
    },
    /// The model gave a logit that is not a finite number.
    #[error("the model's logit of token {token} is {value}: the computation went wrong")]
    NonFinite {
        /// The token.
        token: usize,
        /// NaN or an infinity.
        value: f32,
    },
    /// The logits are not one number a token of the vocabulary.
    #[error("{got} logits for a vocabulary of {expected} tokens")]
    Length {
        /// Logits given.
        got: usize,
        /// Tokens in the vocabulary.
        expected: usize,
    },
    /// Logit bias and constraint left no token.
    #[error("no token is allowed here: logit bias and constraint exclude all of them")]
    NoneLeft,
}
