//! The merge loop that both kinds of BPE share: of all neighbours that can merge, the pair with
//! the lowest key goes first, the leftmost of equals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A run of the word's bytes, with its token id ([`NONE`] if it is not a token).
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) id: u32,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The id of a symbol that is no token.
pub(super) const NONE: u32 = u32::MAX;

/// Which neighbours merge.
pub(super) trait Pairs {
    /// Key and id of the token that two neighbours of `word` merge to.
    fn pair(&self, word: &[u8], left: Symbol, right: Symbol) -> Option<(u32, u32)>;
}

/// Buffers of the loop, kept between words.
#[derive(Default)]
pub(super) struct Scratch {
    /// In: the word's symbols in order. Out: what they merged to.
    pub(super) symbols: Vec<Symbol>,
    pairs: Vec<Option<(u32, u32)>>,
    heap: BinaryHeap<Reverse<Candidate>>,
    links: Vec<Link>,
}

/// Ordered by key, then position; the rest tells whether it is still true.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    key: u32,
    at: usize,
    end: usize,
    id: u32,
}

#[derive(Clone, Copy)]
struct Link {
    prev: usize,
    next: usize,
    alive: bool,
}

/// Longer words go through a heap: n log n. Shorter ones are faster by looking at all pairs.
const SHORT: usize = 24;

/// Merges `scratch.symbols`, the parts of `word`, as far as they go.
pub(super) fn merge(word: &[u8], pairs: &impl Pairs, scratch: &mut Scratch) {
    if scratch.symbols.len() <= SHORT {
        merge_short(word, pairs, scratch);
    } else {
        merge_long(word, pairs, scratch);
    }
}

fn pair_at(word: &[u8], pairs: &impl Pairs, symbols: &[Symbol], at: usize) -> Option<(u32, u32)> {
    let right = symbols.get(at.wrapping_add(1))?;
    pairs.pair(word, *symbols.get(at)?, *right)
}

fn merge_short(word: &[u8], pairs: &impl Pairs, scratch: &mut Scratch) {
    let Scratch {
        symbols,
        pairs: found,
        ..
    } = scratch;
    found.clear();
    found.extend((1..symbols.len()).map(|i| pair_at(word, pairs, symbols, i.wrapping_sub(1))));
    loop {
        let best = found
            .iter()
            .enumerate()
            .filter_map(|(i, p)| p.map(|p| (p.0, i, p.1)))
            .min();
        let Some((_, at, id)) = best else { return };
        let gone = symbols.remove(at.wrapping_add(1));
        if let Some(s) = symbols.get_mut(at) {
            (s.id, s.end) = (id, gone.end);
        }
        found.remove(at);
        if let Some(p) = found.get_mut(at) {
            *p = pair_at(word, pairs, symbols, at);
        }
        if let Some(before) = at.checked_sub(1)
            && let Some(p) = found.get_mut(before)
        {
            *p = pair_at(word, pairs, symbols, before);
        }
    }
}

fn merge_long(word: &[u8], pairs: &impl Pairs, scratch: &mut Scratch) {
    let Scratch {
        symbols,
        heap,
        links,
        ..
    } = scratch;
    let n = symbols.len();
    links.clear();
    links.extend((0..n).map(|i| Link {
        prev: i.wrapping_sub(1),
        next: i.wrapping_add(1),
        alive: true,
    }));
    let push = |heap: &mut BinaryHeap<_>, symbols: &[Symbol], at: usize, next: usize| {
        if let (Some(l), Some(r)) = (symbols.get(at), symbols.get(next))
            && let Some((key, id)) = pairs.pair(word, *l, *r)
        {
            heap.push(Reverse(Candidate {
                key,
                at,
                end: r.end,
                id,
            }));
        }
    };
    heap.clear();
    (0..n).for_each(|i| push(heap, symbols, i, i.wrapping_add(1)));
    while let Some(Reverse(c)) = heap.pop() {
        let Some(link) = links.get(c.at).copied().filter(|l| l.alive) else {
            continue;
        };
        // A neighbour that has grown since makes this candidate untrue.
        if symbols.get(link.next).is_none_or(|r| r.end != c.end) {
            continue;
        }
        let after = links.get(link.next).map_or(n, |l| l.next);
        if let Some(s) = symbols.get_mut(c.at) {
            (s.id, s.end) = (c.id, c.end);
        }
        if let Some(l) = links.get_mut(link.next) {
            l.alive = false;
        }
        if let Some(l) = links.get_mut(after) {
            l.prev = c.at;
        }
        if let Some(l) = links.get_mut(c.at) {
            l.next = after;
        }
        push(heap, symbols, link.prev, c.at);
        push(heap, symbols, c.at, after);
    }
    let mut link = links.iter();
    symbols.retain(|_| link.next().is_some_and(|l| l.alive));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any two neighbours whose text is `a`s up to a length merge, longer ones first.
    struct Letters(u32);

    impl Pairs for Letters {
        fn pair(&self, word: &[u8], l: Symbol, r: Symbol) -> Option<(u32, u32)> {
            let text = &word[l.start..r.end];
            let sum = text
                .iter()
                .fold(0u32, |n, b| n.wrapping_mul(31).wrapping_add(u32::from(*b)));
            (sum % 7 != 0 && text.len() < 9).then_some((sum % self.0, sum))
        }
    }

    proptest! {
        /// Both ways give the same parts for any word and any set of keys.
        #[test]
        fn short_and_long_agree(word in "[a-c]{1,60}", keys in 1u32..50) {
            let symbols: Vec<Symbol> =
                (0..word.len()).map(|i| Symbol { id: 0, start: i, end: i + 1 }).collect();
            let mut a = Scratch { symbols: symbols.clone(), ..Scratch::default() };
            let mut b = Scratch { symbols, ..Scratch::default() };
            merge_short(word.as_bytes(), &Letters(keys), &mut a);
            merge_long(word.as_bytes(), &Letters(keys), &mut b);
            let ends = |s: &Scratch| s.symbols.iter().map(|s| (s.start, s.end)).collect::<Vec<_>>();
            prop_assert_eq!(ends(&a), ends(&b));
        }
    }
}
