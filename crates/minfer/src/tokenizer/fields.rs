//! What the tokenizer's fields must be beyond their types.

use super::TokenizerError;
use crate::gguf::Metadata;

/// A token id below `n_vocab`; `None` if absent.
pub(super) fn token_id(
    md: &Metadata,
    key: &'static str,
    n_vocab: usize,
) -> Result<Option<u32>, TokenizerError> {
    let Some(value) = md.i64(key)? else {
        return Ok(None);
    };
    match u32::try_from(value) {
        Ok(id) if (id as usize) < n_vocab => Ok(Some(id)),
        _ => Err(TokenizerError::Id {
            key,
            value,
            n_vocab,
        }),
    }
}

/// Checks the length of a per-token array.
pub(super) fn per_token<T, A: AsRef<[T]>>(
    key: &'static str,
    array: Option<A>,
    n_vocab: usize,
) -> Result<Option<A>, TokenizerError> {
    match &array {
        Some(a) if a.as_ref().len() != n_vocab => Err(TokenizerError::Length {
            key,
            got: a.as_ref().len(),
            want: n_vocab,
        }),
        _ => Ok(array),
    }
}
