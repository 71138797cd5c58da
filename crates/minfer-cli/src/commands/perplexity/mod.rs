//! `minfer perplexity`: how well a model expects a text, and how far another model lies from it.

mod figures;

use indicatif::ProgressBar;
use minfer::engine::{Engine, Event, EventStream, Generate, Model, Request, Task};
use minfer::tokenizer::EncodeOptions;
use minfer::words::count;
use serde_json::json;

use crate::args::PerplexityArgs;
use crate::output::{Failure, Outcome, print_line};
use crate::{files, models};

use figures::{Kl, Likelihood, kl_of};

/// Tokens of a chunk where none are given: llama.cpp's.
const CHUNK: usize = 512;

/// Judges the text.
pub fn perplexity(a: &PerplexityArgs) -> Outcome {
    models::known(&a.model.model)?;
    a.kl_base.as_deref().map_or(Ok(()), models::known)?;
    if let Some(n_ctx @ 0..4) = a.engine.n_ctx {
        return Err(Failure::Usage(format!(
            "--n-ctx is {n_ctx}: half a chunk must hold at least two tokens"
        )));
    }
    let text = files::read_text(&a.file)?;
    let model = models::open(&a.model.model)?;
    let limit = model.hparams().n_ctx_train;
    let n_ctx = a.engine.n_ctx.unwrap_or(CHUNK.min(limit));
    if n_ctx > limit {
        return Err(Failure::Error(format!(
            "--n-ctx is {n_ctx}: the model's limit is {limit}"
        )));
    }
    let chunks = chunks(a, &model, &text, n_ctx)?;
    let base = a.kl_base.as_deref().map(models::open).transpose()?;
    if let Some(base) = &base {
        same_vocabulary(&model, base)?;
    }
    let engine = models::engine(model, &a.engine, n_ctx)?;
    let bar = ProgressBar::new(chunks.len() as u64);
    bar.set_style(models::bar_style("{pos}/{len} chunks {wide_bar} {msg}"));
    match base {
        None => likelihood(a, &engine, &chunks, &bar),
        Some(base) => {
            let base = models::engine(base, &a.engine, n_ctx)?;
            divergence(a, [&engine, &base], &chunks, &bar)
        }
    }
}

/// The text as chunks of `n_ctx` tokens, each with BOS in front where the model wants one; what is left over at the
/// end is not judged.
fn chunks(
    a: &PerplexityArgs,
    model: &Model,
    text: &str,
    n_ctx: usize,
) -> Result<Vec<Vec<u32>>, Failure> {
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let ids = model.tokenizer().encode(text, options);
    let mut chunks: Vec<Vec<u32>> = ids.chunks_exact(n_ctx).map(<[u32]>::to_vec).collect();
    chunks.truncate(a.chunks.unwrap_or(usize::MAX));
    if chunks.is_empty() {
        return Err(Failure::Error(format!(
            "{}: its text has {}, less than one chunk of {n_ctx}: give a longer text or lower --n-ctx",
            files::name_of(&a.file),
            count(ids.len(), "token")
        )));
    }
    // As llama-perplexity: BOS takes the place of a chunk's first token.
    let bos = model.tokenizer().encode("", options).first().copied();
    if let Some(bos) = bos {
        chunks.iter_mut().for_each(|c| c[0] = bos);
    }
    Ok(chunks)
}

fn same_vocabulary(model: &Model, base: &Model) -> Outcome {
    let (a, b) = (model.tokenizer(), base.tokenizer());
    let same =
        a.n_vocab() == b.n_vocab() && (0..a.n_vocab() as u32).all(|id| a.piece(id) == b.piece(id));
    match same {
        true => Ok(()),
        false => Err(Failure::Error(format!(
            "{} has another vocabulary than {}: their distributions can't be compared",
            base.file().path().display(),
            model.file().path().display()
        ))),
    }
}

/// Perplexity alone: the log-probabilities come from the engine.
fn likelihood(
    a: &PerplexityArgs,
    engine: &Engine,
    chunks: &[Vec<u32>],
    bar: &ProgressBar,
) -> Outcome {
    let mut all = Likelihood::default();
    let task = Task::Generate(Generate {
        n_predict: Some(0),
        prompt_logprobs: Some(0),
        ..Generate::default()
    });
    for chunk in chunks {
        let events = engine.submit(Request::new(chunk.clone(), task.clone()))?;
        for event in events {
            match event {
                Event::PromptLogProbs { row, logprobs } if row > chunk.len() / 2 => {
                    all.push(f64::from(logprobs.chosen));
                }
                Event::Error(e) => return Err(e.into()),
                _ => {}
            }
        }
        bar.inc(1);
        bar.set_message(format!("PPL {:.4}", all.perplexity()));
    }
    bar.finish_and_clear();
    if a.json {
        return print_line(
            json!({ "chunks": chunks.len(), "n_ctx": chunks[0].len(), "model": all.as_json() }),
        );
    }
    print_line(format_args!(
        "PPL = {:.4} ± {:.4} ({} tokens in {} chunks of {})",
        all.perplexity(),
        all.error(),
        all.count(),
        chunks.len(),
        chunks[0].len()
    ))
}

/// Both models' distributions, token by token.
fn divergence(
    a: &PerplexityArgs,
    engines: [&Engine; 2],
    chunks: &[Vec<u32>],
    bar: &ProgressBar,
) -> Outcome {
    let (mut likelihoods, mut kl) = (
        [Likelihood::default(), Likelihood::default()],
        Kl::default(),
    );
    for chunk in chunks {
        let submit = |e: &Engine| e.submit(Request::new(chunk.clone(), Task::Logits { all: true }));
        let [mut own, mut base] = [submit(engines[0])?, submit(engines[1])?];
        for row in 0..chunk.len() {
            let (own, base) = (next_row(&mut own)?, next_row(&mut base)?);
            // The row's logits are about the token after it.
            if row + 1 > chunk.len() / 2 && row + 1 < chunk.len() {
                let pair = kl_of(&own, &base, chunk[row + 1]);
                likelihoods[0].push(pair.own);
                likelihoods[1].push(pair.base);
                kl.push(pair);
            }
        }
        bar.inc(1);
        bar.set_message(format!("KL {:.6}", kl.mean()));
    }
    bar.finish_and_clear();
    let [own, base] = &likelihoods;
    if a.json {
        return print_line(json!({
            "chunks": chunks.len(),
            "n_ctx": chunks[0].len(),
            "model": own.as_json(),
            "base": base.as_json(),
            "kl": kl.as_json(),
        }));
    }
    print_line(format_args!(
        "PPL      = {:.4} ± {:.4}\nPPL base = {:.4} ± {:.4} ({} tokens in {} chunks of {})\n{kl}",
        own.perplexity(),
        own.error(),
        base.perplexity(),
        base.error(),
        own.count(),
        chunks.len(),
        chunks[0].len()
    ))
}

fn next_row(events: &mut EventStream) -> Result<Vec<f32>, Failure> {
    for event in events {
        match event {
            Event::Logits { values, .. } => return Ok(values),
            Event::Error(e) => return Err(e.into()),
            _ => {}
        }
    }
    Err(Failure::Error(
        "the engine stopped before the last row".into(),
    ))
}
