//! Assignment and splitting.

use super::backends::{Claims, TestBackend};
use super::execution::partial_claims;
use super::toy::{Toy, params};
use crate::graph::*;

fn loaded(toy: &Toy, backends: Vec<TestBackend>) -> Scheduler {
    super::execution::scheduler(toy, backends)
}

fn assigned(toy: &Toy, backends: Vec<TestBackend>) -> Result<Graph, GraphError> {
    let scheduler = loaded(toy, backends);
    let names: Vec<String> = toy.weights.iter().map(|(_, w)| w.name.clone()).collect();
    let mut graph = toy.build(&params(4, 2, false));
    assign(&mut graph, scheduler.backends(), &names)?;
    Ok(graph)
}

fn without_op(node: fn(&Node) -> bool) -> Claims {
    Claims {
        node,
        ..Claims::everything()
    }
}

#[test]
fn a_node_goes_to_the_first_backend_that_claims_it() {
    let no_adds = without_op(|n| !matches!(n.op, Op::Add));
    let graph = assigned(
        &Toy::new(),
        vec![
            TestBackend::plain(no_adds),
            TestBackend::foreign(Claims::everything()),
        ],
    )
    // Matrices are only at the first backend, where everything but additions can run.
    .unwrap();
    for node in &graph.nodes {
        let want = BackendId(u8::from(matches!(node.op, Op::Add)));
        assert_eq!(node.backend, Some(want), "{}", node.name);
    }
}

#[test]
fn a_node_nobody_claims_is_refused_with_its_name_operator_and_tensors() {
    let no_logits = without_op(|n| n.name != "logits");
    let error = assigned(&Toy::new(), vec![TestBackend::plain(no_logits)]).unwrap_err();
    let text = error.to_string();
    for part in ["matmul", "'logits'", "'output.weight'", "plain"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let no_attention = without_op(|n| !(matches!(n.op, Op::Attention(_)) && n.layer == Some(1)));
    let error = assigned(&Toy::new(), vec![TestBackend::plain(no_attention)]).unwrap_err();
    let text = error.to_string();
    for part in ["attention", "layer 1", "activations only"] {
        assert!(text.contains(part), "{part} in: {text}");
    }
    let text = assigned(&Toy::new(), vec![TestBackend::plain(without_op(|_| false))])
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("get_rows") && text.contains("'token_embd.weight'"),
        "{text}"
    );
}

#[test]
fn stores_and_their_attention_share_a_backend() {
    // The first backend takes stores of both layers, but attention of layer 0 only.
    let claims = without_op(|n| !(matches!(n.op, Op::Attention(_)) && n.layer == Some(1)));
    let graph = assigned(
        &Toy::new(),
        vec![
            TestBackend::foreign(claims),
            TestBackend::plain(Claims::everything()),
        ],
    )
    .unwrap();
    for node in &graph.nodes {
        if matches!(node.op, Op::KvStore { .. } | Op::Attention(_)) {
            let want = node.layer.expect("layers own KV") as u8;
            assert_eq!(node.backend, Some(BackendId(want)), "{}", node.name);
        }
    }
}

#[test]
fn a_view_sits_with_its_source_and_an_input_with_its_first_reader() {
    let toy = Toy::new();
    let products = Claims {
        node: |n| matches!(n.op, Op::MatMul(_)),
        weight: |w| w.usage != WeightUse::Table,
        ..Claims::everything()
    };
    let scheduler = loaded(
        &toy,
        vec![
            TestBackend::foreign(products),
            TestBackend::plain(Claims::everything()),
        ],
    );
    let mut graph = toy.build(&params(4, 2, false));
    assign(&mut graph, scheduler.backends(), &[]).unwrap();
    let graph = fuse(&graph, scheduler.backends());
    let views: Vec<&Node> = graph
        .nodes
        .iter()
        .filter(|n| matches!(n.op, Op::View { .. }))
        .collect();
    assert!(views.len() >= 6);
    assert!(views.iter().all(|v| v.backend == Some(BackendId(0))));
    for (_, id) in &graph.inputs {
        assert_eq!(graph.node(*id).backend, Some(BackendId(1))); // products read no inputs
    }
}

