//! Whole passes on one and on several backends against the reference.

use std::sync::{Arc, Mutex};

use super::backends::{Claims, Log, TestBackend};
use super::toy::{Batch, N_VOCAB, Toy, params};
use crate::graph::reference::{Decoded, Reference, decode_f32};
use crate::graph::*;

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
