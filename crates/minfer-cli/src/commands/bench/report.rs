//! Rows as Markdown, CSV or JSON.

use minfer::engine::{Engine, EngineOptions, Model, Stats};
use serde_json::{Map, Value};

use super::row::Row;
use crate::args::{BenchArgs, BenchFormat};
use crate::output::{Outcome, print};

/// Where rows go: a table grows as they come, JSON is printed whole at the end.
pub struct Report {
    format: BenchFormat,
    model: String,
    size: u64,
    sampling: bool,
    machine: &'static str,
    rows: Vec<Value>,
    /// What the engines have counted.
    engines: Vec<String>,
}

impl Report {
    /// Without rows yet. `machine` is the instruction set's name.
    pub fn new(a: &BenchArgs, model: &Model, machine: &'static str) -> Report {
        let path = model.file().path().file_name().unwrap_or_default();
        Report {
            format: a.output,
            model: path.to_string_lossy().into_owned(),
            size: model.file().size(),
            sampling: a.sample,
            machine,
            rows: Vec::new(),
            engines: Vec::new(),
        }
    }

    /// Takes a row in.
    pub fn row(&mut self, row: &Row<'_>) -> Outcome {
        let object = self.object(row);
        let first = self.rows.is_empty();
        let text = match self.format {
            BenchFormat::Json => String::new(),
            BenchFormat::Csv => csv(&object, first),
            BenchFormat::Md => markdown(&self.cells(row), first),
        };
        self.rows.push(Value::Object(object));
        print(text)
    }

    /// Takes in what an engine has counted, over all its tests, warm-ups and depths.
    pub fn engine(&mut self, engine: &Engine) {
        self.engines.push(steps(engine.options(), &engine.stats()));
    }

    /// Prints what is left.
    pub fn end(self) -> Outcome {
        match self.format {
            BenchFormat::Json => print(format_args!("{:#}\n", Value::Array(self.rows))),
            BenchFormat::Md => print(format_args!("\n{}", self.engines.concat())),
            BenchFormat::Csv => Ok(()),
        }
    }

    /// Every figure; llama-bench's names where the meaning is llama-bench's.
    fn object(&self, r: &Row<'_>) -> Map<String, Value> {
        let mut out = Map::new();
        let mut add = |key: &str, value: Value| drop(out.insert(key.to_owned(), value));
        add("version", env!("CARGO_PKG_VERSION").into());
        add("model_filename", self.model.as_str().into());
        add("model_size", self.size.into());
        add("instruction_set", self.machine.into());
        add("test", r.case.name().into());
        add("n_prompt", r.case.n_prompt.into());
        add("n_gen", r.case.n_gen.into());
        add("n_depth", r.case.depth.into());
        add("n_seqs", r.case.n_seqs.into());
        add("n_threads", r.options.n_threads.into());
        add("n_batch", r.options.n_batch.into());
        add("type_k", r.options.type_k.name().into());
        add("type_v", r.options.type_v.name().into());
        add("packed", r.options.pack.into());
        add("sampling", self.sampling.into());
        add("avg_ts", r.mean().into());
        add("stddev_ts", r.stddev().into());
        add("median_ts", r.median().into());
        add("samples_ts", r.speeds().into());
        let w = &r.work;
        for (key, count) in [
            ("bytes_per_token", r.bytes()),
            ("weight_bytes_per_token", w.weight_bytes),
            ("kv_bytes_per_token", w.kv_bytes),
            ("int8_ops_per_token", w.int8_ops),
            ("f32_ops_per_token", w.f32_ops),
            ("attention_ops_per_token", w.attention_ops),
            ("barriers_per_token", r.barriers()),
            ("allocations_per_token", r.allocations()),
        ] {
            add(key, r.per_token(count).into());
        }
        add("barriers_per_layer", r.barriers_per_layer().into());
        add("steps", r.steps().into());
        let forward = r.per_step(|m| m.forward);
        add("forward_ms_per_step", (1e3 * forward).into());
        add(
            "sample_ms_per_step",
            (1e3 * r.per_step(|m| m.sample)).into(),
        );
        if let (Some(s), Some((before, after))) = (r.shares(), &r.limits) {
            add("read_share", s.read.into());
            add("products_share", s.products.into());
            let both = s.products_and_attention;
            add("products_and_attention_share", both.into());
            add("disturbed", s.disturbed.into());
            for (when, l) in [("before", before), ("after", after)] {
                let mut add = |what: &str, x: f64| add(&format!("{what}_{when}"), x.into());
                add("read_bytes_per_s", l.read);
                add("read_plain_bytes_per_s", l.read_plain);
                add("int8_ops_per_s", l.int8);
                add("f32_ops_per_s", l.f32);
                add("barrier_ns", l.barrier * 1e9);
            }
        }
        out
    }

