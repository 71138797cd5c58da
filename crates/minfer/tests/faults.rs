//! Ten thousand requests on an engine whose steps and pages fail and panic, whose clients leave, whose queue is full and
//! whose pages run out: nothing leaks, nothing hangs, and who was not hit gets the right answer.

mod faulty;
mod tiny;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use minfer::Error;
use minfer::engine::{
    Engine, EngineError, EngineOptions, Event, EventStream, Generate, Request, Session,
    Speculation, Task,
};
use minfer::sampling::SamplerParams;

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

/// Positions of the context.
const N_CTX: usize = 96;

/// A new prompt, or what follows a session.
fn request(dice: &mut Dice, n_vocab: u64, sessions: &[Arc<Session>]) -> Request {
    let session = match dice.roll(4) {
        0 => sessions.get(dice.roll(8) as usize).cloned(),
        _ => None,
    };
    let mut context_shift = dice.roll(4) == 0;
    // Some go beyond the context.
    let (start, mut n) = (dice.roll(3), 1 + dice.roll(60));
    if context_shift && dice.roll(2) == 0 {
        n = 85 + dice.roll(11);
    }
    if let Some(session) = &session {
        n = dice.roll(3);
        context_shift |= session.positions() + n as usize > N_CTX;
    }
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
        save: dice.roll(4) == 0,
        ..Generate::default()
    };
    Request {
        priority: dice.roll(3) as i32,
        session,
        ..Request::new(prompt, Task::Generate(task))
    }
}

