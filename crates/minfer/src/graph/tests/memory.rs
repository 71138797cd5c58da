//! Plans: nothing alive is overwritten, and the rules of section 4.5 of the architecture.

use super::backends::{Claims, TestBackend};
use super::execution::partial_claims;
use super::random::random_graph;
use super::toy::{Toy, params};
use crate::graph::*;
use proptest::prelude::*;

/// Assigns and splits for the given claims, and plans.
fn planned(weights: &WeightSet, graph: &Graph, claims: Vec<Claims>) -> (Graph, Vec<Split>, Plan) {
    let mut backends: Vec<Box<dyn Backend>> = Vec::new();
    for claims in claims {
        let mut backend = TestBackend::plain(claims);
        backend.take(weights); // refusals are part of some claims
        backends.push(Box::new(backend));
    }
    let mut graph = graph.clone();
    assign(&mut graph, &backends, &[]).unwrap();
    if graph.params.context.fuse {
        graph = fuse(&graph, &backends);
    }
    let splits = split(&graph);
    let plan = plan(&graph, &splits, backends.len());
    (graph, splits, plan)
}

/// Replays a plan: every buffer remembers whose value it holds; whoever reads must find the value
/// it means. This shares nothing with the planner's own liveness.
fn replay(graph: &Graph, splits: &[Split], plan: &Plan) {
    let n = plan.backends.len();
    let mut holds: Vec<Vec<Option<NodeId>>> = (0..n)
        .map(|b| vec![None; plan.backends[b].pool.len()])
        .collect();
    let place = |b: usize, id: NodeId| plan.backends[b].places[id.index()].expect("a place");
    // Whose value a place shows: a view shows its source's, unless it crossed by itself.
    let shown = |b: usize, id: NodeId| {
        let mut at = id;
        while matches!(graph.node(at).op, Op::View { .. })
            && graph.node(at).backend == Some(BackendId(b as u8))
        {
            at = graph.node(at).srcs[0];
        }
        at
    };
    for (b, backend) in plan.backends.iter().enumerate() {
        for (_, id) in &backend.inputs {
            write(&mut holds[b], graph, place(b, *id), *id, &backend.pool);
        }
    }
    for split in splits {
        let b = split.backend.0 as usize;
        for crossing in &split.crossings {
            let from = crossing.from.0 as usize;
            read(
                &holds[from],
                place(from, crossing.node),
                shown(from, crossing.node),
            );
            write(
                &mut holds[b],
                graph,
                place(b, crossing.node),
                crossing.node,
                &plan.backends[b].pool,
            );
        }
        for i in split.nodes.start..split.nodes.end {
            let (id, node) = (NodeId(i as u32), &graph.nodes[i]);
            if matches!(node.op, Op::Input(_) | Op::View { .. }) {
                continue;
            }
            for s in &node.srcs {
                read(&holds[b], place(b, *s), shown(b, *s));
                let shared = place(b, *s).slot == place(b, id).slot
                    && !matches!(node.op, Op::KvStore { .. });
                if shared {
                    let own = node.op.in_place_source().map(|k| node.srcs[k]);
                    assert_eq!(
                        own,
                        Some(*s),
                        "{} works in place on the wrong source",
                        node.name
                    );
                    assert_eq!(place(b, *s), place(b, id));
                }
            }
            write(
                &mut holds[b],
                graph,
                place(b, id),
                id,
                &plan.backends[b].pool,
            );
        }
    }
    for &output in &graph.outputs {
        let b = graph.node(output).backend.unwrap().0 as usize;
        read(&holds[b], place(b, output), shown(b, output));
    }
}

fn read(holds: &[Option<NodeId>], place: PlannedPlace, want: NodeId) {
    if let Slot::Pool(k) = place.slot {
        assert_eq!(holds[k], Some(want), "buffer {k} was overwritten");
    }
}

