//! Several products of one source as one node with views.

use super::{Claims, plain_matmul};
use crate::graph::{FusedKind, Graph, MatMul, MatPart, Node, NodeId, Op};

/// Plain products of one source, in one layer and on one backend, become one `MatMul` at the place
/// of the first; each lives on as a view of it, so its readers notice nothing.
///
/// Where a backend cannot run all of them as one (say, for their formats), it gets the largest
/// groups it can, found first come, first served.
pub(super) fn matmul_group(graph: &mut Graph, claims: &Claims<'_>) {
    let mut taken = vec![false; graph.nodes.len()];
    let mut groups: Vec<(Node, Vec<NodeId>)> = Vec::new();
    for first in graph.ids() {
        if taken[first.index()] || plain_matmul(&graph.node(first).op).is_none() {
            continue;
        }
        if let Some((fused, members)) = grow(graph, first, &taken, claims) {
            for member in &members {
                taken[member.index()] = true;
            }
            groups.push((fused, members));
        }
    }
    if !groups.is_empty() {
        insert(graph, groups);
    }
}

/// The group that starts with `first`, if there is one.
fn grow(
    graph: &Graph,
    first: NodeId,
    taken: &[bool],
    claims: &Claims<'_>,
) -> Option<(Node, Vec<NodeId>)> {
    let head = graph.node(first);
    let mut members = vec![first];
    let mut parts: Vec<MatPart> = plain_matmul(&head.op)?.parts.clone();
    let mut group = None;
    for id in graph.ids().skip(first.index() + 1) {
        let node = graph.node(id);
        let Some(m) = plain_matmul(&node.op) else {
            continue;
        };
        let together = node.srcs == head.srcs
            && node.backend == head.backend
            && node.layer == head.layer
            && node.shape.rows == head.shape.rows;
        if taken[id.index()] || !together {
            continue;
        }
        parts.push(m.parts[0]);
        let fused = group_node(head, parts.clone());
        if claims.take(FusedKind::MatMulGroup, &fused) {
            members.push(id);
            group = Some(fused);
        } else {
            parts.pop();
        }
    }
    Some((group?, members))
}

fn group_node(head: &Node, parts: Vec<MatPart>) -> Node {
    let mut fused = head.clone();
    fused.name = "matmul_group";
    fused.shape.cols = parts.iter().map(|p| p.rows).sum();
    fused.op = Op::MatMul(MatMul {
        parts,
        norm: None,
        glu: None,
        residual: false,
    });
    fused
}

/// Puts each group in front of its first member and turns the members into views of it.
fn insert(graph: &mut Graph, groups: Vec<(Node, Vec<NodeId>)>) {
    let old = std::mem::take(&mut graph.nodes);
    let mut renamed: Vec<NodeId> = Vec::with_capacity(old.len());
    // By old index of a member: the group's new id and the columns before this member.
    let mut view_of: Vec<Option<(NodeId, usize)>> = vec![None; old.len()];
    let mut groups = groups.into_iter().peekable(); // ordered by their first members
    for (i, mut node) in old.into_iter().enumerate() {
        for source in &mut node.srcs {
            *source = renamed[source.index()];
        }
        if let Some((fused, members)) = groups.next_if(|(_, m)| m[0].index() == i) {
            let id = NodeId(graph.nodes.len() as u32);
            let Op::MatMul(m) = &fused.op else {
                unreachable!("groups are products")
            };
            let mut before = 0;
            for (member, part) in members.iter().zip(&m.parts) {
                view_of[member.index()] = Some((id, before));
                before += part.rows;
            }
            graph.nodes.push(Node {
                srcs: node.srcs.clone(),
                ..fused
            });
        }
        if let Some((group, offset)) = view_of[i] {
            node.op = Op::View { offset };
            node.srcs = vec![group];
        }
        renamed.push(NodeId(graph.nodes.len() as u32));
        graph.nodes.push(node);
    }
    for (_, id) in &mut graph.inputs {
        *id = renamed[id.index()];
    }
    for id in &mut graph.outputs {
        *id = renamed[id.index()];
    }
}
