//! Calls whose arguments are no JSON: Gemma's `NAME{key:<|"|>text<|"|>}` and Python's `NAME(key="text")`.
//!
//! Both are read when their brackets are closed, and tried now and then before, so that what is no call does not wait for long.

use serde_json::{Map, Value};

use super::parser::{Sink, Step};

/// Deepest nesting.
const DEPTH: usize = 64;
/// Quotes without escapes, of Gemma 4 and FunctionGemma.
const QUOTES: [&str; 2] = ["<|\"|>", "<escape>"];

/// Gemma's call, after `call:`.
pub(super) struct Gemma(Literal);
/// Python's call.
pub(super) struct Python(Literal);

impl Gemma {
    pub(super) fn named() -> Gemma {
        Gemma(Literal::default())
    }

    pub(super) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        self.0.push(c, sink, '{', '}')
    }

    /// Whether a tool on offer is named.
    pub(super) fn is_named(&self) -> bool {
        self.0.body.is_some()
    }
}

impl Python {
    /// With the first character of the name.
    pub(super) fn begun(text: &str) -> Python {
        let name = text.to_owned();
        Python(Literal {
            name,
            ..Literal::default()
        })
    }

    pub(super) fn push(&mut self, c: char, sink: &mut Sink) -> Step {
        self.0.push(c, sink, '(', ')')
    }

    /// Whether a tool on offer is named.
    pub(super) fn is_named(&self) -> bool {
        self.0.body.is_some()
    }
}

/// A value that stands alone.
pub(super) fn read(text: &str) -> Option<Value> {
    // What ends a word, a number or a name.
    let text = format!("{},", text.trim());
    let mut reader = Reader(&text);
    let value = reader.value(DEPTH).ok()?;
    (reader.0 == ",").then_some(value)
}

#[derive(Default)]
struct Literal {
    name: String,
    /// What comes after the opening bracket.
    body: Option<String>,
    /// Brackets open within the body.
    depth: usize,
    /// The quote of the text at hand.
    quote: Option<&'static str>,
    escaped: bool,
}

impl Literal {
    fn push(&mut self, c: char, sink: &mut Sink, open: char, close: char) -> Step {
        let Some(body) = &mut self.body else {
            if c == open && sink.knows(&self.name) {
                self.body = Some(String::new());
                return Step::More;
            }
            self.name.push(c);
            return match sink.names(&self.name) {
                true => Step::More,
                false => Step::Bad,
            };
        };
        body.push(c);
        let size = body.len();
        let closed = self.closes(c);
        if !closed && !size.is_power_of_two() {
            return Step::More;
        }
        let mut reader = Reader(self.body.as_deref().unwrap_or(""));
        match reader.members(close, DEPTH) {
            Ok(map) if reader.0.is_empty() => {
                sink.whole(&self.name, &Value::Object(map).to_string())
            }
            Err(Fail::Cut) if !closed => Step::More,
            _ => Step::Bad,
        }
    }

    /// Whether the body's last character closes the call.
    fn closes(&mut self, c: char) -> bool {
        let body = self.body.as_deref().unwrap_or("");
        let marked = QUOTES.into_iter().find(|q| body.ends_with(q));
        match (self.quote, c) {
            (Some(_), _) if self.escaped => self.escaped = false,
            (Some("\"" | "'"), '\\') => self.escaped = true,
            (Some(quote), _) if body.ends_with(quote) => self.quote = None,
            (Some(_), _) => {}
            (None, _) if marked.is_some() => self.quote = marked,
            (None, '"') if !body.ends_with("<|\"") => self.quote = Some("\""),
            (None, '\'') => self.quote = Some("'"),
            (None, '(' | '[' | '{') => self.depth = self.depth.saturating_add(1),
            (None, ')' | ']' | '}') => match self.depth.checked_sub(1) {
                Some(depth) => self.depth = depth,
                None => return true,
            },
            _ => {}
        }
        false
    }
}

/// Why a text does not read.
enum Fail {
    /// It ends too early.
    Cut,
    /// It never will.
    Bad,
}

