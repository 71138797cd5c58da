//! Cuts an assigned graph into runs of one backend, and says what crosses between them.

use std::collections::HashSet;

use super::{BackendId, Graph, NodeId, NodeRange, Op};

/// A node's output that has to be brought to another backend before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Whose output.
    pub node: NodeId,
    /// Where it is; it goes to the run's backend.
    pub from: BackendId,
}

/// Consecutive nodes of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Who runs it.
    pub backend: BackendId,
    /// The nodes; together the splits cover the graph. Inputs and views, which need no work, lie
    /// in whichever run surrounds them.
    pub nodes: NodeRange,
    /// What has to be copied in first: each output at most once a backend.
    pub crossings: Vec<Crossing>,
}

/// Whether a node computes something (inputs are filled by the host, views are places).
pub(super) fn computes(op: &Op) -> bool {
    !matches!(op, Op::Input(_) | Op::View { .. })
}

/// Runs of an assigned graph, in order.
///
/// # Panics
/// If a node has no backend: [`super::assign`] comes first.
pub fn split(graph: &Graph) -> Vec<Split> {
    let mut splits: Vec<Split> = Vec::new();
    let mut seen: HashSet<(NodeId, BackendId)> = HashSet::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        if !computes(&node.op) {
            continue;
        }
        let backend = node.backend.expect("assigned before splitting");
        match splits.last_mut() {
            Some(last) if last.backend == backend => last.nodes.end = i + 1,
            last => {
                let start = last.map_or(0, |l| l.nodes.end);
                splits.push(Split {
                    backend,
                    nodes: NodeRange { start, end: i + 1 },
                    crossings: Vec::new(),
                });
            }
        }
        for s in &node.srcs {
            let source = graph.node(*s);
            let from = source.backend.expect("assigned before splitting");
            let local = matches!(source.op, Op::Input(_)) || from == backend;
            if !local && seen.insert((*s, backend)) {
                let last = splits.last_mut().expect("pushed above");
                last.crossings.push(Crossing { node: *s, from });
            }
        }
    }
    if let Some(last) = splits.last_mut() {
        last.nodes.end = graph.nodes.len();
    }
    splits
}
