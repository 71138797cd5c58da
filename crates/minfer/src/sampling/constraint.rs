//! The hook of constrained decoding.

/// Limits what may come next: a grammar, a schema. One constraint follows one sequence.
pub trait Constraint: Send {
    /// Sets the logits of all tokens that may not come next to minus infinity. `logits`: one a token of the vocabulary.
    fn mask(&mut self, logits: &mut [f32]);

    /// Tells that a token was chosen.
    fn accept(&mut self, token: u32);
}
