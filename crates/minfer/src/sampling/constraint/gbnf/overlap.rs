//! Finds where a lexer that takes the longest lexeme would read on when it should stop.
//!
//! Terminals are taken apart into their positions: the places where a character is read. Where a text that is a whole terminal T
//! is also the beginning of a terminal T', and a character may come after T that goes on with T', the lexer would go on. T' is cut
//! there. Repetitions count as unbounded, and every terminal as possible everywhere: both can only find too much.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::plan::{Cuts, Part, Plan};
use super::{CharSet, Grammar, Node, NodeId};

/// Most positions of a terminal and of all, most steps from position to position of all, most pairs that are followed, most
/// words of sets that are compared or joined, over all rounds. Past them a terminal comes apart, or all do.
const POSITIONS: usize = 4096;
const ALL_POSITIONS: usize = 1 << 15;
const STEPS: usize = 1 << 19;
const PAIRS: usize = 1 << 21;
pub(super) const WORK: usize = 1 << 26;

/// Cuts what can be read too far. False if nothing was.
pub(super) fn cut(grammar: &Grammar, plan: &Plan, cuts: &mut Cuts) -> bool {
    // One terminal with nothing after it can't be read too far.
    if plan.terminals.len() <= 1 && plan.rules.values().all(|p| matches!(p, Part::Terminal(_))) {
        return false;
    }
    let alphabet = Alphabet::new(grammar);
    let mut shapes = Shapes::new(grammar, &alphabet);
    let mut changed = false;
    for (index, terminal) in plan.terminals.iter().enumerate() {
        if !shapes.add(index, terminal) {
            // Too large to look into: it comes apart.
            for at in 0..terminal.len() {
                changed |= cuts.cut(terminal, at, at);
                if at > 0 {
                    changed |= cuts.cut(terminal, at - 1, at);
                }
            }
        }
    }
    if changed {
        return true;
    }
    let fuel = &mut cuts.fuel;
    let overlaps = follow(plan, &shapes, alphabet.len(), fuel)
        .and_then(|after| shapes.overlaps(&after, plan.terminals.len(), fuel));
    let Some(overlaps) = overlaps else {
        cuts.all = true;
        return true;
    };
    for (terminal, from, to) in overlaps {
        changed |= cuts.cut(&plan.terminals[terminal], from, to);
    }
    changed
}

/// A set of letters.
type Letters = Vec<u64>;

fn meet(a: &Letters, b: &Letters) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

/// Adds `b` to `a`; whether that changed it.
fn join(a: &mut Letters, b: &Letters) -> bool {
    let mut changed = false;
    for (a, b) in a.iter_mut().zip(b) {
        changed |= *b & !*a != 0;
        *a |= b;
    }
    changed
}

/// Characters that no set of the grammar tells apart are one letter.
struct Alphabet {
    /// Where letters begin.
    starts: Vec<u32>,
}

impl Alphabet {
    fn new(grammar: &Grammar) -> Alphabet {
        let sets = grammar.nodes.iter().filter_map(|n| match n {
            Node::Chars(set) => Some(set),
            _ => None,
        });
        let ends = sets.flat_map(|set| set.ranges().iter().flat_map(|r| [r.0, r.1 + 1]));
        let mut starts: Vec<u32> = ends.collect();
        starts.sort_unstable();
        starts.dedup();
        Alphabet { starts }
    }

    fn len(&self) -> usize {
        self.starts.len().div_ceil(64)
    }

    fn letters(&self, set: &CharSet) -> Letters {
        let mut out = vec![0; self.len()];
        for (first, last) in set.ranges() {
            let from = self.starts.partition_point(|s| s < first);
            let to = self.starts.partition_point(|s| s <= last);
            for letter in from..to {
                out[letter / 64] |= 1 << (letter % 64);
            }
        }
        out
    }
}

/// A place of a terminal where a character is read.
struct Position {
    terminal: usize,
    /// Which of the terminal's nodes it lies in.
    item: usize,
    /// Index of its letters.
    class: usize,
    /// Where reading can go on.
    next: Vec<u32>,
    /// Whether the terminal can end here.
    last: bool,
}

/// How a stretch begins and ends.
#[derive(Clone, Default)]
struct Span {
    empty: bool,
    first: Vec<u32>,
    last: Vec<u32>,
}

/// All terminals taken apart.
struct Shapes<'a> {
    grammar: &'a Grammar,
    alphabet: &'a Alphabet,
    classes: Vec<Letters>,
    known: BTreeMap<&'a CharSet, usize>,
    positions: Vec<Position>,
    steps: usize,
    /// Of each terminal.
    spans: BTreeMap<usize, Span>,
}

