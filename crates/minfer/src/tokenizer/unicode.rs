//! General categories of characters, as far as pre-tokenizers ask for them: Unicode 16.0, the
//! version that Hugging Face `tokenizers` uses.

use std::sync::LazyLock;

/// The category of a character. White space is the property `White_Space`; its characters are in
/// none of the other classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    /// Control, format, unassigned.
    Other,
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    /// `\s`
    Space,
    /// `\p{P}`
    Punct,
    /// `\p{S}`
    Symbol,
    /// `\p{M}`
    Mark,
}

impl Class {
    const fn from_code(code: u32) -> Class {
        match code {
            1 => Class::Letter,
            2 => Class::Number,
            3 => Class::Space,
            4 => Class::Punct,
            5 => Class::Symbol,
            6 => Class::Mark,
            _ => Class::Other,
        }
    }
}

/// Runs of one class in order: u32 little-endian, first code point << 4 | class. Made by
/// `xtask/golden/tokenizer_unicode.py`.
const RUNS: &[u8] = include_bytes!("data/unicode16_classes.bin");

/// One class a code point, spread out once (1.1 MB): a text touches few pages of it.
static TABLE: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut table = Vec::with_capacity(char::MAX as usize);
    let mut class = Class::Other;
    for run in RUNS.chunks_exact(4) {
        let entry = run.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
        table.resize((entry >> 4) as usize, class);
        class = Class::from_code(entry & 15);
    }
    table.resize((char::MAX as usize).saturating_add(1), class);
    table
});

/// The class of a character.
pub(super) fn class(c: char) -> Class {
    TABLE.get(c as usize).copied().unwrap_or(Class::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_known_characters() {
        for (c, want) in [
            ('a', Class::Letter),
            ('ª', Class::Letter),
            ('5', Class::Number),
            ('½', Class::Number),
            ('五', Class::Letter),
            ('〇', Class::Number),
            (' ', Class::Space),
            ('\u{85}', Class::Space),
            ('\u{a0}', Class::Space),
            ('\u{3000}', Class::Space),
            ('\u{200b}', Class::Other),
            ('$', Class::Symbol),
            ('_', Class::Punct),
            ('\u{301}', Class::Mark),
            ('🚀', Class::Symbol),
            ('\u{1c89}', Class::Letter),
            ('\0', Class::Other),
            (char::MAX, Class::Other),
        ] {
            assert_eq!(class(c), want, "{c:?}");
        }
    }

    /// The table against the `regex` crate's own (Unicode 16.0 too): every code point.
    #[test]
    fn every_code_point_has_the_class_that_regex_gives_it() {
        let text: String = (0..=char::MAX as u32).filter_map(char::from_u32).collect();
        for (pattern, want) in [
            (r"\p{L}+", Class::Letter),
            (r"\p{N}+", Class::Number),
            (r"\s+", Class::Space),
            (r"\p{P}+", Class::Punct),
            (r"\p{S}+", Class::Symbol),
            (r"\p{M}+", Class::Mark),
        ] {
            let mut counted = 0;
            for m in regex::Regex::new(pattern).unwrap().find_iter(&text) {
                for c in m.as_str().chars() {
                    assert_eq!(class(c), want, "{c:?}");
                    counted += 1;
                }
            }
            assert_eq!(
                counted,
                text.chars().filter(|c| class(*c) == want).count(),
                "{pattern}"
            );
        }
    }
}
