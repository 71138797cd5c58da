//! What fusion makes, what it leaves alone, and that values stay.

use super::backends::{ALL_FUSED, Claims, TestBackend};
use super::random::random_graph;
use super::toy::{Batch, Toy, params, weight};
use crate::graph::reference::{Decoded, Reference, decode_f32};
use crate::graph::*;
use crate::numeric::test_rng::Rng;
use proptest::prelude::*;

fn backend(weights: &WeightSet, claims: Claims) -> Vec<Box<dyn Backend>> {
    let mut backend = TestBackend::plain(claims);
    backend.take(weights);
    vec![Box::new(backend)]
}

fn fused(weights: &WeightSet, graph: &Graph, claims: Claims) -> Graph {
    let backends = backend(weights, claims);
    let mut graph = graph.clone();
    assign(&mut graph, &backends, &[]).unwrap();
    let once = fuse(&graph, &backends);
    assert_in_order(&once);
    assert!(fuse(&once, &backends).same_topology(&once), "idempotent");
    assert!(
        fuse(&graph, &backends).same_topology(&once),
        "deterministic"
    );
    once
}

fn assert_in_order(graph: &Graph) {
    for (i, node) in graph.nodes.iter().enumerate() {
        assert!(node.srcs.iter().all(|s| s.index() < i), "{}", node.name);
    }
    for (input, id) in &graph.inputs {
        assert_eq!(graph.node(*id).op, Op::Input(*input));
    }
}

fn toy_with(kinds: &[FusedKind]) -> Graph {
    let toy = Toy::new();
    let claims = Claims {
        fused: kinds.to_vec(),
        ..Claims::everything()
    };
    fused(&toy.weights, &toy.build(&params(4, 2, true)), claims)
}

/// `name op` of all computing nodes of a layer, in order.
fn layer(graph: &Graph, l: usize) -> Vec<String> {
    let nodes = graph.nodes.iter().filter(|n| n.layer == Some(l));
    nodes
        .map(|n| format!("{} {}", n.name, n.op.name()))
        .collect()
}