impl<'a> Shapes<'a> {
    fn new(grammar: &'a Grammar, alphabet: &'a Alphabet) -> Shapes<'a> {
        Shapes {
            grammar,
            alphabet,
            classes: Vec::new(),
            known: BTreeMap::new(),
            positions: Vec::new(),
            steps: 0,
            spans: BTreeMap::new(),
        }
    }

    /// Takes a terminal apart; false if it is too large, unless it is one character.
    fn add(&mut self, terminal: usize, nodes: &[NodeId]) -> bool {
        let start = self.positions.len();
        let mut whole = Span {
            empty: true,
            ..Span::default()
        };
        for (item, node) in nodes.iter().enumerate() {
            let Some(span) = self.span(*node, (terminal, item), start) else {
                self.positions.truncate(start);
                self.spans.insert(terminal, Span::default());
                return false;
            };
            whole = self.then(whole, span);
        }
        for last in &whole.last {
            self.positions[*last as usize].last = true;
        }
        self.spans.insert(terminal, whole);
        true
    }

    fn class(&mut self, set: &'a CharSet) -> usize {
        if let Some(class) = self.known.get(set) {
            return *class;
        }
        self.classes.push(self.alphabet.letters(set));
        self.known.insert(set, self.classes.len() - 1);
        self.classes.len() - 1
    }

    fn span(&mut self, node: NodeId, place: (usize, usize), start: usize) -> Option<Span> {
        let grammar = self.grammar;
        match &grammar.nodes[node] {
            Node::Chars(set) => {
                let at = self.positions.len();
                let full = at >= ALL_POSITIONS || self.steps >= STEPS;
                // A terminal of one character can't come apart, and is never too large.
                if at > start && (at - start >= POSITIONS || full) {
                    return None;
                }
                let class = self.class(set);
                let (terminal, item) = place;
                self.positions.push(Position {
                    terminal,
                    item,
                    class,
                    next: Vec::new(),
                    last: false,
                });
                let ends = vec![at as u32];
                Some(Span {
                    empty: false,
                    first: ends.clone(),
                    last: ends,
                })
            }
            Node::Seq(items) => {
                let mut whole = Span {
                    empty: true,
                    ..Span::default()
                };
                for item in items {
                    let span = self.span(*item, place, start)?;
                    whole = self.then(whole, span);
                }
                Some(whole)
            }
            Node::Alt(options) => {
                let mut whole = Span::default();
                for option in options {
                    let span = self.span(*option, place, start)?;
                    whole.empty |= span.empty;
                    whole.first.extend(span.first);
                    whole.last.extend(span.last);
                }
                Some(whole)
            }
            Node::Repeat { of, min, max } => {
                let mut span = self.span(*of, place, start)?;
                if max.is_none_or(|max| max > 1) {
                    self.link(&span.last, &span.first);
                }
                span.empty |= *min == 0;
                Some(span)
            }
            Node::Rule(rule) => self.span(grammar.rules[*rule].body, place, start),
        }
    }

    fn link(&mut self, from: &[u32], to: &[u32]) {
        for position in from {
            // Steps past the limit are not kept: the next position finds the terminal too large.
            if self.steps < STEPS {
                self.positions[*position as usize].next.extend(to);
                self.steps += to.len();
            }
        }
    }

    fn then(&mut self, mut a: Span, b: Span) -> Span {
        self.link(&a.last, &b.first);
        if a.empty {
            a.first.extend(&b.first);
        }
        let last = if b.empty {
            a.last.extend(&b.last);
            a.last
        } else {
            b.last
        };
        Span {
            empty: a.empty && b.empty,
            first: a.first,
            last,
        }
    }

    /// The letters that a terminal begins with.
    fn first(&self, terminal: usize) -> Letters {
        let mut out = vec![0; self.alphabet.len()];
        for position in &self.spans[&terminal].first {
            join(
                &mut out,
                &self.classes[self.positions[*position as usize].class],
            );
        }
        out
    }

    /// Terminals to cut, and the two nodes between which; nothing if that takes too long. `after`: the letters that may follow
    /// each terminal.
    fn overlaps(
        &self,
        after: &[Letters],
        terminals: usize,
        fuel: &mut usize,
    ) -> Option<Vec<(usize, usize, usize)>> {
        let mut found = Vec::new();
        let mut seen: HashSet<(u32, u32)> = HashSet::new();
        let mut open = VecDeque::new();
        let starts = (0..terminals).flat_map(|t| self.spans[&t].first.iter().copied());
        let starts: Vec<u32> = starts.collect();
        // What has nothing after it can't be read too far.
        let mut longer = starts.clone();
        longer.retain(|q| !self.positions[*q as usize].next.is_empty());
        let class = |p: u32| &self.classes[self.positions[p as usize].class];
        let work = self.alphabet.len().max(1);
        for p in starts {
            for q in &longer {
                *fuel = fuel.checked_sub(work)?;
                if meet(class(p), class(*q)) && seen.insert((p, *q)) {
                    open.push_back((p, *q));
                }
            }
        }
        while let Some((p, q)) = open.pop_front() {
            let (whole, longer) = (&self.positions[p as usize], &self.positions[q as usize]);
            for to in &longer.next {
                *fuel = fuel.checked_sub(work * (1 + whole.next.len()))?;
                if whole.last && meet(class(*to), &after[whole.terminal]) {
                    found.push((
                        longer.terminal,
                        longer.item,
                        self.positions[*to as usize].item,
                    ));
                    continue;
                }
                for from in &whole.next {
                    if meet(class(*from), class(*to)) && seen.insert((*from, *to)) {
                        open.push_back((*from, *to));
                    }
                }
            }
            if seen.len() > PAIRS {
                return None;
            }
        }
        found.sort_unstable();
        found.dedup();
        Some(found)
    }
}

