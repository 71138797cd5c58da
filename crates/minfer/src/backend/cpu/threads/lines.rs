//! What the threads of a pool share: a line of epochs each, the job, and how they wait and wake.
//!
//! The epoch of a thread is one word: `generation << 24 | barriers << 1 | left`. It only grows, so
//! "thread j is at my barrier or beyond" is one comparison, and a thread that has left the region with
//! fewer barriers can be told from one that has not come yet.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::{Stats, ThreadsError, Worker, lock, share};

/// Bits of an epoch below the generation. 40 bits of generation last years at 5000 regions a second.
pub(super) const GENERATION_SHIFT: u32 = 24;
/// The lowest bit of an epoch: the thread has left the region.
pub(super) const LEFT: u64 = 1;
/// One barrier in an epoch.
pub(super) const ONE_BARRIER: u64 = 2;
/// Barriers that a region may have, at most.
pub(super) const MAX_BARRIERS: u64 = (1 << (GENERATION_SHIFT - 1)) - 1;

/// What a parked thread waits for: 0 nothing, [`START`] the next region, `j + 1` thread j.
const START: u32 = u32::MAX;

/// A cache line of its own (two: the hardware fetches lines in pairs).
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Line<T>(pub(super) T);

/// The part of a thread that it alone writes and others wait on.
#[derive(Default)]
pub(super) struct Place {
    pub(super) epoch: AtomicU64,
    waits_for: AtomicU32,
    /// Loops made since the pool's start; written before the thread leaves a region.
    pub(super) loops: AtomicU64,
    parks: AtomicU64,
    pub(super) steals: AtomicU64,
}

/// One thread.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) place: Line<Place>,
    /// What is left of its share of the current loop, see `share.rs`.
    pub(super) work: Line<AtomicU64>,
    handle: Mutex<Option<Thread>>,
}

/// A region's closure without its type and lifetime.
#[derive(Clone, Copy)]
pub(super) struct Job {
    f: *const (),
    call: unsafe fn(*const (), &Worker<'_>),
    loops: u64,
}

impl Job {
    pub(super) fn new<F: Fn(&Worker<'_>) + Sync>(f: &F, loops: u64) -> Job {
        /// # Safety
        /// `f` points to a live `F`.
        unsafe fn call<F: Fn(&Worker<'_>)>(f: *const (), worker: &Worker<'_>) {
            // SAFETY: the caller's promise.
            unsafe { (*f.cast::<F>())(worker) }
        }
        Job {
            f: std::ptr::from_ref(f).cast(),
            call: call::<F>,
            loops,
        }
    }

    fn nothing() -> Job {
        Job::new(&|_: &Worker<'_>| {}, 0)
    }
}

/// What a worker needs to start, on one line: it travels once a region.
struct Start {
    /// The region that has been started last.
    generation: AtomicU64,
    shutdown: AtomicBool,
    job: UnsafeCell<Job>,
}

/// All that the threads share.
pub(super) struct Shared {
    pub(super) slots: Box<[Slot]>,
    start: Line<Start>,
    /// How many threads are parked: lets a thread that arrives skip the look for them.
    pub(super) parked: Line<AtomicUsize>,
    barriers: AtomicU64,
    spin: Duration,
    /// The first panic of the region: thread and message.
    panic: Mutex<Option<(usize, String)>>,
}

// SAFETY: `job` is written only by `set_job`, while no thread is in a region, and read only by
// `run_job`, in a region; starting and leaving a region order the two. Its closure is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the raw pointer in `job` is not used outside a region.
unsafe impl Send for Shared {}

/// The payload with which a thread leaves a region that another thread has broken.
struct Broken;

impl Shared {
    pub(super) fn new(n_threads: usize, spin: Duration) -> Shared {
        let start = Start {
            generation: AtomicU64::new(0),
            shutdown: AtomicBool::new(false),
            job: UnsafeCell::new(Job::nothing()),
        };
        Shared {
            slots: (0..n_threads).map(|_| Slot::default()).collect(),
            start: Line(start),
            parked: Line::default(),
            barriers: AtomicU64::new(0),
            spin,
            panic: Mutex::new(None),
        }
    }

