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
    let queue = Arc::new(Queue::new(3, 0));
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
                queue.settled(jobs.len(), 0);
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
    let queue = Arc::new(Queue::new(8, 0));
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

/// As many as may wait and as there are places for come at once, before the taker has said a word.
fn burst() {
    let queue = Queue::new(4, 2);
    let mut taken = Vec::new();
    for job in 0..3 {
        assert_eq!(queue.push([job].into_iter()), Ok(()));
    }
    assert!(queue.take(true, &mut taken));
    for job in 3..6 {
        assert_eq!(queue.push([job].into_iter()), Ok(()));
    }
    let full = Err(Refused::Full { waiting: 4 });
    assert_eq!(queue.push([6].into_iter()), full);
    // Two of them have got the places.
    queue.settled(2, 0);
    assert_eq!((queue.waiting(), queue.push([6].into_iter())), (4, full));
    // One has ended, and its place is for the next.
    queue.settled(0, 1);
    assert_eq!(queue.push([6].into_iter()), Ok(()));
    assert_eq!(queue.push([7].into_iter()), full);
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

#[test]
fn a_burst_of_queue_and_places_loses_none() {
    shuttle::check_random(burst, 1);
}
