//! Which parts of a grammar become terminals.

use std::collections::{BTreeMap, BTreeSet};

use super::{Grammar, Node, NodeId};
use super::{check, overlap};

/// Rounds of cutting; after them every terminal is one character, which is right too, only slower.
const ROUNDS: usize = 40;

/// A rule's text in terminals.
#[derive(Debug)]
pub(super) enum Part {
    /// A terminal; its index.
    Terminal(usize),
    Seq(Vec<Part>),
    Alt(Vec<Part>),
    Repeat(Box<Part>, u32, Option<u32>),
    /// A rule that is made of terminals itself.
    Rule(usize),
}

/// A grammar made of terminals.
pub(super) struct Plan {
    /// Terminals: nodes without recursion, one after the other.
    pub(super) terminals: Vec<Vec<NodeId>>,
    /// The rules that are reached, by index.
    pub(super) rules: BTreeMap<usize, Part>,
}

/// Where terminals are cut.
pub(super) struct Cuts {
    /// Nodes that must not lie within a terminal as a whole.
    opened: BTreeSet<NodeId>,
    /// Between two neighbours of a sequence.
    between: BTreeSet<(NodeId, NodeId)>,
    /// Everywhere.
    pub(super) all: bool,
    /// What may still be spent on looking for more.
    pub(super) fuel: usize,
}

impl Cuts {
    /// Cuts a terminal between two of its nodes, or opens the one that both are. False where that has been done.
    pub(super) fn cut(&mut self, terminal: &[NodeId], from: usize, to: usize) -> bool {
        if from == to {
            self.opened.insert(terminal[from])
        } else {
            self.between.insert((terminal[to - 1], terminal[to]))
        }
    }
}

/// Cuts until no terminal can be read too far.
pub(super) fn plan(grammar: &mut Grammar) -> Result<Plan, String> {
    let mut regular = regular(grammar);
    gather(grammar, &mut regular);
    let grammar = &*grammar;
    let mut cuts = Cuts {
        opened: BTreeSet::new(),
        between: BTreeSet::new(),
        all: false,
        fuel: overlap::WORK,
    };
    for round in 0.. {
        let plan = Planner {
            grammar,
            regular: &regular,
            cuts: &cuts,
            terminals: Vec::new(),
            found: BTreeMap::new(),
        }
        .run();
        if cuts.all || !overlap::cut(grammar, &plan, &mut cuts) {
            return Ok(plan);
        }
        cuts.all |= round >= ROUNDS;
    }
    Err("it is too large".to_owned())
}

/// Which nodes have no recursion in them: those from which no rule leads to itself.
fn regular(grammar: &Grammar) -> Vec<bool> {
    // Rules are proven regular from the leaves up; what needs itself never is.
    let known = check::fixpoint(grammar, |node, known, of| match node {
        Node::Chars(_) => true,
        Node::Seq(items) | Node::Alt(items) => items.iter().all(|i| of(*i)),
        Node::Repeat { of: inner, .. } => of(*inner),
        Node::Rule(rule) => known[*rule],
    });
    // Nodes come after the nodes they are made of.
    let mut nodes = Vec::with_capacity(grammar.nodes.len());
    for node in &grammar.nodes {
        let of = match node {
            Node::Chars(_) => true,
            Node::Seq(items) | Node::Alt(items) => items.iter().all(|i| nodes[*i]),
            Node::Repeat { of, .. } => nodes[*of],
            Node::Rule(rule) => known[*rule],
        };
        nodes.push(of);
    }
    nodes
}

/// Makes the options of a choice that have no recursion one option, so that they can be one terminal.
fn gather(grammar: &mut Grammar, regular: &mut Vec<bool>) {
    for node in 0..grammar.nodes.len() {
        let Node::Alt(options) = &grammar.nodes[node] else {
            continue;
        };
        let (plain, mut rest): (Vec<NodeId>, Vec<NodeId>) =
            options.iter().partition(|o| regular[**o]);
        if plain.len() > 1 && !rest.is_empty() {
            rest.push(grammar.nodes.len());
            grammar.nodes.push(Node::Alt(plain));
            regular.push(true);
            grammar.nodes[node] = Node::Alt(rest);
        }
    }
}

struct Planner<'a> {
    grammar: &'a Grammar,
    regular: &'a [bool],
    cuts: &'a Cuts,
    terminals: Vec<Vec<NodeId>>,
    found: BTreeMap<Vec<NodeId>, usize>,
}

impl Planner<'_> {
    fn run(mut self) -> Plan {
        let mut rules = BTreeMap::new();
        let mut open = vec![self.grammar.root];
        while let Some(rule) = open.pop() {
            if rules.contains_key(&rule) {
                continue;
            }
            let part = self.part(self.grammar.rules[rule].body, &mut open);
            rules.insert(rule, part);
        }
        Plan {
            terminals: self.terminals,
            rules,
        }
    }

    /// Whether a node may lie within a terminal.
    fn fits(&self, node: NodeId) -> bool {
        match self.grammar.nodes[node] {
            Node::Chars(_) => true,
            _ => self.regular[node] && !self.cuts.all && !self.cuts.opened.contains(&node),
        }
    }

    fn terminal(&mut self, nodes: Vec<NodeId>) -> Part {
        let next = self.terminals.len();
        let index = *self.found.entry(nodes.clone()).or_insert(next);
        if index == next {
            self.terminals.push(nodes);
        }
        Part::Terminal(index)
    }

    fn part(&mut self, node: NodeId, open: &mut Vec<usize>) -> Part {
        match &self.grammar.nodes[node] {
            Node::Seq(items) => self.sequence(items, open),
            _ if self.fits(node) => self.terminal(vec![node]),
            Node::Chars(_) => self.terminal(vec![node]),
            Node::Alt(options) => Part::Alt(options.iter().map(|o| self.part(*o, open)).collect()),
            Node::Repeat { of, min, max } => {
                Part::Repeat(Box::new(self.part(*of, open)), *min, *max)
            }
            Node::Rule(rule) => {
                open.push(*rule);
                Part::Rule(*rule)
            }
        }
    }

    fn sequence(&mut self, items: &[NodeId], open: &mut Vec<usize>) -> Part {
        let mut parts = Vec::new();
        let mut run: Vec<NodeId> = Vec::new();
        for item in items {
            let cut = run
                .last()
                .is_some_and(|last| self.cuts.all || self.cuts.between.contains(&(*last, *item)));
            if (cut || !self.fits(*item)) && !run.is_empty() {
                let run = std::mem::take(&mut run);
                parts.push(self.terminal(run));
            }
            if self.fits(*item) {
                run.push(*item);
            } else {
                parts.push(self.part(*item, open));
            }
        }
        if !run.is_empty() {
            parts.push(self.terminal(run));
        }
        match parts.len() {
            1 => parts.remove(0),
            _ => Part::Seq(parts),
        }
    }
}