    pub(super) fn n_threads(&self) -> usize {
        self.slots.len()
    }

    /// By whom thread `index` is woken.
    pub(super) fn set_handle(&self, index: usize, thread: Thread) {
        *lock(&self.slots[index].handle) = Some(thread);
    }

    /// Sets the next region's job.
    ///
    /// # Safety
    /// No thread is in a region. The job's closure lives until every thread has left the next one.
    pub(super) unsafe fn set_job(&self, job: Job) {
        // SAFETY: by the caller's promise nobody reads it now.
        unsafe { *self.start.0.job.get() = job }
    }

    /// Tells the workers to end instead of running the region that is started next.
    pub(super) fn shut_down(&self) {
        self.start.0.shutdown.store(true, SeqCst);
    }

    /// Starts a region: from now on workers may run the job.
    pub(super) fn start(&self, generation: u64) {
        self.start.0.generation.store(generation, SeqCst);
        self.wake(START);
    }

    /// Waits, as worker `index`, until region `generation` starts; `false` if the pool shuts down.
    pub(super) fn wait_start(&self, index: usize, generation: u64) -> bool {
        let start = &self.start.0;
        self.wait(index, START, || start.generation.load(SeqCst) >= generation);
        !start.shutdown.load(SeqCst)
    }

    /// Runs worker `index`'s share of the job.
    ///
    /// # Safety
    /// Region `generation` has started, and this thread has not left it.
    pub(super) unsafe fn run_job(&self, index: usize, generation: u64) {
        // SAFETY: the job was set before the region started and is not written while this thread
        // has not left.
        let job = unsafe { *self.start.0.job.get() };
        // SAFETY: the closure lives until this thread has left, which is the end of `share`.
        self.share(index, generation, job.loops, |worker| unsafe {
            (job.call)(job.f, worker)
        });
    }

    /// Runs one thread's share of a region and leaves the region, whatever happens. Never unwinds.
    pub(super) fn share(
        &self,
        index: usize,
        generation: u64,
        loops: u64,
        f: impl FnOnce(&Worker<'_>),
    ) {
        let worker = Worker::new(self, index, generation << GENERATION_SHIFT, loops);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(&worker))) {
            self.record(index, payload);
        }
        let place = &self.slots[index].place.0;
        place.loops.store(worker.loops(), Relaxed);
        self.arrive(index, worker.epoch() | LEFT);
    }

    /// Keeps the first panic's thread and message.
    fn record(&self, index: usize, payload: Box<dyn Any + Send>) {
        if !payload.is::<Broken>() {
            let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            let message = text.unwrap_or_else(|| "a panic without a message".to_owned());
            lock(&self.panic).get_or_insert((index, message));
        }
        // A payload's own drop may panic too; nothing may unwind from here.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
    }

    /// Says that thread `index` has reached `epoch`, and wakes who waits for it.
    fn arrive(&self, index: usize, epoch: u64) {
        self.slots[index].place.0.epoch.swap(epoch, SeqCst);
        self.wake(index as u32 + 1);
    }

    /// Meets all other threads at `epoch`. Unwinds if one of them has left the region before it.
    pub(super) fn barrier(&self, index: usize, epoch: u64) {
        self.arrive(index, epoch);
        for (j, slot) in self.slots.iter().enumerate() {
            let other = &slot.place.0.epoch;
            // Its epoch is mine or beyond, or it has left this region (then it comes no more).
            let done = |e: u64| {
                e >= epoch || (e & LEFT != 0 && e >> GENERATION_SHIFT == epoch >> GENERATION_SHIFT)
            };
            if !done(other.load(Acquire)) {
                self.wait(index, j as u32 + 1, || done(other.load(SeqCst)));
            }
            if other.load(Acquire) < epoch {
                // Not a panic of this thread: no message, no hook.
                std::panic::resume_unwind(Box::new(Broken));
            }
        }
    }

