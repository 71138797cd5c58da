//! DOT and JSON.

use super::backends::{Claims, TestBackend};
use super::execution::scheduler;
use super::toy::{Toy, params};
use crate::graph::*;

fn made(toy: &Toy) -> Graph {
    let mut scheduler = scheduler(toy, vec![TestBackend::plain(Claims::everything())]);
    let graph = scheduler.prepare(&params(4, 2, true), &|p| toy.build(p));
    graph.unwrap().clone()
}

#[test]
fn dot_shows_layers_names_tensors_backends_and_fusions() {
    let toy = Toy::new();
    let graph = made(&toy);
    let dot = to_dot(&graph, Some(&toy.weights), &["plain"]);
    for part in [
        "digraph minfer {",
        "subgraph cluster_1 {",
        "label=\"layer 0\"",
        "matmul_group\\nmatmul 3 parts +norm [tokens x 32]",
        "blk.0.attn_q.weight",
        "blk.1.ffn_down.weight",
        "output.weight",
        "@plain",
        "shape=cylinder",
        "gated\\nmatmul 2 parts +norm +glu [out x 24]",
    ] {
        assert!(dot.contains(part), "{part} in:\n{dot}");
    }
    let edges = dot.lines().filter(|l| l.contains(" -> ")).count();
    let want: usize = graph.nodes.iter().map(|n| n.srcs.len()).sum();
    assert_eq!(edges, want);
    let open = dot.matches('{').count();
    assert_eq!(open, dot.matches('}').count());
    assert!(!dot.contains("e-06"));
}

#[test]
fn json_has_every_node_with_its_edges_and_payload() {
    let toy = Toy::new();
    let graph = made(&toy);
    let json = to_json(&graph, Some(&toy.weights), &["plain"]);
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), graph.nodes.len());
    for (node, shown) in graph.nodes.iter().zip(nodes) {
        assert_eq!(shown["name"], node.name);
        assert_eq!(shown["op"], node.op.name());
        assert_eq!(shown["srcs"].as_array().unwrap().len(), node.srcs.len());
    }
    let group = nodes.iter().find(|n| n["name"] == "matmul_group").unwrap();
    assert_eq!(group["detail"]["rows"], serde_json::json!([16, 8, 8]));
    assert_eq!(group["detail"]["norm"]["eps"], 1e-5);
    assert_eq!(group["weights"][0], "blk.0.attn_norm.weight");
    assert_eq!(group["backend"], "plain");
    assert_eq!(json["params"]["type_v"], "f16");
    let output = json["outputs"][0].as_u64().unwrap() as usize;
    assert_eq!(nodes[output]["name"], "logits");
    assert_eq!(nodes[output]["rows"], "out");
}

#[test]
fn an_unassigned_graph_without_weights_can_be_shown_too() {
    let toy = Toy::new();
    let graph = toy.build(&params(1, 1, false));
    let json = to_json(&graph, None, &[]);
    assert!(json["nodes"][0]["backend"].is_null());
    assert_eq!(json["nodes"][1]["weights"][0], "weight 0");
    assert!(to_dot(&graph, None, &[]).contains("weight 0"));
}
