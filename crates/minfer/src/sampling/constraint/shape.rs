//! What the shape of a compiled grammar tells before its first step: that it never ends, or takes too long.

use std::collections::{BTreeMap, BTreeSet};

use llguidance::earley::{CGrammar, CSymIdx};

/// Most steps that a row of the parser may take; see [`dense`].
const ROW: u64 = 1 << 30;

/// Most items that [`wide`] looks at in all: beyond, what is too wide is left to the parser's own limits.
const LOOKS: u64 = 1 << 26;

/// Whether a row of the parser can take very long. For every item that comes to stand before a symbol, each of the symbol's rules is looked
/// for in the row: where very many alternatives can go on with very many alternatives, that is cubic, and no limit of
/// llguidance's sees it.
pub(super) fn dense(grammar: &CGrammar) -> bool {
    let mut uses = BTreeMap::from([(grammar.start().as_index(), (grammar.start(), 0u64))]);
    let mut open = vec![grammar.start()];
    while let Some(symbol) = open.pop() {
        for rule in grammar.rules_of(symbol) {
            for used in grammar.rule_rhs(*rule).0 {
                let count = uses.entry(used.as_index()).or_insert_with(|| {
                    open.push(*used);
                    (*used, 0)
                });
                count.1 = count.1.saturating_add(1);
            }
        }
    }
    let work = uses.values().map(|(symbol, uses)| {
        let rules = grammar.rules_of(*symbol).len() as u64;
        let both = uses.saturating_mul(rules);
        both.saturating_mul(uses.saturating_add(rules))
    });
    work.fold(0, u64::saturating_add) > ROW
}

/// Whether more than `most` items come to stand in one row of the parser: in that in which a symbol can come, or the next, after a text with which several of its
/// ways begin (the brace of alternatives that are objects). Each is followed no further than to that many, so this takes little time where what it saves takes much.
pub(super) fn wide(grammar: &CGrammar, most: usize) -> bool {
    let mut known = BTreeSet::from([grammar.start().as_index()]);
    let mut open = vec![grammar.start()];
    let mut row = Row::default();
    while let Some(symbol) = open.pop() {
        for rule in grammar.rules_of(symbol) {
            let parts = grammar.rule_rhs(*rule).0;
            open.extend(parts.iter().filter(|s| known.insert(s.as_index())));
        }
        row.clear();
        row.see(symbol);
        row.close(grammar, most);
        if row.items > most {
            return true;
        }
        let next = std::mem::take(&mut row.next);
        for rests in next.values() {
            if row.looks > LOOKS {
                return false;
            }
            if row.holds(grammar, rests, most) > most {
                return true;
            }
        }
    }
    false
}

/// What comes to stand in a row of the parser, as far as one symbol tells.
#[derive(Default)]
struct Row<'g> {
    /// The number of the row, by symbol, that it was last seen in.
    seen: Vec<usize>,
    number: usize,
    open: Vec<CSymIdx>,
    items: usize,
    /// Items of all rows so far.
    looks: u64,
    /// What is left of rules behind each text that can come, by that text.
    next: BTreeMap<usize, Vec<&'g [CSymIdx]>>,
}

impl<'g> Row<'g> {
    fn clear(&mut self) {
        self.number = self.number.saturating_add(1);
        self.open.clear();
        self.items = 0;
        self.next.clear();
    }