fn write(
    holds: &mut [Option<NodeId>],
    graph: &Graph,
    place: PlannedPlace,
    id: NodeId,
    pool: &[usize],
) {
    let Slot::Pool(k) = place.slot else { return };
    let shape = graph.node(id).shape;
    assert_eq!(
        (place.offset, place.stride),
        (0, shape.cols),
        "outputs are dense"
    );
    assert!(
        graph.capacity(shape.rows) * shape.cols * 4 <= pool[k],
        "fits"
    );
    assert_eq!(pool[k] % 64, 0);
    holds[k] = Some(id);
}

fn toy_plan(claims: Vec<Claims>, fuse: bool) -> (Graph, Vec<Split>, Plan) {
    let toy = Toy::new();
    planned(&toy.weights, &toy.build(&params(8, 4, fuse)), claims)
}

fn find<'a>(graph: &'a Graph, name: &str, layer: Option<usize>) -> (NodeId, &'a Node) {
    let mut all = graph.ids().map(|id| (id, graph.node(id)));
    all.find(|(_, n)| n.name == name && n.layer == layer)
        .unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn the_toy_is_planned_without_overwriting_on_every_mixture() {
    let all = Claims::everything;
    for fuse in [false, true] {
        for claims in [
            vec![all()],
            vec![partial_claims(), all()],
            vec![all(), all(), all()],
        ] {
            let (graph, splits, plan) = toy_plan(claims, fuse);
            replay(&graph, &splits, &plan);
        }
    }
}

#[test]
fn buffers_are_shared_across_layers() {
    let (graph, _, plan) = toy_plan(vec![Claims::everything()], false);
    let outputs = graph
        .nodes
        .iter()
        .filter(|n| n.dtype == DType::F32 && !matches!(n.op, Op::View { .. }));
    let sum: usize = outputs
        .map(|n| graph.capacity(n.shape.rows) * n.shape.cols * 4)
        .sum();
    let held: usize = plan.backends[0].pool.iter().sum();
    assert!(held * 3 < sum, "{held} of {sum}");
}

#[test]
fn in_place_where_it_is_the_sole_reader() {
    let (graph, _, plan) = toy_plan(vec![Claims::everything()], false);
    let place = |name, layer| plan.backends[0].places[find(&graph, name, layer).0.index()];
    let l = Some(0);
    assert_eq!(place("q", l), place("q_rope", l));
    assert_eq!(place("k_norm", l), place("k_rope", l));
    assert_eq!(place("gate", l), place("gate_act", l));
    assert_eq!(place("attn_out", l), place("attn_residual", l));
    // `ffn_residual` adds to what nobody else reads by then but the norm, which read it before.
    assert_ne!(place("attn_residual", l), place("ffn_residual", l));
    assert_ne!(place("attn_norm", l), place("q", l));
}

#[test]
fn never_in_place_on_a_view_an_input_or_an_output() {
    let toy = Toy::new();
    let mut b = Builder::new(params(4, 4, false));
    let ids = b.input(Input::TokenIds);
    let x = b.get_rows("x", WeightId(0), ids, 16);
    let half = b.view("half", x, 8, 8);
    let scaled = b.scale("scaled", half, 2.0); // the sole reader of a view
    let mut graph = b.finish(scaled);
    graph.nodes.push(Node {
        op: Op::Scale { factor: 3.0 },
        srcs: vec![scaled],
        name: "after_output",
        ..graph.node(scaled).clone()
    });
    let (graph, splits, plan) = planned(&toy.weights, &graph, vec![Claims::everything()]);
    replay(&graph, &splits, &plan);
    let places = &plan.backends[0].places;
    let view = places[half.index()].unwrap();
    assert_eq!((view.offset, view.stride), (8, 16));
    assert_eq!(view.slot, places[x.index()].unwrap().slot);
    assert_ne!(places[scaled.index()].unwrap().slot, view.slot);
    let last = places[graph.nodes.len() - 1].unwrap();
    assert_ne!(last.slot, places[scaled.index()].unwrap().slot);
}

#[test]
fn what_crosses_gets_a_buffer_of_its_own_and_no_in_place_work() {
    // Additions run elsewhere: their first source is read by nobody else, but lies on the other side.
    let adds = Claims {
        node: |n| matches!(n.op, Op::Add),
        ..Claims::everything()
    };
    let (graph, splits, plan) = toy_plan(vec![adds, Claims::everything()], false);
    replay(&graph, &splits, &plan);
    let (product, _) = find(&graph, "attn_out", Some(0));
    let (sum, _) = find(&graph, "attn_residual", Some(0));
    let staged = plan.backends[0].places[product.index()].unwrap();
    let result = plan.backends[0].places[sum.index()].unwrap();
    assert_ne!(staged.slot, result.slot);
    assert!(plan.backends[1].places[product.index()].is_some());
}

#[test]
fn a_layer_owns_two_regions_of_the_size_of_its_kind() {
    let (graph, _, plan) = toy_plan(vec![Claims::everything()], false);
    let shapes: Vec<(usize, KvPart, KvType, usize)> = plan
        .kv
        .iter()
        .map(|r| (r.layer, r.part, r.shape.ty, r.shape.pages))
        .collect();
    let want = [
        (0, KvPart::K, KvType::F32, 5),
        (0, KvPart::V, KvType::F16, 5),
        (1, KvPart::K, KvType::F32, 4),
        (1, KvPart::V, KvType::F16, 4),
    ];
    assert_eq!(shapes, want);
    for node in graph
        .nodes
        .iter()
        .filter(|n| matches!(n.op, Op::Attention(_)))
    {
        let regions: Vec<Slot> = node.srcs[1..3]
            .iter()
            .map(|s| plan.backends[0].places[s.index()].unwrap().slot)
            .collect();
        let layer = node.layer.unwrap();
        assert_eq!(regions, [Slot::Kv(2 * layer), Slot::Kv(2 * layer + 1)]);
    }
}

#[test]
fn topology_depends_on_params_alone() {
    let toy = Toy::new();
    let p = params(8, 4, true);
    let (a, b) = (toy.build(&p), toy.build(&p));
    assert!(a.same_topology(&b));
    assert_ne!(a.uid, b.uid);
    assert!(!a.same_topology(&toy.build(&params(8, 2, true))));
    // Nothing of a batch's data is in the graph: slots, positions and pages come in as i32 inputs.
    let inputs: Vec<Input> = a.inputs.iter().map(|(i, _)| *i).collect();
    for input in [
        Input::Slots,
        Input::Positions,
        Input::PageTable(LayerKind::Full),
    ] {
        assert!(inputs.contains(&input));
    }
    assert!(
        a.inputs
            .iter()
            .all(|(_, id)| a.node(*id).dtype == DType::I32)
    );
    // Execution follows build order, so every store precedes the attention that reads it.
    for (i, node) in a.nodes.iter().enumerate() {
        assert!(node.srcs.iter().all(|s| s.index() < i));
    }
}

#[test]
fn size_classes_are_tight_multiples_of_64() {
    for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, 123_456_789]) {
        let class = size_class(bytes);
        assert!(class >= bytes && class % 64 == 0);
        assert!(class <= bytes + bytes / 8 + 64, "{bytes} -> {class}");
        assert_eq!(size_class(class), class);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_random_graph_overwrites_what_is_alive(seed: u64, fuse: bool) {
        let (weights, mut graph) = random_graph(seed, 20);
        graph.params.context.fuse = fuse;
        let even = Claims { node: |n| n.layer == Some(0), ..Claims::everything() };
        let claims = vec![even, Claims::everything()];
        let (graph, splits, plan) = planned(&weights, &graph, claims);
        replay(&graph, &splits, &plan);
    }
}
