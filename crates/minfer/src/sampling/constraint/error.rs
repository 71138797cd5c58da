//! Why a constraint could not be made, or a text not go on.

/// Why a constraint could not be made, or a text not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// This build has no compiler of constraints.
    #[error(
        "this build can't constrain its output: build minfer with the feature `llguidance` (it is on by default)"
    )]
    NotBuilt,
    /// The spec can't be compiled.
    #[error("the {kind} can't be used: {why}")]
    Spec {
        /// What kind of spec: see [`super::ConstraintSpec::kind`].
        kind: &'static str,
        /// What is wrong with it, and where.
        why: String,
    },
    /// The spec is longer than any that is tried.
    #[error("the {kind} has {got} {unit}; at most {limit} are read")]
    Size {
        /// What kind of spec.
        kind: &'static str,
        /// How many it has.
        got: usize,
        /// Of what.
        unit: &'static str,
        /// How many it may have.
        limit: usize,
    },
    /// The vocabulary can't be constrained.
    #[error("the model's vocabulary can't be constrained: {why}")]
    Vocabulary {
        /// What it lacks or has too much of.
        why: String,
    },
    /// A token came that the constraint does not allow.
    #[error("token {token} ({text:?}) may not come here: the {kind} does not allow it")]
    Refused {
        /// The token.
        token: u32,
        /// Its text.
        text: String,
        /// What kind of spec.
        kind: &'static str,
    },
    /// No token of the vocabulary can come next.
    #[error(
        "no token can follow: what the {kind} asks for here is nothing at all, or text that this model's vocabulary can't write"
    )]
    DeadEnd {
        /// What kind of spec.
        kind: &'static str,
    },
    /// The text is complete, and the vocabulary has no token that says so.
    #[error("the text is complete: the {kind} allows nothing more")]
    Complete {
        /// What kind of spec.
        kind: &'static str,
    },
    /// Finding out what may come next takes too much time or memory.
    #[error("the {kind} is too complex to follow: {why}")]
    Limit {
        /// What kind of spec.
        kind: &'static str,
        /// Which limit.
        why: String,
    },
    /// The system gave no thread to compile in.
    #[error("no thread to compile the {kind} in: {why}")]
    Thread {
        /// What kind of spec.
        kind: &'static str,
        /// The system's reason.
        why: String,
    },
}
