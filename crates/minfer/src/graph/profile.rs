//! Where the time of forward passes goes: wall time of every node, by operator, name and layer.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use super::execute::Observer;
use super::split::computes;
use super::{Graph, GraphError, NodeId};

/// What is said above every table.
const HEADING: &str = "\
Time by node, each run alone and waited for: nodes that are otherwise done in one step are apart here, and each
starts and stops all threads, so the sum is more than a pass without a profile takes. Copies between backends,
inputs and what the engine does between passes are not in it.";

/// How often something ran and how long it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Nodes run.
    pub count: u64,
    /// Wall time of them together.
    pub time: Duration,
}

impl Spent {
    fn add(&mut self, more: Spent) {
        self.count += more.count;
        self.time += more.time;
    }
}

/// What a node is, as far as a profile tells nodes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timed {
    /// The operator's name ([`Op::name`](super::Op::name)).
    pub op: &'static str,
    /// The node's name, which tells products apart (`ffn_down`).
    pub name: &'static str,
    /// Its layer; none for embedding, angles, last norm and head.
    pub layer: Option<usize>,
}

/// Adds up the wall time of nodes, pass after pass, as an [`Observer`].
#[derive(Clone, Debug, Default)]
pub struct Profile {
    spent: BTreeMap<Timed, Spent>,
    started: Option<Instant>,
}

impl Profile {
    /// Nothing yet.
    pub fn new() -> Profile {
        Profile::default()
    }

    /// What was spent where: by operator, then name, then layer.
    pub fn spent(&self) -> impl Iterator<Item = (&Timed, &Spent)> {
        self.spent.iter()
    }

    /// All of it.
    pub fn total(&self) -> Spent {
        self.sum(|_| true)
    }

    fn sum(&self, which: impl Fn(&Timed) -> bool) -> Spent {
        let mut sum = Spent::default();
        let chosen = self.spent.iter().filter(|(t, _)| which(t));
        chosen.for_each(|(_, s)| sum.add(*s));
        sum
    }

    /// Three tables for people: by operator, by operator and name, by layer and operator. Longest first; layers in
    /// order, and `-` for what belongs to none.
    pub fn table(&self) -> String {
        let mut out = format!("{HEADING}\n");
        let all = self.total();
        let ops = self.longest(|t| t.op.to_string());
        totals(&mut out, "op", &ops, all);
        let named = self.longest(|t| format!("{} {}", t.op, t.name));
        totals(&mut out, "op, node", &named, all);
        let ops: Vec<&str> = ops.iter().map(|(op, _)| op.as_str()).collect();
        self.by_layer(&mut out, &ops);
        out
    }

    /// Sums by a key, the longest time first.
    fn longest(&self, key: impl Fn(&Timed) -> String) -> Vec<(String, Spent)> {
        let mut sums: BTreeMap<String, Spent> = BTreeMap::new();
        for (timed, spent) in &self.spent {
            sums.entry(key(timed)).or_default().add(*spent);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, s)| std::cmp::Reverse(s.time));
        sums
    }

    /// Milliseconds, a line a layer, a column an operator.
    fn by_layer(&self, out: &mut String, ops: &[&str]) {
        let mut layers: Vec<Option<usize>> = self.spent.keys().map(|t| t.layer).collect();
        layers.sort_unstable();
        layers.dedup();
        let cells = |first: &str, cells: &mut dyn Iterator<Item = String>| {
            let mut row = format!("{first:>8}");
            for (op, cell) in ops.iter().chain(&["all"]).zip(cells) {
                let width = op.len().max(9) + 1;
                let _ = write!(row, "{cell:>width$}");
            }
            row + "\n"
        };
        *out += "\n";
        let mut heads = ops.iter().chain(&["all"]).map(|op| (*op).to_string());
        *out += &cells("layer ms", &mut heads);
        for layer in layers {
            let first = layer.map_or("-".to_string(), |l| l.to_string());
            let own = |op: Option<&&str>| {
                let spent = self.sum(|t| t.layer == layer && op.is_none_or(|op| *op == t.op));
                match spent.count {
                    0 => String::new(),
                    _ => millis(spent.time),
                }
            };
            let mut row = ops.iter().map(Some).chain([None]).map(own);
            *out += &cells(&first, &mut row);
        }
    }
}

fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// A line a sum: share of all, milliseconds, nodes, microseconds a node.
fn totals(out: &mut String, what: &str, sums: &[(String, Spent)], all: Spent) {
    let all_time = all.time.as_secs_f64();
    let width = sums.iter().map(|(name, _)| name.len());
    let width = width.max().unwrap_or(0).max(what.len());
    let _ = writeln!(
        out,
        "\n{what:<width$} {:>7} {:>12} {:>9} {:>10}",
        "share", "ms", "nodes", "us/node"
    );
    let total = ("all".to_string(), all);
    for (name, spent) in sums.iter().chain([&total]) {
        let time = spent.time.as_secs_f64();
        let share = if all_time > 0.0 {
            100.0 * time / all_time
        } else {
            0.0
        };
        let each = 1e6 * time / spent.count.max(1) as f64;
        let (ms, count) = (millis(spent.time), spent.count);
        let _ = writeln!(
            out,
            "{name:<width$} {share:>6.1}% {ms:>12} {count:>9} {each:>10.1}"
        );
    }
}

impl Observer for Profile {
    fn starts(&mut self, _: &Graph, _: NodeId) {
        self.started = Some(Instant::now());
    }

    fn node(
        &mut self,
        graph: &Graph,
        id: NodeId,
        _: &mut dyn FnMut() -> Result<Vec<f32>, GraphError>,
    ) -> Result<(), GraphError> {
        let node = graph.node(id);
        if let (Some(started), true) = (self.started.take(), computes(&node.op)) {
            let timed = Timed {
                op: node.op.name(),
                name: node.name,
                layer: node.layer,
            };
            self.spent.entry(timed).or_default().add(Spent {
                count: 1,
                time: started.elapsed(),
            });
        }
        Ok(())
    }
}
