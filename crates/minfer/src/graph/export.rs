//! Pictures of a graph for people and tools: Graphviz DOT and JSON.

use std::fmt::Write;

use super::{DType, Graph, Input, Node, NodeId, Op, Rows, WeightSet};
use serde_json::{Value, json};

/// The graph as Graphviz DOT, one cluster a layer. `weights` gives tensors their names; without it
/// they appear as numbers. Backends appear where assigned, under the names given by backend id.
pub fn to_dot(graph: &Graph, weights: Option<&WeightSet>, backends: &[&str]) -> String {
    let mut out = String::from("digraph minfer {\n  rankdir=TB;\n");
    out.push_str("  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n");
    for id in graph.ids().filter(|id| graph.node(*id).layer.is_none()) {
        dot_node(&mut out, graph, id, weights, backends);
    }
    let mut layers: Vec<usize> = graph.nodes.iter().filter_map(|n| n.layer).collect();
    layers.sort_unstable();
    layers.dedup();
    for layer in layers {
        line(&mut out, format_args!("  subgraph cluster_{layer} {{"));
        line(&mut out, format_args!("  label=\"layer {layer}\";"));
        for id in graph.ids() {
            if graph.node(id).layer == Some(layer) {
                dot_node(&mut out, graph, id, weights, backends);
            }
        }
        out.push_str("  }\n");
    }
    for id in graph.ids() {
        for source in &graph.node(id).srcs {
            line(&mut out, format_args!("  n{} -> n{};", source.0, id.0));
        }
    }
    out.push_str("}\n");
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

fn dot_node(
    out: &mut String,
    graph: &Graph,
    id: NodeId,
    weights: Option<&WeightSet>,
    backends: &[&str],
) {
    let node = graph.node(id);
    let mut label = format!("{}\\n{} {}", escape(node.name), what(node), shape(node));
    for name in weight_names(&node.op, weights) {
        label.push_str("\\n");
        label.push_str(&escape(&name));
    }
    if let Some(name) = backend_name(node, backends) {
        label.push_str("\\n@");
        label.push_str(&escape(&name));
    }
    let style = match (&node.op, graph.outputs.contains(&id)) {
        (_, true) => ", penwidth=2",
        (Op::Input(_), _) => ", shape=ellipse",
        (Op::View { .. }, _) => ", style=dashed",
        (Op::KvStore { .. } | Op::KvShift { .. }, _) => ", shape=cylinder",
        _ => "",
    };
    line(
        out,
        format_args!("    n{} [label=\"{label}\"{style}];", id.0),
    );
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The graph as JSON: `{"params", "inputs", "outputs", "nodes": [{"id", "name", "op", "layer",
/// "backend", "dtype", "rows", "cols", "srcs", "weights", "detail"}]}`; names as for [`to_dot`].
pub fn to_json(graph: &Graph, weights: Option<&WeightSet>, backends: &[&str]) -> Value {
    let context = &graph.params.context;
    let nodes: Vec<Value> = graph
        .ids()
        .map(|id| {
            let node = graph.node(id);
            json!({
                "id": id.0,
                "name": node.name,
                "op": node.op.name(),
                "layer": node.layer,
                "backend": backend_name(node, backends),
                "dtype": dtype(node.dtype),
                "rows": rows(node.shape.rows),
                "cols": node.shape.cols,
                "srcs": node.srcs.iter().map(|s| s.0).collect::<Vec<_>>(),
                "weights": weight_names(&node.op, weights),
                "detail": detail(&node.op),
            })
        })
        .collect();
    json!({
        "params": {
            "kind": graph.params.kind.name(),
            "n_tokens": graph.params.n_tokens,
            "n_out": graph.params.n_out,
            "type_k": context.type_k.name(),
            "type_v": context.type_v.name(),
            "pages_full": context.pages_full,
            "pages_windowed": context.pages_windowed,
            "max_seqs": context.max_seqs,
            "pages_per_seq": context.pages_per_seq,
            "fuse": context.fuse,
            "weights_version": graph.params.weights_version,
        },
        "inputs": graph.inputs.iter().map(|(_, id)| id.0).collect::<Vec<_>>(),
        "outputs": graph.outputs.iter().map(|id| id.0).collect::<Vec<_>>(),
        "nodes": nodes,
    })
}

fn dtype(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::I32 => "i32",
        DType::Kv => "kv",
    }
}

fn rows(rows: Rows) -> Value {
    match rows {
        Rows::Tokens => json!("tokens"),
        Rows::Out => json!("out"),
        Rows::Fixed(n) => json!(n),
    }
}

fn shape(node: &Node) -> String {
    match (node.dtype, node.shape.rows) {
        (DType::Kv, _) => format!("[pages x {}]", node.shape.cols),
        (_, Rows::Tokens) => format!("[tokens x {}]", node.shape.cols),
        (_, Rows::Out) => format!("[out x {}]", node.shape.cols),
        (_, Rows::Fixed(n)) => format!("[{n} x {}]", node.shape.cols),
    }
}

fn backend_name(node: &Node, backends: &[&str]) -> Option<String> {
    let b = node.backend?.0 as usize;
    Some(match backends.get(b) {
        Some(name) => (*name).to_string(),
        None => format!("backend {b}"),
    })
}

fn weight_names(op: &Op, weights: Option<&WeightSet>) -> Vec<String> {
    let name = |id: super::WeightId| match weights {
        Some(set) => set.get(id).name.clone(),
        None => format!("weight {}", id.0),
    };
    op.weights().into_iter().map(name).collect()
}

/// The operator with what fusion put into it: `matmul 3 parts +norm`.
fn what(node: &Node) -> String {
    let mut text = node.op.name().to_string();
    if let Op::MatMul(m) = &node.op {
        if m.parts.len() > 1 {
            let _ = write!(text, " {} parts", m.parts.len());
        }
        for (there, label) in [
            (m.norm.is_some(), " +norm"),
            (m.glu.is_some(), " +glu"),
            (m.residual, " +residual"),
        ] {
            if there {
                text.push_str(label);
            }
        }
    }
    text
}

/// A number in its shortest form (`1e-5`, not what f64 makes of its f32).
fn number(v: f32) -> Value {
    v.to_string()
        .parse::<f64>()
        .map_or(Value::Null, Value::from)
}

/// The operator's payload, weights aside.
fn detail(op: &Op) -> Value {
    match op {
        Op::Input(Input::PageTable(kind) | Input::Pages(kind)) => {
            json!({ "kind": format!("{kind:?}") })
        }
        Op::Scale { factor } => json!({ "factor": number(*factor) }),
        Op::RmsNorm(n) => json!({ "eps": number(n.eps), "group": n.group }),
        Op::MatMul(m) => json!({
            "rows": m.parts.iter().map(|p| p.rows).collect::<Vec<_>>(),
            "norm": m.norm.map(|n| json!({ "eps": number(n.eps), "group": n.group })),
            "glu": m.glu.map(|a| format!("{a:?}")),
            "residual": m.residual,
        }),
        Op::View { offset } => json!({ "offset": offset }),
        Op::RopeTable(t) => json!({
            "n_dims": t.n_dims,
            "freq_base": number(t.freq_base),
            "scaling": format!("{:?}", t.scaling),
            "turn_only": t.turn_only,
        }),
        Op::Rope {
            kind,
            head_dim,
            n_dims,
        } => json!({ "kind": format!("{kind:?}"), "head_dim": head_dim, "n_dims": n_dims }),
        Op::KvStore {
            layer,
            part,
            ty,
            n_head_kv,
            head_dim,
            kind,
        } => json!({
            "layer": layer,
            "part": format!("{part:?}"),
            "type": ty.name(),
            "n_head_kv": n_head_kv,
            "head_dim": head_dim,
            "kind": format!("{kind:?}"),
        }),
        Op::KvShift {
            layer,
            ty,
            n_head_kv,
            head_dim,
            rope,
            n_dims,
            kind,
        } => json!({
            "layer": layer,
            "type": ty.name(),
            "n_head_kv": n_head_kv,
            "head_dim": head_dim,
            "rope": format!("{rope:?}"),
            "n_dims": n_dims,
            "kind": format!("{kind:?}"),
        }),
        Op::Attention(a) => json!({
            "layer": a.layer,
            "n_head": a.n_head,
            "n_head_kv": a.n_head_kv,
            "head_dim": a.head_dim,
            "scale": number(a.scale),
            "window": a.window,
            "kind": format!("{:?}", a.kind),
        }),
        Op::Act(act) | Op::Glu(act) => json!({ "activation": format!("{act:?}") }),
        _ => Value::Null,
    }
}
