//! Whole passes on one and on several backends against the reference.

use std::sync::{Arc, Mutex};

use super::backends::{Claims, Log, TestBackend};
use super::random::random_graph;
use super::toy::{Batch, N_VOCAB, Toy, params};
use crate::graph::reference::{Decoded, Reference, decode_f32};
use crate::graph::*;
use proptest::prelude::*;

/// Three batches: a prompt of two sequences, a decode step of both, a long chunk that crosses a
/// page border.
pub fn batches() -> Vec<Batch> {
    let prompt = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)];
    let chunk: Vec<(i32, i32)> = (4..40).map(|s| (0, s)).collect();
    vec![
        Batch::of(&prompt),
        Batch::of(&[(0, 3), (1, 2)]),
        Batch::of(&chunk),
        Batch::of(&[(1, 3), (0, 40)]),
    ]
}

pub fn expected(toy: &Toy, batches: &[Batch]) -> Vec<Vec<f64>> {
    let mut reference = Reference::new(Decoded::new(&toy.weights, &decode_f32));
    batches
        .iter()
        .map(|batch| {
            let graph = toy.build(&params(batch.ids.len(), batch.out.len(), false));
            let values = reference.run(&graph, &batch.inputs());
            values[graph.outputs[0].index()].data.clone()
        })
        .collect()
}

pub fn scheduler(toy: &Toy, backends: Vec<TestBackend>) -> Scheduler {
    let boxed = backends
        .into_iter()
        .map(|b| Box::new(b) as Box<dyn Backend>);
    let mut scheduler = Scheduler::new(boxed.collect(), SchedulerOptions::default());
    scheduler
        .load_weights(&toy.weights, &mut |_, _| {})
        .unwrap();
    scheduler
}

pub fn run(scheduler: &mut Scheduler, toy: &Toy, batch: &Batch, fuse: bool) -> Vec<f32> {
    let params = params(batch.ids.len(), batch.out.len(), fuse);
    scheduler
        .forward(&params, &|p| toy.build(p), &batch.inputs(), None)
        .unwrap();
    let mut out = vec![0.0; batch.out.len() * N_VOCAB];
    scheduler.read_output(0..batch.out.len(), &mut out).unwrap();
    out
}

pub fn assert_close(got: &[f32], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let range = want.iter().fold(0.0f64, |a, v| a.max(v.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - w).abs() / range;
        // f16 values in V round differently where f32 activations differ in their last bit.
        assert!(error < 1e-3, "{what}: value {i} is {g}, expected {w}");
    }
}

/// Matrices of odd layers, and all attention, but no tables, no norms.
pub fn partial_claims() -> Claims {
    Claims {
        node: |n| !matches!(n.op, Op::RmsNorm(_) | Op::Mul | Op::RopeTable(_)),
        weight: |w| w.usage == WeightUse::Vector || w.name.starts_with("blk.1"),
        ..Claims::everything()
    }
}

fn mixtures() -> Vec<(&'static str, Vec<TestBackend>)> {
    let all = Claims::everything;
    let no_attention = Claims {
        node: |n| !matches!(n.op, Op::Attention(_)),
        ..all()
    };
    vec![
        ("plain", vec![TestBackend::plain(all())]),
        ("foreign", vec![TestBackend::foreign(all())]),
        (
            "foreign in part, plain",
            vec![
                TestBackend::foreign(partial_claims()),
                TestBackend::plain(all()),
            ],
        ),
        (
            "plain in part, foreign",
            vec![
                TestBackend::plain(partial_claims()),
                TestBackend::foreign(all()),
            ],
        ),
        (
            "norms, additions, the rest: one output goes to two others",
            vec![
                TestBackend::plain(Claims {
                    node: |n| matches!(n.op, Op::RmsNorm(_)),
                    weight: |w| w.usage == WeightUse::Vector,
                    ..all()
                }),
                TestBackend::foreign(Claims {
                    node: |n| matches!(n.op, Op::Add),
                    weight: |_| false,
                    ..all()
                }),
                TestBackend::foreign(all()),
            ],
        ),
        (
            "foreign without attention, plain",
            vec![
                TestBackend::foreign(no_attention),
                TestBackend::plain(Claims {
                    weight: |_| false,
                    ..all()
                }),
            ],
        ),
    ]
}