#[test]
fn splits_cover_the_graph_in_order_and_alternate() {
    let graph = assigned(
        &Toy::new(),
        vec![
            TestBackend::foreign(partial_claims()),
            TestBackend::plain(Claims::everything()),
        ],
    )
    .unwrap();
    let splits = split(&graph);
    assert!(splits.len() > 4, "{}", splits.len());
    assert_eq!(splits[0].nodes.start, 0);
    assert_eq!(splits[splits.len() - 1].nodes.end, graph.nodes.len());
    for pair in splits.windows(2) {
        assert_eq!(pair[0].nodes.end, pair[1].nodes.start);
        assert_ne!(pair[0].backend, pair[1].backend);
    }
    let mut brought = std::collections::HashSet::new();
    for split in &splits {
        for crossing in &split.crossings {
            assert!(crossing.node.index() < split.nodes.start, "computed before");
            assert_eq!(graph.node(crossing.node).backend, Some(crossing.from));
            assert_ne!(crossing.from, split.backend);
            assert!(
                brought.insert((crossing.node, split.backend)),
                "once a backend"
            );
        }
        for i in split.nodes.start..split.nodes.end {
            let node = &graph.nodes[i];
            if matches!(node.op, Op::Input(_) | Op::View { .. }) {
                continue;
            }
            assert_eq!(node.backend, Some(split.backend));
            for s in &node.srcs {
                let source = graph.node(*s);
                let here = source.backend == Some(split.backend)
                    || matches!(source.op, Op::Input(_))
                    || brought.contains(&(*s, split.backend));
                assert!(here, "{} reads {}", node.name, source.name);
            }
        }
    }
}

#[test]
fn a_tensor_nobody_takes_is_refused_with_each_reason() {
    let toy = Toy::new();
    let claims = Claims {
        weight: |w| w.name != "blk.1.ffn_up.weight",
        ..Claims::everything()
    };
    let backends: Vec<Box<dyn Backend>> = vec![
        Box::new(TestBackend::foreign(claims.clone())),
        Box::new(TestBackend::plain(claims)),
    ];
    let mut scheduler = Scheduler::new(backends, SchedulerOptions::default());
    let error = scheduler.load_weights(&toy.weights, &mut |_, _| {});
    let text = error.unwrap_err().to_string();
    assert!(text.contains("'blk.1.ffn_up.weight'"), "{text}");
    assert!(
        text.contains("foreign: F32") && text.contains("plain: F32"),
        "{text}"
    );
}

#[test]
fn loading_reports_progress_in_bytes_and_happens_once() {
    let toy = Toy::new();
    let total: usize = toy.weights.iter().map(|(_, w)| w.data.bytes().len()).sum();
    let backends: Vec<Box<dyn Backend>> = vec![Box::new(TestBackend::plain(Claims::everything()))];
    let mut scheduler = Scheduler::new(backends, SchedulerOptions::default());
    let mut heard = Vec::new();
    scheduler
        .load_weights(&toy.weights, &mut |done, all| heard.push((done, all)))
        .unwrap();
    assert_eq!(heard[0], (0, total));
    assert_eq!(heard[heard.len() - 1], (total, total));
    assert!(heard.windows(2).all(|w| w[0].0 < w[1].0));
    let again = scheduler.load_weights(&toy.weights, &mut |_, _| {});
    assert!(matches!(again, Err(GraphError::WeightsLoaded)));
}

#[test]
fn matrices_are_held_once_and_vectors_where_they_may_be_needed() {
    let toy = Toy::new();
    let foreign = TestBackend::foreign(partial_claims());
    let plain = TestBackend::plain(Claims::everything());
    let logs = [foreign.log(), plain.log()];
    let _scheduler = loaded(&toy, vec![foreign, plain]);
    for (_, weight) in toy.weights.iter() {
        let has = logs
            .each_ref()
            .map(|l| l.lock().unwrap().loaded.contains(&weight.name));
        let first = weight.name.starts_with("blk.1");
        match weight.usage {
            WeightUse::Vector => assert_eq!(has, [true, true], "{}", weight.name),
            _ => assert_eq!(has, [first, !first], "{}", weight.name),
        }
    }
}
