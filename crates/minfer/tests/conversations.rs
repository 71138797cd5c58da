//! Many conversations on one engine: whatever shares a batch, a page, a guess or a step with a request, its answer is
//! the one that it gets alone, bit for bit.

mod tiny;

use std::sync::Arc;

use minfer::chat::ReasoningTags;
use minfer::engine::{
    Engine, EngineOptions, Event, EventStream, FinishReason, Generate, Model, Reader, Reading,
    Request, Speculation, Stats, Task,
};
use minfer::sampling::{ConstraintSpec, SamplerParams};
use proptest::prelude::*;

/// Not a whole number of pages.
const N_CTX: usize = 190;

/// One request of a random schedule.
#[derive(Clone, Debug)]
struct Plan {
    /// Which of a few texts its prompt is cut from, and where: prompts share prefixes.
    text: usize,
    prompt: usize,
    n_predict: usize,
    temperature: f32,
    seed: u64,
    speculation: Speculation,
    no_cache: bool,
    shift: bool,
    priority: i32,
    /// Events of others to wait for before it is submitted.
    wait: usize,
    /// Its stream is dropped after so many events.
    drop_after: Option<usize>,
    choices: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    let prompt = (0..3usize, 1..150usize, 1..60usize);
    let sampling = (prop_oneof![Just(0.0f32), Just(0.9)], 0..1000u64);
    let guesses = prop_oneof![
        Just(Speculation::None),
        Just(Speculation::Lookup),
        Just(Speculation::Draft)
    ];
    let flags = (
        guesses,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.3),
    );
    let schedule = (
        -1..2i32,
        0..30usize,
        prop::option::weighted(0.25, 0..40usize),
        prop_oneof![4 => Just(1usize), 1 => 2..4usize],
    );
    (prompt, sampling, flags, schedule).prop_map(
        |((text, prompt, n_predict), (temperature, seed), (speculation, no_cache, shift), s)| {
            Plan {
                text,
                prompt,
                n_predict,
                temperature,
                seed,
                speculation,
                no_cache,
                shift,
                priority: s.0,
                wait: s.1,
                drop_after: s.2,
                choices: s.3,
            }
        },
    )
}

impl Plan {
    /// Texts that repeat themselves, so that lookup finds something, and begin alike.
    fn prompt(&self, n_vocab: usize) -> Vec<u32> {
        let token = |i: usize| {
            let i = if i > 60 { i % 23 } else { i };
            (i * 7 + if i > 40 { self.text * 13 } else { 0 }) % n_vocab
        };
        (0..self.prompt).map(|i| token(i) as u32).collect()
    }

    fn budget(&self) -> Option<usize> {
        (self.seed % 4 == 2).then_some(self.prompt % 7)
    }

    /// What ends the answer: characters that the tiny models say now and then.
    fn stops(&self) -> Vec<String> {
        let stops = ["e", "a", "\u{fffd}\u{fffd}"].map(str::to_owned);
        if self.prompt % 2 == 0 {
            stops.into()
        } else {
            Vec::new()
        }
    }

    /// Where there is a budget the answer begins within reasoning, which ends by force.
    fn reading(&self) -> Reading {
        let tags = ReasoningTags::of_template("<think>");
        Reading {
            reasoning: tags.map(|tags| (tags, self.budget().is_some())),
            ..Reading::default()
        }
    }

    fn constraint(&self) -> Option<ConstraintSpec> {
        (self.seed % 4 == 1).then(|| ConstraintSpec::Regex("[a-m ]*".into()))
    }

    /// Whether an answer ends where a reader of its own finds a stop string; one that is constrained may end sooner.
    fn ends_well(&self, told: &Told) -> bool {
        let mut reader = Reader::new(&self.reading(), self.stops());
        reader.push(&told.text);
        match told.reason {
            Some(FinishReason::Length) => reader.cut(),
            _ => reader.finish(),
        };
        if reader.stop() != told.stop.as_deref() {
            return false;
        }
        match (reader.stop(), told.reason) {
            (Some(_), reason) => reason == Some(FinishReason::Stop),
            (None, Some(FinishReason::Stop)) => self.constraint().is_some(),
            (None, _) => true,
        }
    }