fn logs(backends: &[TestBackend]) -> Vec<Arc<Mutex<Log>>> {
    backends.iter().map(|b| b.log()).collect()
}

#[test]
fn every_mixture_of_backends_computes_the_same() {
    let toy = Toy::new();
    let batches = batches();
    let want = expected(&toy, &batches);
    for fuse in [false, true] {
        for (name, backends) in mixtures() {
            let logs = logs(&backends);
            let mut scheduler = scheduler(&toy, backends);
            for (i, (batch, want)) in batches.iter().zip(&want).enumerate() {
                let got = run(&mut scheduler, &toy, batch, fuse);
                assert_close(&got, want, &format!("{name}, fuse {fuse}, batch {i}"));
            }
            for log in &logs {
                assert_eq!(
                    log.lock().unwrap().reads_of_pending_work,
                    0,
                    "{name}: fences"
                );
            }
            let ran = logs.iter().filter(|l| !l.lock().unwrap().runs.is_empty());
            assert_eq!(ran.count(), logs.len(), "{name}: every backend took part");
        }
    }
}

#[test]
fn a_scheduler_can_live_on_the_engine_s_thread() {
    fn is_send<T: Send>() {}
    is_send::<Scheduler>();
    is_send::<GraphError>();
}

#[test]
fn without_an_observer_a_run_is_one_call() {
    let toy = Toy::new();
    let backend = TestBackend::foreign(Claims::everything());
    let log = backend.log();
    let mut scheduler = scheduler(&toy, vec![backend]);
    run(&mut scheduler, &toy, &batches()[0], true);
    assert_eq!(log.lock().unwrap().runs.len(), 1);
}

/// Keeps every value it is shown.
#[derive(Default)]
struct Recorder {
    seen: Vec<(NodeId, Vec<f32>)>,
    stop_at: Option<&'static str>,
}

impl Observer for Recorder {
    fn node(
        &mut self,
        graph: &Graph,
        id: NodeId,
        values: &mut dyn FnMut() -> Result<Vec<f32>, GraphError>,
    ) -> Result<(), GraphError> {
        if self.stop_at == Some(graph.node(id).name) {
            return Err(GraphError::Output("seen enough".into()));
        }
        self.seen.push((id, values()?));
        Ok(())
    }
}

#[test]
fn an_observer_sees_every_node_in_order_with_its_values() {
    let toy = Toy::new();
    let batch = &batches()[0];
    for fuse in [false, true] {
        for (name, backends) in mixtures() {
            let mut scheduler = scheduler(&toy, backends);
            let params = params(batch.ids.len(), batch.out.len(), fuse);
            let build = |p: &GraphParams| toy.build(p);
            let graph = scheduler.prepare(&params, &build).unwrap().clone();
            let mut recorder = Recorder::default();
            scheduler
                .forward(&params, &build, &batch.inputs(), Some(&mut recorder))
                .unwrap();
            let mut reference = Reference::new(Decoded::new(&toy.weights, &decode_f32));
            let want = reference.run(&graph, &batch.inputs());
            let watched = graph
                .ids()
                .filter(|id| !matches!(graph.node(*id).op, Op::Input(_)));
            assert!(recorder.seen.iter().map(|s| s.0).eq(watched), "{name}");
            for (id, values) in &recorder.seen {
                let node = graph.node(*id);
                match node.dtype {
                    DType::Kv => assert!(values.is_empty()),
                    _ => assert_close(values, &want[id.index()].data, node.name),
                }
            }
        }
    }
}

#[test]
fn an_observer_can_end_a_pass() {
    let toy = Toy::new();
    let batch = &batches()[0];
    let mut scheduler = scheduler(&toy, vec![TestBackend::plain(Claims::everything())]);
    let mut recorder = Recorder {
        stop_at: Some("attention"),
        ..Recorder::default()
    };
    let params = params(batch.ids.len(), batch.out.len(), true);
    let result = scheduler.forward(
        &params,
        &|p| toy.build(p),
        &batch.inputs(),
        Some(&mut recorder),
    );
    assert!(matches!(result, Err(GraphError::Output(_))));
    assert!(scheduler.read_output(0..1, &mut [0.0; N_VOCAB]).is_err());
}