/// Reads Python's and Gemma's literals, and JSON's.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// What comes before the first of `ends`, which stays.
    fn until(&mut self, ends: impl Fn(char) -> bool) -> Result<&'a str, Fail> {
        let at = self.0.find(ends).ok_or(Fail::Cut)?;
        let (text, rest) = self.0.split_at_checked(at).ok_or(Fail::Bad)?;
        self.0 = rest;
        Ok(text)
    }

    /// A comma, or the end; true at the end.
    fn next(&mut self, close: char) -> Result<bool, Fail> {
        self.space();
        match self.0.chars().next() {
            None => Err(Fail::Cut),
            Some(c) if c == close => {
                self.0 = self.0.get(c.len_utf8()..).unwrap_or("");
                Ok(true)
            }
            Some(',') => {
                self.0 = self.0.get(1..).unwrap_or("");
                Ok(false)
            }
            Some(_) => Err(Fail::Bad),
        }
    }

    /// Whether the list at hand ends here, before an item.
    fn ends(&mut self, close: char) -> bool {
        self.space();
        self.eat(close.encode_utf8(&mut [0; 4]))
    }

    /// Keys and values up to `close`.
    fn members(&mut self, close: char, depth: usize) -> Result<Map<String, Value>, Fail> {
        let mut map = Map::new();
        loop {
            if self.ends(close) {
                return Ok(map);
            }
            let key = match self.quoted()? {
                Some(key) => key,
                None => self
                    .until(|c| !(c.is_alphanumeric() || c == '_' || c == '-'))?
                    .to_owned(),
            };
            self.space();
            if self.0.is_empty() {
                return Err(Fail::Cut);
            }
            if !self.eat(if close == ')' { "=" } else { ":" }) || map.contains_key(&key) {
                return Err(Fail::Bad);
            }
            map.insert(key, self.value(depth)?);
            if self.next(close)? {
                return Ok(map);
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fail> {
        let depth = depth.checked_sub(1).ok_or(Fail::Bad)?;
        self.space();
        if let Some(text) = self.quoted()? {
            return Ok(Value::String(text));
        }
        if self.eat("{") {
            return self.members('}', depth).map(Value::Object);
        }
        let list = [("[", ']'), ("(", ')')]
            .into_iter()
            .find(|(open, _)| self.eat(open));
        if let Some((_, close)) = list {
            let mut items = Vec::new();
            loop {
                if self.ends(close) {
                    return Ok(Value::Array(items));
                }
                items.push(self.value(depth)?);
                if self.next(close)? {
                    return Ok(Value::Array(items));
                }
            }
        }
        match self.until(|c| c.is_whitespace() || ",)]}".contains(c))? {
            "True" => Ok(Value::Bool(true)),
            "False" => Ok(Value::Bool(false)),
            "None" => Ok(Value::Null),
            word => serde_json::from_str(word).map_err(|_| Fail::Bad),
        }
    }

    /// A quoted text, if one comes.
    fn quoted(&mut self) -> Result<Option<String>, Fail> {
        for quote in QUOTES {
            if self.eat(quote) {
                let (text, rest) = self.0.split_once(quote).ok_or(Fail::Cut)?;
                self.0 = rest;
                return Ok(Some(text.to_owned()));
            }
        }
        let quote = match self.0.chars().next() {
            Some(c @ ('"' | '\'')) => c,
            _ => return Ok(None),
        };
        let mut text = String::new();
        let mut chars = self.0.chars();
        chars.next();
        while let Some(c) = chars.next() {
            match c {
                '\\' => escape(&mut chars, &mut text)?,
                c if c == quote => {
                    self.0 = chars.as_str();
                    return Ok(Some(text));
                }
                c => text.push(c),
            }
        }
        Err(Fail::Cut)
    }
}

/// What a backslash begins, in Python.
fn escape(chars: &mut std::str::Chars<'_>, text: &mut String) -> Result<(), Fail> {
    let c = chars.next().ok_or(Fail::Cut)?;
    let digits = match c {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => {
            match c {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                '\n' => {}
                '\\' | '\'' | '"' | '/' => text.push(c),
                _ => text.extend(['\\', c]),
            }
            return Ok(());
        }
    };
    let hex: String = chars.take(digits).collect();
    if hex.len() < digits {
        return Err(Fail::Cut);
    }
    let code = u32::from_str_radix(&hex, 16).map_err(|_| Fail::Bad)?;
    text.push(char::from_u32(code).ok_or(Fail::Bad)?);
    Ok(())
}