    /// How many items a row has that begins with these.
    fn holds(&mut self, grammar: &'g CGrammar, rests: &[&'g [CSymIdx]], most: usize) -> usize {
        if rests.len() < 2 {
            return 0; // what comes alone was counted where it stands
        }
        self.clear();
        for rest in rests {
            self.item(grammar, rest);
        }
        self.close(grammar, most);
        self.items
    }

    /// Adds the rules of all symbols that can be first, until there are more items than `most`.
    fn close(&mut self, grammar: &'g CGrammar, most: usize) {
        while let Some(symbol) = self.open.pop() {
            for rule in grammar.rules_of(symbol) {
                self.item(grammar, grammar.rule_rhs(*rule).0);
            }
            if self.items > most {
                return;
            }
        }
    }

    /// Adds an item: what is left of a rule; and those it becomes where its parts may be nothing.
    fn item(&mut self, grammar: &'g CGrammar, rest: &'g [CSymIdx]) {
        let mut rest = rest;
        self.items = self.items.saturating_add(1);
        self.looks = self.looks.saturating_add(1);
        while let Some((part, after)) = rest.split_first() {
            let data = grammar.sym_data(*part);
            if let Some(lexeme) = data.lexeme {
                self.next.entry(lexeme.as_usize()).or_default().push(after);
            }
            self.see(*part);
            if !data.is_nullable {
                break;
            }
            self.items = self.items.saturating_add(1);
            rest = after;
        }
    }

    /// Adds a symbol that can be first.
    fn see(&mut self, symbol: CSymIdx) {
        let at = symbol.as_index();
        if at >= self.seen.len() {
            self.seen.resize(at.saturating_add(1), 0);
        }
        let Some(seen) = self.seen.get_mut(at) else {
            return;
        };
        if std::mem::replace(seen, self.number) != self.number {
            self.open.push(symbol);
        }
    }
}

/// The names of rules that need each other round and round, where no text can ever be all that the first rule asks for.
pub(super) fn endless(grammar: &CGrammar) -> Option<Vec<String>> {
    let ending = ending(grammar);
    let ends = |symbol: &CSymIdx| ending.contains(&symbol.as_index());
    let mut here = Some(grammar.start()).filter(|s| !ends(s));
    here?;
    let mut path: Vec<CSymIdx> = Vec::new();
    let mut from = 0;
    while let Some(symbol) = here {
        if let Some(at) = path.iter().position(|s| s.as_index() == symbol.as_index()) {
            from = at;
            break;
        }
        path.push(symbol);
        let rules = grammar.rules_of(symbol).iter();
        let mut needed = rules.filter_map(|r| grammar.rule_rhs(*r).0.iter().find(|s| !ends(s)));
        here = needed.next().copied();
    }
    let round = path.into_iter().skip(from);
    Some(round.map(|s| grammar.sym_name(s).to_owned()).collect())
}

/// The symbols, by index, that some text fulfils.
fn ending(grammar: &CGrammar) -> BTreeSet<usize> {
    /// A rule, and how many of its symbols are not known to end.
    struct Rule {
        of: CSymIdx,
        left: usize,
    }
    let mut rules: Vec<Rule> = Vec::new();
    let mut users: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut seen = BTreeSet::from([grammar.start().as_index()]);
    let mut open = vec![grammar.start()];
    let mut known = Vec::new();
    while let Some(symbol) = open.pop() {
        let data = grammar.sym_data(symbol);
        // Conditions on parameters may hold.
        if data.is_terminal
            || data.is_nullable
            || data.gen_grammar.is_some()
            || !data.cond_nullable.is_empty()
        {
            known.push(symbol);
        }
        for rule in grammar.rules_of(symbol) {
            let parts = grammar.rule_rhs(*rule).0;
            for part in parts {
                users.entry(part.as_index()).or_default().push(rules.len());
                if seen.insert(part.as_index()) {
                    open.push(*part);
                }
            }
            let left = parts.len();
            rules.push(Rule { of: symbol, left });
        }
    }
    let mut ending = BTreeSet::new();
    while let Some(symbol) = known.pop() {
        if !ending.insert(symbol.as_index()) {
            continue;
        }
        for user in users.get(&symbol.as_index()).into_iter().flatten() {
            let Some(rule) = rules.get_mut(*user) else {
                continue;
            };
            rule.left = rule.left.saturating_sub(1);
            if rule.left == 0 {
                known.push(rule.of);
            }
        }
    }
    ending
}
