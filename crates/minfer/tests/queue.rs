//! The engine's queue under every order of events that a scheduler of threads can think of.

mod sync {
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
}

#[allow(dead_code, reason = "the engine uses the rest")]
#[path = "../src/engine/queue.rs"]
mod queue;

use queue::{Queue, Refused};
use shuttle::sync::Arc;
use shuttle::thread;

/// Two pushers, a taker that settles what it takes, and an end: each job is taken or refused, once, nobody hangs, and
/// never do more wait than may.
fn deliver() {
    let queue = Arc::new(Queue::new(3));
    let pushers: Vec<_> = (0..2u32)
        .map(|who| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut refused = 0;
                for job in 0..3 {
                    match queue.push([who * 10 + job].into_iter()) {
                        Ok(()) => {}
                        Err(Refused::Full { waiting }) => {
                            assert!(waiting <= 3);
                            refused += 1;
                        }
                        Err(Refused::Closed) => panic!("it is open"),
                    }
                    thread::yield_now();
                }
                refused
            })
        })
        .collect();
    let taker = {
        let queue = queue.clone();
        thread::spawn(move || {
            let (mut seen, mut jobs) = (Vec::new(), Vec::new());
            while queue.take(true, &mut jobs) {
                assert!(queue.waiting() <= 3);
                queue.settled(jobs.len());
                seen.append(&mut jobs);
            }
            seen
        })
    };
    let refused: usize = pushers
        .into_iter()
        .map(|p| p.join().expect("no panic"))
        .sum();
    queue.close();
    let mut seen = taker.join().expect("no panic");
    assert_eq!(seen.len() + refused, 6);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len() + refused, 6, "each once");
    assert_eq!(queue.waiting(), 0);
    assert_eq!(queue.push([1].into_iter()), Err(Refused::Closed));
}

/// A taker that dies: what is in the queue is dropped, and pushers hear of it.
fn abandon() {
    let queue = Arc::new(Queue::new(8));
    let alive = Arc::new(());
    let pusher = {
        let (queue, alive) = (queue.clone(), alive.clone());
        thread::spawn(move || {
            while queue.push([alive.clone()].into_iter()) == Ok(()) {
                thread::yield_now();
            }
        })
    };
    queue.abandon();
    pusher.join().expect("no panic");
    assert_eq!(Arc::strong_count(&alive), 1, "nothing is left in it");
}

#[test]
fn jobs_are_delivered_once_in_every_order() {
    shuttle::check_random(deliver, 3000);
    shuttle::check_pct(deliver, 2000, 3);
}

#[test]
fn an_abandoned_queue_keeps_nothing() {
    shuttle::check_random(abandon, 2000);
}
