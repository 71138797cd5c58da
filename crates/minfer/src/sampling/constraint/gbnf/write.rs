//! Writes a plan as Lark.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::plan::{Part, Plan};
use super::{Grammar, Node, NodeId};

/// The grammar in llguidance's Lark. Every group is a definition of its own, since Lark's may nest only 30 deep.
pub(super) fn lark(grammar: &Grammar, plan: &Plan) -> String {
    let mut writer = Writer {
        grammar,
        out: String::new(),
        named: BTreeMap::new(),
        groups: 0,
    };
    let _ = writeln!(writer.out, "start: r{}", grammar.root);
    for (rule, part) in &plan.rules {
        let body = writer.part(part);
        let _ = writeln!(writer.out, "r{rule}: {body}");
    }
    for (index, nodes) in plan.terminals.iter().enumerate() {
        let body = writer.nodes(nodes);
        let _ = writeln!(writer.out, "T{index}: {body}");
    }
    writer.out
}

struct Writer<'a> {
    grammar: &'a Grammar,
    out: String,
    /// Definitions of nodes within terminals.
    named: BTreeMap<NodeId, String>,
    groups: usize,
}

impl Writer<'_> {
    /// A part as the body of a rule.
    fn part(&mut self, part: &Part) -> String {
        match part {
            Part::Terminal(t) => format!("T{t}"),
            Part::Rule(rule) => format!("r{rule}"),
            Part::Seq(parts) if parts.is_empty() => "\"\"".to_owned(),
            Part::Seq(parts) => self.atoms(parts, " "),
            Part::Alt(parts) => self.atoms(parts, " | "),
            Part::Repeat(part, min, max) => {
                format!("{}{}", self.atom(part), quantifier(*min, *max))
            }
        }
    }

    fn atoms(&mut self, parts: &[Part], between: &str) -> String {
        let atoms: Vec<String> = parts.iter().map(|p| self.atom(p)).collect();
        atoms.join(between)
    }

    fn atom(&mut self, part: &Part) -> String {
        let body = self.part(part);
        if matches!(part, Part::Terminal(_) | Part::Rule(_)) {
            return body;
        }
        let name = format!("g{}", self.groups);
        self.groups += 1;
        let _ = writeln!(self.out, "{name}: {body}");
        name
    }

    /// Nodes one after the other, as the body of a terminal.
    fn nodes(&mut self, nodes: &[NodeId]) -> String {
        let mut out: Vec<String> = Vec::new();
        let mut literal = String::new();
        for node in nodes {
            if let Node::Chars(set) = &self.grammar.nodes[*node]
                && let Some(c) = set.single()
            {
                literal.push(c);
                continue;
            }
            if !literal.is_empty() {
                out.push(quoted(&std::mem::take(&mut literal)));
            }
            out.push(self.name(*node));
        }
        if !literal.is_empty() || out.is_empty() {
            out.push(quoted(&literal));
        }
        out.join(" ")
    }

    /// A node within a terminal: a class, or the name of its definition.
    fn name(&mut self, node: NodeId) -> String {
        if let Some(name) = self.named.get(&node) {
            return name.clone();
        }
        let grammar = self.grammar;
        let body = match &grammar.nodes[node] {
            Node::Chars(set) => return format!("/{}/", set.class()),
            Node::Rule(rule) => {
                let name = self.name(grammar.rules[*rule].body);
                self.named.insert(node, name.clone());
                return name;
            }
            Node::Seq(items) => self.nodes(items),
            Node::Alt(options) => {
                let options: Vec<String> = options.iter().map(|o| self.name(*o)).collect();
                options.join(" | ")
            }
            Node::Repeat { of, min, max } => {
                format!("{}{}", self.name(*of), quantifier(*min, *max))
            }
        };
        let name = format!("N{node}");
        let _ = writeln!(self.out, "{name}: {body}");
        self.named.insert(node, name.clone());
        name
    }
}

fn quantifier(min: u32, max: Option<u32>) -> String {
    match (min, max) {
        (0, None) => "*".to_owned(),
        (1, None) => "+".to_owned(),
        (0, Some(1)) => "?".to_owned(),
        (min, None) => format!("{{{min},}}"),
        (min, Some(max)) => format!("{{{min},{max}}}"),
    }
}

/// A text as Lark (and JSON) writes it.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