    /// Header, right-aligned or not, and text of each column of the table.
    fn cells(&self, r: &Row<'_>) -> Vec<(&'static str, bool, String)> {
        let (o, mb) = (r.options, 1e-6);
        let mut cells = vec![
            ("model", false, self.model.clone()),
            ("size", true, format!("{:.1} MB", self.size as f64 * mb)),
            ("threads", true, o.n_threads.unwrap_or(0).to_string()),
            (
                "k/v",
                false,
                format!("{}/{}", o.type_k.name(), o.type_v.name()),
            ),
            ("test", true, r.case.name()),
            ("t/s", true, format!("{:.2} ± {:.2}", r.mean(), r.stddev())),
            ("median", true, format!("{:.2}", r.median())),
            (
                "MB/token",
                true,
                format!("{:.2}", r.per_token(r.bytes()) * mb),
            ),
            (
                "barriers/layer",
                true,
                format!("{:.2}", r.barriers_per_layer()),
            ),
            (
                "allocs/token",
                true,
                format!("{:.2}", r.per_token(r.allocations())),
            ),
        ];
        if let (Some(s), Some((before, after))) = (r.shares(), &r.limits) {
            let percent = |x: f64| format!("{:.0} %", 100.0 * x);
            let two = |x: f64, y: f64| format!("{x:.0} / {y:.0}");
            let disturbed = if s.disturbed { "yes" } else { "no" };
            cells.extend([
                ("of read", true, percent(s.read)),
                ("of peak (products)", true, percent(s.products)),
                ("with attention", true, percent(s.products_and_attention)),
                ("disturbed", true, disturbed.to_owned()),
                (
                    "read GB/s",
                    true,
                    format!("{:.1} / {:.1}", before.read / 1e9, after.read / 1e9),
                ),
                ("int8 Gop/s", true, two(before.int8 / 1e9, after.int8 / 1e9)),
                ("f32 Gflop/s", true, two(before.f32 / 1e9, after.f32 / 1e9)),
                (
                    "barrier ns",
                    true,
                    two(before.barrier * 1e9, after.barrier * 1e9),
                ),
            ]);
        }
        cells
    }
}

/// A line of an engine's counters and times.
fn steps(o: &EngineOptions, s: &Stats) -> String {
    let times = [s.forward, s.sample].map(|t| t.as_secs_f64());
    let [forward, sample] = times.map(|t| 1e3 * t / s.steps.max(1) as f64);
    format!(
        "{} threads, k/v {}/{}: {} steps, {} prompt rows, {} decode rows; a step: forward {forward:.3} ms, choosing tokens \
         {sample:.3} ms ({:.1} %); {} barriers, {} parks, {} steals\n",
        o.n_threads.unwrap_or(0),
        o.type_k.name(),
        o.type_v.name(),
        s.steps,
        s.prompt_tokens,
        s.rows - s.prompt_tokens,
        100.0 * sample / (forward + sample).max(f64::MIN_POSITIVE),
        s.backends.barriers,
        s.backends.parks,
        s.backends.steals,
    )
}

/// One line, and before the first one the header. Lists (the samples) are left out.
fn csv(object: &Map<String, Value>, first: bool) -> String {
    let scalars = || object.iter().filter(|(_, v)| !v.is_array());
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let mut out = String::new();
    if first {
        out += &line(scalars().map(|(k, _)| k.clone()).collect());
    }
    let text = |v: &Value| match v {
        Value::String(s) => format!("\"{}\"", s.replace('"', "\"\"")),
        Value::Number(n) if n.is_f64() => format!("{:.4}", n.as_f64().unwrap_or_default()),
        other => other.to_string(),
    };
    out + &line(scalars().map(|(_, v)| text(v)).collect())
}

/// The same as Markdown.
fn markdown(cells: &[(&'static str, bool, String)], first: bool) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut out = String::new();
    if first {
        let rule = |right: bool| if right { "---:" } else { "---" };
        out += &line(cells.iter().map(|c| c.0).collect());
        out += &line(cells.iter().map(|c| rule(c.1)).collect());
    }
    out + &line(cells.iter().map(|c| c.2.as_str()).collect())
}
