//! Gives every node a backend: the first in priority order that claims it.

use super::{Backend, BackendId, Graph, GraphError, NodeId, Op};

/// Assigns every node of `graph`. `backends` is in priority order; `weight_names` (by weight id)
/// serves the error text.
///
/// A layer's stores and the attentions that read them go to one backend, the first that can run
/// them all: K and V never leave it. A view sits where its source is; an input is written to every
/// backend that reads it, and carries the one of its first reader.
///
/// # Errors
/// [`GraphError::NoBackend`] where no backend claims a node.
pub fn assign(
    graph: &mut Graph,
    backends: &[Box<dyn Backend>],
    weight_names: &[String],
) -> Result<(), GraphError> {
    for node in &mut graph.nodes {
        node.backend = None;
    }
    for id in graph.ids() {
        if graph.node(id).backend.is_some() {
            continue;
        }
        let group = match &graph.node(id).op {
            Op::Input(_) => continue,
            Op::View { .. } => {
                let source = graph.node(id).srcs[0];
                graph.nodes[id.index()].backend = graph.node(source).backend;
                continue;
            }
            Op::Attention(a) => kv_group(graph, a.layer),
            op => match op.region() {
                Some((layer, _)) => kv_group(graph, layer),
                None => vec![id],
            },
        };
        let chosen = choose(graph, &group, backends)
            .map_err(|culprit| refusal(graph, culprit, backends, weight_names))?;
        for member in group {
            graph.nodes[member.index()].backend = Some(chosen);
        }
    }
    assign_inputs(graph);
    Ok(())
}

/// Every node that touches a layer's KV regions.
fn kv_group(graph: &Graph, of: usize) -> Vec<NodeId> {
    graph
        .ids()
        .filter(|id| match &graph.node(*id).op {
            Op::Attention(a) => a.layer == of,
            op => op.region().is_some_and(|(layer, _)| layer == of),
        })
        .collect()
}

/// The first backend that claims all of `group`; else the node that the last one refused.
fn choose(
    graph: &Graph,
    group: &[NodeId],
    backends: &[Box<dyn Backend>],
) -> Result<BackendId, NodeId> {
    let mut culprit = group[0];
    for (b, backend) in backends.iter().enumerate() {
        match group
            .iter()
            .find(|id| !backend.supports_op(graph.node(**id)))
        {
            None => return Ok(BackendId(b as u8)),
            Some(refused) => culprit = *refused,
        }
    }
    Err(culprit)
}

/// Inputs carry the backend of their first reader.
fn assign_inputs(graph: &mut Graph) {
    for i in (0..graph.nodes.len()).rev() {
        let backend = graph.nodes[i].backend;
        for s in graph.nodes[i].srcs.clone() {
            let source = &mut graph.nodes[s.index()];
            if matches!(source.op, Op::Input(_)) {
                source.backend = backend;
            }
        }
    }
}

fn refusal(
    graph: &Graph,
    id: NodeId,
    backends: &[Box<dyn Backend>],
    weight_names: &[String],
) -> GraphError {
    let node = graph.node(id);
    let tensors: Vec<String> = node
        .op
        .weights()
        .iter()
        .map(|w| match weight_names.get(w.0 as usize) {
            Some(name) => format!("'{name}'"),
            None => format!("weight {} (not loaded)", w.0),
        })
        .collect();
    let names: Vec<&str> = backends.iter().map(|b| b.name()).collect();
    GraphError::NoBackend {
        node: id.index(),
        name: node.name,
        op: node.op.name(),
        layer: node.layer.map_or(String::new(), |l| format!(", layer {l}")),
        tensors: match &node.op {
            Op::KvStore { ty, head_dim, .. } | Op::KvShift { ty, head_dim, .. } => {
                format!("{} of heads of {head_dim} channels", ty.name())
            }
            _ if tensors.is_empty() => "activations only".to_string(),
            _ => tensors.join(", "),
        },
        backends: match names.is_empty() {
            true => "none".to_string(),
            false => names.join(", "),
        },
    }
}
