//! Sets of characters.

use std::fmt::Write;

/// A set of characters: ranges, first and last included, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct CharSet(Vec<(u32, u32)>);

/// Numbers that are no characters.
const SURROGATES: (u32, u32) = (0xd800, 0xdfff);
const LAST: u32 = char::MAX as u32;

impl CharSet {
    pub(super) fn one(c: char) -> CharSet {
        CharSet(vec![(c as u32, c as u32)])
    }

    /// Every character.
    pub(super) fn any() -> CharSet {
        CharSet(vec![(0, SURROGATES.0 - 1), (SURROGATES.1 + 1, LAST)])
    }

    pub(super) fn of(mut ranges: Vec<(char, char)>) -> CharSet {
        ranges.sort_unstable();
        let mut out: Vec<(u32, u32)> = Vec::new();
        for (first, last) in ranges {
            let (first, last) = (first as u32, last as u32);
            match out.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => out.push((first, last)),
            }
        }
        CharSet(out).and(&CharSet::any())
    }

    pub(super) fn not(&self) -> CharSet {
        let mut out = Vec::new();
        let mut next = 0;
        for (first, last) in &self.0 {
            if next < *first {
                out.push((next, first - 1));
            }
            next = last + 1;
        }
        if next <= LAST {
            out.push((next, LAST));
        }
        CharSet(out).and(&CharSet::any())
    }

    pub(super) fn and(&self, other: &CharSet) -> CharSet {
        let (mut i, mut j, mut out) = (0, 0, Vec::new());
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            let both = (a.0.max(b.0), a.1.min(b.1));
            if both.0 <= both.1 {
                out.push(both);
            }
            if a.1 < b.1 {
                i += 1;
            } else {
                j += 1;
            }
        }
        CharSet(out)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in super::super) fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// The character, where there is just one.
    pub(super) fn single(&self) -> Option<char> {
        match self.0[..] {
            [(first, last)] if first == last => char::from_u32(first),
            _ => None,
        }
    }

    /// As a class of a regular expression.
    pub(super) fn class(&self) -> String {
        let mut out = "[".to_owned();
        for (first, last) in &self.0 {
            // Writing to a string does not fail.
            let _ = write!(out, "\\x{{{first:X}}}-\\x{{{last:X}}}");
        }
        out.push(']');
        out
    }
}
