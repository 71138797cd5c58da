//! Texts that break repetitions, found in a stream of tokens: inside one token, or spread over several however they are cut.

use std::collections::HashMap;
use std::sync::Arc;

/// What the tokens of a vocabulary have to do with the breakers.
#[derive(Debug, Default)]
pub(super) struct Breakers {
    tokens: HashMap<u32, Relation>,
}

/// A breaker of which so many bytes have been seen.
type Part = (u8, u8);

/// A token and the breakers.
#[derive(Debug, Default)]
struct Relation {
    /// It holds one whole.
    whole: bool,
    /// It ends with the first bytes of these.
    begins: Vec<Part>,
    /// It goes on with these: what was seen before it, and what has been seen after it; `None`: all.
    goes_on: Vec<(Part, Option<Part>)>,
}

impl Breakers {
    /// Looks at the bytes of every token of the vocabulary once. `breakers`: at most 255, of 1 to 255 bytes.
    pub(super) fn new<'a>(breakers: &[String], pieces: impl Iterator<Item = &'a [u8]>) -> Breakers {
        // Where a byte stands in a breaker: at its start, or later.
        let mut firsts = vec![Vec::new(); 256];
        let mut laters = vec![Vec::new(); 256];
        for (b, text) in breakers.iter().enumerate() {
            for (at, byte) in text.bytes().enumerate() {
                let list = if at == 0 { &mut firsts } else { &mut laters };
                list[usize::from(byte)].push((b as u8, at as u8));
            }
        }
        let mut tokens = HashMap::new();
        for (id, piece) in pieces.enumerate() {
            let Some(first) = piece.first() else {
                continue;
            };
            let mut r = Relation::default();
            for part in &laters[usize::from(*first)] {
                let rest = &breakers[usize::from(part.0)].as_bytes()[usize::from(part.1)..];
                if piece.starts_with(rest) {
                    r.goes_on.push((*part, None));
                } else if rest.starts_with(piece) {
                    let seen = part.1 + piece.len() as u8;
                    r.goes_on.push((*part, Some((part.0, seen))));
                }
            }
            for (at, byte) in piece.iter().enumerate() {
                for part in &firsts[usize::from(*byte)] {
                    let (text, tail) = (breakers[usize::from(part.0)].as_bytes(), &piece[at..]);
                    if tail.starts_with(text) {
                        r.whole = true;
                    } else if text.starts_with(tail) {
                        r.begins.push((part.0, tail.len() as u8));
                    }
                }
            }
            if r.whole || !r.begins.is_empty() || !r.goes_on.is_empty() {
                tokens.insert(id as u32, r);
            }
        }
        Breakers { tokens }
    }

    /// Whether a token holds a breaker whole.
    pub(super) fn is_breaker(&self, token: u32) -> bool {
        self.tokens.get(&token).is_some_and(|r| r.whole)
    }
}

/// Follows a stream of tokens.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    breakers: Arc<Breakers>,
    /// Breakers of which the last bytes are the beginning.
    open: Vec<Part>,
    since: usize,
}

impl Follower {
    pub(super) fn new(breakers: Breakers) -> Follower {
        Follower {
            breakers: Arc::new(breakers),
            open: Vec::new(),
            since: usize::MAX,
        }
    }

    pub(super) fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// The next token.
    pub(super) fn push(&mut self, token: u32) {
        let Some(r) = self.breakers.tokens.get(&token) else {
            self.open.clear();
            self.since = self.since.saturating_add(1);
            return;
        };
        let mut ends = r.whole;
        let mut open = r.begins.clone();
        for (before, after) in &r.goes_on {
            if self.open.contains(before) {
                ends |= after.is_none();
                open.extend(after);
            }
        }
        self.open = open;
        self.since = if ends {
            0
        } else {
            self.since.saturating_add(1)
        };
    }

    /// Tokens after the one in which the last breaker ends; more than any stream has if there was none.
    pub(super) fn since(&self) -> usize {
        self.since
    }

    /// Forgets the stream.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.since = usize::MAX;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PIECES: [&str; 9] = ["a", "b", "ab", "ba", "aab", "bbab", "c", "", "abc"];

    /// The definition: tokens after the one that holds the last byte of the breaker that ends last.
    fn naive(breakers: &[String], tokens: &[u32]) -> usize {
        let text: String = tokens.iter().map(|t| PIECES[*t as usize]).collect();
        let end = (0..=text.len())
            .rev()
            .find(|end| breakers.iter().any(|b| text[..*end].ends_with(b.as_str())));
        let Some(end) = end else {
            return usize::MAX;
        };
        let mut seen = 0;
        let holds = tokens.iter().position(|t| {
            seen += PIECES[*t as usize].len();
            seen >= end
        });
        tokens.len() - 1 - holds.unwrap()
    }

    proptest! {
        #[test]
        fn breakers_are_found_however_the_text_is_cut(
            breakers in prop::collection::vec("[abc]{1,5}", 0..4),
            tokens in prop::collection::vec(0u32..7, 0..30),
        ) {
            let table = Breakers::new(&breakers, PIECES.iter().map(|p| p.as_bytes()));
            let mut follower = Follower::new(table);
            for (i, token) in tokens.iter().enumerate() {
                follower.push(*token);
                let want = naive(&breakers, &tokens[..=i]);
                prop_assert_eq!(follower.since(), want, "{:?} {:?}", breakers, &tokens[..=i]);
            }
        }
    }

    #[test]
    fn a_token_with_a_whole_breaker_is_one() {
        let table = Breakers::new(&["ab".into()], PIECES.iter().map(|p| p.as_bytes()));
        let found: Vec<u32> = (0..9).filter(|t| table.is_breaker(*t)).collect();
        assert_eq!(found, [2, 4, 5, 8]);
    }
}