fn matmul<'a>(graph: &'a Graph, name: &str) -> &'a MatMul {
    let node = graph.nodes.iter().find(|n| n.name == name).expect(name);
    match &node.op {
        Op::MatMul(m) => m,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn a_whole_layer_fuses_to_ten_computing_nodes() {
    let graph = toy_with(&ALL_FUSED);
    let want = [
        "matmul_group matmul",
        "q view",
        "k view",
        "v view",
        "k_norm rms_norm",
        "q_rope rope",
        "k_rope rope",
        "k_store kv_store",
        "v_store kv_store",
        "attention attention",
        "attn_residual matmul",
        "gated matmul",
        "ffn_residual matmul",
    ];
    assert_eq!(layer(&graph, 0), want);
    let group = matmul(&graph, "matmul_group");
    let rows: Vec<usize> = group.parts.iter().map(|p| p.rows).collect();
    assert_eq!(rows, [16, 8, 8]);
    assert!(group.norm.is_some() && group.parts[0].bias.is_some());
    let gated = matmul(&graph, "gated");
    assert_eq!((gated.parts.len(), gated.glu), (2, Some(Activation::Silu)));
    assert!(gated.norm.is_some());
    assert!(matmul(&graph, "ffn_residual").residual);
    assert!(matmul(&graph, "logits").norm.is_some());
}

#[test]
fn each_kind_needs_its_own_claim() {
    let unfused = toy_with(&[]);
    assert_eq!(
        unfused.nodes.len(),
        Toy::new().build(&params(4, 2, true)).nodes.len()
    );
    let only_glu = toy_with(&[FusedKind::Glu]);
    assert!(layer(&only_glu, 0).contains(&"gated glu".to_string()));
    assert!(layer(&only_glu, 0).contains(&"gate matmul".to_string()));
    let no_glu = toy_with(&[FusedKind::MatMulGlu]); // nothing to build on
    assert_eq!(layer(&no_glu, 0), layer(&unfused, 0));
    let norms = toy_with(&[FusedKind::NormMatMul]); // three products read attn_norm
    assert!(layer(&norms, 0).contains(&"attn_norm rms_norm".to_string()));
    assert!(matmul(&norms, "logits").norm.is_some());
}

#[test]
fn a_backend_that_cannot_run_a_whole_group_gets_a_smaller_one() {
    let toy = Toy::new();
    let two_at_most: fn(&Node) -> bool = |n| match &n.op {
        Op::MatMul(m) => m.parts.len() <= 2,
        _ => true,
    };
    let claims = Claims {
        node: two_at_most,
        fused: vec![FusedKind::MatMulGroup],
        ..Claims::everything()
    };
    let graph = fused(&toy.weights, &toy.build(&params(4, 2, true)), claims);
    let nodes = layer(&graph, 0);
    assert_eq!(
        nodes[1..5],
        ["matmul_group matmul", "q view", "k view", "v matmul"]
    );
}

#[test]
fn what_others_read_is_not_fused_away() {
    let toy = Toy::new();
    let params = params(1, 1, true);
    let mut b = Builder::new(params);
    let part = MatPart {
        weight: WeightId(2),
        bias: None,
        rows: 16,
    };
    let ids = b.input(Input::TokenIds);
    let x = b.get_rows("x", WeightId(0), ids, 16);
    let y = b.matmul("y", x, part);
    let act = b.act("act", Activation::Gelu, y);
    let gated = b.mul("gated", act, x);
    let again = b.add("again", gated, act); // act is read twice
    let product = b.matmul("product", again, part);
    let sum = b.add("sum", product, x);
    let twice = b.mul("twice", sum, product); // so is product
    let graph = fused(&toy.weights, &b.finish(twice), Claims::everything());
    let ops: Vec<&str> = graph.nodes.iter().map(|n| n.op.name()).collect();
    let want = [
        "input", "get_rows", "matmul", "act", "mul", "add", "matmul", "add", "mul",
    ];
    assert_eq!(ops, want);
}

#[test]
fn a_norm_of_parts_of_a_row_stays_a_node() {
    let (mut weights, mut random) = (WeightSet::new(), Rng::new(3));
    let mut made =
        |name, dims: &[usize], usage| weight(&mut weights, &mut random, name, dims, usage);
    let table = made("table", &[16, 4], WeightUse::Table);
    let head = made("head", &[16, 16], WeightUse::Matrix);
    let mut graphs = Vec::new();
    for group in [8, 16] {
        let norm = Norm {
            weight: made("norm", &[group], WeightUse::Vector),
            eps: 1e-5,
            group,
        };
        let mut b = Builder::new(params(1, 1, true));
        let ids = b.input(Input::TokenIds);
        let x = b.get_rows("x", table, ids, 16);
        let x = b.rms_norm("norm", x, norm);
        let part = MatPart {
            weight: head,
            bias: None,
            rows: 16,
        };
        let x = b.matmul("head", x, part);
        graphs.push((group, b.finish(x)));
    }
    for (group, graph) in graphs {
        let graph = fused(&weights, &graph, Claims::everything());
        assert_eq!(matmul(&graph, "head").norm.is_some(), group == 16);
    }
}

#[test]
fn either_operand_order_fuses() {
    let toy = Toy::new();
    let part = MatPart {
        weight: WeightId(2),
        bias: None,
        rows: 16,
    };
    for swapped in [false, true] {
        let order = |a, b| if swapped { (b, a) } else { (a, b) };
        let mut b = Builder::new(params(1, 1, true));
        let ids = b.input(Input::TokenIds);
        let x = b.get_rows("x", WeightId(0), ids, 16);
        let act = b.act("act", Activation::Gelu, x);
        let (p, q) = order(act, x);
        let gated = b.mul("gated", p, q);
        let product = b.matmul("product", gated, part);
        let (p, q) = order(product, x);
        let sum = b.add("sum", p, q);
        let graph = fused(&toy.weights, &b.finish(sum), Claims::everything());
        let ops: Vec<&str> = graph.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(ops, ["input", "get_rows", "glu", "matmul"]);
        assert_eq!(graph.nodes[3].srcs, [NodeId(2), NodeId(1)]);
    }
}

#[test]
fn fusion_does_not_reach_across_backends() {
    let toy = Toy::new();
    let mut matrices = TestBackend::foreign(Claims {
        node: |n| matches!(n.op, Op::MatMul(_)),
        ..Claims::everything()
    });
    matrices.take(&toy.weights);
    let mut backends: Vec<Box<dyn Backend>> = vec![Box::new(matrices)];
    backends.extend(backend(&toy.weights, Claims::everything()));
    let mut graph = toy.build(&params(4, 2, true));
    assign(&mut graph, &backends, &[]).unwrap();
    let graph = fuse(&graph, &backends);
    // Products still group with each other, but norms, activations and additions stay apart.
    assert_eq!(matmul(&graph, "matmul_group").norm, None);
    assert!(layer(&graph, 0).contains(&"gated glu".to_string()));
    assert!(layer(&graph, 0).contains(&"attn_residual add".to_string()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fusing_random_graphs_keeps_every_value(seed: u64, mask in 0u32..32) {
        let (weights, graph) = random_graph(seed, 20);
        let kinds: Vec<FusedKind> = ALL_FUSED
            .into_iter()
            .enumerate()
            .filter(|(i, _)| mask >> i & 1 == 1)
            .map(|(_, k)| k)
            .collect();
        let claims = Claims { fused: kinds, ..Claims::everything() };
        let fused = fused(&weights, &graph, claims);
        let batch = Batch::of(&[(0, 0), (0, 1), (1, 0)]);
        let value = |graph: &Graph| {
            let mut reference = Reference::new(Decoded::new(&weights, &decode_f32));
            let values = reference.run(graph, &batch.inputs());
            values[graph.outputs[0].index()].data.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        prop_assert_eq!(value(&graph), value(&fused));
    }
}
