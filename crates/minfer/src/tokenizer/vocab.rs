//! The vocabulary: texts, types, and what each token stands for in bytes.

use super::hash::{self, TextMap};
use super::{TokenizerError, fields};
use crate::gguf::{Metadata, StrArray};

/// A token's type, as `tokenizer.ggml.token_type` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Undefined,
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// How texts stand for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// GPT-2's: every byte is one printable character.
    ByteLevel,
    /// SentencePiece's: `▁` is a space, `<0xNN>` a byte.
    SentencePiece,
}

/// The texts of all tokens and the bytes they decode to.
pub(super) struct Vocab {
    texts: StrArray,
    pub(super) kinds: Vec<Kind>,
    /// Whether SentencePiece's pieces or byte-level words may become this token by merging.
    mergeable: Vec<bool>,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    map: TextMap,
}

/// The character that SentencePiece writes for a space.
pub(super) const SPACE: &str = "▁";

impl Vocab {
    /// Reads tokens and types.
    pub(super) fn new(md: &Metadata, alphabet: Alphabet) -> Result<Vocab, TokenizerError> {
        let key = "tokenizer.ggml.tokens";
        let texts = md.required(key, md.str_arr(key)?)?.clone();
        let n = texts.len();
        let total = texts
            .iter()
            .map(str::len)
            .fold(0usize, usize::saturating_add);
        // Ids stay below i32::MAX, as every other reader of the format expects; so do offsets.
        if n == 0 || n >= i32::MAX as usize || total >= i32::MAX as usize {
            return Err(TokenizerError::Size {
                tokens: n,
                bytes: total,
            });
        }
        let kinds = kinds(md, &texts)?;
        let mut vocab = Vocab {
            texts,
            kinds,
            mergeable: vec![false; n],
            bytes: Vec::with_capacity(total),
            ends: Vec::with_capacity(n),
            map: TextMap::with_capacity(n),
        };
        vocab.fill(alphabet)?;
        Ok(vocab)
    }

    /// The bytes of every token, and the map of those that merging can reach.
    fn fill(&mut self, alphabet: Alphabet) -> Result<(), TokenizerError> {
        let decoder = ByteDecoder::new();
        for id in 0..self.texts.len() {
            let Some(text) = self.texts.get(id) else {
                continue;
            };
            let kind = self.kinds.get(id).copied().unwrap_or(Kind::Undefined);
            let start = self.bytes.len();
            let mut mergeable = kind == Kind::Normal && !text.is_empty();
            match (kind, alphabet) {
                (Kind::Byte, _) => self.bytes.push(byte_of(id, text)?),
                (Kind::Normal, Alphabet::ByteLevel) => {
                    if !decoder.decode(text, &mut self.bytes) {
                        // A text that no bytes can be written as: it is only ever decoded.
                        self.bytes.truncate(start);
                        self.bytes.extend_from_slice(text.as_bytes());
                        mergeable = false;
                    }
                }
                (Kind::Normal, Alphabet::SentencePiece) => {
                    self.bytes
                        .extend_from_slice(text.replace(SPACE, " ").as_bytes());
                }
                (Kind::UserDefined, Alphabet::SentencePiece) => {
                    mergeable = !text.is_empty();
                    self.bytes.extend_from_slice(text.as_bytes());
                }
                _ => self.bytes.extend_from_slice(text.as_bytes()),
            }
            // The texts together stay below 2^31 bytes, and no token's bytes are longer than its text.
            self.ends.push(self.bytes.len() as u32);
            if mergeable {
                let stored = self.store(alphabet, id as u32);
                if let Some(m) = self.mergeable.get_mut(id) {
                    *m = stored;
                }
            }
        }
        Ok(())
    }

    /// Puts a token into the map; false if there is one of the same text.
    fn store(&mut self, alphabet: Alphabet, id: u32) -> bool {
        let mut map = std::mem::take(&mut self.map);
        let key = self.key(alphabet, id).unwrap_or_default();
        let stored = map.insert(hash::bytes(key), id, |there| {
            self.key(alphabet, there) == Some(key)
        });
        self.map = map;
        stored
    }

    /// What a token is found by.
    fn key(&self, alphabet: Alphabet, id: u32) -> Option<&[u8]> {
        match alphabet {
            Alphabet::ByteLevel => self.bytes(id),
            Alphabet::SentencePiece => self.text(id).map(str::as_bytes),
        }
    }

