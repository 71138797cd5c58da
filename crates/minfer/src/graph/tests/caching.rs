//! Reuse, growth, eviction, budgets, and what goes wrong on the way.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use super::backends::{Claims, Log, TestBackend};
use super::execution::{assert_close, batches, expected, run};
use super::toy::{Batch, Toy, context, params};
use crate::graph::*;

fn scheduler(toy: &Toy, backend: TestBackend, options: SchedulerOptions) -> Scheduler {
    let mut scheduler = Scheduler::new(vec![Box::new(backend)], options);
    scheduler
        .load_weights(&toy.weights, &mut |_, _| {})
        .unwrap();
    scheduler
}

fn plain() -> (TestBackend, Arc<Mutex<Log>>) {
    let backend = TestBackend::plain(Claims::everything());
    let log = backend.log();
    (backend, log)
}

fn prepare(scheduler: &mut Scheduler, toy: &Toy, params: GraphParams) -> Result<u64, GraphError> {
    let graph = scheduler.prepare(&params, &|p| toy.build(p))?;
    Ok(graph.uid)
}

#[test]
fn equal_params_build_nothing_and_keep_the_uid() {
    let toy = Toy::new();
    let options = SchedulerOptions {
        check_rebuilds: false,
        ..SchedulerOptions::default()
    };
    let mut scheduler = scheduler(&toy, plain().0, options);
    let built = Cell::new(0);
    let build = |p: &GraphParams| {
        built.set(built.get() + 1);
        toy.build(p)
    };
    let p = params(2, 2, true);
    let uid = scheduler.prepare(&p, &build).unwrap().uid;
    for batch in [Batch::of(&[(0, 0), (0, 1)]), Batch::of(&[(0, 2)])] {
        // The second has one row in a graph for two: counts are data.
        scheduler
            .forward(&p, &build, &batch.inputs(), None)
            .unwrap();
    }
    assert_eq!(scheduler.prepare(&p, &build).unwrap().uid, uid);
    assert_eq!((built.get(), scheduler.graphs()), (1, 1));
}

#[test]
#[should_panic(expected = "a graph is a function of its params alone")]
fn a_build_that_depends_on_something_else_is_caught() {
    let toy = Toy::new();
    let options = SchedulerOptions {
        check_rebuilds: true,
        ..SchedulerOptions::default()
    };
    let mut scheduler = scheduler(&toy, plain().0, options);
    let calls = Cell::new(1);
    let build = |p: &GraphParams| {
        calls.set(calls.get() + 1);
        let mut graph = toy.build(p);
        graph.nodes[1].layer = Some(calls.get());
        graph
    };
    for _ in 0..2 {
        let _ = scheduler.prepare(&params(2, 2, false), &build);
    }
}

#[test]
fn regions_are_made_once_and_outlive_every_graph() {
    let toy = Toy::new();
    let (backend, log) = plain();
    let options = SchedulerOptions {
        max_graphs: 1, // every batch below evicts the graph before it
        ..SchedulerOptions::default()
    };
    let mut scheduler = scheduler(&toy, backend, options);
    let batches = batches();
    for (batch, want) in batches.iter().zip(expected(&toy, &batches)) {
        assert_close(
            &run(&mut scheduler, &toy, batch, true),
            &want,
            "after eviction",
        );
        assert_eq!(scheduler.graphs(), 1);
    }
    let log = log.lock().unwrap();
    let regions: Vec<BufferId> = log
        .allocs
        .iter()
        .filter(|a| a.2.starts_with("KV"))
        .map(|a| a.0)
        .collect();
    assert_eq!(regions.len(), 4);
    assert!(regions.iter().all(|r| !log.frees.contains(r)));
}

#[test]
fn graphs_share_one_pool_of_the_largest_needs() {
    let toy = Toy::new();
    let alone = |p: GraphParams| {
        let mut scheduler = scheduler(&toy, plain().0, SchedulerOptions::default());
        prepare(&mut scheduler, &toy, p).unwrap();
        scheduler.memory().buffers
    };
    let (small, large) = (params(1, 1, true), params(64, 1, true));
    let (backend, log) = plain();
    let mut both = scheduler(&toy, backend, SchedulerOptions::default());
    let first = prepare(&mut both, &toy, small).unwrap();
    prepare(&mut both, &toy, large).unwrap();
    let used = both.memory().buffers;
    assert!(used < alone(small) + alone(large), "{used}");
    assert!(used <= alone(large) + alone(small) / 2, "{used}");
    // The small graph's buffers were replaced: what a device captured for its uid is void.
    let freed = log.lock().unwrap().frees.len();
    assert!(freed > 0);
    assert_eq!(log.lock().unwrap().forgotten, [first]);
    let second = prepare(&mut both, &toy, small).unwrap();
    assert_ne!(first, second);
    assert_eq!(prepare(&mut both, &toy, small).unwrap(), second);
    assert_eq!(
        log.lock().unwrap().frees.len(),
        freed,
        "nothing moves any more"
    );
    let (batches, mut stale) = (batches(), both);
    for (batch, want) in batches.iter().zip(expected(&toy, &batches)) {
        assert_close(&run(&mut stale, &toy, batch, true), &want, "after growth");
    }
}

