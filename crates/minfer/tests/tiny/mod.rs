//! The tiny models of `tests/data/tiny_models`, and running them.
#![allow(dead_code)] // each test binary uses a part

use std::path::PathBuf;
use std::sync::Arc;

use minfer::engine::{
    Done, Engine, EngineOptions, Event, Generate, Measure, Measured, Model, Request, Task,
};
use minfer::gguf::{GgufFile, GgufWriter, Value};
use minfer::graph::KvType;
use minfer::numeric::{GgmlType, encode_row};

/// Every variant.
pub const NAMES: [&str; 6] = ["llama", "llama3", "qwen2", "qwen2-yarn", "qwen3", "gemma3"];

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/tiny_models")
        .join(file)
}

/// A variant, opened.
pub fn model(name: &str) -> Arc<Model> {
    Model::open(&path(&format!("{name}.gguf"))).unwrap_or_else(|e| panic!("{e}"))
}

/// A variant with another value in its metadata.
pub fn with_metadata(name: &str, key: &str, value: Value) -> Arc<Model> {
    with_all_metadata(name, &[(key, value)])
}

/// A variant with other values in its metadata.
pub fn with_all_metadata(name: &str, changes: &[(&str, Value)]) -> Arc<Model> {
    changed(name, changes).unwrap_or_else(|e| panic!("{e}"))
}

/// A variant with other values in its metadata, or why it is refused.
pub fn changed(name: &str, changed: &[(&str, Value)]) -> Result<Arc<Model>, minfer::Error> {
    let file = GgufFile::open(&path(&format!("{name}.gguf"))).unwrap();
    let mut writer = GgufWriter::new(3).unwrap();
    let is_changed = |key: &str| changed.iter().any(|(k, _)| *k == key);
    for (other, value) in file.metadata().iter().filter(|(key, _)| !is_changed(key)) {
        writer.set(other, value.clone()).unwrap();
    }
    for (key, value) in changed {
        writer.set(key, value.clone()).unwrap();
    }
    let tensors: Vec<_> = file.tensors().iter().collect();
    for t in &tensors {
        writer.tensor(&t.name, t.ty, &t.dims).unwrap();
    }
    let mut out = writer.start(Vec::new()).unwrap();
    tensors
        .iter()
        .for_each(|t| out.tensor(file.data(t)).unwrap());
    let file = GgufFile::from_bytes(out.finish().unwrap()).unwrap();
    Model::from_file(Arc::new(file))
}

/// A variant whose matrices are stored in these types, in turn: 32-value types and floats.
pub fn quantized(name: &str, types: &[GgmlType]) -> Arc<Model> {
    let mut types = types.iter().cycle();
    with_matrices(name, |cols, bytes| {
        let ty = *types.next().unwrap();
        (ty, encode(ty, cols, bytes))
    })
}

/// A variant with random matrices, evenly from -1 to 1.
pub fn random(name: &str) -> Arc<Model> {
    let mut state = 0x9e37_79b9_u32;
    with_matrices(name, |_, bytes| {
        let mut value = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state as f32 / u32::MAX as f32 * 2.0 - 1.0).to_le_bytes()
        };
        let values = (0..bytes.len() / 4).flat_map(|_| value()).collect();
        (GgmlType::F32, values)
    })
}

/// A variant with other matrices: `make` is handed the columns of each, and its values as f32 bytes.
fn with_matrices(
    name: &str,
    mut make: impl FnMut(usize, &[u8]) -> (GgmlType, Vec<u8>),
) -> Arc<Model> {
    let file = GgufFile::open(&path(&format!("{name}.gguf"))).unwrap();
    let mut writer = GgufWriter::new(3).unwrap();
    for (key, value) in file.metadata().iter() {
        writer.set(key, value.clone()).unwrap();
    }
    let mut data = Vec::new();
    for t in file.tensors() {
        let (mut ty, mut bytes) = (t.ty, file.data(t).to_vec());
        if t.dims.len() == 2 {
            (ty, bytes) = make(t.dims[0] as usize, &bytes);
        }
        writer.tensor(&t.name, ty, &t.dims).unwrap();
        data.push(bytes);
    }
    let mut out = writer.start(Vec::new()).unwrap();
    data.iter().for_each(|d| out.tensor(d).unwrap());
    let file = GgufFile::from_bytes(out.finish().unwrap()).unwrap();
    Model::from_file(Arc::new(file)).unwrap_or_else(|e| panic!("{e}"))
}

