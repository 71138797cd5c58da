//! A vocabulary as llguidance sees it: the bytes of every token, and what is no text.

use std::sync::Arc;

use toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::ConstraintError;
use crate::tokenizer::Tokenizer;

/// Longest token in bytes that toktrie's tree holds; longer ones are never allowed.
const LONGEST: usize = 1000;
/// Most nodes of toktrie's tree: a byte of a distinct prefix is a node.
const NODES: usize = 1 << 22;

/// The tokens of a model, in sets of bits: token `i` is bit `i % 32` of word `i / 32`.
pub(super) struct Tokens {
    /// Those that are text.
    pub(super) text: Vec<u32>,
    /// Those that end a generation.
    pub(super) eog: Vec<u32>,
    /// Their tree.
    pub(super) env: TokEnv,
}

impl Tokens {
    /// The bytes are those that a [`crate::tokenizer::Decoder`] gives in the middle of a text. Tokens that are no text (control,
    /// unknown, end of generation) have none.
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Tokens, ConstraintError> {
        let n = tokenizer.n_vocab();
        // Ids lie below i32::MAX: `TokenizerError::Size`.
        let words: Vec<Vec<u8>> = (0..n as u32).map(|id| bytes(tokenizer, id)).collect();
        if n >= 0xff_ffff || nodes(&words) >= NODES {
            let why = format!("{n} tokens of {} bytes are too many", total(&words));
            return Err(ConstraintError::Vocabulary { why });
        }
        if words.iter().all(Vec::is_empty) {
            let why = "no token is text".to_owned();
            return Err(ConstraintError::Vocabulary { why });
        }
        let eog = tokenizer.eog();
        let first = eog.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(n as u32, first), &words);
        if !eog.is_empty() {
            trie = trie.with_eos_tokens(eog);
        }
        let text = (0u32..).zip(&words).filter(|(_, w)| !w.is_empty());
        Ok(Tokens {
            text: bits(n, text.map(|(id, _)| id)),
            eog: bits(n, eog.iter().copied()),
            env: Arc::new(Env(trie)),
        })
    }

    /// Whether a token ends a generation.
    pub(super) fn is_eog(&self, id: u32) -> bool {
        holds(&self.eog, id)
    }

    /// Of these tokens, those that a grammar can name: they are no text, and end nothing.
    pub(super) fn marks(&self, ids: &[u32]) -> Vec<u32> {
        let ids = ids.iter().copied();
        let marks = ids.filter(|id| !self.is_text(*id) && !self.is_eog(*id));
        bits(self.env.tok_trie().vocab_size(), marks)
    }

    /// Whether a token is text.
    pub(super) fn is_text(&self, id: u32) -> bool {
        holds(&self.text, id)
    }
}

/// What a token writes; nothing for one that a constraint never allows.
fn bytes(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let piece = tokenizer.piece(id).unwrap_or_default();
    // No text has the byte 0xFF, and toktrie takes one at the start for a mark of its own.
    let text = !tokenizer.is_control(id)
        && !tokenizer.is_eog(id)
        && piece.len() <= LONGEST
        && !piece.contains(&0xff);
    if text { piece.to_vec() } else { Vec::new() }
}

fn total(words: &[Vec<u8>]) -> usize {
    words.iter().map(Vec::len).fold(0, usize::saturating_add)
}

/// How many nodes the words' tree has: in order, each word adds what it does not share with the one before.
fn nodes(words: &[Vec<u8>]) -> usize {
    let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    let mut before: &[u8] = &[];
    let mut nodes = 1usize;
    for word in sorted {
        let shared = before.iter().zip(word).take_while(|(a, b)| a == b).count();
        // Equal words are nodes of their own.
        let new = word.len().saturating_sub(shared).max(1);
        nodes = nodes.saturating_add(new);
        before = word;
    }
    nodes
}

fn bits(n: usize, ids: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut words = vec![0u32; n.div_ceil(32)];
    for id in ids {
        if let Some(word) = words.get_mut(id as usize / 32) {
            *word |= 1 << (id % 32);
        }
    }
    words
}

/// Whether a set has a token.
pub(super) fn holds(words: &[u32], id: u32) -> bool {
    let word = words.get(id as usize / 32).copied().unwrap_or(0);
    word & (1 << (id % 32)) != 0
}

/// The tree for llguidance. Texts are never tokenized here: no token is forced because one spelling of a text is canonical, since
/// that would make other text than plain decoding with a mask.
struct Env(TokTrie);

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(text)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
