//! `minfer graph`: the compute graph as DOT or JSON.

use std::path::Path;

use minfer::graph::{
    self, ContextParams, GraphKind, GraphParams, KvType, PAGE, Scheduler, SchedulerOptions,
    capacity_class,
};

use crate::args::GraphArgs;
use crate::files::OutFile;
use crate::models;
use crate::output::{Failure, Outcome};

/// Builds the graph of a step and writes it.
pub fn graph(a: &GraphArgs) -> Outcome {
    models::known(&a.model.model)?;
    if let (Some(dot), Some(json)) = (&a.dot, &a.json)
        && OutFile::same_place(dot, json)?
    {
        let message = "--dot and --json name the same place: one would overwrite the other";
        return Err(Failure::Usage(message.into()));
    }
    let places = [&a.dot, &a.json].into_iter().flatten();
    places
        .into_iter()
        .try_for_each(|path| OutFile::try_place(path))?;
    let model = models::open(&a.model.model)?;
    let pages = model.hparams().n_ctx_train.min(4096).div_ceil(PAGE);
    let params = GraphParams {
        n_tokens: capacity_class(a.n_tokens),
        n_out: 1,
        kind: GraphKind::Logits,
        context: ContextParams {
            type_k: KvType::F16,
            type_v: KvType::F16,
            pages_full: pages,
            pages_windowed: model.hparams().sliding_window.map_or(0, |_| pages),
            max_seqs: 1,
            pages_per_seq: pages,
            fuse: !a.no_fuse,
        },
        weights_version: 0,
    };
    // Where a node runs depends on which backend took its weights in, so they are loaded.
    let backends = minfer::backend::create(None, None, None, false).map_err(minfer::Error::from)?;
    let mut scheduler = Scheduler::new(backends, SchedulerOptions::default());
    let names: Vec<&str> = scheduler.backends().iter().map(|b| b.name()).collect();
    scheduler.load_weights(model.weights(), &mut |_, _| {})?;
    let g = scheduler.prepare(&params, &|p| model.arch().build(p))?;
    if let Some(path) = &a.dot {
        write_to(path, &graph::to_dot(g, Some(model.weights()), &names))?;
    }
    if let Some(path) = &a.json {
        write_to(
            path,
            &format!("{:#}\n", graph::to_json(g, Some(model.weights()), &names)),
        )?;
    }
    Ok(())
}

fn write_to(path: &Path, text: &str) -> Outcome {
    let mut file = OutFile::create(path)?;
    file.write(text.as_bytes())?;
    file.finish()
}