#[test]
fn outputs_can_be_read_row_by_row_and_nothing_else() {
    let toy = Toy::new();
    let batch = &batches()[0];
    let mut scheduler = scheduler(&toy, vec![TestBackend::foreign(Claims::everything())]);
    let mut row = vec![0.0; N_VOCAB];
    assert!(
        scheduler.read_output(0..1, &mut row).is_err(),
        "nothing ran"
    );
    let all = run(&mut scheduler, &toy, batch, true);
    for r in 0..batch.out.len() {
        scheduler.read_output(r..r + 1, &mut row).unwrap();
        assert_eq!(row, all[r * N_VOCAB..][..N_VOCAB]);
        // This backend's memory can't be looked at: the row is copied to the room it is given.
        let mut room = Vec::new();
        let there = scheduler.output_row(r, &mut room).unwrap().to_vec();
        assert_eq!((&there, &room), (&row, &row));
    }
    let n = batch.out.len();
    assert!(scheduler.output_row(n, &mut Vec::new()).is_err());
    let text = |r: Result<(), GraphError>| r.unwrap_err().to_string();
    // In parts, too; what one long part wanted is not kept.
    let seen = Mutex::new(Vec::new());
    let mut room = Vec::with_capacity(1 << 22);
    let work = |_: usize, rows: Result<HostRows<'_>, GraphError>| {
        let (mut rows, mut seen) = (rows.unwrap(), seen.lock().unwrap());
        seen.extend((0..).map_while(|r| rows.row(r).map(|row| row.to_vec())));
    };
    scheduler
        .output_parts(&[n - 1, 1], &mut room, &work)
        .unwrap();
    assert_eq!(seen.into_inner().unwrap().concat(), all);
    assert!(room.capacity() < 1 << 21, "{}", room.capacity());
    assert!(text(scheduler.read_output(n..n + 1, &mut row)).contains("5..6"));
    assert!(text(scheduler.read_output(0..2, &mut row)).contains("46"));
}

#[test]
fn only_asked_rows_are_computed() {
    let toy = Toy::new();
    let mut batch = batches()[0].clone();
    let mut all = scheduler(&toy, vec![TestBackend::foreign(Claims::everything())]);
    let want = run(&mut all, &toy, &batch, true);
    batch.out = vec![4, 2];
    let mut some = scheduler(&toy, vec![TestBackend::foreign(Claims::everything())]);
    let got = run(&mut some, &toy, &batch, true);
    assert_eq!(got[..N_VOCAB], want[4 * N_VOCAB..]);
    assert_eq!(got[N_VOCAB..], want[2 * N_VOCAB..][..N_VOCAB]);
}

#[test]
fn a_batch_that_does_not_fit_is_refused_by_name_and_value() {
    let toy = Toy::new();
    let good = Batch::of(&[(0, 0), (0, 1), (1, 0)]);
    let mut scheduler = scheduler(&toy, vec![TestBackend::plain(Claims::everything())]);
    type Case = (&'static str, &'static str, fn(&mut Batch));
    let bad: [Case; 15] = [
        ("token_ids", "0 rows", |b| b.ids.clear()),
        ("token_ids", "5 rows, the graph takes 1 to 4", |b| {
            b.ids = vec![1; 5]
        }),
        ("token_ids", "-1", |b| b.ids[1] = -1),
        ("positions", "2 values for 3", |b| b.positions.truncate(2)),
        ("slots", "4 values for 3", |b| b.slots.push(0)),
        ("slots", "96", |b| b.slots[0] = 96),
        ("row_seq", "3 is not in 0..3", |b| b.seqs[0] = 3),
        ("row_seq", "0 values", |b| b.seqs.clear()),
        ("out_rows", "5 rows", |b| b.out = vec![0; 5]),
        ("out_rows", "3 is not in 0..3", |b| b.out[0] = 3),
        ("page_table_full", "5 entries", |b| b.full.truncate(5)),
        ("page_table_full", "page 5 of 5", |b| b.full[0] = 5),
        ("page_table_windowed", "line 0 is missing", |b| {
            b.windowed.clear()
        }),
        ("page_table_full", "rows 0 and 1 have one place", |b| {
            b.slots[1] = 0
        }),
        ("page_table_full", "rows 0 and 2 have one place", |b| {
            b.full[3] = b.full[0]
        }),
    ];
    for (input, reason, spoil) in bad {
        let mut batch = good.clone();
        spoil(&mut batch);
        let p = params(4, 4, true);
        let result = scheduler.forward(&p, &|p| toy.build(p), &batch.inputs(), None);
        let text = result.unwrap_err().to_string();
        assert!(
            text.contains(input) && text.contains(reason),
            "{reason}: {text}"
        );
    }
    let p = params(4, 4, true);
    scheduler
        .forward(&p, &|p| toy.build(p), &good.inputs(), None)
        .unwrap();
}

