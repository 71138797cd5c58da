//! Token ids back to text, all at once or as they come.

use super::Tokenizer;
use std::ops::Deref;

/// Turns token ids into text as they come: what it gives is always whole characters.
///
/// Bytes that can't be UTF-8 become U+FFFD, one for each maximal subpart (as `String::from_utf8_lossy`
/// does); bytes that may still become a character wait. [`Decoder::finish`] treats what waits at
/// the end the same way: one U+FFFD.
pub struct Decoder<T: Deref<Target = Tokenizer>> {
    tokenizer: T,
    special: bool,
    /// Control tokens that are text all the same.
    shown: Vec<u32>,
    strip_space: bool,
    /// The start of a character: at most three bytes.
    pending: Vec<u8>,
}

impl<T: Deref<Target = Tokenizer>> Decoder<T> {
    /// A decoder for the continuation of a text, such as an answer: a leading space is kept.
    /// `special` shows control tokens; otherwise they give nothing.
    pub fn new(tokenizer: T, special: bool) -> Decoder<T> {
        Decoder {
            tokenizer,
            special,
            shown: Vec::new(),
            strip_space: false,
            pending: Vec::new(),
        }
    }

    /// A decoder for a whole text: the space that SentencePiece puts before a text is taken away.
    pub fn for_text(tokenizer: T, special: bool) -> Decoder<T> {
        let strip_space = tokenizer.adds_space_prefix();
        Decoder {
            tokenizer,
            special,
            shown: Vec::new(),
            strip_space,
            pending: Vec::new(),
        }
    }

    /// The same, with these control tokens shown: markers that whoever reads the text must see.
    pub fn showing(mut self, ids: Vec<u32>) -> Decoder<T> {
        self.shown = ids;
        self
    }

    /// The same, going on within a character: `bytes` are what another one's [`Decoder::pending`] said.
    pub fn with_pending(mut self, bytes: Vec<u8>) -> Decoder<T> {
        self.pending = bytes;
        self
    }

    /// The start of a character whose end has not come yet: at most three bytes.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// The text that a token completes; empty if it ends within a character, if it is a hidden
    /// control token, or if there is no such token.
    pub fn push(&mut self, id: u32) -> String {
        if !self.special && self.tokenizer.is_control(id) && !self.shown.contains(&id) {
            return String::new();
        }
        let Some(mut piece) = self.tokenizer.piece(id) else {
            return String::new();
        };
        if self.strip_space && !piece.is_empty() {
            self.strip_space = false;
            piece = piece.strip_prefix(b" ").unwrap_or(piece);
        }
        self.pending.extend_from_slice(piece);
        self.whole(false)
    }

    /// Whether the text so far ends with a whole character.
    pub fn is_whole(&self) -> bool {
        self.pending.is_empty()
    }

    /// Ends the text: bytes of an unfinished character become one U+FFFD. The decoder may be used
    /// for another text then, as one made by [`Decoder::new`].
    pub fn finish(&mut self) -> String {
        self.whole(true)
    }

    fn whole(&mut self, end: bool) -> String {
        let mut out = String::with_capacity(self.pending.len());
        let mut rest = 0usize;
        for chunk in self.pending.utf8_chunks() {
            out.push_str(chunk.valid());
            let bad = chunk.invalid().len();
            rest = if may_continue(chunk.invalid()) {
                bad
            } else {
                0
            };
            if bad > 0 {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        // Only the last chunk can be the start of a character: a byte would follow the others.
        if rest > 0 && !end {
            out.pop();
            self.pending
                .drain(..self.pending.len().saturating_sub(rest));
        } else {
            self.pending.clear();
        }
        out
    }
}

/// Whether an invalid subpart at the end of the bytes is the start of a character.
fn may_continue(bytes: &[u8]) -> bool {
    // `from_utf8` knows: it gives no error length for an end that came too soon.
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

impl Tokenizer {
    /// The text of a whole sequence as bytes: the pieces joined, without control tokens unless
    /// `special`, and without the space that SentencePiece puts first. Unknown ids give nothing.
    pub fn decode_bytes(&self, ids: &[u32], special: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for id in ids {
            if special || !self.is_control(*id) {
                out.extend_from_slice(self.piece(*id).unwrap_or_default());
            }
        }
        if self.adds_space_prefix() && out.first() == Some(&b' ') {
            out.remove(0);
        }
        out
    }

    /// As [`Tokenizer::decode_bytes`], with U+FFFD for each maximal subpart that is not UTF-8.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        String::from_utf8_lossy(&self.decode_bytes(ids, special)).into_owned()
    }
}
