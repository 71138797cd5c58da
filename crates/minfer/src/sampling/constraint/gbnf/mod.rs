//! llama.cpp's grammar format, translated to llguidance's Lark.
//!
//! A GBNF grammar is a context-free grammar of characters. llguidance reads text in two stages: a lexer takes the longest lexeme that
//! any terminal allows, and a parser reads the lexemes. Longest is not always right: in `ws "\n"` with `ws ::= [ \n]*`, the first terminal
//! would take the line end that the second one needs. Terminals of one character each are always right, but then the parser runs at every byte
//! of every token. So `plan` makes terminals as large as they can be: a stretch of a rule without recursion is one, unless where a
//! terminal ends, what follows might be read as its or another's continuation; there it is cut. The language stays exactly the grammar's.

mod chars;
mod check;
mod overlap;
mod parse;
mod plan;
#[cfg(test)]
pub(super) mod tests;
mod write;

use chars::CharSet;

/// Translates a grammar. Errors name line and column.
pub(super) fn to_lark(text: &str) -> Result<String, String> {
    let mut grammar = parse::parse(text)?;
    let plan = plan::plan(&mut grammar)?;
    Ok(write::lark(&grammar, &plan))
}

/// The grammar itself, for tests.
#[cfg(test)]
pub(super) fn parse_for_tests(text: &str) -> Result<Grammar, String> {
    parse::parse(text)
}

/// Index of a node in [`Grammar::nodes`].
pub(super) type NodeId = usize;

/// A part of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// One character of a set.
    Chars(CharSet),
    /// One after the other.
    Seq(Vec<NodeId>),
    /// One of them.
    Alt(Vec<NodeId>),
    /// The same several times.
    Repeat {
        of: NodeId,
        min: u32,
        max: Option<u32>,
    },
    /// What a rule says; its index.
    Rule(usize),
}

/// A rule, and where it is defined.
pub(super) struct Rule {
    name: String,
    pub(super) body: NodeId,
    place: Place,
}

/// A place in the source, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    line: usize,
    column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A grammar whose names are all defined, that can end, and whose rules do not begin with themselves.
pub(super) struct Grammar {
    pub(super) nodes: Vec<Node>,
    pub(super) rules: Vec<Rule>,
    pub(super) root: usize,
}
