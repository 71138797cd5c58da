//! A compiled grammar that follows a sequence.

use std::sync::Arc;

use llguidance::Matcher;
use llguidance::api::StopReason;

use super::compile::ONLY_EMPTY;
use super::tokens::{Tokens, holds};
use super::words::tidy;
use super::{Constraint, ConstraintError};

/// A compiled grammar and where in it a sequence is.
pub(super) struct Grammar {
    matcher: Matcher,
    tokens: Arc<Tokens>,
    /// Control tokens that it may name, as bits.
    marks: Vec<u32>,
    kind: &'static str,
    done: bool,
}

impl Grammar {
    /// A grammar at its start, which a first mask has tried.
    pub(super) fn new(
        matcher: Matcher,
        tokens: Arc<Tokens>,
        marks: &[u32],
        kind: &'static str,
    ) -> Result<Grammar, ConstraintError> {
        let mut grammar = Grammar {
            matcher,
            marks: tokens.marks(marks),
            tokens,
            kind,
            done: false,
        };
        grammar.settle(&[])?;
        match grammar.allowed() {
            Ok(allowed) if grammar.says(&allowed) => Ok(grammar),
            Ok(_) | Err(ConstraintError::Complete { .. }) => Err(ConstraintError::Spec {
                kind,
                why: ONLY_EMPTY.to_owned(),
            }),
            Err(e) => Err(e),
        }
    }

    /// Whether a token is among these that says something.
    fn says(&self, allowed: &[u32]) -> bool {
        let texts = self.tokens.text.iter().zip(&self.marks);
        let mut words = allowed.iter().zip(texts);
        words.any(|(word, (text, marks))| word & (text | marks) != 0)
    }

    /// The same, for a sequence that shares nothing with this one: what the one costs is not the other's.
    pub(super) fn apart(&self) -> Grammar {
        Grammar {
            matcher: self.matcher.deep_clone(),
            tokens: Arc::clone(&self.tokens),
            marks: self.marks.clone(),
            kind: self.kind,
            done: self.done,
        }
    }

    fn limit(&self, error: impl std::fmt::Display) -> ConstraintError {
        ConstraintError::Limit {
            kind: self.kind,
            why: tidy(&error.to_string()),
        }
    }

    fn refused(&self, token: u32) -> ConstraintError {
        let trie = self.tokens.env.tok_trie();
        ConstraintError::Refused {
            token,
            text: String::from_utf8_lossy(trie.token(token)).into_owned(),
            kind: self.kind,
        }
    }

    /// Goes on by `tokens`, which the grammar must allow; false if it does not, and then nothing has changed.
    fn settle(&mut self, tokens: &[u32]) -> Result<bool, ConstraintError> {
        let taken = if tokens.is_empty() {
            // Looks whether the grammar is at its end already.
            self.matcher.consume_tokens(tokens).map(|()| 0)
        } else {
            self.matcher.try_consume_tokens(tokens)
        };
        let taken = taken.map_err(|e| self.limit(e))?;
        self.done = self.matcher.is_stopped();
        Ok(taken == tokens.len())
    }

    /// The tokens that may come next, as bits.
    fn allowed(&mut self) -> Result<Vec<u32>, ConstraintError> {
        let set = if self.done {
            None
        } else {
            match self.matcher.compute_mask() {
                Ok(set) => Some(set),
                Err(e) if dead_end(&e.to_string()) => {
                    return Err(ConstraintError::DeadEnd { kind: self.kind });
                }
                Err(e) => return Err(self.limit(e)),
            }
        };
        let may_end = self.done || self.matcher.is_accepting().map_err(|e| self.limit(e))?;
        let words = set.as_ref().map_or(&[][..], |set| set.as_slice());
        let words = words.iter().copied().chain(std::iter::repeat(0));
        let mut any = 0;
        let allowed = words
            .zip(self.tokens.text.iter().zip(&self.tokens.eog))
            .zip(&self.marks)
            .map(|((word, (text, eog)), marks)| {
                let word = word & (text | marks) | if may_end { *eog } else { 0 };
                any |= word;
                word
            })
            .collect();
        match any {
            0 if may_end => Err(ConstraintError::Complete { kind: self.kind }),
            0 => Err(ConstraintError::DeadEnd { kind: self.kind }),
            _ => Ok(allowed),
        }
    }
}

/// Whether a mask failed for want of any token: the reason is all that llguidance says then, and its matcher does not keep it.
fn dead_end(message: &str) -> bool {
    message.lines().next() == Some(StopReason::NoExtensionBias.to_string().as_str())
}

impl Constraint for Grammar {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        let allowed = self.allowed()?;
        let words = allowed.into_iter().chain(std::iter::repeat(0));
        for (word, logits) in words.zip(logits.chunks_mut(32)) {
            match word {
                u32::MAX => {}
                0 => logits.fill(f32::NEG_INFINITY),
                _ => {
                    for (bit, logit) in (0..32).zip(logits) {
                        if word & (1 << bit) == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        let known = (self.tokens.is_text(token) || holds(&self.marks, token)) && !self.done;
        if !known && !self.tokens.is_eog(token) {
            return Err(self.refused(token));
        }
        if self.done {
            // The end of a text that is complete changes nothing.
            return Ok(());
        }
        match self.settle(&[token])? {
            true => Ok(()),
            false => Err(self.refused(token)),
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(Grammar {
            matcher: self.matcher.clone(),
            tokens: Arc::clone(&self.tokens),
            marks: self.marks.clone(),
            kind: self.kind,
            done: self.done,
        })
    }
}
