//! `minfer bench`: prompt processing (pp) and text generation (tg) as llama-bench means them, at any depth,
//! several sequences at once, and beside what the machine can do.

mod case;
mod report;
mod row;

use std::sync::Arc;
use std::time::Instant;

use indicatif::ProgressBar;
use minfer::backend::cpu::machine_of;
use minfer::backend::cpu::roofline::{Limits, Roofline};
use minfer::engine::{Engine, EngineOptions, Event, Measured, Model, Request, Task, Work};

use crate::args::{BenchArgs, N_BATCH};
use crate::models;
use crate::output::{Failure, Outcome};

use case::Case;
use report::Report;
use row::Row;

/// Runs every test and prints its row as it comes.
pub fn bench(a: &BenchArgs) -> Outcome {
    models::known(&a.model.model)?;
    let cases = case::cases(a);
    if cases.is_empty() {
        return Err(Failure::Usage(
            "nothing to measure: --n-prompt and --n-gen are 0".into(),
        ));
    }
    refuse_idle(a, &cases)?;
    let model = models::open(&a.model.model)?;
    let limit = model.hparams().n_ctx_train;
    if let Some(c) = cases.iter().find(|c| c.positions() > limit) {
        return Err(Failure::Error(format!(
            "{} needs a context of {} tokens, the model's limit is {limit}",
            c.name(),
            c.positions()
        )));
    }
    let threads = match a.threads.is_empty() {
        true => vec![minfer::backend::cpu::default_threads()],
        false => a.threads.clone(),
    };
    let mut report = Report::new(a, &model, machine_of(None)?.name());
    for n_threads in threads {
        let mut roofline = a.roofline.then(|| Roofline::new(n_threads)).transpose()?;
        for (type_k, type_v) in pairs(&a.cache_type_k, &a.cache_type_v) {
            let options = EngineOptions {
                n_ctx: cases.iter().map(Case::positions).max().unwrap_or(1),
                whole_windows: true,
                n_seqs: cases.iter().map(|c| c.n_seqs).max().unwrap_or(1),
                n_batch: a.n_batch,
                n_threads: Some(n_threads),
                type_k,
                type_v,
                pack: !a.no_pack,
                ..EngineOptions::default()
            };
            run(a, &model, options, &cases, roofline.as_mut(), &mut report)?;
        }
    }
    report.end()
}

/// What is said of a kind of tests would be lost where there is none.
fn refuse_idle(a: &BenchArgs, cases: &[Case]) -> Outcome {
    let generates = cases.iter().any(|c| c.n_gen > 0);
    let prompts = cases.iter().any(|c| c.n_prompt > 0 || c.depth > 0);
    let of_generation =
        "it is of generation tests, and --n-gen is 0; leave it out, or give --n-gen";
    let of_prompts = "it is of prompts and depths, and --n-prompt and --n-depth are 0; leave it out, or give one";
    let many = a.batch.iter().any(|n| *n != 1);
    let given = [
        ("--batch", many && !generates, of_generation),
        ("--sample", a.sample && !generates, of_generation),
        ("--n-batch", a.n_batch != N_BATCH && !prompts, of_prompts),
    ];
    match given.iter().find(|g| g.1) {
        None => Ok(()),
        Some((flag, _, why)) => Err(Failure::Usage(format!("{flag} does nothing: {why}"))),
    }
}

/// Every one with every other.
fn pairs<T: Copy, U: Copy>(a: &[T], b: &[U]) -> Vec<(T, U)> {
    a.iter().flat_map(|x| b.iter().map(|y| (*x, *y))).collect()
}

/// All tests on one engine, with a probe of the machine between them.
fn run(
    a: &BenchArgs,
    model: &Arc<Model>,
    options: EngineOptions,
    cases: &[Case],
    mut roofline: Option<&mut Roofline>,
    report: &mut Report,
) -> Outcome {
    let engine = models::start(model.clone(), options)?;
    let mut probe = || -> Result<Option<Limits>, Failure> {
        Ok(roofline.as_mut().map(|r| r.measure()).transpose()?)
    };
    let mut before = probe()?;
    for case in cases {
        let samples = measure(a, &engine, case)?;
        let after = probe()?;
        report.row(&Row {
            case,
            options: engine.options(),
            n_layer: model.hparams().n_layer,
            work: Work::of(model, &case.measure(a), engine.options()),
            samples,
            limits: before.zip(after),
        })?;
        before = after;
    }
    report.engine(&engine);
    Ok(())
}

/// The repetitions of one test, warm-up left out.
fn measure(a: &BenchArgs, engine: &Engine, case: &Case) -> Result<Vec<Measured>, Failure> {
    let started = Instant::now();
    let bar = ProgressBar::no_length();
    bar.set_style(models::bar_style(
        "filling the context {pos}/{len} {wide_bar}",
    ));
    let task = Task::Measure(case.measure(a));
    let mut samples = Vec::with_capacity(a.repetitions + 1);
    for event in engine.submit(Request::new(Vec::new(), task))? {
        match event {
            Event::Prompt { done, total } if started.elapsed().as_millis() > 500 => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            }
            Event::Measured(m) => {
                // Once: the next repetition runs already, and what is allocated here is counted there.
                if samples.is_empty() {
                    bar.finish_and_clear();
                }
                samples.push(m);
            }
            Event::Error(e) => return Err(e.into()),
            Event::Done(_) => {
                samples.drain(..usize::from(!a.no_warmup));
                return Ok(samples);
            }
            _ => {}
        }
    }
    Err(Failure::Error("the engine stopped".into()))
}
