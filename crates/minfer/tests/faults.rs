//! Ten thousand requests on an engine whose steps fail and panic, whose clients leave, whose queue is full and whose
//! pages run out: nothing leaks, nothing hangs, and who was not hit gets the right answer.

mod tiny;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use minfer::Error;
use minfer::backend;
use minfer::engine::{
    Engine, EngineError, EngineOptions, Event, EventStream, Generate, Model, Request, Speculation,
    Task,
};
use minfer::graph::{
    Backend, BackendError, BufferId, Counters, FusedKind, KvShape, Node, Run, Weight, WeightId,
};
use minfer::sampling::SamplerParams;

/// What happens to the next runs.
#[derive(Default)]
struct Faults {
    /// Every so many runs fail; 0: none.
    fail: AtomicU32,
    /// Every so many runs panic; 0: none.
    panic: AtomicU32,
    runs: AtomicU32,
    /// Runs after these wait until more are allowed; 0: none waits.
    allowed: AtomicU32,
}

/// The CPU, but for its faults.
struct Faulty {
    inner: Box<dyn Backend>,
    faults: Arc<Faults>,
}

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn supports_op(&self, node: &Node) -> bool {
        self.inner.supports_op(node)
    }
    fn supports_fused(&self, kind: FusedKind) -> bool {
        self.inner.supports_fused(kind)
    }
    fn weight_bytes(&self, weight: &Weight) -> Result<usize, BackendError> {
        self.inner.weight_bytes(weight)
    }
    fn load_weights(
        &mut self,
        weights: &[(WeightId, &Weight)],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), BackendError> {
        self.inner.load_weights(weights, progress)
    }
    fn weights_bytes(&self) -> usize {
        self.inner.weights_bytes()
    }
    fn kv_bytes(&self, shape: &KvShape) -> usize {
        self.inner.kv_bytes(shape)
    }
    fn kv_read(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.inner.kv_read(region, shape, page, out)
    }
    fn kv_write(
        &mut self,
        region: BufferId,
        shape: &KvShape,
        page: usize,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.inner.kv_write(region, shape, page, bytes)
    }
    fn alloc(&mut self, bytes: usize, what: &str) -> Result<BufferId, BackendError> {
        self.inner.alloc(bytes, what)
    }
    fn free(&mut self, buffer: BufferId) {
        self.inner.free(buffer);
    }
    fn write(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.write(buffer, offset, bytes)
    }
    fn read(
        &mut self,
        buffer: BufferId,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.inner.read(buffer, offset, out)
    }
    fn host_f32(&mut self, buffer: BufferId, first: usize, len: usize) -> Option<&mut [f32]> {
        self.inner.host_f32(buffer, first, len)
    }
    fn forget(&mut self, graph: u64) {
        self.inner.forget(graph);
    }
    fn execute(&mut self, run: &Run<'_>) -> Result<(), BackendError> {
        let n = self.faults.runs.fetch_add(1, Ordering::Relaxed) + 1;
        while (1..n).contains(&self.faults.allowed.load(Ordering::Relaxed)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let hit = |every: &AtomicU32| match every.load(Ordering::Relaxed) {
            0 => false,
            every => n % every == 0,
        };
        if hit(&self.faults.panic) {
            panic!("injected panic");
        }
        if hit(&self.faults.fail) {
            return Err(BackendError::Device {
                backend: "cpu",
                reason: "injected failure".into(),
            });
        }
        self.inner.execute(run)
    }
    fn synchronize(&mut self) -> Result<(), BackendError> {
        self.inner.synchronize()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

fn faulty(model: &Arc<Model>, options: EngineOptions) -> (Engine, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let backends = backend::create(None, options.n_threads, None, true).expect("there is a CPU");
    let wrap = |inner| {
        let faults = faults.clone();
        Box::new(Faulty { inner, faults }) as Box<dyn Backend>
    };
    let backends = backends.into_iter().map(wrap).collect();
    let engine = Engine::with_backends(model.clone(), options, backends, &mut |_, _| {});
    (engine.unwrap_or_else(|e| panic!("{e}")), faults)
}

/// Numbers that are anything.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn request(dice: &mut Dice, n_vocab: u64) -> Request {
    let context_shift = dice.roll(4) == 0;
    // Some go beyond the context of 96.
    let (start, n) = (
        dice.roll(3),
        1 + dice.roll(if context_shift { 95 } else { 60 }),
    );
    let prompt = (0..n).map(|i| ((start + i * 7) % n_vocab) as u32).collect();
    let speculation = match dice.roll(3) {
        0 => Speculation::Lookup,
        _ => Speculation::None,
    };
    let task = Generate {
        sampling: SamplerParams {
            temperature: [0.0, 0.8][dice.roll(2) as usize],
            ..SamplerParams::default()
        },
        n_predict: Some(1 + dice.roll(8) as usize),
        ignore_eos: true,
        context_shift,
        speculation,
        ..Generate::default()
    };
    Request {
        priority: dice.roll(3) as i32,
        ..Request::new(prompt, Task::Generate(task))
    }
}

/// How a stream ended: its tokens, or why not.
fn end(stream: EventStream) -> Result<Vec<u32>, Error> {
    let mut ids = Vec::new();
    for event in stream {
        match event {
            Event::Token { id, .. } => ids.push(id),
            Event::Done(_) => return Ok(ids),
            Event::Error(e) => return Err(e),
            _ => {}
        }
    }
    panic!("a stream ended without an end")
}

/// Resident memory in KiB, where the system tells.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Waits until nothing runs or waits; pages are back then.
fn rest(engine: &Engine) {
    for _ in 0..4000 {
        let stats = engine.stats();
        if stats.running == 0 && stats.waiting == 0 {
            assert_eq!(stats.pages_full.used(), 0, "{stats:?}");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the engine does not come to rest: {:?}", engine.stats());
}

/// A round of requests; how many answers came whole.
fn round(engine: &Engine, single: &Engine, dice: &mut Dice, n: usize) -> usize {
    let n_vocab = engine.model().hparams().n_vocab as u64;
    let (mut open, mut good) = (Vec::new(), 0);
    for at in 0..n {
        let request = request(dice, n_vocab);
        match engine.submit(request.clone()) {
            Ok(stream) if dice.roll(5) == 0 => drop(stream), // gone at once, or a little later
            Ok(stream) => open.push((at, request, stream)),
            Err(Error::Engine(EngineError::QueueFull { waiting })) => {
                assert!(waiting <= 16);
                // Somebody leaves, somebody is heard to the end.
                let left = dice.roll(open.len().max(1) as u64) as usize;
                if left < open.len() {
                    drop(open.swap_remove(left));
                }
                good += hear(single, dice, &mut open, 1);
            }
            Err(e) => panic!("{e}"),
        }
        if open.len() > 24 {
            good += hear(single, dice, &mut open, 8);
        }
    }
    let all = open.len();
    good + hear(single, dice, &mut open, all)
}

/// Hears the oldest to their ends; some whole answers are compared with those of an engine without faults.
fn hear(
    single: &Engine,
    dice: &mut Dice,
    open: &mut Vec<(usize, Request, EventStream)>,
    n: usize,
) -> usize {
    let mut good = 0;
    open.sort_by_key(|o| o.0);
    for (_, request, stream) in open.drain(..n.min(open.len())) {
        match end(stream) {
            Ok(ids) => {
                good += 1;
                if dice.roll(20) == 0 {
                    let want = end(single.submit(request).expect("it can be served"));
                    assert_eq!(ids, want.expect("it has no faults"));
                }
            }
            Err(Error::Graph(e)) => assert!(e.to_string().contains("injected failure"), "{e}"),
            Err(Error::Engine(e)) => assert!(e.to_string().contains("injected"), "{e}"),
            Err(e) => panic!("{e}"),
        }
    }
    good
}

#[test]
fn ten_thousand_requests_with_faults_leave_nothing_behind() {
    let model = tiny::model("gemma3");
    let options = EngineOptions {
        n_ctx: 96,
        n_seqs: 6,
        queue: 16,
        n_threads: Some(2),
        check_rebuilds: false,
        ..EngineOptions::default()
    };
    let single = tiny::engine(
        &model,
        &EngineOptions {
            n_seqs: 1,
            ..options.clone()
        },
    );
    // Room for two contexts, for six sequences.
    let n_kv = EngineOptions {
        kv_memory: Some(1),
        ..options.clone()
    };
    let Err(Error::Engine(EngineError::KvMemory { need, .. })) =
        Engine::new(model.clone(), n_kv, &mut |_, _| {})
    else {
        panic!("one byte is too little")
    };
    let options = EngineOptions {
        kv_memory: Some(2 * need),
        ..options
    };
    let (engine, faults) = faulty(&model, options);
    std::panic::set_hook(Box::new(|_| {})); // a thousand injected panics say nothing new
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut good, mut flat) = (0, None);
    for part in 0..10 {
        faults
            .fail
            .store([0, 97, 13, 211][part % 4], Ordering::Relaxed);
        faults
            .panic
            .store([0, 0, 389, 101][part % 4], Ordering::Relaxed);
        good += round(&engine, &single, &mut dice, 1000);
        rest(&engine);
        let now = resident();
        match (flat, now) {
            // What is allocated once has been allocated by then.
            (None, _) if part == 3 => flat = now,
            (Some(before), Some(now)) => {
                assert!(now < before + 16 * 1024, "{before} KiB have become {now}");
            }
            _ => {}
        }
    }
    drop(std::panic::take_hook());
    let stats = engine.stats();
    assert!(good > 3000, "{good} answers, {stats:?}");
    assert!(
        stats.failed > 100 && stats.cancelled > 100 && stats.preempted > 0,
        "{stats:?}"
    );
    faults.fail.store(0, Ordering::Relaxed);
    faults.panic.store(0, Ordering::Relaxed);
    assert_eq!(
        round(&engine, &single, &mut Dice(7), 10),
        10 - gone(&mut Dice(7), &model)
    );
}

/// How many of ten requests a round drops at once.
fn gone(dice: &mut Dice, model: &Model) -> usize {
    let n_vocab = model.hparams().n_vocab as u64;
    let mut gone = 0;
    for _ in 0..10 {
        request(dice, n_vocab);
        gone += usize::from(dice.roll(5) == 0);
    }
    gone
}

#[test]
fn a_failing_step_hurts_nobody_else() {
    let model = tiny::model("llama");
    let options = EngineOptions {
        n_ctx: 256,
        n_seqs: 1, // so that the other one waits
        n_threads: Some(1),
        ..EngineOptions::default()
    };
    let (engine, faults) = faulty(&model, options);
    let ask_for = |n| {
        let task = Generate {
            n_predict: Some(n),
            ignore_eos: true,
            ..Generate::default()
        };
        Request::new(vec![1, 2, 3], Task::Generate(task))
    };
    let ask = || ask_for(3);
    // So many runs that no other one of this test is a multiple of the failing one.
    assert!(end(engine.submit(ask_for(20)).expect("served")).is_ok());
    // The first step fails while another request waits.
    let next = faults.runs.load(Ordering::Relaxed) + 1;
    faults.fail.store(next, Ordering::Relaxed);
    faults.allowed.store(next - 1, Ordering::Relaxed);
    let hit = engine.submit(ask()).expect("served");
    let waits = engine.submit(ask()).expect("served");
    let later = std::thread::spawn(move || end(waits));
    faults.allowed.store(0, Ordering::Relaxed);
    let e = end(hit).expect_err("its first step fails");
    assert!(e.to_string().contains("injected failure"), "{e}");
    faults.fail.store(0, Ordering::Relaxed);
    assert!(
        later.join().expect("no panic").is_ok(),
        "the other one is answered"
    );
    assert!(end(engine.submit(ask()).expect("served")).is_ok());
    rest(&engine);
}

#[test]
fn llama_cpp_24496_a_client_that_leaves_frees_its_place_within_a_step() {
    let model = tiny::model("llama");
    let options = EngineOptions {
        n_ctx: 256,
        n_batch: 10,
        n_threads: Some(1),
        ..EngineOptions::default()
    };
    let (engine, faults) = faulty(&model, options);
    // During the prompt, and during the answer: a prompt of one step.
    for (prompt, heard) in [(100, 1), (10, 3)] {
        let before = faults.runs.load(Ordering::Relaxed);
        faults.allowed.store(before + heard, Ordering::Relaxed);
        let prompt = (0..prompt).map(|i| i % 90).collect();
        let request = Request {
            no_cache: true,
            ..Request::new(prompt, Task::Generate(Generate::default()))
        };
        let stream = engine.submit(request).expect("served");
        for _ in 0..heard {
            assert!(stream.recv().is_some());
        }
        drop(stream);
        faults.allowed.store(0, Ordering::Relaxed);
        rest(&engine);
        let runs = faults.runs.load(Ordering::Relaxed) - before;
        assert!(
            runs <= heard + 1,
            "{runs} steps, {heard} of them while it listened"
        );
    }
    assert_eq!(engine.stats().cancelled, 2);
}
