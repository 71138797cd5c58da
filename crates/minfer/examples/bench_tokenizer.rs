//! Speed of a tokenizer: `bench_tokenizer MODEL.gguf TEXTS.json [RUNS]`.
//!
//! TEXTS.json is a list of strings; they are encoded as one text, joined by newlines. Prints one
//! JSON object: milliseconds to build the tokenizer and MB/s (10^6 bytes), each the median of the
//! runs with the lowest and highest.

use std::{env, error::Error, fs, path::Path, time::Instant};

use minfer::gguf::GgufFile;
use minfer::tokenizer::{EncodeOptions, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let usage = "usage: bench_tokenizer MODEL.gguf TEXTS.json [RUNS]";
    let (model, texts) = (args.next().ok_or(usage)?, args.next().ok_or(usage)?);
    let runs: usize = args.next().map_or(Ok(9), |r| r.parse())?;
    let file = GgufFile::open(Path::new(&model))?;
    let texts: Vec<String> = serde_json::from_slice(&fs::read(texts)?)?;
    let text = texts.join("\n");
    // Once unmeasured, for what is made on first use.
    let tokenizer = Tokenizer::from_metadata(file.metadata())?;
    let ids = tokenizer.encode(&text, EncodeOptions::default()).len();
    let mut build = Vec::new();
    let mut speed = Vec::new();
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        let tokenizer = Tokenizer::from_metadata(file.metadata())?;
        build.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        let n = tokenizer.encode(&text, EncodeOptions::default()).len();
        speed.push(text.len() as f64 / 1e6 / start.elapsed().as_secs_f64());
        if n != ids {
            return Err("two runs gave different ids".into());
        }
    }
    let out = serde_json::json!({
        "n_vocab": tokenizer.n_vocab(), "bytes": text.len(), "ids": ids,
        "build_ms": spread(build), "mb_per_s": spread(speed),
    });
    println!("{out}");
    Ok(())
}

/// Median, lowest and highest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let round = |x: f64| (x * 100.0).round() / 100.0;
    [
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    ]
    .map(round)
}