#[test]
fn the_least_recently_used_graph_goes_first_and_old_weights_before_it() {
    let toy = Toy::new();
    let options = SchedulerOptions {
        max_graphs: 2,
        ..SchedulerOptions::default()
    };
    let (backend, log) = plain();
    let mut scheduler = scheduler(&toy, backend, options);
    let [a, b, c] = [8, 4, 2].map(|n| params(n, 1, true)); // large first: nothing grows
    let uid = prepare(&mut scheduler, &toy, a).unwrap();
    let of_b = prepare(&mut scheduler, &toy, b).unwrap();
    assert_eq!(prepare(&mut scheduler, &toy, a).unwrap(), uid);
    prepare(&mut scheduler, &toy, c).unwrap();
    assert_eq!(
        prepare(&mut scheduler, &toy, a).unwrap(),
        uid,
        "used lately"
    );
    let forgotten = || log.lock().unwrap().forgotten.clone();
    assert_eq!(forgotten(), [of_b], "backends are told");
    let again = prepare(&mut scheduler, &toy, b).unwrap();
    assert_ne!(again, of_b, "made again");
    assert_eq!((scheduler.graphs(), forgotten().len()), (2, 2));
    let newer = GraphParams {
        weights_version: 2,
        ..a
    };
    prepare(&mut scheduler, &toy, newer).unwrap();
    assert_eq!(scheduler.graphs(), 1);
    assert!(forgotten()[2..].contains(&uid) && forgotten()[2..].contains(&again));
}

#[test]
fn a_region_never_changes_its_shape() {
    let toy = Toy::new();
    let mut scheduler = scheduler(&toy, plain().0, SchedulerOptions::default());
    prepare(&mut scheduler, &toy, params(2, 1, true)).unwrap();
    let mut larger = params(2, 1, true);
    larger.context.pages_full += 1;
    let error = prepare(&mut scheduler, &toy, larger).unwrap_err();
    assert!(matches!(error, GraphError::KvChanged { layer: 0, .. }));
    let text = error.to_string();
    assert!(
        text.contains("pages: 5") && text.contains("pages: 6"),
        "{text}"
    );
}

#[test]
fn the_budget_is_checked_before_anything_is_allocated() {
    let toy = Toy::new();
    let mut free = scheduler(&toy, plain().0, SchedulerOptions::default());
    prepare(&mut free, &toy, params(8, 1, true)).unwrap();
    let use_ = free.memory();
    let need = use_.weights + use_.kv + use_.buffers;
    for (budget, fits) in [(need, true), (need - 1, false)] {
        let (backend, log) = plain();
        let options = SchedulerOptions {
            budget_bytes: Some(budget),
            ..SchedulerOptions::default()
        };
        let mut scheduler = scheduler(&toy, backend, options);
        let result = prepare(&mut scheduler, &toy, params(8, 1, true));
        assert_eq!(result.is_ok(), fits);
        let Err(error) = result else { continue };
        let text = error.to_string();
        for number in [need, budget, use_.kv, use_.weights] {
            assert!(text.contains(&number.to_string()), "{number} in: {text}");
        }
        assert!(log.lock().unwrap().allocs.is_empty());
        // A smaller batch fits.
        prepare(&mut scheduler, &toy, params(1, 1, true)).unwrap();
    }
}

#[test]
fn weights_alone_can_pass_the_budget() {
    let toy = Toy::new();
    let options = SchedulerOptions {
        budget_bytes: Some(200),
        ..SchedulerOptions::default()
    };
    let (backend, log) = plain();
    let mut scheduler = Scheduler::new(vec![Box::new(backend)], options);
    let error = scheduler.load_weights(&toy.weights, &mut |_, _| {});
    let all = 64 * toy.weights.iter().count();
    assert!(matches!(
        error,
        Err(GraphError::Budget {
            need,
            budget: 200,
            ..
        }) if need == all
    ));
    assert!(log.lock().unwrap().loaded.is_empty());
}

#[test]
fn a_failed_allocation_leaves_a_scheduler_that_works() {
    let toy = Toy::new();
    let mut free = scheduler(&toy, plain().0, SchedulerOptions::default());
    let small = params(1, 1, true);
    prepare(&mut free, &toy, small).unwrap();
    let room = free.memory().kv + free.memory().buffers + 4096;
    let (backend, log) = plain();
    let mut scheduler = scheduler(&toy, backend.with_limit(room), SchedulerOptions::default());
    let batch = Batch::of(&[(0, 0)]);
    let first = run(&mut scheduler, &toy, &batch, true);
    let error = prepare(&mut scheduler, &toy, params(512, 1, true)).unwrap_err();
    assert!(error.to_string().contains("cannot allocate"), "{error}");
    assert_eq!(log.lock().unwrap().forgotten.len(), 1, "no graph is left");
    assert_eq!(run(&mut scheduler, &toy, &batch, true), first);
    let log = log.lock().unwrap();
    let mut freed = log.frees.clone();
    freed.sort();
    freed.dedup();
    assert_eq!(freed.len(), log.frees.len(), "nothing is freed twice");
}

#[test]
fn what_a_region_takes_follows_the_context() {
    let toy = Toy::new();
    let mut scheduler = scheduler(&toy, plain().0, SchedulerOptions::default());
    prepare(&mut scheduler, &toy, params(1, 1, true)).unwrap();
    let c = context(true);
    let a_page = PAGE * 2 * 4 * 4; // heads x channels x bytes
    assert_eq!(
        scheduler.memory().kv,
        2 * (c.pages_full + c.pages_windowed) * a_page
    );
}
