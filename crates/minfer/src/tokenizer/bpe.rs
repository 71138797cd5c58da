//! Byte-level BPE (`tokenizer.ggml.model` "gpt2"): words of a pre-tokenizer, merged by rank.

use super::TokenizerError;
use super::hash::{self, PairMap};
use super::merge::{NONE, Pairs, Scratch, Symbol, merge};
use super::vocab::{Alphabet, ByteDecoder, Vocab};
use crate::gguf::{Metadata, StrArray};
use std::ops::Range;

/// The merges of a byte-level vocabulary.
pub(super) struct Bpe {
    merges: PairMap,
    /// Token of each byte; [`NONE`] where the vocabulary has none.
    bytes: [u32; 256],
    /// A word that is a token as a whole is that token.
    ignore_merges: bool,
}

/// Rules are looked up in blocks: first everything is brought into the cache, then it is used.
const BLOCK: usize = 64;

/// Bytes to look up, with their hash.
struct Part<'a> {
    bytes: &'a [u8],
    hash: u64,
}

impl Part<'_> {
    fn new(bytes: &[u8]) -> Part<'_> {
        Part {
            bytes,
            hash: hash::bytes(bytes),
        }
    }

    fn find(&self, vocab: &Vocab) -> Option<u32> {
        vocab.lookup(Alphabet::ByteLevel, self.hash, self.bytes)
    }
}

/// What is wrong with which rule.
type Wrong = (usize, &'static str);

/// A block of rules as bytes.
struct Block {
    decoder: ByteDecoder,
    bytes: Vec<u8>,
    /// Index, start, border and end of each rule.
    cuts: Vec<[usize; 4]>,
}

impl Block {
    fn new() -> Block {
        Block {
            decoder: ByteDecoder::new(),
            bytes: Vec::new(),
            cuts: Vec::new(),
        }
    }

    fn read(&mut self, rules: &StrArray, range: Range<usize>) -> Result<(), Wrong> {
        self.bytes.clear();
        self.cuts.clear();
        for index in range {
            let rule = rules.get(index).unwrap_or_default();
            let parts = rule
                .split_once(' ')
                .filter(|(l, r)| !l.is_empty() && !r.is_empty());
            let (left, right) = parts.ok_or((index, "is not two parts with a space between"))?;
            let start = self.bytes.len();
            let known = self.decoder.decode(left, &mut self.bytes);
            let border = self.bytes.len();
            if !known || !self.decoder.decode(right, &mut self.bytes) {
                return Err((index, "has a character outside the byte-level alphabet"));
            }
            self.cuts.push([index, start, border, self.bytes.len()]);
        }
        Ok(())
    }

    /// Each rule: its index, left part, right part and both together.
    fn rules(&self) -> impl Iterator<Item = (usize, Part<'_>, Part<'_>, &[u8])> {
        let part = |from, to| self.bytes.get(from..to).unwrap_or_default();
        self.cuts.iter().map(move |[index, start, border, end]| {
            let (left, right) = (part(*start, *border), part(*border, *end));
            (
                *index,
                Part::new(left),
                Part::new(right),
                part(*start, *end),
            )
        })
    }

    fn touch(&self, vocab: &Vocab) {
        let touched = |(_, l, r, _): (usize, Part<'_>, Part<'_>, &[u8])| {
            vocab.touch(l.hash) ^ vocab.touch(r.hash)
        };
        std::hint::black_box(self.rules().map(touched).fold(0, |a, b| a ^ b));
    }

    fn add(&self, vocab: &Vocab, next: &mut u32, merges: &mut PairMap) -> Result<(), Wrong> {
        for (index, left, right, both) in self.rules() {
            let (Some(left), Some(right)) = (left.find(vocab), right.find(vocab)) else {
                return Err((index, "has a part that is not a token"));
            };
            let expected = vocab.is_mergeable(*next) && vocab.bytes(*next) == Some(both);
            let merged = if expected {
                Some(*next)
            } else {
                Part::new(both).find(vocab)
            };
            let merged = merged.ok_or((index, "makes a text that is not a token"))?;
            *next = merged.wrapping_add(1);
            merges.push(left, right, merged);
        }
        Ok(())
    }
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
        let mut merges = PairMap::with_capacity(rules.len());
        let mut block = Block::new();
        // The results of rules mostly follow each other in the vocabulary.
        let mut next = 0u32;
        for first in (0..rules.len()).step_by(BLOCK) {
            let end = first.saturating_add(BLOCK).min(rules.len());
            let wrong = |(index, why)| TokenizerError::Merge {
                index,
                text: rules.get(index).unwrap_or_default().to_owned(),
                why,
            };
            block.read(rules, first..end).map_err(wrong)?;
            block.touch(vocab);
            block.add(vocab, &mut next, &mut merges).map_err(wrong)?;
        }
        let mut bytes = [NONE; 256];
        for (slot, byte) in bytes.iter_mut().zip(0..=255u8) {
            *slot = Part::new(&[byte]).find(vocab).unwrap_or(NONE);
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
