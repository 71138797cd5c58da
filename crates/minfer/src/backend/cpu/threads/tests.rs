//! Regions, barriers, loops, oversubscription, failures.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// A number of repetitions: Miri, which looks at every access, gets a few.
const fn times(n: u32) -> u32 {
    if cfg!(miri) { n / 25 } else { n }
}

/// Runs `f` and fails the test if it takes longer than `limit`: what must not hang, must not hang CI.
fn within(limit: Duration, f: impl FnOnce() + Send + 'static) {
    let limit = if cfg!(miri) { limit * 20 } else { limit };
    let (done, waiting) = mpsc::channel();
    let runner = thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match waiting.recv_timeout(limit) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not done after {limit:?}"),
        _ => runner.join().unwrap(),
    }
}

fn counters(n: usize) -> Vec<AtomicU32> {
    (0..n).map(|_| AtomicU32::new(0)).collect()
}

/// A small number that differs from call to call.
fn scatter(a: usize, b: usize) -> usize {
    (a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xC2B2_AE3D_27D4_EB4F)) >> 59
}

#[test]
fn refuses_no_threads_and_absurd_numbers() {
    for n in [0, MAX_THREADS + 1, usize::MAX] {
        let err = ThreadPool::new(n).err().unwrap();
        assert_eq!(
            err.to_string(),
            format!("cannot run on {n} threads: give a number from 1 to 512")
        );
    }
    assert!((1..=MAX_THREADS).contains(&available_cpus()));
}

#[test]
fn each_thread_runs_once_and_ranges_cover_every_index() {
    for n_threads in [1, 2, 3, 8] {
        let pool = ThreadPool::new(n_threads).unwrap();
        for n in [0, 1, 5, 1000] {
            let (threads, items) = (counters(n_threads), counters(n));
            pool.run(|w| {
                assert_eq!(w.count(), n_threads);
                threads[w.index()].fetch_add(1, Relaxed);
                w.range(n).for_each(|i| {
                    items[i].fetch_add(1, Relaxed);
                });
            })
            .unwrap();
            assert!(threads.iter().chain(&items).all(|c| c.load(Relaxed) == 1));
        }
    }
}

#[test]
fn a_barrier_shows_every_thread_what_all_wrote() {
    for n_threads in [1, 2, 5] {
        let pool = ThreadPool::new(n_threads).unwrap();
        let places = counters(n_threads);
        for region in 0..times(50) {
            pool.run(|w| {
                for phase in 1..=20 {
                    places[w.index()].store(region * 100 + phase, Relaxed);
                    w.barrier();
                    assert!(
                        places
                            .iter()
                            .all(|p| p.load(Relaxed) == region * 100 + phase)
                    );
                    w.barrier();
                }
            })
            .unwrap();
        }
        assert_eq!(
            (pool.stats().regions, pool.stats().barriers),
            (times(50).into(), u64::from(times(50)) * 40)
        );
    }
}

#[test]
fn loops_do_every_item_once_under_random_delays() {
    for n_threads in [1, 2, 4] {
        let pool = ThreadPool::new(n_threads).unwrap();
        for region in 0..times(200) as usize {
            let sizes = [0, 1, n_threads, 37, 500];
            let items: Vec<_> = sizes.iter().map(|&n| counters(n)).collect();
            pool.run(|w| {
                for (l, items) in items.iter().enumerate() {
                    let delay = scatter(region * 8 + l, w.index());
                    (0..delay * 20).for_each(|_| std::hint::spin_loop());
                    w.for_each(items.len(), 1 + l, |range| {
                        range.for_each(|i| {
                            items[i].fetch_add(1, Relaxed);
                        });
                        if scatter(region, l) == 7 {
                            thread::yield_now();
                        }
                    });
                    // Most loops follow one another without a barrier.
                    if scatter(region, l) > 24 {
                        w.barrier();
                    }
                }
            })
            .unwrap();
            for (l, items) in items.iter().enumerate() {
                assert!(
                    items.iter().all(|c| c.load(Relaxed) == 1),
                    "region {region} loop {l}"
                );
            }
        }
    }
}

