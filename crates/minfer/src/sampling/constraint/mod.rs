//! Constrained decoding: what may come next is what a grammar, a schema or a regular expression allows.
//!
//! [`ConstraintSpec`] says what; [`Constraints`] knows a vocabulary and compiles it; the [`Constraint`] that comes out follows one
//! sequence. Behind it is the crate llguidance (feature `llguidance`); GBNF is translated to its Lark by `gbnf`. A spec that
//! can't be compiled is an error before the first token: text is never left unconstrained. See `docs/adr/0009-constraints.md`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "llguidance")]
mod compile;
mod error;
#[cfg(feature = "llguidance")]
mod gbnf;
#[cfg(feature = "llguidance")]
mod grammar;
#[cfg(feature = "llguidance")]
mod place;
#[cfg(feature = "llguidance")]
mod recent;
#[cfg(feature = "llguidance")]
mod repeats;
#[cfg(feature = "llguidance")]
mod schema;
#[cfg(feature = "llguidance")]
mod shape;
mod spec;
#[cfg(all(test, feature = "llguidance"))]
mod tests;
#[cfg(feature = "llguidance")]
mod together;
#[cfg(feature = "llguidance")]
mod tokens;
#[cfg(feature = "llguidance")]
mod words;

#[cfg(feature = "llguidance")]
pub use compile::Constraints;
pub use error::ConstraintError;
pub use spec::ConstraintSpec;

/// Limits what may come next. One constraint follows one sequence; its state is a function of its spec and of the tokens it
/// accepted, so a saved sequence brings it back by accepting them again.
pub trait Constraint: Send + Sync {
    /// Sets the logits of all tokens that may not come next to minus infinity. `logits`: one a token of the vocabulary, or more
    /// (what lies past the vocabulary may never come). End-of-generation tokens stay exactly where the text may end; other control
    /// tokens never do.
    ///
    /// # Errors
    /// Nothing can come next, or finding out takes more than the limits allow.
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError>;

    /// Tells that a token was chosen.
    ///
    /// # Errors
    /// The token may not come here; the state is as before.
    fn accept(&mut self, token: u32) -> Result<(), ConstraintError>;

    /// Whether the text is complete: nothing may follow but its end. Where a vocabulary has no end-of-generation token, only
    /// this tells, and [`Constraint::mask`] is an error from here on.
    fn is_done(&self) -> bool;

    /// The same state for another sequence.
    fn boxed_clone(&self) -> Box<dyn Constraint>;
}

/// Stands for the compiler in a build without the feature `llguidance`.
#[cfg(not(feature = "llguidance"))]
pub struct Constraints(());

#[cfg(not(feature = "llguidance"))]
impl Constraints {
    /// Does nothing.
    ///
    /// # Errors
    /// None.
    pub fn new(_: &crate::tokenizer::Tokenizer) -> Result<Constraints, ConstraintError> {
        Ok(Constraints(()))
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always [`ConstraintError::NotBuilt`].
    pub fn check(&self, _: &ConstraintSpec) -> Result<(), ConstraintError> {
        Err(ConstraintError::NotBuilt)
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always [`ConstraintError::NotBuilt`].
    pub fn read(&self, _: &ConstraintSpec) -> Result<(), ConstraintError> {
        Err(ConstraintError::NotBuilt)
    }

    /// Nothing was compiled.
    pub fn compiled(&self) -> u64 {
        0
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always [`ConstraintError::NotBuilt`].
    pub fn compile(&self, _: &ConstraintSpec) -> Result<Box<dyn Constraint>, ConstraintError> {
        Err(ConstraintError::NotBuilt)
    }
}
