//! Byte-level BPE (`tokenizer.ggml.model` "gpt2"): words of a pre-tokenizer, merged by rank.

use super::TokenizerError;
use super::hash::{self, PairMap};
use super::merge::{NONE, Pairs, Scratch, Symbol, merge};
use super::vocab::{Alphabet, ByteDecoder, Vocab};
use crate::gguf::Metadata;

/// The merges of a byte-level vocabulary.
pub(super) struct Bpe {
    merges: PairMap,
    /// Token of each byte; [`NONE`] where the vocabulary has none.
    bytes: [u32; 256],
    /// A word that is a token as a whole is that token.
    ignore_merges: bool,
}

impl Bpe {
    /// Reads `tokenizer.ggml.merges`: rules "left right", the earlier the stronger.
    pub(super) fn new(
        md: &Metadata,
        vocab: &Vocab,
        ignore_merges: bool,
    ) -> Result<Bpe, TokenizerError> {
        let key = "tokenizer.ggml.merges";
        let rules = md.required(key, md.str_arr(key)?)?;
        let find = |bytes: &[u8]| vocab.lookup(Alphabet::ByteLevel, hash::bytes(bytes), bytes);
        let decoder = ByteDecoder::new();
        let mut merges = PairMap::with_capacity(rules.len());
        let mut pair = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let wrong = |why| TokenizerError::Merge {
                index,
                text: rule.to_owned(),
                why,
            };
            let (left, right) = rule
                .split_once(' ')
                .filter(|(l, r)| !l.is_empty() && !r.is_empty())
                .ok_or_else(|| wrong("is not two parts with a space between"))?;
            pair.clear();
            let ok = decoder.decode(left, &mut pair);
            let cut = pair.len();
            if !ok || !decoder.decode(right, &mut pair) {
                return Err(wrong("has a character outside the byte-level alphabet"));
            }
            let (l, r) = pair.split_at_checked(cut).unwrap_or_default();
            let (Some(left), Some(right)) = (find(l), find(r)) else {
                return Err(wrong("has a part that is not a token"));
            };
            let merged = find(&pair).ok_or_else(|| wrong("makes a text that is not a token"))?;
            // A vocabulary of so many rules does not fit in memory; ranks past 2^32 would be equal.
            merges.insert(
                left,
                right,
                u32::try_from(index).unwrap_or(u32::MAX),
                merged,
            );
        }
        let mut bytes = [NONE; 256];
        for (slot, byte) in bytes.iter_mut().zip(0..=255u8) {
            *slot = find(&[byte]).unwrap_or(NONE);
        }
        Ok(Bpe {
            merges,
            bytes,
            ignore_merges,
        })
    }

    /// Appends the ids of one word. A byte that the vocabulary has no token for gives none (as in
    /// Hugging Face's and llama.cpp's tokenizers): published vocabularies lack some of the bytes
    /// of control characters and those that no UTF-8 text has.
    pub(super) fn word(
        &self,
        vocab: &Vocab,
        word: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        if self.ignore_merges
            && let Some(id) = vocab.lookup(Alphabet::ByteLevel, hash::bytes(word), word)
        {
            return out.push(id);
        }
        scratch.symbols.clear();
        scratch
            .symbols
            .extend(word.iter().enumerate().map(|(start, b)| Symbol {
                id: self.bytes.get(usize::from(*b)).copied().unwrap_or(NONE),
                start,
                end: start.wrapping_add(1),
            }));
        merge(word, self, scratch);
        out.extend(
            scratch
                .symbols
                .iter()
                .map(|s| s.id)
                .filter(|id| *id != NONE),
        );
    }
}

impl Pairs for Bpe {
    fn pair(&self, _word: &[u8], left: Symbol, right: Symbol) -> Option<(u32, u32)> {
        if left.id == NONE || right.id == NONE {
            return None;
        }
        self.merges.get(left.id, right.id)
    }
}