/// A kernel reads every page that a row sees, not its own alone.
#[test]
fn pages_that_a_row_sees_must_exist_and_others_need_not() {
    let toy = Toy::new();
    let mut scheduler = scheduler(&toy, vec![TestBackend::plain(Claims::everything())]);
    let p = params(2, 2, true);
    // The windowed layer sees 3 slots: of slots 66 and 67 page 2 alone, of 33 and 34 both.
    type Case<'a> = ([(i32, i32); 2], [i32; 3], [i32; 3], Option<&'a str>);
    let cases: [Case<'_>; 9] = [
        ([(0, 66), (0, 67)], [4, 1, 0], [-1, -1, 3], None),
        (
            [(0, 66), (0, 67)],
            [4, -1, 0],
            [-1, -1, 3],
            Some("sees entry 1"),
        ),
        (
            [(0, 66), (0, 67)],
            [4, 1, 0],
            [-1, -1, 9],
            Some("page 9 of 4"),
        ),
        (
            [(0, 33), (0, 34)],
            [4, 1, -1],
            [-1, 1, -1],
            Some("sees entry 0"),
        ),
        ([(0, 33), (0, 34)], [4, 1, -1], [0, 1, -1], None),
        (
            [(0, 31), (0, 32)],
            [4, -7, -1],
            [0, 1, -1],
            Some("page -7 of 5"),
        ),
        (
            [(0, 0), (0, 64)],
            [4, 1, 0],
            [2, -1, -1],
            Some("sees entry 1"),
        ),
        (
            [(0, 64), (0, 0)],
            [4, 1, 0],
            [-1, 1, 2],
            Some("sees entry 0"),
        ),
        ([(0, 64), (0, 0)], [4, 1, 0], [0, 1, 2], None),
    ];
    for (rows, full, windowed, refused) in cases {
        let mut batch = Batch::of(&rows);
        batch.full[..3].copy_from_slice(&full);
        batch.windowed[..3].copy_from_slice(&windowed);
        let result = scheduler.forward(&p, &|p| toy.build(p), &batch.inputs(), None);
        let text = result.err().map(|e| e.to_string());
        let as_said = match (&text, refused) {
            (Some(text), Some(part)) => text.contains(part),
            (None, None) => true,
            _ => false,
        };
        assert!(as_said, "{rows:?} on {full:?}, {windowed:?}: {text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn random_graphs_on_two_backends(seed: u64, fuse: bool, swap: bool) {
        let (weights, mut graph) = random_graph(seed, 20);
        graph.params.context.fuse = fuse;
        let claims = Claims {
            node: |n| n.layer == Some(0),
            weight: |w| w.name.starts_with("0."),
            ..Claims::everything()
        };
        let all = Claims::everything();
        let backends = match swap {
            false => vec![TestBackend::foreign(claims), TestBackend::plain(all)],
            true => vec![TestBackend::plain(claims), TestBackend::foreign(all)],
        };
        let boxed = backends.into_iter().map(|b| Box::new(b) as Box<dyn Backend>);
        let mut scheduler = Scheduler::new(boxed.collect(), SchedulerOptions::default());
        scheduler.load_weights(&weights, &mut |_, _| {}).unwrap();
        let batch = Batch::of(&[(0, 0), (0, 1), (1, 0)]);
        let mut reference = Reference::new(Decoded::new(&weights, &decode_f32));
        let want = reference.run(&graph, &batch.inputs())[graph.outputs[0].index()].data.clone();
        let params = graph.params;
        scheduler.forward(&params, &|_| graph.clone(), &batch.inputs(), None).unwrap();
        let mut got = vec![0.0; want.len()];
        scheduler.read_output(0..3, &mut got).unwrap();
        assert_close(&got, &want, "random graph");
    }
}
