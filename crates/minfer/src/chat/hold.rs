//! Text that may still become a marker.

/// Where the end of `text` begins that is white space, or white space and then a marker's beginning: what must wait. White space waits because
/// what stands before a marker belongs to it.
pub(super) fn hold(text: &str, begins: impl Fn(&str) -> bool) -> usize {
    let mut starts = text.char_indices().filter(|(_, c)| !c.is_whitespace());
    let found = starts.find(|(at, _)| begins(text.get(*at..).unwrap_or("")));
    let head = found.and_then(|(at, _)| text.get(..at)).unwrap_or(text);
    head.trim_end().len()
}

/// Takes the first `n` bytes of `text` out of it; all of it if there is no character boundary.
pub(super) fn take(text: &mut String, n: usize) -> String {
    let rest = text.get(n..).unwrap_or("").to_owned();
    let mut taken = std::mem::replace(text, rest);
    taken.truncate(taken.len().saturating_sub(text.len()));
    taken
}