#[test]
fn a_stalled_thread_loses_its_items_to_the_others() {
    within(Duration::from_secs(20), || {
        let pool = ThreadPool::new(3).unwrap();
        let (by_stalled, total, finished) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU32::new(0));
        pool.run(|w| {
            // Thread 1 comes only after the others have left the loop.
            while w.index() == 1 && finished.load(SeqCst) < 2 {
                thread::yield_now();
            }
            w.for_each(300, 7, |range| {
                total.fetch_add(range.len(), Relaxed);
                if w.index() == 1 {
                    by_stalled.fetch_add(range.len(), Relaxed);
                }
            });
            finished.fetch_add(1, SeqCst);
        })
        .unwrap();
        assert_eq!((total.into_inner(), by_stalled.into_inner()), (300, 0));
        assert!(pool.stats().steals >= 14);
    });
}

#[test]
fn thieves_take_the_far_end() {
    within(Duration::from_secs(20), || {
        let pool = ThreadPool::new(2).unwrap();
        let (started, thief_done) = (AtomicBool::new(false), AtomicBool::new(false));
        let own = std::sync::Mutex::new(Vec::new());
        pool.run(|w| {
            while w.index() == 0 && !started.load(SeqCst) {
                thread::yield_now();
            }
            w.for_each(20, 1, |range| {
                if w.index() == 1 {
                    own.lock().unwrap().push(range.start);
                    // The owner of 10..20 holds its first item until the thief has all the rest.
                    started.store(true, SeqCst);
                    while !thief_done.load(SeqCst) {
                        thread::yield_now();
                    }
                }
            });
            thief_done.store(true, SeqCst);
        })
        .unwrap();
        assert_eq!(own.into_inner().unwrap(), [10]);
    });
}

#[test]
fn grain_and_huge_loops() {
    let pool = ThreadPool::new(2).unwrap();
    let (total, longest) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |items: usize, grain: usize| {
        total.store(0, SeqCst);
        longest.store(0, SeqCst);
        pool.run(|w| {
            w.for_each(items, grain, |r| {
                total.fetch_add(r.len(), Relaxed);
                longest.fetch_max(r.len(), Relaxed);
            });
        })
        .unwrap();
        (total.load(SeqCst), longest.load(SeqCst))
    };
    assert_eq!(count(10, 0), (10, 1));
    assert_eq!(count(10, 4), (10, 4));
    assert_eq!(count(10, usize::MAX), (10, 10));
    let n = 10_000_000_000;
    let (sum, piece) = count(n, 1);
    assert_eq!(sum, n);
    assert!(piece <= 10_000, "{piece}");
}

/// Restricts this thread, and those it starts, to the first CPU it may use.
#[cfg(target_os = "linux")]
fn use_one_cpu() {
    // SAFETY: a cpu_set_t is plain bits; both calls get its true size and a pointer to it.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut all),
            0
        );
        let first = (0..libc::CPU_SETSIZE as usize)
            .find(|&i| libc::CPU_ISSET(i, &all))
            .unwrap();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first, &mut one);
        assert_eq!(
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one),
            0
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn eight_threads_on_one_cpu_finish() {
    within(Duration::from_secs(60), || {
        use_one_cpu();
        assert_eq!(available_cpus(), 1);
        let pool = ThreadPool::new(8).unwrap();
        let sum = AtomicUsize::new(0);
        for _ in 0..50 {
            pool.run(|w| {
                for _ in 0..20 {
                    w.for_each(64, 1, |r| {
                        sum.fetch_add(r.start, Relaxed);
                    });
                    w.barrier();
                }
            })
            .unwrap();
        }
        assert_eq!(sum.into_inner(), 50 * 20 * (63 * 64 / 2));
    });
}

#[test]
fn idle_threads_park() {
    let pool = ThreadPool::new(3).unwrap();
    pool.run(|w| w.barrier()).unwrap();
    let start = Instant::now();
    while pool.parked() < 2 {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "idle threads still spin"
        );
        thread::sleep(Duration::from_micros(200));
    }
    // And wake up.
    let woken = AtomicU32::new(0);
    pool.run(|_| {
        woken.fetch_add(1, Relaxed);
    })
    .unwrap();
    assert_eq!(woken.into_inner(), 3);
}

