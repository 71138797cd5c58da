//! Makes fewer, larger nodes where a backend claims them.
//!
//! Each pattern replaces a node and the producers that only it reads. The rewriting is a function
//! of the graph and the claims alone, and doing it twice changes nothing. Fused nodes mean exactly
//! what the plain ones did; on the CPU they also give the same bits.

mod group;
mod patterns;

use super::{Backend, FusedKind, Graph, MatMul, Node, NodeId, Op};

/// An assigned graph with every fusion its backends claim. Nodes keep their names; ids change
/// where nodes go. A `MatMul` over several weights is named `matmul_group`, and the products it
/// replaced live on as views.
pub fn fuse(graph: &Graph, backends: &[Box<dyn Backend>]) -> Graph {
    let mut graph = compact(graph);
    let claims = Claims { backends };
    for pass in [
        patterns::glu,
        patterns::matmul_glu, // before groups: gate and up share their source too
        group::matmul_group,
        patterns::norm_matmul, // after groups: the norm must have one reader
        patterns::matmul_residual,
    ] {
        pass(&mut graph, &claims);
        graph = compact(&graph);
    }
    graph
}

struct Claims<'a> {
    backends: &'a [Box<dyn Backend>],
}

impl Claims<'_> {
    /// Whether the node's backend makes such fusions, and can run this one.
    fn take(&self, kind: FusedKind, fused: &Node) -> bool {
        let backend = fused.backend.and_then(|b| self.backends.get(b.0 as usize));
        backend.is_some_and(|b| b.supports_fused(kind) && b.supports_op(fused))
    }
}

/// How often each node's output is read, by nodes and by the host.
fn readers(graph: &Graph) -> Vec<usize> {
    let mut count = vec![0; graph.nodes.len()];
    for source in graph.nodes.iter().flat_map(|n| &n.srcs) {
        count[source.index()] += 1;
    }
    for output in &graph.outputs {
        count[output.index()] += 1;
    }
    count
}

/// A matrix product as the builder makes it.
fn plain_matmul(op: &Op) -> Option<&MatMul> {
    match op {
        Op::MatMul(m)
            if m.parts.len() == 1 && m.norm.is_none() && m.glu.is_none() && !m.residual =>
        {
            Some(m)
        }
        _ => None,
    }
}

/// The graph without what nothing needs any more. Stores and shifts are needed for what they leave behind.
fn compact(graph: &Graph) -> Graph {
    let mut needed = vec![false; graph.nodes.len()];
    for output in &graph.outputs {
        needed[output.index()] = true;
    }
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        needed[i] |= node.op.region().is_some();
        if needed[i] {
            for source in &node.srcs {
                needed[source.index()] = true;
            }
        }
    }
    let mut renamed = vec![None; graph.nodes.len()];
    let mut nodes = Vec::with_capacity(graph.nodes.len());
    for (i, node) in graph.nodes.iter().enumerate() {
        if needed[i] {
            renamed[i] = Some(NodeId(nodes.len() as u32));
            nodes.push(node.clone());
        }
    }
    let new = |id: &NodeId| renamed[id.index()].expect("sources of needed nodes are needed");
    for node in &mut nodes {
        for source in &mut node.srcs {
            *source = new(source);
        }
    }
    let input = |(input, id): &(super::Input, NodeId)| Some((*input, renamed[id.index()]?));
    Graph {
        params: graph.params,
        nodes,
        inputs: graph.inputs.iter().filter_map(input).collect(),
        outputs: graph.outputs.iter().map(new).collect(),
        uid: graph.uid,
    }
}
