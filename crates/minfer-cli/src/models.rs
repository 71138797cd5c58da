//! From the MODEL argument to a file, a model, an engine; and other things commands share.

use std::path::PathBuf;
use std::sync::{Arc, Once};

use indicatif::{ProgressBar, ProgressStyle};
use minfer::engine::{Engine, EngineError, EngineOptions, Model, default_n_ctx};
use minfer::graph::WeightUse;
use minfer::words::size;
use minfer_hub::{Hub, HubError, Progress};

use crate::args::EngineArgs;
use crate::output::{Failure, note};

/// The file a MODEL argument means; fetched if need be, with a bar on a terminal.
pub fn resolve(spec: &str) -> Result<PathBuf, Failure> {
    with_bar(|hub, bar| hub.resolve(spec, bar))
}

/// The same, if it is here already.
pub fn cached(spec: &str) -> Result<Option<PathBuf>, Failure> {
    Ok(Hub::new()?.cached(spec)?)
}

/// Refuses what is no model at all, without fetching anything: said before anything else that is wrong.
pub fn known(spec: &str) -> Result<(), Failure> {
    if spec.is_empty() {
        let message = "MODEL is empty: name a model (`minfer list` shows those that are here)";
        return Err(Failure::Usage(message.into()));
    }
    cached(spec).map(drop)
}

/// The same, with the cache made to hold what the source has now.
pub fn pull(spec: &str) -> Result<PathBuf, Failure> {
    with_bar(|hub, bar| hub.pull(spec, bar))
}

fn with_bar(
    get: impl FnOnce(&Hub, &mut Bar<'_>) -> Result<PathBuf, HubError>,
) -> Result<PathBuf, Failure> {
    let bar = ProgressBar::no_length();
    bar.set_style(bar_style(
        "{msg} {bytes}/{total_bytes} {bytes_per_sec} {wide_bar}",
    ));
    let path = get(&Hub::new()?, &mut Bar(&bar));
    bar.finish_and_clear();
    Ok(path?)
}

/// Draws what the hub reports.
struct Bar<'a>(&'a ProgressBar);

impl Progress for Bar<'_> {
    fn start(&mut self, name: &str, done: u64, total: Option<u64>) {
        self.0.set_message(name.to_owned());
        self.0.reset();
        if let Some(total) = total {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }

    fn advance(&mut self, done: u64) {
        self.0.set_position(done);
    }

    fn note(&mut self, text: &str) {
        self.0.suspend(|| note(text));
    }
}

/// A bar's looks.
pub fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Opens a model, weights not loaded.
pub fn open(spec: &str) -> Result<Arc<Model>, Failure> {
    Ok(Model::open(&resolve(spec)?)?)
}

/// The context: what the user gave, else what the prompt and the answer need (`default_n_ctx`).
/// A prompt that is longer, or empty, is refused here, before the weights are loaded.
pub fn n_ctx(
    a: &EngineArgs,
    model: &Model,
    prompt: usize,
    n_predict: Option<usize>,
) -> Result<usize, Failure> {
    let limit = model.hparams().n_ctx_train;
    if prompt == 0 {
        return Err(EngineError::EmptyPrompt.into());
    }
    match a.n_ctx {
        Some(n_ctx) if n_ctx <= limit && prompt > n_ctx => Err(EngineError::PromptTooLong {
            prompt,
            n_ctx,
            limit,
        }
        .into()),
        Some(n_ctx) => Ok(n_ctx),
        None => Ok(default_n_ctx(model, prompt, n_predict)?),
    }
}

/// An engine with these flags; weights load with a bar when that takes more than a moment.
pub fn engine(model: Arc<Model>, a: &EngineArgs, n_ctx: usize) -> Result<Engine, Failure> {
    start(model, options(a, n_ctx))
}

/// What these flags ask for.
pub fn options(a: &EngineArgs, n_ctx: usize) -> EngineOptions {
    EngineOptions {
        n_ctx,
        n_batch: a.n_batch,
        n_threads: a.threads,
        type_k: a.cache_type_k,
        type_v: a.cache_type_v,
        fuse: !a.no_fuse,
        pack: !a.no_pack,
        kv_memory: a.kv_memory,
        backends: (!a.backend.is_empty()).then(|| a.backend.clone()),
        ..EngineOptions::default()
    }
}

/// An engine with these options.
pub fn start(model: Arc<Model>, options: EngineOptions) -> Result<Engine, Failure> {
    static NOTED: Once = Once::new();
    let notice = (!options.pack).then(|| no_pack_note(&model));
    let started = std::time::Instant::now();
    let bar = ProgressBar::no_length();
    bar.set_style(bar_style("loading {bytes}/{total_bytes} {wide_bar}"));
    let engine = Engine::new(model, options, &mut |done, total| {
        if started.elapsed().as_millis() >= 1000 {
            bar.set_length(total);
            bar.set_position(done);
        }
    });
    bar.finish_and_clear();
    let engine = engine?;
    // Only now: what is refused says why, and nothing else.
    if let Some(notice) = notice {
        NOTED.call_once(|| note(notice));
    }
    Ok(engine)
}

/// What `--no-pack` costs and saves.
fn no_pack_note(model: &Model) -> String {
    let matrices = model
        .weights()
        .iter()
        .filter(|(_, w)| w.usage == WeightUse::Matrix);
    let bytes: usize = matrices.map(|(_, w)| w.data.bytes().len()).sum();
    format!(
        "--no-pack: {} of weights stay in the file instead of a packed copy in memory; while the file is in \
         memory, decode is about 4 times slower, prefill of a long prompt about 10 % slower",
        size(bytes as u64)
    )
}
