//! The patterns that rewrite a node where it stands.

use super::{Claims, plain_matmul, readers};
use crate::graph::{FusedKind, Graph, MatMul, Node, NodeId, Op};

/// Looks at nodes with the knowledge of who reads what.
struct View<'a> {
    graph: &'a Graph,
    node: &'a Node,
    readers: &'a [usize],
}

impl View<'_> {
    /// The source's node, if this node alone reads it, on the same backend and over the same rows:
    /// what may disappear into a fused node.
    fn sole(&self, source: NodeId) -> Option<&Node> {
        let s = self.graph.node(source);
        let same = s.backend == self.node.backend && s.shape.rows == self.node.shape.rows;
        (same && self.readers[source.index()] == 1).then_some(s)
    }

    /// The node with another operator and sources.
    fn with(&self, op: Op, srcs: Vec<NodeId>) -> Node {
        Node {
            op,
            srcs,
            ..self.node.clone()
        }
    }
}

/// Replaces every node by the first of what `propose` makes of it that its backend takes.
///
/// Counting readers once is enough: a fused node reads what the nodes inside it read.
fn rewrite(
    graph: &mut Graph,
    claims: &Claims<'_>,
    kind: FusedKind,
    propose: impl Fn(&View<'_>) -> Vec<Node>,
) {
    let readers = readers(graph);
    for i in 0..graph.nodes.len() {
        let view = View {
            graph,
            node: &graph.nodes[i],
            readers: &readers,
        };
        let mut proposals = propose(&view).into_iter();
        if let Some(fused) = proposals.find(|n| claims.take(kind, n)) {
            graph.nodes[i] = fused;
        }
    }
}

/// `Mul(Act(gate), up)`, either way around, as `Glu`.
pub(super) fn glu(graph: &mut Graph, claims: &Claims<'_>) {
    rewrite(graph, claims, FusedKind::Glu, |v| {
        let Op::Mul = v.node.op else {
            return Vec::new();
        };
        let (a, b) = (v.node.srcs[0], v.node.srcs[1]);
        let one = |act: NodeId, up: NodeId| match v.sole(act)?.op {
            Op::Act(kind) => Some(v.with(Op::Glu(kind), vec![v.graph.node(act).srcs[0], up])),
            _ => None,
        };
        one(a, b).into_iter().chain(one(b, a)).collect()
    });
}

/// `Glu(MatMul(x), MatMul(x))` as one product with `glu`.
pub(super) fn matmul_glu(graph: &mut Graph, claims: &Claims<'_>) {
    rewrite(graph, claims, FusedKind::MatMulGlu, |v| {
        let one = || {
            let Op::Glu(act) = v.node.op else {
                return None;
            };
            let (gate, up) = (v.sole(v.node.srcs[0])?, v.sole(v.node.srcs[1])?);
            let (g, u) = (plain_matmul(&gate.op)?, plain_matmul(&up.op)?);
            let op = Op::MatMul(MatMul {
                parts: vec![g.parts[0], u.parts[0]],
                norm: None,
                glu: Some(act),
                residual: false,
            });
            (gate.srcs == up.srcs).then(|| v.with(op, gate.srcs.clone()))
        };
        one().into_iter().collect()
    });
}

/// `MatMul(RmsNorm(x))` as one, for norms over whole rows.
pub(super) fn norm_matmul(graph: &mut Graph, claims: &Claims<'_>) {
    rewrite(graph, claims, FusedKind::NormMatMul, |v| {
        let one = || {
            let Op::MatMul(m) = &v.node.op else {
                return None;
            };
            let source = v.sole(v.node.srcs[0])?;
            let Op::RmsNorm(norm) = source.op else {
                return None;
            };
            if m.norm.is_some() || norm.group != source.shape.cols {
                return None;
            }
            let mut fused = m.clone();
            fused.norm = Some(norm);
            let mut srcs = v.node.srcs.clone();
            srcs[0] = source.srcs[0];
            Some(v.with(Op::MatMul(fused), srcs))
        };
        one().into_iter().collect()
    });
}

/// `Add(MatMul(x), y)`, either way around, as one.
pub(super) fn matmul_residual(graph: &mut Graph, claims: &Claims<'_>) {
    rewrite(graph, claims, FusedKind::MatMulResidual, |v| {
        let Op::Add = v.node.op else {
            return Vec::new();
        };
        let (a, b) = (v.node.srcs[0], v.node.srcs[1]);
        let one = |product: NodeId, added: NodeId| {
            let source = v.sole(product)?;
            let Op::MatMul(m) = &source.op else {
                return None;
            };
            if m.parts.len() != 1 || m.residual {
                return None;
            }
            let mut fused = m.clone();
            fused.residual = true;
            Some(v.with(Op::MatMul(fused), vec![source.srcs[0], added]))
        };
        one(a, b).into_iter().chain(one(b, a)).collect()
    });
}
