//! Reads GBNF.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use super::super::repeats::REPEATS;
use super::chars::CharSet;
use super::{Grammar, Node, NodeId, Place, Rule};

/// Deepest nesting of parentheses.
const DEPTH: usize = 100;
/// Most rules, and most parts of all rules: what walks them recurses.
const RULES: usize = 4096;
const NODES: usize = 1 << 17;

/// Reads a grammar and checks its rules.
pub(super) fn parse(text: &str) -> Result<Grammar, String> {
    let mut parser = Parser {
        rest: text,
        place: Place { line: 1, column: 1 },
        nodes: Vec::new(),
        names: BTreeMap::new(),
        rules: Vec::new(),
    };
    parser.space(true);
    while !parser.rest.is_empty() {
        parser.rule()?;
    }
    parser.finish()
}

struct Parser<'a> {
    rest: &'a str,
    place: Place,
    nodes: Vec<Node>,
    names: BTreeMap<&'a str, usize>,
    /// Rules by index: their definition, or where they are first used.
    rules: Vec<(Option<NodeId>, &'a str, Place)>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        if c == '\n' {
            self.place.line = self.place.line.saturating_add(1);
            self.place.column = 1;
        } else {
            self.place.column = self.place.column.saturating_add(1);
        }
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest.starts_with(text);
        if found {
            for _ in text.chars() {
                self.next();
            }
        }
        found
    }

    fn error<T>(&self, why: &str) -> Result<T, String> {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(c) => format!("{c:?}"),
        };
        Err(format!("{}: {why}, found {found}", self.place))
    }

    /// Skips white space and comments; line ends only where `lines`.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => {}
                '\r' | '\n' if lines => {}
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n' && c != '\r') {
                        self.next();
                    }
                    continue;
                }
                _ => return,
            }
            self.next();
        }
    }

    fn add(&mut self, node: Node) -> Result<NodeId, String> {
        if self.nodes.len() >= NODES {
            return Err(format!("{}: more than {NODES} parts", self.place));
        }
        self.nodes.push(node);
        Ok(self.nodes.len().saturating_sub(1))
    }

    fn name(&mut self) -> Option<&'a str> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
        let name = self.rest.get(..end).filter(|n| !n.is_empty())?;
        self.eat(name);
        Some(name)
    }

    /// The index of a rule, met at `place`.
    fn index(&mut self, name: &'a str, place: Place) -> Result<usize, String> {
        if let Some(index) = self.names.get(name) {
            return Ok(*index);
        }
        if self.rules.len() >= RULES {
            return Err(format!("{place}: more than {RULES} rules"));
        }
        let index = self.rules.len();
        self.names.insert(name, index);
        self.rules.push((None, name, place));
        Ok(index)
    }

    fn rule(&mut self) -> Result<(), String> {
        let place = self.place;
        let Some(name) = self.name() else {
            return self.error("a rule's name is expected");
        };
        let index = self.index(name, place)?;
        self.space(false);
        if !self.eat("::=") {
            return self.error("::= is expected after a rule's name");
        }
        self.space(true);
        let body = self.alternatives(0)?;
        if !matches!(self.peek(), None | Some('\r' | '\n')) {
            return self.error("the end of the line is expected after a rule");
        }
        self.space(true);
        match self.rules.get_mut(index) {
            Some((Some(_), _, first)) => Err(format!(
                "{place}: the rule {name:?} is defined already at {first}"
            )),
            Some(rule) => {
                *rule = (Some(body), name, place);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn alternatives(&mut self, depth: usize) -> Result<NodeId, String> {
        let mut options = vec![self.sequence(depth)?];
        loop {
            // A line that begins with `|` goes on with the rule before it.
            let (rest, place) = (self.rest, self.place);
            self.space(true);
            if !self.eat("|") {
                (self.rest, self.place) = (rest, place);
                break;
            }
            self.space(true);
            options.push(self.sequence(depth)?);
        }
        match options.len() {
            1 => Ok(options.pop().unwrap_or_default()),
            _ => self.add(Node::Alt(options)),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<NodeId, String> {
        let mut items = Vec::new();
        while let Some(item) = self.item(depth)? {
            // A sequence in a sequence is one, so that literals are characters side by side.
            match self.nodes.get(item) {
                Some(Node::Seq(inner)) => items.extend(inner.iter().copied()),
                _ => items.push(item),
            }
            self.space(depth > 0);
        }
        match items.len() {
            1 => Ok(items.pop().unwrap_or_default()),
            _ => self.add(Node::Seq(items)),
        }
    }

    fn item(&mut self, depth: usize) -> Result<Option<NodeId>, String> {
        let place = self.place;
        let mut item = match self.peek() {
            Some('"') => self.literal()?,
            Some('[') => self.class()?,
            Some('.') => {
                self.next();
                self.add(Node::Chars(CharSet::any()))?
            }
            Some('(') => {
                if depth >= DEPTH {
                    return Err(format!("{place}: more than {DEPTH} parentheses deep"));
                }
                self.next();
                self.space(true);
                let inner = self.alternatives(depth.saturating_add(1))?;
                self.space(true);
                if !self.eat(")") {
                    return self.error(&format!("the ) of the ( at {place} is expected"));
                }
                inner
            }
            Some('<' | '!') => {
                return Err(format!(
                    "{place}: tokens (<...>) are not supported: a grammar says what text may come"
                ));
            }
            _ => match self.name() {
                None => return Ok(None),
                Some(name) => {
                    let index = self.index(name, place)?;
                    self.add(Node::Rule(index))?
                }
            },
        };
        self.space(depth > 0);
        while let Some((min, max)) = self.quantifier()? {
            item = match max {
                Some(0) => self.add(Node::Seq(Vec::new()))?,
                _ if (min, max) == (1, Some(1)) => item,
                _ => self.add(Node::Repeat { of: item, min, max })?,
            };
            self.space(depth > 0);
        }
        Ok(Some(item))
    }

    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let place = self.place;
        let range = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.next();
                self.space(true);
                let min = self.number()?;
                self.space(true);
                let mut max = Some(min);
                if self.eat(",") {
                    self.space(true);
                    max = match self.peek() {
                        Some('}') => None,
                        _ => Some(self.number()?),
                    };
                    self.space(true);
                }
                if self.peek() != Some('}') {
                    return self.error("{m}, {m,} or {m,n} is expected");
                }
                if max.is_some_and(|max| max < min) {
                    return Err(format!("{place}: {{m,n}} with n below m"));
                }
                (min, max)
            }
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(range))
    }

    fn number(&mut self) -> Result<u32, String> {
        let place = self.place;
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let digits = self
            .rest
            .get(..end.unwrap_or(self.rest.len()))
            .unwrap_or("");
        if digits.is_empty() {
            return self.error("a number is expected");
        }
        self.eat(digits);
        let number = digits.parse().ok().filter(|n| *n <= REPEATS);
        number.ok_or_else(|| format!("{place}: more than {REPEATS} repetitions"))
    }

    fn literal(&mut self) -> Result<NodeId, String> {
        let place = self.place;
        self.next();
        let mut items = Vec::new();
        while !self.eat("\"") {
            if self.rest.is_empty() {
                return self.error(&format!(
                    "the end of the text that begins at {place} is expected"
                ));
            }
            let c = self.character()?;
            items.push(self.add(Node::Chars(CharSet::one(c)))?);
        }
        match items.len() {
            1 => Ok(items.pop().unwrap_or_default()),
            _ => self.add(Node::Seq(items)),
        }
    }

    fn class(&mut self) -> Result<NodeId, String> {
        let place = self.place;
        self.next();
        let negated = self.eat("^");
        let mut ranges = Vec::new();
        while !self.eat("]") {
            if self.rest.is_empty() {
                return self.error(&format!("the ] of the [ at {place} is expected"));
            }
            let here = self.place;
            let first = self.character()?;
            let mut last = first;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                last = self.character()?;
                if last < first {
                    return Err(format!("{here}: the range {first:?}-{last:?} is backwards"));
                }
            }
            ranges.push((first, last));
        }
        let set = CharSet::of(ranges);
        let set = if negated { set.not() } else { set };
        if set.is_empty() {
            return Err(format!("{place}: the class has no character"));
        }
        self.add(Node::Chars(set))
    }

    /// A character or an escape, within a literal or a class.
    fn character(&mut self) -> Result<char, String> {
        let place = self.place;
        let Some(c) = self.next() else {
            return self.error("a character is expected");
        };
        if c != '\\' {
            return Ok(c);
        }
        let Some(kind) = self.next() else {
            return self.error("an escape is expected");
        };
        let digits = match kind {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '[' | ']' => return Ok(kind),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return Err(format!("{place}: the escape \\{kind} is not known")),
        };
        let hex = self.rest.get(..digits).unwrap_or("");
        if hex.len() != digits || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!(
                "{place}: \\{kind} takes {digits} hexadecimal digits"
            ));
        }
        self.eat(hex);
        let code = u32::from_str_radix(hex, 16).ok();
        code.and_then(char::from_u32)
            .ok_or_else(|| format!("{place}: \\{kind}{hex} is no character"))
    }

    fn finish(self) -> Result<Grammar, String> {
        let Some(root) = self.names.get("root").copied() else {
            return Err("there is no rule \"root\": it says what the whole text is".to_owned());
        };
        let mut rules = Vec::with_capacity(self.rules.len());
        for (body, name, place) in self.rules {
            let Some(body) = body else {
                return Err(format!("{place}: the rule {name:?} is not defined"));
            };
            let name = name.to_owned();
            rules.push(Rule { name, body, place });
        }
        let grammar = Grammar {
            nodes: self.nodes,
            rules,
            root,
        };
        super::check::check(&grammar)?;
        Ok(grammar)
    }
}