/// How a stream ended: its tokens and its session, or why not.
fn end(stream: EventStream) -> Result<(Vec<u32>, Option<Arc<Session>>), Error> {
    let (mut ids, mut session) = (Vec::new(), None);
    for event in stream {
        match event {
            Event::Token { id, .. } => ids.push(id),
            Event::Session(s) => session = Some(s),
            Event::Done(_) => return Ok((ids, session)),
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
            assert_eq!(stats.pages_windowed.used(), 0, "{stats:?}");
            let ended = stats.finished + stats.failed + stats.cancelled;
            assert_eq!(stats.requests, ended, "each ends once: {stats:?}");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the engine does not come to rest: {:?}", engine.stats());
}

/// Clients of an engine with faults, and what they know.
struct Crowd<'a> {
    engine: &'a Engine,
    /// The same without faults: what is right.
    single: &'a Engine,
    dice: Dice,
    /// In order of arrival.
    open: Vec<(Request, EventStream)>,
    sessions: Vec<Arc<Session>>,
    /// Answers that came whole.
    good: usize,
}

impl Crowd<'_> {
    /// So many requests, all heard to their ends or left.
    fn round(&mut self, n: usize) {
        let n_vocab = self.engine.model().hparams().n_vocab as u64;
        for _ in 0..n {
            let request = request(&mut self.dice, n_vocab, &self.sessions);
            // Now and then several answers to one prompt.
            let choices = 1 + self.dice.roll(12).saturating_sub(8);
            match self
                .engine
                .submit_choices(request.clone(), choices as usize)
            {
                Ok(streams) => self.take(&request, streams),
                Err(Error::Engine(EngineError::QueueFull { waiting })) => {
                    assert!(waiting <= 16);
                    // Somebody leaves, somebody is heard to the end.
                    let left = self.dice.roll(self.open.len().max(1) as u64) as usize;
                    if left < self.open.len() {
                        self.open.remove(left);
                    }
                    self.hear(1);
                }
                Err(e) => panic!("{e}"),
            }
            if self.open.len() > 24 {
                self.hear(8);
            }
        }
        self.hear(usize::MAX);
    }

    fn take(&mut self, request: &Request, streams: Vec<EventStream>) {
        for (choice, stream) in streams.into_iter().enumerate() {
            let mut request = request.clone();
            if let Task::Generate(g) = &mut request.task {
                g.choice = choice as u32;
            }
            match self.dice.roll(5) {
                0 => drop(stream), // gone at once, or a little later
                _ => self.open.push((request, stream)),
            }
        }
    }

    /// Hears the oldest to their ends; some whole answers are compared with those of the engine without faults.
    fn hear(&mut self, n: usize) {
        let n = n.min(self.open.len());
        for (request, stream) in self.open.drain(..n) {
            match end(stream) {
                Ok((ids, session)) => {
                    self.good += 1;
                    if self.dice.roll(20) == 0 {
                        let want = end(self.single.submit(request).expect("it can be served"));
                        assert_eq!(ids, want.expect("it has no faults").0);
                    }
                    if let Some(session) = session {
                        self.sessions.truncate(7);
                        self.sessions.insert(0, session);
                    }
                }
                Err(Error::Graph(e)) => assert!(e.to_string().contains("injected"), "{e}"),
                Err(Error::Engine(e)) => assert!(e.to_string().contains("injected"), "{e}"),
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn ten_thousand_requests_with_faults_leave_nothing_behind() {
    let model = tiny::model("gemma3");
    let options = EngineOptions {
        n_ctx: N_CTX,
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
    let (engine, faults) = faulty::engine(&model, options);
    std::panic::set_hook(Box::new(|_| {})); // a thousand injected panics say nothing new
    let mut crowd = Crowd {
        engine: &engine,
        single: &single,
        dice: Dice(0x9e37_79b9_7f4a_7c15),
        open: Vec::new(),
        sessions: Vec::new(),
        good: 0,
    };
    let mut flat = None;
    for part in 0..10 {
        let (fail, panic) = [(0, 0), (97, 0), (13, 389), (211, 101)][part % 4];
        faults.runs.set(fail, panic);
        // A page is many calls, one a layer's keys or values.
        let (fail, panic) = [(0, 0), (0, 401), (53, 0), (149, 211)][part % 4];
        for pages in [&faults.copies, &faults.reads, &faults.writes] {
            pages.set(fail, panic);
        }
        let (fail, panic) = [(0, 0), (307, 0), (0, 1009), (0, 0)][part % 4];
        faults.inputs.set(fail, panic);
        faults.outputs.set(fail, panic);
        // On the CPU's threads, where nobody copies the logits.
        faults.choices.set(0, [0, 0, 0, 151][part % 4]);
        crowd.round(1000);
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
    if flat.is_none() {
        tiny::not_run("whether memory grows: this system does not say how much is in use");
    }
    drop(std::panic::take_hook());
    let (good, stats) = (crowd.good, engine.stats());
    assert!(
        stats.requests > 10_000 && good > 3000,
        "{good} answers, {stats:?}"
    );
    assert!(
        stats.failed > 100 && stats.cancelled > 100 && stats.preempted > 100,
        "{stats:?}"
    );
    assert!(stats.shifts > 100 && stats.swapped > 10, "{stats:?}");
    for (kind, fault) in faults.all() {
        assert!(fault.hits() > 10, "{kind}: {} hits", fault.hits());
        fault.set(0, 0);
    }
    // As good as new.
    for _ in 0..10 {
        let n_vocab = model.hparams().n_vocab as u64;
        let request = request(&mut crowd.dice, n_vocab, &crowd.sessions);
        let [got, want] =
            [&engine, &single].map(|e| end(e.submit(request.clone()).expect("it can be served")));
        assert_eq!(got.expect("no more faults").0, want.expect("no faults").0);
    }
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
    let (engine, faults) = faulty::engine(&model, options);
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
    let next = faults.runs.calls.load(Ordering::Relaxed) + 1;
    faults.runs.fail.store(next, Ordering::Relaxed);
    faults.allowed.store(next - 1, Ordering::Relaxed);
    let hit = engine.submit(ask()).expect("served");
    let waits = engine.submit(ask()).expect("served");
    let later = std::thread::spawn(move || end(waits));
    faults.allowed.store(0, Ordering::Relaxed);
    let e = end(hit).expect_err("its first step fails");
    assert!(e.to_string().contains("injected failure"), "{e}");
    faults.runs.fail.store(0, Ordering::Relaxed);
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
    let (engine, faults) = faulty::engine(&model, options);
    // During the prompt, and during the answer: a prompt of one step.
    for (prompt, heard) in [(100, 1), (10, 3)] {
        let before = faults.runs.calls.load(Ordering::Relaxed);
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
        let runs = faults.runs.calls.load(Ordering::Relaxed) - before;
        assert!(
            runs <= heard + 1,
            "{runs} steps, {heard} of them while it listened"
        );
    }
    assert_eq!(engine.stats().cancelled, 2);
}
