//! Rust text with comments and the insides of literals turned to spaces, so that a rule that
//! looks for a word finds code only. Lines and byte offsets stay as they were.

/// See the module's text.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !after_word(bytes, at) => match raw_end(bytes, at) {
                Some(end) => end,
                None => word_end(bytes, at),
            },
            b'\'' => match char_end(bytes, at) {
                Some(end) => end,
                None => word_end(bytes, at + 1),
            },
            // `br"…"` and `cr"…"`: let the `r` be seen by the arm above.
            b'b' | b'c' if !after_word(bytes, at) && bytes.get(at + 1) == Some(&b'r') => {
                match raw_end(bytes, at + 1) {
                    Some(end) => end,
                    None => word_end(bytes, at),
                }
            }
            b if is_word(b) && !literal_prefix(bytes, at) => {
                at = word_end(bytes, at);
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        if !is_word(bytes[at]) || bytes[at..end].contains(&b'"') {
            erase(&mut out, bytes, at, end);
        }
        at = end;
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Spaces from `from` to `to`; line ends stay, and so does a lifetime's name.
fn erase(out: &mut [u8], bytes: &[u8], from: usize, to: usize) {
    let lifetime = bytes[from] == b'\'' && bytes.get(to - 1) != Some(&b'\'');
    if lifetime {
        return;
    }
    for byte in &mut out[from..to] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn after_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

/// `b` or `c` straight before a quote.
fn literal_prefix(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at], b'b' | b'c') && matches!(bytes.get(at + 1), Some(b'"' | b'\''))
}

fn word_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes[at.min(bytes.len())..].iter();
    (at + rest.take_while(|b| is_word(**b)).count())
        .max(at + 1)
        .min(bytes.len())
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|b| **b != b'\n').count()
}

fn comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i < bytes.len() {
        match (bytes[i], bytes.get(i + 1)) {
            (b'/', Some(b'*')) => (depth, i) = (depth + 1, i + 2),
            (b'*', Some(b'/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"` or `r#"…"#`; none where `at` starts no raw string.
fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', hashes));
    let body = at + 2 + hashes;
    let found = bytes[body..].windows(close.len()).position(|w| w == close);
    Some(found.map_or(bytes.len(), |p| body + p + close.len()))
}

/// The end of a character literal; none for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at + 1..];
    if rest.first() == Some(&b'\\') {
        let close = rest.iter().skip(2).position(|b| *b == b'\'')?;
        return Some(at + 1 + 2 + close + 1);
    }
    let text = std::str::from_utf8(&rest[..rest.len().min(4)]);
    let valid = match text {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&rest[..e.valid_up_to()]).ok()?,
    };
    let width = valid.chars().next()?.len_utf8();
    (rest.get(width) == Some(&b'\'')).then_some(at + 1 + width + 1)
}

#[cfg(test)]
mod tests {
    use super::blank;

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        let text = "let a = \"unsafe\"; // unsafe\nlet b = 'u'; /* unsafe /* x */ y */ unsafe {}\n";
        let code = blank(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.matches("unsafe").count(), 1);
        assert!(code.contains("let a") && code.ends_with("unsafe {}\n"));
    }

    #[test]
    fn raw_strings_lifetimes_and_escapes() {
        let code =
            blank("f(r#\"todo!(\"x\")\"#, b\"todo!\", br\"todo!\", '\\'', '\"', x::<'a>());ok");
        assert!(!code.contains("todo"));
        assert!(code.contains("x::<'a>()") && code.ends_with(";ok"));
        assert!(blank("let r = '字'; todo!()").contains("todo!()"));
        assert!(blank("for x in bar { hub\"todo!\" }").contains("for x in bar"));
    }
}
