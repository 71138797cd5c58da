//! Special tokens in a text: control tokens where the text may name them, user-defined ones
//! always. The leftmost goes first, the longest of those that start there.

/// A special token.
#[derive(Clone, Debug)]
pub(super) struct Special {
    pub(super) text: Box<[u8]>,
    pub(super) id: u32,
    /// A control or unknown token: recognised only where the text may name control tokens.
    pub(super) control: bool,
    /// White space after it belongs to it (Phi-3).
    pub(super) strip_after: bool,
}

/// Finds special tokens.
pub(super) struct Specials {
    /// Sorted by text: the tokens with a common prefix lie together.
    tokens: Vec<Special>,
    /// One bit for each pair of bytes that a token starts with: most places need no search.
    starts: Vec<u64>,
}

/// The bit of a pair of bytes.
fn bit(a: u8, b: u8) -> (usize, u64) {
    let n = usize::from(a) << 8 | usize::from(b);
    (n >> 6, 1u64 << (n & 63))
}

impl Specials {
    pub(super) fn new(mut tokens: Vec<Special>) -> Specials {
        tokens.retain(|t| !t.text.is_empty());
        tokens.sort_by(|a, b| a.text.cmp(&b.text));
        let mut starts = vec![0u64; 1 << 10];
        let mut set = |a: u8, b: u8| {
            let (word, mask) = bit(a, b);
            if let Some(w) = starts.get_mut(word) {
                *w |= mask;
            }
        };
        for t in &tokens {
            match *t.text {
                [a] => (0..=255).for_each(|b| set(a, b)),
                [a, b, ..] => set(a, b),
                [] => {}
            }
        }
        Specials { tokens, starts }
    }

    /// The special token with exactly this text.
    pub(super) fn exact(&self, text: &[u8]) -> Option<&Special> {
        let at = self.tokens.binary_search_by(|t| (*t.text).cmp(text)).ok()?;
        self.tokens.get(at)
    }

    /// The first special token in `text` from `from` on: its start and the token. `allowed` says
    /// whether a control token may stand at a place (start, end).
    pub(super) fn find(
        &self,
        text: &[u8],
        from: usize,
        allowed: impl Fn(usize, usize) -> bool,
    ) -> Option<(usize, &Special)> {
        if self.tokens.is_empty() {
            return None;
        }
        let rest = text.get(from..)?;
        let next = rest.iter().skip(1).chain(Some(&0));
        rest.iter().zip(next).enumerate().find_map(|(i, (a, b))| {
            let (word, mask) = bit(*a, *b);
            if self.starts.get(word).is_none_or(|w| w & mask == 0) {
                return None;
            }
            let at = from.wrapping_add(i);
            let token = self.longest(rest.get(i..)?, |len| allowed(at, at.wrapping_add(len)))?;
            Some((at, token))
        })
    }

    /// The longest permitted token that `rest` starts with.
    fn longest(&self, rest: &[u8], allowed: impl Fn(usize) -> bool) -> Option<&Special> {
        let mut range = self.tokens.as_slice();
        let mut best = None;
        for (depth, byte) in rest.iter().enumerate() {
            // Of the tokens that agree so far, those with this byte at this depth.
            let key = |t: &Special| t.text.get(depth).copied();
            let low = range.partition_point(|t| key(t) < Some(*byte));
            let high = range.partition_point(|t| key(t) <= Some(*byte));
            range = range.get(low..high).unwrap_or_default();
            let Some(first) = range.first() else { break };
            let len = depth.wrapping_add(1);
            if first.text.len() == len && (!first.control || allowed(len)) {
                best = Some(first);
            }
            if range.len() == 1 && first.text.len() == len {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> Specials {
        let t = |text: &str, id, control| Special {
            text: text.as_bytes().into(),
            id,
            control,
            strip_after: false,
        };
        Specials::new(vec![
            t("<a>", 1, true),
            t("<a><b>", 2, false),
            t("  ", 3, false),
            t("    ", 4, false),
            t("x", 5, true),
            t("", 6, false),
        ])
    }

    fn all(text: &str, control: bool) -> Vec<(usize, u32)> {
        let (s, mut at, mut out) = (specials(), 0, Vec::new());
        while let Some((start, t)) = s.find(text.as_bytes(), at, |_, _| control) {
            out.push((start, t.id));
            at = start + t.text.len();
        }
        out
    }

    #[test]
    fn leftmost_longest_and_only_what_is_permitted() {
        assert_eq!(all("q<a><b><a>", true), [(1, 2), (7, 1)]);
        assert_eq!(all("q<a><b><a>", false), [(1, 2)]);
        assert_eq!(all("       ", true), [(0, 4), (4, 3)]);
        assert_eq!(all("a  b     c", true), [(1, 3), (4, 4)]);
        assert_eq!(all("<a<a>x", true), [(2, 1), (5, 5)]);
        assert_eq!(all("<a", true), []);
        assert_eq!(specials().exact(b"<a>").map(|t| t.id), Some(1));
        assert!(specials().exact(b"<a").is_none());
    }
}