/// Rows of f32 bytes in another type.
fn encode(ty: GgmlType, cols: usize, bytes: &[u8]) -> Vec<u8> {
    let values: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    let mut out = Vec::new();
    values
        .chunks_exact(cols)
        .for_each(|row| encode_row(ty, row, &mut out).unwrap());
    out
}

/// Ten prompts.
pub fn prompts() -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string(path("prompts.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(all["prompts"].clone()).unwrap()
}

/// transformers' logits of all prompts' positions, one after the other.
pub fn golden(name: &str) -> Vec<f32> {
    floats(&format!("{name}.logits"))
}

/// llama.cpp's embeddings of the same positions.
pub fn golden_embeddings(name: &str) -> Vec<f32> {
    floats(&format!("{name}.embeddings"))
}

fn floats(file: &str) -> Vec<f32> {
    let bytes = std::fs::read(path(file)).unwrap();
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// Says on the real stderr, which the test harness does not hold back, what a test did not run.
pub fn not_run(what: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {what}\n").as_bytes());
}

/// f32 KV, two threads.
pub fn exact() -> EngineOptions {
    let (type_k, type_v) = (KvType::F32, KvType::F32);
    EngineOptions {
        n_ctx: 512,
        n_threads: Some(2),
        type_k,
        type_v,
        ..EngineOptions::default()
    }
}

/// An engine.
pub fn engine(model: &Arc<Model>, options: &EngineOptions) -> Engine {
    Engine::new(model.clone(), options.clone(), &mut |_, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// Logits after every token of a prompt.
pub fn logits(model: &Arc<Model>, options: &EngineOptions, prompt: &[u32]) -> Vec<f32> {
    logits_on(&engine(model, options), prompt, true)
}

/// Logits after every token, or the last.
pub fn logits_on(engine: &Engine, prompt: &[u32], all: bool) -> Vec<f32> {
    let mut out = Vec::new();
    let request = Request::new(prompt.to_vec(), Task::Logits { all });
    for event in engine.submit(request).unwrap_or_else(|e| panic!("{e}")) {
        match event {
            Event::Logits { values, .. } => out.extend(values),
            Event::Error(e) => panic!("{e}"),
            _ => {}
        }
    }
    out
}

/// A measurement's repetitions, and each sequence's last logits if it says them.
pub fn measure(engine: &Engine, measure: Measure) -> (Vec<Measured>, Vec<Vec<f32>>) {
    // What is counted while the next repetition runs must not come from here.
    let mut repetitions = Vec::with_capacity(measure.repetitions);
    let mut logits = Vec::new();
    let request = Request::new(Vec::new(), Task::Measure(measure));
    for event in engine.submit(request).unwrap_or_else(|e| panic!("{e}")) {
        match event {
            Event::Measured(m) => repetitions.push(m),
            Event::Logits { row, values } => {
                assert_eq!(row, logits.len());
                logits.push(values);
            }
            Event::Done(_) => return (repetitions, logits),
            Event::Error(e) => panic!("{e}"),
            _ => {}
        }
    }
    panic!("the stream ended without an end")
}

/// Generated ids, text and how it ended.
pub fn generate(engine: &Engine, prompt: &[u32], task: Generate) -> (Vec<u32>, String, Done) {
    let (mut ids, mut text) = (Vec::new(), String::new());
    let request = Request::new(prompt.to_vec(), Task::Generate(task));
    for event in engine.submit(request).unwrap_or_else(|e| panic!("{e}")) {
        match event {
            Event::Token { id, text: t, .. } => {
                ids.push(id);
                text.push_str(&t);
            }
            Event::Done(done) => {
                text.push_str(&done.text);
                return (ids, text, done);
            }
            Event::Error(e) => panic!("{e}"),
            _ => {}
        }
    }
    panic!("the stream ended without an end")
}