    fn task(&self, choice: u32, speculation: Speculation) -> Generate {
        Generate {
            sampling: SamplerParams {
                temperature: self.temperature,
                seed: self.seed,
                ..SamplerParams::default()
            },
            n_predict: Some(self.n_predict),
            ignore_eos: true,
            choice,
            // Some are bound to say letters, with guesses or without.
            constraint: self.constraint(),
            stop: self.stops(),
            reading: Some(self.reading()),
            reasoning_budget: self.budget(),
            logprobs: Some(3),
            context_shift: self.shift,
            n_keep: 10,
            speculation,
            ..Generate::default()
        }
    }

    fn request(&self, n_vocab: usize) -> Request {
        Request {
            priority: self.priority,
            no_cache: self.no_cache,
            ..Request::new(
                self.prompt(n_vocab),
                Task::Generate(self.task(0, self.speculation)),
            )
        }
    }
}

/// All that a request was told of its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    ids: Vec<u32>,
    text: String,
    /// Bits of the log-probabilities.
    bits: Vec<u32>,
    reason: Option<FinishReason>,
    /// The stop string that ended it.
    stop: Option<String>,
}

impl Told {
    fn event(&mut self, event: Event) {
        match event {
            Event::Token { id, text, logprobs } => {
                self.ids.push(id);
                self.text.push_str(&text);
                let logprobs = logprobs.expect("they were asked for");
                self.bits.push(logprobs.chosen.to_bits());
                let top = logprobs.top.iter();
                self.bits.extend(top.flat_map(|(id, p)| [*id, p.to_bits()]));
            }
            Event::Done(done) => {
                self.text.push_str(&done.text);
                (self.reason, self.stop) = (Some(done.reason), done.stop);
            }
            Event::Error(e) => panic!("{e}"),
            _ => {}
        }
    }
}

/// One answer of a plan by an engine that does nothing else.
fn alone(engine: &Engine, plan: &Plan, choice: u32) -> Told {
    let n_vocab = engine.model().hparams().n_vocab;
    let task = Task::Generate(plan.task(choice, Speculation::None));
    let mut told = Told::default();
    let request = Request {
        no_cache: true,
        ..Request::new(plan.prompt(n_vocab), task)
    };
    for event in engine.submit(request).expect("it can be served") {
        told.event(event);
    }
    told
}

/// A stream with what it has said so far.
struct Running {
    plan: usize,
    choice: u32,
    stream: Option<EventStream>,
    events: usize,
    told: Told,
}

impl Running {
    /// Takes what is there; with `wait`, waits for one event. Whether there was any.
    fn listen(&mut self, wait: bool, drop_after: Option<usize>) -> bool {
        let mut any = false;
        while let Some(stream) = &self.stream {
            if drop_after.is_some_and(|n| self.events >= n) {
                self.stream = None;
                break;
            }
            let event = match wait && !any {
                true => stream.recv(),
                false => stream.try_recv().ok(),
            };
            match event {
                Some(event) => {
                    self.events += 1;
                    any = true;
                    let ends = matches!(event, Event::Done(_));
                    self.told.event(event);
                    if ends {
                        self.stream = None;
                    }
                }
                None => break,
            }
        }
        any
    }
}