/// The letters that may come after each terminal; nothing if that takes too long.
fn follow(
    plan: &Plan,
    shapes: &Shapes<'_>,
    words: usize,
    fuel: &mut usize,
) -> Option<Vec<Letters>> {
    let none = || vec![0; words];
    let terminals = (0..plan.terminals.len())
        .map(|t| (shapes.first(t), shapes.spans[&t].empty))
        .collect();
    let rules = plan.rules.keys().map(|r| {
        (
            *r,
            Known {
                first: none(),
                empty: false,
                after: none(),
            },
        )
    });
    let mut flow = Flow {
        rules: rules.collect(),
        terminals,
        after: vec![none(); plan.terminals.len()],
        changed: true,
        fuel: *fuel,
    };
    while flow.changed {
        flow.changed = false;
        for (rule, part) in &plan.rules {
            let after = flow.rules[rule].after.clone();
            let (first, empty) = flow.walk(part, &after, false);
            *fuel = flow.fuel;
            if flow.fuel == 0 {
                return None;
            }
            if let Some(known) = flow.rules.get_mut(rule) {
                flow.changed |= join(&mut known.first, &first) || empty != known.empty;
                known.empty |= empty;
            }
        }
    }
    Some(flow.after)
}

/// What is known of a rule.
struct Known {
    first: Letters,
    empty: bool,
    after: Letters,
}

struct Flow {
    rules: BTreeMap<usize, Known>,
    terminals: Vec<(Letters, bool)>,
    after: Vec<Letters>,
    changed: bool,
    fuel: usize,
}

impl Flow {
    /// Tells what stands in `part` that `after` may follow it; returns what it begins with, and whether it may be empty. `ask`: only returns.
    fn walk(&mut self, part: &Part, after: &Letters, ask: bool) -> (Letters, bool) {
        // Sets are copied on the way.
        self.fuel = self.fuel.saturating_sub(after.len() + 64);
        if self.fuel == 0 {
            return (vec![0; after.len()], false);
        }
        match part {
            Part::Terminal(t) => {
                if !ask {
                    self.changed |= join(&mut self.after[*t], after);
                }
                self.terminals[*t].clone()
            }
            Part::Rule(rule) => match self.rules.get_mut(rule) {
                Some(known) => {
                    if !ask {
                        self.changed |= join(&mut known.after, after);
                    }
                    (known.first.clone(), known.empty)
                }
                None => (vec![0; after.len()], false),
            },
            Part::Seq(parts) => {
                let (mut first, mut empty) = (vec![0; after.len()], true);
                let mut after = after.clone();
                for part in parts.iter().rev() {
                    let (own, skips) = self.walk(part, &after, ask);
                    if skips {
                        join(&mut after, &own);
                        join(&mut first, &own);
                    } else {
                        after.clone_from(&own);
                        first = own;
                    }
                    empty &= skips;
                }
                (first, empty)
            }
            Part::Alt(parts) => {
                let (mut first, mut empty) = (vec![0; after.len()], false);
                for part in parts {
                    let (own, skips) = self.walk(part, after, ask);
                    join(&mut first, &own);
                    empty |= skips;
                }
                (first, empty)
            }
            Part::Repeat(part, min, max) => {
                let mut after = after.clone();
                if max.is_none_or(|max| max > 1) {
                    let (own, _) = self.walk(part, &after, true);
                    join(&mut after, &own);
                }
                let (first, empty) = self.walk(part, &after, ask);
                (first, empty || *min == 0)
            }
        }
    }
}