    /// Waits, as thread 0, until all have left region `generation`.
    pub(super) fn wait_all(&self, generation: u64) {
        for (j, slot) in self.slots.iter().enumerate().skip(1) {
            let left = || {
                let epoch = slot.place.0.epoch.load(SeqCst);
                epoch >> GENERATION_SHIFT == generation && epoch & LEFT != 0
            };
            self.wait(0, j as u32 + 1, left);
        }
    }

    /// The region's result, after all have left; `loops` becomes the number to go on with.
    pub(super) fn end(&self, loops: &mut u64) -> Result<(), ThreadsError> {
        let barriers = |j: usize| (self.slots[j].place.0.epoch.load(Acquire) >> 1) & MAX_BARRIERS;
        let made = |j: usize| self.slots[j].place.0.loops.load(Relaxed);
        self.barriers.fetch_add(barriers(0), Relaxed);
        let before = *loops;
        let panic = lock(&self.panic).take();
        let uneven =
            (1..self.n_threads()).find(|&j| (barriers(j), made(j)) != (barriers(0), made(0)));
        *loops = (0..self.n_threads()).map(made).max().unwrap_or(before);
        if panic.is_some() || uneven.is_some() {
            share::reset(self, *loops);
        }
        if let Some((thread, message)) = panic {
            return Err(ThreadsError::Panicked {
                thread,
                n_threads: self.n_threads(),
                message,
            });
        }
        uneven.map_or(Ok(()), |thread| {
            Err(ThreadsError::Uneven {
                thread,
                barriers: barriers(thread),
                loops: made(thread) - before,
                barriers_0: barriers(0),
                loops_0: made(0) - before,
            })
        })
    }

    /// Counters since the start.
    pub(super) fn stats(&self) -> Stats {
        let sum = |f: fn(&Place) -> &AtomicU64| {
            self.slots.iter().map(|s| f(&s.place.0).load(Relaxed)).sum()
        };
        Stats {
            regions: self.start.0.generation.load(Relaxed),
            barriers: self.barriers.load(Relaxed),
            parks: sum(|p| &p.parks),
            steals: sum(|p| &p.steals),
        }
    }

    /// Waits, as thread `index`, until `ready`: spins, then parks. Who makes it ready calls
    /// [`wake`](Self::wake) with the same `on` afterwards.
    fn wait(&self, index: usize, on: u32, ready: impl Fn() -> bool) {
        if self.spin(&ready) {
            return;
        }
        let place = &self.slots[index].place.0;
        while !ready() {
            // The waker makes `ready` true, then looks for parked threads; this thread says that it
            // parks, then looks at `ready`. All four are sequentially consistent: one sees the other.
            place.waits_for.store(on, SeqCst);
            self.parked.0.fetch_add(1, SeqCst);
            if !ready() {
                place.parks.fetch_add(1, Relaxed);
                std::thread::park();
            }
            self.parked.0.fetch_sub(1, SeqCst);
            place.waits_for.store(0, SeqCst);
        }
    }

    /// Whether `ready` came true within the spin budget.
    fn spin(&self, ready: &impl Fn() -> bool) -> bool {
        let rounds = |n: u32| {
            (0..n).any(|_| {
                let done = ready();
                if !done {
                    spin_loop();
                }
                done
            })
        };
        if self.spin.is_zero() {
            return ready();
        }
        // The clock is looked at only by those who wait for more than a microsecond or so.
        if rounds(64) {
            return true;
        }
        let start = Instant::now();
        loop {
            if rounds(32) {
                return true;
            }
            if start.elapsed() >= self.spin {
                return false;
            }
        }
    }

    /// Wakes the threads that are parked waiting for `on`.
    fn wake(&self, on: u32) {
        if self.parked.0.load(SeqCst) == 0 {
            return;
        }
        for slot in &self.slots {
            if slot.place.0.waits_for.load(SeqCst) == on
                && let Some(thread) = &*lock(&slot.handle)
            {
                thread.unpark();
            }
        }
    }
}
