//! Which bytes of a rendering came from the caller (docs/adr/0005-user-text-is-never-a-control-token.md).
//!
//! Only strings that could matter are touched: those that hold a control token's text, or begin or end with a piece
//! of one. Those pieces are wrapped in two private-use characters that occur nowhere else, and the conversation is
//! rendered a second time. Without the marks, the second rendering must equal the first.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Map, Value};

/// The texts of a vocabulary's control tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct ControlTokens {
    all: HashSet<String>,
    /// The distinct lengths in bytes, longest first.
    lengths: Vec<usize>,
    /// Sorted, to look up what begins with a text.
    sorted: Vec<String>,
    /// Each token backwards, sorted, to look up what ends with a text.
    backwards: Vec<String>,
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// True if a string of `sorted` begins with `prefix` and is longer.
fn any_longer(sorted: &[String], prefix: &str) -> bool {
    let at = sorted.partition_point(|t| t.as_str() <= prefix);
    sorted.get(at).is_some_and(|t| t.starts_with(prefix))
}

impl ControlTokens {
    pub(super) fn new(tokens: impl IntoIterator<Item = String>) -> ControlTokens {
        let all: HashSet<String> = tokens.into_iter().filter(|t| !t.is_empty()).collect();
        let mut sorted: Vec<String> = all.iter().cloned().collect();
        sorted.sort();
        let mut backwards: Vec<String> = sorted.iter().map(|t| reversed(t)).collect();
        backwards.sort();
        let mut lengths: Vec<usize> = all.iter().map(String::len).collect();
        lengths.sort_by(|a, b| b.cmp(a));
        lengths.dedup();
        ControlTokens {
            all,
            lengths,
            sorted,
            backwards,
        }
    }

    /// The pieces of `text` that must not be read as (part of) a control token, in order, not overlapping.
    pub(super) fn pieces(&self, text: &str) -> Vec<Range<usize>> {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        let longest = self.lengths.first().copied().unwrap_or(0);
        let mut done = 0;
        for (i, _) in text.char_indices() {
            let found = self
                .lengths
                .iter()
                .filter_map(|n| i.checked_add(*n))
                .find(|end| text.get(i..*end).is_some_and(|t| self.all.contains(t)));
            if let (true, Some(end)) = (i >= done, found) {
                pieces.push(i..end);
                done = end;
            }
        }
        // Templates trim, so a piece at either end is one next to the text's own edge.
        let trimmed = text.trim_end();
        let from = trimmed.len().saturating_sub(longest).max(done);
        if let Some(start) = (from..trimmed.len()).find(|i| {
            trimmed
                .get(*i..)
                .is_some_and(|t| any_longer(&self.sorted, t))
        }) {
            pieces.push(start..trimmed.len());
        }
        let start = text.len().saturating_sub(text.trim_start().len());
        let limit = pieces
            .first()
            .map_or(text.len(), |p| p.start)
            .min(start.saturating_add(longest));
        let end = (start.saturating_add(1)..=limit).rev().find(|end| {
            text.get(start..*end)
                .is_some_and(|t| any_longer(&self.backwards, &reversed(t)))
        });
        if let Some(end) = end {
            pieces.insert(0, start..end);
        }
        pieces
    }
}

/// Private-use characters that do not occur in `texts`.
pub(super) fn marks(texts: &[&str]) -> impl Iterator<Item = char> {
    ('\u{f0000}'..='\u{ffffd}').filter(|c| !texts.iter().any(|t| t.contains(*c)))
}

/// The two characters that wrap a piece, and the pieces that were wrapped.
#[derive(Debug)]
pub(super) struct Marker<'a> {
    tokens: &'a ControlTokens,
    open: char,
    close: char,
    wrapped: HashSet<String>,
    first: Option<String>,
}

impl<'a> Marker<'a> {
    /// A marker whose characters do not occur in `texts`; `None` if there are no two such characters.
    pub(super) fn new(tokens: &'a ControlTokens, texts: &[&str]) -> Option<Marker<'a>> {
        let mut free = marks(texts);
        Some(Marker {
            tokens,
            open: free.next()?,
            close: free.next()?,
            wrapped: HashSet::new(),
            first: None,
        })
    }

    /// The first piece that was wrapped, if any.
    pub(super) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for piece in self.tokens.pieces(text) {
            out.push_str(text.get(at..piece.start).unwrap_or(""));
            let inner = text.get(piece.clone()).unwrap_or("");
            out.extend([self.open]);
            out.push_str(inner);
            out.push(self.close);
            self.first.get_or_insert_with(|| inner.to_owned());
            self.wrapped.insert(inner.to_owned());
            at = piece.end;
        }
        out.push_str(text.get(at..).unwrap_or(""));
        out
    }

    /// Wraps the pieces in all strings of a value, keys included.
    pub(super) fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => Value::Array(items.iter().map(|v| self.value(v)).collect()),
            Value::Object(map) => Value::Object(self.map(map)),
            other => other.clone(),
        }
    }

    /// Wraps the pieces in all strings of an object. Plain words that name a role or a type stay: templates compare them.
    pub(super) fn map(&mut self, map: &Map<String, Value>) -> Map<String, Value> {
        let is_word = |v: &Value| {
            v.as_str().is_some_and(|s| {
                s.chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            })
        };
        map.iter()
            .map(|(key, value)| {
                let name = matches!(key.as_str(), "role" | "type") && is_word(value);
                (
                    self.text(key),
                    if name {
                        value.clone()
                    } else {
                        self.value(value)
                    },
                )
            })
            .collect()
    }

    /// Takes the marks out of a rendering: the text, and the byte ranges of the wrapped pieces in it. Marks that the
    /// template tore apart say nothing: what they wrapped is not there as a whole.
    pub(super) fn unmark(&self, marked: &str) -> (String, Vec<Range<usize>>) {
        let mut text = String::with_capacity(marked.len());
        let mut ranges = Vec::new();
        let mut opened = false;
        for section in marked.split_inclusive([self.open, self.close]) {
            let piece = section.trim_end_matches([self.open, self.close]);
            let start = text.len();
            text.push_str(piece);
            if opened && section.ends_with(self.close) && self.wrapped.contains(piece) {
                ranges.push(start..text.len());
            }
            opened = section.ends_with(self.open);
        }
        (text, ranges)
    }
}
