//! The sampler chain: logits in, a token out; stop strings; log-probabilities; the constraint hook.
//!
//! The order is llama.cpp's unless the parameters give another: logit bias, constraint, penalties, DRY, top-n-sigma, top-k, typical,
//! top-p, min-p, XTC, temperature, draw. Everything is computed with this room's own `exp` and `ln` and sums of fixed order, so
//! the same logits give the same token on every machine.
//!
//! Beside llama.cpp: tokens at minus infinity (banned, masked) are no candidates, so they don't count where the number of
//! candidates does (the dynamic temperature); DRY's breakers are found in the text however it is cut into tokens.

mod breakers;
mod constraint;
mod draw;
mod dry;
mod field;
mod history;
mod kind;
mod logprobs;
mod math;
mod mirostat;
mod model_defaults;
mod params;
mod sampler;
mod select;
mod stop;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod samplers_tests;
#[cfg(test)]
mod tests;

pub use constraint::{Constraint, ConstraintError, ConstraintSpec, Constraints};
pub use draw::draw;
pub use kind::SamplerKind;
pub use logprobs::{LogProbs, log_probs};
pub use params::SamplerParams;
pub use sampler::{Candidate, Sampler, SamplerState};
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
    #[error("{key} in the model file must be {expected}, is {value}")]
    Metadata {
        /// The metadata key.
        key: &'static str,
        /// What it was.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A name in an order of samplers that none has.
    #[error("there is no sampler '{name}' here: there are {known}")]
    Sampler {
        /// The name.
        name: String,
        /// Those there are.
        known: &'static str,
    },
    /// DRY is on, and the sampler was given no tokenizer in which to look for its breakers.
    #[error(
        "DRY looks for its sequence breakers in the vocabulary: give the sampler the tokenizer, or no breakers"
    )]
    NoTokenizer,
    /// A saved state does not fit the parameters.
    #[error(
        "mirostat's mu in the saved state is {saved}: with these sampling parameters it must be {wanted}"
    )]
    State {
        /// What was saved.
        saved: String,
        /// What fits.
        wanted: &'static str,
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
    /// The constraint can't go on.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
}