#[test]
fn a_panic_is_an_error_that_names_the_thread_and_the_pool_lives() {
    within(Duration::from_secs(30), || {
        for n_threads in [1, 2, 4] {
            let pool = ThreadPool::new(n_threads).unwrap();
            for bad in 0..n_threads {
                // The others wait at a barrier, some of them parked.
                for delay in [0, 2] {
                    let err = pool.run(|w| {
                        w.for_each(10, 1, |_| {});
                        w.barrier();
                        if w.index() == bad {
                            thread::sleep(Duration::from_millis(delay));
                            panic!("bad block {}", 40 + w.index());
                        }
                        w.barrier();
                        w.for_each(10, 1, |_| {});
                        w.barrier();
                    });
                    let expected = format!(
                        "CPU thread {bad} of {n_threads} failed: bad block {}",
                        40 + bad
                    );
                    assert_eq!(err.unwrap_err().to_string(), expected);
                    let done = AtomicUsize::new(0);
                    pool.run(|w| {
                        w.barrier();
                        w.for_each(100, 3, |r| {
                            done.fetch_add(r.len(), Relaxed);
                        });
                    })
                    .unwrap();
                    assert_eq!(done.into_inner(), 100);
                }
            }
        }
    });
}

#[test]
fn a_panic_inside_a_loop_and_in_all_threads() {
    within(Duration::from_secs(30), || {
        let pool = ThreadPool::new(3).unwrap();
        let err = pool.run(|w| {
            w.for_each(100, 1, |r| assert!(r.start != 50, "item 50"));
            w.barrier();
        });
        assert!(matches!(err, Err(ThreadsError::Panicked { message, .. }) if message == "item 50"));
        let err = pool.run(|_| std::panic::panic_any(7));
        assert!(
            matches!(err, Err(ThreadsError::Panicked { message, .. }) if message == "a panic without a message")
        );
        pool.run(|w| w.barrier()).unwrap();
    });
}

#[test]
fn uneven_barriers_and_loops_are_an_error_not_a_hang() {
    within(Duration::from_secs(30), || {
        let pool = ThreadPool::new(3).unwrap();
        let err = pool.run(|w| {
            w.barrier();
            if w.index() != 2 {
                w.barrier();
            }
        });
        let err = err.unwrap_err().to_string();
        assert_eq!(
            err,
            "CPU thread 2 left a parallel region after 1 barriers and 0 loops, thread 0 after 2 and 0"
        );
        let err = pool.run(|w| {
            if w.index() == 0 {
                w.for_each(5, 1, |_| {});
            }
        });
        assert!(matches!(
            err,
            Err(ThreadsError::Uneven {
                thread: 1,
                loops: 0,
                loops_0: 1,
                ..
            })
        ));
        let done = AtomicUsize::new(0);
        pool.run(|w| {
            w.for_each(9, 1, |r| {
                done.fetch_add(r.len(), Relaxed);
            })
        })
        .unwrap();
        assert_eq!(done.into_inner(), 9);
    });
}

#[test]
fn what_cannot_be_nested_is_refused() {
    within(Duration::from_secs(30), || {
        let (pool, other) = (ThreadPool::new(2).unwrap(), ThreadPool::new(2).unwrap());
        pool.run(|_| {
            assert!(matches!(pool.run(|_| {}), Err(ThreadsError::Nested)));
            assert!(matches!(other.run(|_| {}), Err(ThreadsError::Nested)));
            assert_eq!(pool.stats().regions, 1);
        })
        .unwrap();
        let err = pool.run(|w| w.for_each(2, 1, |_| w.barrier())).unwrap_err();
        assert!(
            err.to_string().ends_with("a barrier inside a loop"),
            "{err}"
        );
        let err = pool
            .run(|w| w.for_each(2, 1, |_| w.for_each(1, 1, |_| {})))
            .unwrap_err();
        assert!(err.to_string().ends_with("a loop inside a loop"), "{err}");
    });
}

#[test]
fn callers_on_several_threads_take_turns() {
    within(Duration::from_secs(30), || {
        let pool = ThreadPool::new(2).unwrap();
        let sum = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..times(100) {
                        pool.run(|w| {
                            w.barrier();
                            w.for_each(10, 1, |r| {
                                sum.fetch_add(r.start, Relaxed);
                            });
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 3 * times(100) as usize * 45);
    });
}

#[test]
fn drop_joins_all_threads() {
    within(Duration::from_secs(10), || {
        for parked in [false, true] {
            let pool = ThreadPool::new(4).unwrap();
            pool.run(|w| w.barrier()).unwrap();
            if parked {
                thread::sleep(Duration::from_millis(5));
            }
            let shared = Arc::downgrade(&pool.shared);
            drop(pool);
            assert!(shared.upgrade().is_none(), "a worker still holds the pool");
        }
    });
}