    /// Whether merging can reach a token.
    pub(super) fn is_mergeable(&self, id: u32) -> bool {
        self.mergeable.get(id as usize) == Some(&true)
    }

    /// The token that merging reaches with these bytes (byte-level) or this text (SentencePiece),
    /// whose hash is given.
    pub(super) fn lookup(&self, alphabet: Alphabet, hash: u64, key: &[u8]) -> Option<u32> {
        self.map.get(hash, |id| self.key(alphabet, id) == Some(key))
    }

    /// Brings what [`Vocab::lookup`] will read for a hash into the cache.
    pub(super) fn touch(&self, hash: u64) -> u64 {
        self.map.touch(hash)
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The text of a token, as the file has it.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)
    }

    /// The bytes a token stands for.
    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let end = *self.ends.get(id as usize)?;
        let start = match (id as usize).checked_sub(1) {
            Some(p) => *self.ends.get(p)?,
            None => 0,
        };
        self.bytes.get(start as usize..end as usize)
    }

    /// The type of a token.
    pub(super) fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// The tokens that merging can reach.
    pub(super) fn mergeable(&self) -> impl Iterator<Item = u32> {
        self.mergeable
            .iter()
            .zip(0u32..)
            .filter(|(m, _)| **m)
            .map(|(_, id)| id)
    }
}

fn kinds(md: &Metadata, texts: &StrArray) -> Result<Vec<Kind>, TokenizerError> {
    let n = texts.len();
    let key = "tokenizer.ggml.token_type";
    let Some(types) = fields::per_token(key, md.i32_arr(key)?, n)? else {
        return Ok(vec![Kind::Normal; n]);
    };
    let kind = |(id, t): (usize, &i32)| match t {
        0 => Ok(Kind::Undefined),
        1 => Ok(Kind::Normal),
        2 => Ok(Kind::Unknown),
        3 => Ok(Kind::Control),
        4 => Ok(Kind::UserDefined),
        5 => Ok(Kind::Unused),
        6 => Ok(Kind::Byte),
        _ => Err(TokenizerError::Token {
            id,
            text: texts.get(id).unwrap_or_default().to_owned(),
            why: format!("{key} is {t}; known types are 0 to 6"),
        }),
    };
    types.iter().enumerate().map(kind).collect()
}

/// The byte of a token `<0xNN>`.
fn byte_of(id: usize, text: &str) -> Result<u8, TokenizerError> {
    let hex = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    hex.filter(|h| h.len() == 2)
        .and_then(|h| u8::from_str_radix(h, 16).ok())
        .ok_or_else(|| TokenizerError::Token {
            id,
            text: text.to_owned(),
            why: "a byte token is written <0xNN>".to_owned(),
        })
}

/// GPT-2's alphabet backwards: characters to bytes.
pub(super) struct ByteDecoder {
    table: [Option<u8>; 0x144],
}

impl ByteDecoder {
    pub(super) fn new() -> ByteDecoder {
        let mut table = [None; 0x144];
        let mut spare = 0x100usize;
        for byte in 0..=255u8 {
            // Printable Latin-1 characters stand for themselves, the rest moves up in order.
            let at = match byte {
                b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => usize::from(byte),
                _ => {
                    spare = spare.wrapping_add(1);
                    spare.wrapping_sub(1)
                }
            };
            if let Some(slot) = table.get_mut(at) {
                *slot = Some(byte);
            }
        }
        ByteDecoder { table }
    }

    /// Appends the bytes of `text`; false if a character is not of the alphabet.
    pub(super) fn decode(&self, text: &str, out: &mut Vec<u8>) -> bool {
        text.chars().all(|c| match self.table.get(c as usize) {
            Some(Some(byte)) => {
                out.push(*byte);
                true
            }
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_every_byte_once() {
        let decoder = ByteDecoder::new();
        let mut seen: Vec<u8> = decoder.table.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        let mut out = Vec::new();
        assert!(decoder.decode("ĠHelloĊÃ¤", &mut out));
        assert_eq!(out, " Hello\nä".as_bytes());
        assert!(!decoder.decode(" ", &mut out));
    }
}
