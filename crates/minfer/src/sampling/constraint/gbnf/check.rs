//! Rules that begin with themselves, or never end.

use super::{Grammar, Node, NodeId};

/// Refuses what no text can satisfy, and what llama.cpp refuses.
pub(super) fn check(grammar: &Grammar) -> Result<(), String> {
    let ends = fixpoint(grammar, |node, known, of| match node {
        Node::Chars(_) => true,
        Node::Seq(items) => items.iter().all(|i| of(*i)),
        Node::Alt(options) => options.iter().any(|i| of(*i)),
        Node::Repeat { of: inner, min, .. } => *min == 0 || of(*inner),
        Node::Rule(rule) => known[*rule],
    });
    if !ends[grammar.root] {
        let root = &grammar.rules[grammar.root];
        return Err(format!(
            "{}: the rule \"root\" has no end: every way through it comes to a rule that needs itself",
            root.place
        ));
    }
    let empty = fixpoint(grammar, |node, known, of| match node {
        Node::Chars(_) => false,
        Node::Seq(items) => items.iter().all(|i| of(*i)),
        Node::Alt(options) => options.iter().any(|i| of(*i)),
        Node::Repeat { of: inner, min, .. } => *min == 0 || of(*inner),
        Node::Rule(rule) => known[*rule],
    });
    let first: Vec<Vec<usize>> = grammar
        .rules
        .iter()
        .map(|rule| {
            let mut out = Vec::new();
            leading(grammar, rule.body, &empty, &mut out);
            out.sort_unstable();
            out.dedup();
            out
        })
        .collect();
    match cycle(&first) {
        None => Ok(()),
        Some(rules) => {
            let names: Vec<&str> = rules.iter().map(|r| &*grammar.rules[*r].name).collect();
            Err(format!(
                "{}: the rule {:?} begins with itself ({}): left recursion is not supported, write a repetition",
                grammar.rules[rules[0]].place,
                names[0],
                names.join(" -> ")
            ))
        }
    }
}

/// Whether a node has a property, given what is known of the rules and a way to ask of other nodes.
pub(super) type Property = fn(&Node, &[bool], &dyn Fn(NodeId) -> bool) -> bool;

/// A property of all rules, from none on.
pub(super) fn fixpoint(grammar: &Grammar, has: Property) -> Vec<bool> {
    fn ask(grammar: &Grammar, node: NodeId, known: &[bool], has: Property) -> bool {
        has(&grammar.nodes[node], known, &|inner| {
            ask(grammar, inner, known, has)
        })
    }
    let mut users = vec![Vec::new(); grammar.rules.len()];
    for (i, rule) in grammar.rules.iter().enumerate() {
        let mut used = Vec::new();
        named(grammar, rule.body, &mut used);
        used.sort_unstable();
        used.dedup();
        for rule in used {
            users[rule].push(i);
        }
    }
    let mut known = vec![false; grammar.rules.len()];
    let mut open: Vec<usize> = (0..grammar.rules.len()).collect();
    while let Some(i) = open.pop() {
        if !known[i] && ask(grammar, grammar.rules[i].body, &known, has) {
            known[i] = true;
            open.extend(&users[i]);
        }
    }
    known
}

/// The rules that a node names.
fn named(grammar: &Grammar, node: NodeId, out: &mut Vec<usize>) {
    match &grammar.nodes[node] {
        Node::Chars(_) => {}
        Node::Seq(items) | Node::Alt(items) => items.iter().for_each(|i| named(grammar, *i, out)),
        Node::Repeat { of, .. } => named(grammar, *of, out),
        Node::Rule(rule) => out.push(*rule),
    }
}

/// The rules that a node may begin with; whether it may be empty.
fn leading(grammar: &Grammar, node: NodeId, empty: &[bool], out: &mut Vec<usize>) -> bool {
    match &grammar.nodes[node] {
        Node::Chars(_) => false,
        Node::Seq(items) => items.iter().all(|i| leading(grammar, *i, empty, out)),
        Node::Alt(options) => {
            let mut any = false;
            for option in options {
                any |= leading(grammar, *option, empty, out);
            }
            any
        }
        Node::Repeat { of, min, .. } => leading(grammar, *of, empty, out) || *min == 0,
        Node::Rule(rule) => {
            out.push(*rule);
            empty[*rule]
        }
    }
}

/// A way from a rule to itself.
fn cycle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    fn visit(at: usize, edges: &[Vec<usize>], seen: &mut [u8], path: &mut Vec<usize>) -> bool {
        match seen[at] {
            2 => return false,
            1 => {
                path.push(at);
                return true;
            }
            _ => {}
        }
        seen[at] = 1;
        path.push(at);
        for to in &edges[at] {
            if visit(*to, edges, seen, path) {
                return true;
            }
        }
        path.pop();
        seen[at] = 2;
        false
    }
    let mut seen = vec![0; edges.len()];
    for at in 0..edges.len() {
        let mut path = Vec::new();
        if visit(at, edges, &mut seen, &mut path) {
            let from = path.iter().position(|p| Some(p) == path.last())?;
            return Some(path.split_off(from));
        }
    }
    None
}
