//! `minfer bench`: prompt processing (pp) and text generation (tg) as llama-bench means them.

use minfer::engine::{Engine, EngineOptions, Event, Generate, Request, Task, Timings};
use minfer::sampling::SamplerParams;
use serde_json::{Value, json};

use crate::args::{BenchArgs, BenchFormat};
use crate::models;
use crate::output::{Failure, Outcome, print};

/// One test's figures.
struct Row {
    model: String,
    size: u64,
    n_prompt: usize,
    n_gen: usize,
    n_threads: usize,
    /// Tokens a second, one a repetition.
    samples: Vec<f64>,
}

/// Runs every test and prints the table.
pub fn bench(a: &BenchArgs) -> Outcome {
    if a.n_prompt.iter().chain(&a.n_gen).all(|n| *n == 0) {
        return Err(Failure::Usage(
            "nothing to measure: --n-prompt and --n-gen are 0".into(),
        ));
    }
    let model = models::open(&a.model.model)?;
    let name = model
        .file()
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let longest = a
        .n_prompt
        .iter()
        .copied()
        .chain(a.n_gen.iter().map(|n| n + 1))
        .max()
        .unwrap_or(1);
    let limit = model.hparams().n_ctx_train;
    if longest > limit {
        return Err(Failure::Error(format!(
            "the longest test needs a context of {longest} tokens, the model's limit is {limit}"
        )));
    }
    let threads = if a.threads.is_empty() {
        vec![minfer::backend::cpu::available_cpus()]
    } else {
        a.threads.clone()
    };
    let mut rows = Vec::new();
    for n_threads in threads {
        let options = EngineOptions {
            n_ctx: longest,
            n_batch: a.n_batch,
            n_threads: Some(n_threads),
            type_k: a.cache_type_k,
            type_v: a.cache_type_v,
            ..EngineOptions::default()
        };
        let engine = models::start(model.clone(), options)?;
        let tests = a
            .n_prompt
            .iter()
            .map(|p| (*p, 0))
            .chain(a.n_gen.iter().map(|n| (0, *n)));
        for (n_prompt, n_gen) in tests.filter(|(p, n)| p + n > 0) {
            let mut samples = Vec::with_capacity(a.repetitions);
            test(&engine, n_prompt, n_gen)?; // warm-up
            for _ in 0..a.repetitions {
                samples.push(test(&engine, n_prompt, n_gen)?);
            }
            rows.push(Row {
                model: name.clone(),
                size: model.file().size(),
                n_prompt,
                n_gen,
                n_threads,
                samples,
            });
        }
    }
    match a.output {
        BenchFormat::Json => print(format_args!(
            "{:#}\n",
            Value::from(rows.iter().map(Row::json).collect::<Vec<_>>())
        )),
        BenchFormat::Csv => print(csv(&rows)),
        BenchFormat::Md => print(markdown(&rows)),
    }
}

/// Tokens a second of one test: `n_prompt` tokens into an empty context, or `n_gen` steps after one token.
fn test(engine: &Engine, n_prompt: usize, n_gen: usize) -> Result<f64, Failure> {
    let n_vocab = engine.model().hparams().n_vocab;
    // Any tokens do: speed does not depend on them.
    let prompt = (0..n_prompt.max(1))
        .map(|i| ((i * 7919 + 1) % n_vocab) as u32)
        .collect();
    let sampling = SamplerParams {
        temperature: 0.0,
        repeat_penalty: 1.0,
        ..SamplerParams::default()
    };
    // The first token comes from the prompt's logits, each further one from a step.
    let n_predict = Some(n_gen + 1);
    let task = Generate {
        sampling,
        n_predict,
        ignore_eos: true,
        ..Generate::default()
    };
    let t = timings(
        engine,
        Request {
            prompt,
            task: Task::Generate(task),
        },
    )?;
    Ok(match n_gen {
        0 => n_prompt as f64 / t.prompt.as_secs_f64(),
        n => n as f64 / t.predicted.as_secs_f64(),
    })
}

fn timings(engine: &Engine, request: Request) -> Result<Timings, Failure> {
    for event in engine.submit(request)? {
        match event {
            Event::Done(done) => return Ok(done.timings),
            Event::Error(e) => return Err(e.into()),
            _ => {}
        }
    }
    Err(Failure::Error("the engine stopped".into()))
}

impl Row {
    fn mean(&self) -> f64 {
        self.samples.iter().sum::<f64>() / self.samples.len() as f64
    }

    fn stddev(&self) -> f64 {
        let (n, mean) = (self.samples.len() as f64, self.mean());
        if n < 2.0 {
            return 0.0;
        }
        (self.samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
    }

    fn median(&self) -> f64 {
        let mut s = self.samples.clone();
        s.sort_by(f64::total_cmp);
        (s[(s.len() - 1) / 2] + s[s.len() / 2]) / 2.0
    }

    fn test(&self) -> String {
        if self.n_gen == 0 {
            format!("pp{}", self.n_prompt)
        } else {
            format!("tg{}", self.n_gen)
        }
    }

    /// llama-bench's field names.
    fn json(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "model_filename": self.model,
            "model_size": self.size,
            "n_prompt": self.n_prompt,
            "n_gen": self.n_gen,
            "n_threads": self.n_threads,
            "avg_ts": self.mean(),
            "stddev_ts": self.stddev(),
            "median_ts": self.median(),
            "samples_ts": self.samples,
        })
    }
}

fn csv(rows: &[Row]) -> String {
    let mut out = String::from(
        "model_filename,model_size,n_prompt,n_gen,n_threads,avg_ts,stddev_ts,median_ts\n",
    );
    for r in rows {
        let quoted = r.model.replace('"', "\"\"");
        out += &format!(
            "\"{quoted}\",{},{},{},{},{:.3},{:.3},{:.3}\n",
            r.size,
            r.n_prompt,
            r.n_gen,
            r.n_threads,
            r.mean(),
            r.stddev(),
            r.median()
        );
    }
    out
}

fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "| model | size | threads | test | t/s | median |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for r in rows {
        let mb = r.size as f64 / 1e6;
        out += &format!(
            "| {} | {mb:.1} MB | {} | {} | {:.2} ± {:.2} | {:.2} |\n",
            r.model,
            r.n_threads,
            r.test(),
            r.mean(),
            r.stddev(),
            r.median()
        );
    }
    out
}
