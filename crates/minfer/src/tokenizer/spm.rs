//! SentencePiece BPE (`tokenizer.ggml.model` "llama"): neighbours whose joint text is a piece
//! merge, the best score first; what is no piece in the end becomes byte tokens.

use super::hash::{self, Memo};
use super::merge::{NONE, Pairs, Scratch, Symbol, merge};
use super::vocab::{Alphabet, Kind, SPACE, Vocab};
use super::{TokenizerError, fields};
use crate::gguf::Metadata;

/// Scores, byte tokens and what a text can be cut by.
pub(super) struct Spm {
    /// A key for each token: the lower, the better its score.
    keys: Vec<u32>,
    bytes: [u32; 256],
    /// Length in bytes of the longest piece.
    longest: usize,
    /// One bit for each (hashed) pair of neighbouring characters in some piece. Where a text has
    /// a pair that no piece has, nothing ever merges across: it can be cut there.
    inside: Vec<u64>,
    unknown: Option<u32>,
}

/// log2 of the bits in [`Spm::inside`].
const INSIDE_BITS: u32 = 20;

fn inside_bit(a: char, b: char) -> (usize, u64) {
    let pair = u64::from(u32::from(a)) << 21 | u64::from(u32::from(b));
    let hash = pair.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64u32.wrapping_sub(INSIDE_BITS));
    ((hash >> 6) as usize, 1 << (hash & 63))
}

/// Ascending for descending scores; 0 and -0 are one score.
fn key_of(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    !ascending
}

impl Spm {
    /// Reads `tokenizer.ggml.scores`. `unknown` stands for characters without byte tokens.
    pub(super) fn new(
        md: &Metadata,
        vocab: &Vocab,
        unknown: Option<u32>,
    ) -> Result<Spm, TokenizerError> {
        let key = "tokenizer.ggml.scores";
        let scores = fields::per_token(key, md.f32_arr(key)?, vocab.len())?;
        let scores = md.required(key, scores)?;
        if let Some(id) = scores.iter().position(|s| s.is_nan()) {
            return Err(TokenizerError::Score { id });
        }
        let mut bytes = [NONE; 256];
        for (kind, id) in vocab.kinds.iter().zip(0u32..) {
            if *kind == Kind::Byte
                && let Some([byte]) = vocab.bytes(id)
                && let Some(slot) = bytes.get_mut(usize::from(*byte))
            {
                *slot = id;
            }
        }
        let mut spm = Spm {
            keys: scores.iter().copied().map(key_of).collect(),
            bytes,
            longest: 0,
            inside: vec![0; 1 << INSIDE_BITS.saturating_sub(6)],
            unknown,
        };
        vocab
            .mergeable()
            .filter_map(|id| vocab.text(id))
            .for_each(|t| spm.add_inside(t));
        Ok(spm)
    }

    fn add_inside(&mut self, text: &str) {
        self.longest = self.longest.max(text.len());
        for (a, b) in text.chars().zip(text.chars().skip(1)) {
            let (word, mask) = inside_bit(a, b);
            if let Some(w) = self.inside.get_mut(word) {
                *w |= mask;
            }
        }
    }

    fn can_cut(&self, a: char, b: char) -> bool {
        let (word, mask) = inside_bit(a, b);
        self.inside.get(word).is_none_or(|w| w & mask == 0)
    }

    /// Appends the ids of `escaped[from..]`, whose spaces are `▁` already.
    pub(super) fn fragment(
        &self,
        vocab: &Vocab,
        (escaped, from): (&str, usize),
        memo: &mut Memo,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let Some(text) = escaped.get(from..) else {
            return;
        };
        let mut start = from;
        let mut last = None;
        for (i, c) in text.char_indices() {
            let at = from.wrapping_add(i);
            if last.is_some_and(|l| self.can_cut(l, c)) {
                memo.word(escaped.as_bytes(), (start, at), out, |w, out| {
                    self.word(vocab, w, scratch, out);
                });
                start = at;
            }
            last = Some(c);
        }
        memo.word(escaped.as_bytes(), (start, escaped.len()), out, |w, out| {
            self.word(vocab, w, scratch, out);
        });
    }

    fn word(&self, vocab: &Vocab, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        scratch.symbols.clear();
        let starts = (0..word.len()).filter(|i| word.get(*i).is_some_and(|b| b & 0xc0 != 0x80));
        for start in starts {
            if let Some(last) = scratch.symbols.last_mut() {
                last.end = start;
            }
            scratch.symbols.push(Symbol {
                id: NONE,
                start,
                end: word.len(),
            });
        }
        merge(word, &Pieces { spm: self, vocab }, scratch);
        for s in &scratch.symbols {
            let text = word.get(s.start..s.end).unwrap_or_default();
            let piece = if s.id == NONE {
                find(vocab, text)
            } else {
                Some(s.id)
            };
            match piece {
                Some(id) => out.push(id),
                None => self.fall_back(text, out),
            }
        }
    }

    /// A character that is no piece: its bytes, or the unknown token.
    fn fall_back(&self, text: &[u8], out: &mut Vec<u32>) {
        let id = |b: &u8| {
            self.bytes
                .get(usize::from(*b))
                .copied()
                .filter(|id| *id != NONE)
        };
        let ids: Option<Vec<u32>> = text.iter().map(id).collect();
        match ids {
            Some(ids) => out.extend(ids),
            None => out.extend(self.unknown),
        }
    }
}

/// The text as SentencePiece sees it: spaces become `▁`.
pub(super) fn escape(text: &str, out: &mut String) {
    for (i, part) in text.split(' ').enumerate() {
        if i > 0 {
            out.push_str(SPACE);
        }
        out.push_str(part);
    }
}

fn find(vocab: &Vocab, text: &[u8]) -> Option<u32> {
    vocab.lookup(Alphabet::SentencePiece, hash::bytes(text), text)
}

struct Pieces<'a> {
    spm: &'a Spm,
    vocab: &'a Vocab,
}

impl Pairs for Pieces<'_> {
    fn pair(&self, word: &[u8], left: Symbol, right: Symbol) -> Option<(u32, u32)> {
        if right.end.wrapping_sub(left.start) > self.spm.longest {
            return None;
        }
        let id = find(self.vocab, word.get(left.start..right.end)?)?;
        Some((*self.spm.keys.get(id as usize)?, id))
    }
}