/// Runs all plans at once, and compares each answer with that of its run alone. How many were ended by a stop string.
fn check(model: &Arc<Model>, plans: &[Plan], options: &EngineOptions) -> (Stats, usize) {
    let engine = tiny::engine(model, options);
    let n_vocab = model.hparams().n_vocab;
    let mut running: Vec<Running> = Vec::new();
    for (at, plan) in plans.iter().enumerate() {
        let mut left = plan.wait;
        while left > 0 {
            let mut heard = false;
            for r in running.iter_mut().filter(|r| r.stream.is_some()).take(1) {
                heard = r.listen(true, plans[r.plan].drop_after);
            }
            left -= 1;
            if !heard {
                break;
            }
        }
        let streams = engine
            .submit_choices(plan.request(n_vocab), plan.choices)
            .expect("served");
        for (choice, stream) in streams.into_iter().enumerate() {
            running.push(Running {
                plan: at,
                choice: choice as u32,
                stream: Some(stream),
                events: 0,
                told: Told::default(),
            });
        }
    }
    for r in &mut running {
        while r.stream.is_some() {
            r.listen(true, plans[r.plan].drop_after);
        }
    }
    let single = tiny::engine(
        model,
        &EngineOptions {
            n_seqs: 1,
            kv_memory: None,
            draft: None,
            n_threads: Some(1),
            ..options.clone()
        },
    );
    for r in &running {
        let plan = &plans[r.plan];
        let want = alone(&single, plan, r.choice);
        match r.told.reason {
            Some(_) => {
                assert_eq!(r.told, want, "{plan:?}");
                assert!(plan.ends_well(&want), "{plan:?} {want:?}");
                let spent = plan.budget().is_some_and(|n| want.ids.len() > n + 16);
                assert!(!spent || want.text.contains("</think>"), "{plan:?}");
            }
            None => {
                assert!(want.ids.starts_with(&r.told.ids) && want.bits.starts_with(&r.told.bits))
            }
        }
    }
    let stopped = running.iter().filter(|r| r.told.stop.is_some()).count();
    drop(running);
    until_idle(&engine);
    (engine.stats(), stopped)
}

/// When all is done, nobody holds a page.
fn until_idle(engine: &Engine) {
    for _ in 0..2000 {
        let stats = engine.stats();
        if stats.running == 0 && stats.waiting == 0 {
            assert_eq!(
                (stats.pages_full.used(), stats.pages_windowed.used()),
                (0, 0)
            );
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the engine does not come to rest: {:?}", engine.stats());
}

/// A page of an engine's KV, in bytes, told by a refusal.
fn kv_of_one(model: &Arc<Model>, options: &EngineOptions) -> u64 {
    let options = EngineOptions {
        kv_memory: Some(1),
        draft: None,
        ..options.clone()
    };
    match Engine::new(model.clone(), options, &mut |_, _| {}) {
        Err(minfer::Error::Engine(minfer::engine::EngineError::KvMemory { need, .. })) => need,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("one byte is enough"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_the_one_it_gets_alone(
        name in 0..tiny::NAMES.len(),
        plans in prop::collection::vec(plan(), 8),
        n_seqs in 1..6usize,
        n_threads in 1..4usize,
        n_batch in prop_oneof![Just(1usize), Just(7), Just(64)],
        memory in prop_oneof![Just(None), Just(Some(1.0)), Just(Some(1.6))],
    ) {
        let model = tiny::model(tiny::NAMES[name]);
        let mut options = EngineOptions {
            draft: Some(model.clone()),
            n_ctx: N_CTX,
            n_seqs,
            n_batch,
            n_threads: Some(n_threads),
            ..EngineOptions::default()
        };
        let one = kv_of_one(&model, &options);
        options.kv_memory = memory.map(|m| (m * one as f64) as u64);
        check(&model, &plans, &options);
    }
}

/// What the random schedules may or may not meet, met for certain.
#[test]
fn hits_preemptions_swaps_shifts_and_right_guesses_happen_and_change_nothing() {
    let model = tiny::model("gemma3");
    let plan = |at: usize| Plan {
        text: at % 3,
        prompt: 40 + 5 * at,
        n_predict: 250,
        temperature: if at % 2 == 0 { 0.0 } else { 0.9 },
        seed: at as u64,
        speculation: match at % 2 {
            0 => Speculation::Lookup,
            _ => Speculation::Draft,
        },
        no_cache: false,
        shift: true,
        priority: at as i32 % 2,
        wait: at,
        drop_after: None,
        choices: 1 + at % 2,
    };
    let mut plans: Vec<Plan> = (0..8).map(plan).collect();
    // A long one that has been shifted when a more important one needs its pages.
    plans[0] = Plan {
        n_predict: 1500,
        priority: -1,
        ..plan(0)
    };
    plans[1] = Plan {
        prompt: 149,
        priority: 2,
        wait: 250,
        ..plan(1)
    };
    let mut options = EngineOptions {
        draft: Some(model.clone()),
        n_ctx: N_CTX,
        n_seqs: 4,
        n_batch: 32,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    options.kv_memory = Some(kv_of_one(&model, &options) * 3 / 2);
    let (stats, stopped) = check(&model, &plans, &options);
    let met = [
        stopped as u64,
        stats.cached_tokens,
        stats.preempted,
        stats.swapped,
        stats.shifts,
        stats.accepted_tokens,
    ];
    assert!(met.iter().all(|n| *n > 0), "{stats:?}, {stopped} stopped");
}

#[test]
fn llama_cpp_7052_19981_one_prompt_says_the_same_on_every_slot_and_from_the_cache() {
    let model = tiny::model("qwen2");
    let options = EngineOptions {
        n_ctx: N_CTX,
        n_seqs: 8,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let engine = tiny::engine(&model, &options);
    let task = Generate {
        sampling: SamplerParams {
            temperature: 0.0,
            ..SamplerParams::default()
        },
        n_predict: Some(40),
        ignore_eos: true,
        logprobs: Some(3),
        ..Generate::default()
    };
    let request = Request::new((0..70).map(|i| i % 31).collect(), Task::Generate(task));
    let hear = |stream: EventStream| {
        let mut told = Told::default();
        stream.for_each(|event| told.event(event));
        told
    };
    // All at once, then once more, when everything is in the cache.
    let streams: Vec<EventStream> = (0..8)
        .map(|_| engine.submit(request.clone()).expect("served"))
        .collect();
    let all: Vec<Told> = streams.into_iter().map(hear).collect();
    let again = hear(engine.submit(request).expect("served"));
    assert!(engine.stats().cached_tokens > 69, "{:?}", engine.stats());
    assert!(all.iter().all(|told| *told == again));
    // Computed once for all eight that came together, but for each one's last token.
    let computed = engine.stats().prompt_tokens;
    assert!(computed <= 70 + 8 * 7, "{computed}");
}

#[test]
fn several_answers_share_their_prompt() {
    let model = tiny::model("llama");
    let options = EngineOptions {
        n_ctx: N_CTX,
        n_seqs: 4,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let engine = tiny::engine(&model, &options);
    let task = Generate {
        sampling: SamplerParams {
            temperature: 1.0,
            ..SamplerParams::default()
        },
        n_predict: Some(8),
        ignore_eos: true,
        ..Generate::default()
    };
    let prompt = (0..100).map(|i| i % 41).collect();
    let request = Request::new(prompt, Task::Generate(task));
    let streams = engine.submit_choices(request, 4).expect("served");
    let answers: Vec<Vec<u32>> = streams
        .into_iter()
        .map(|s| {
            let ids = s.filter_map(|e| match e {
                Event::Token { id, .. } => Some(id),
                _ => None,
            });
            ids.collect()
        })
        .collect();
    assert!(
        answers.iter().any(|a| *a != answers[0]),
        "each has draws of its own"
    );
    // The first computes the prompt; the others its last token, on pages of the first.
    assert_eq!(engine.stats().prompt_tokens, 100 + 3);
}

#[test]
fn a_budget_that_nothing_can_hold_is_refused() {
    let options = EngineOptions {
        n_ctx: N_CTX,
        ..EngineOptions::default()
    };
    let engine = tiny::engine(&tiny::model("llama"), &options);
    let submit = |reading: Option<Reading>| {
        let task = Generate {
            n_predict: Some(1),
            reading,
            reasoning_budget: Some(4),
            ..Generate::default()
        };
        let request = Request::new(vec![1, 2], Task::Generate(task));
        let checked = engine.check(&request);
        assert_eq!(checked.is_ok(), engine.submit(request).is_ok());
        checked.map_err(|e| e.to_string())
    };
    let tags = ReasoningTags::of_template("<think>");
    let reading = |reasoning| Reading {
        reasoning,
        ..Reading::default()
    };
    for none in [None, Some(reading(None))] {
        let e = submit(none).expect_err("no reasoning is told");
        assert!(e.starts_with("reasoning_budget"), "{e}");
    }
    assert_eq!(submit(Some(reading(tags.map(|t| (t, false))))), Ok(()));
}
