//! What other engines say of the tiny models (`xtask/golden/tiny_models.py`, `tiny_embeddings.py`).

use serde_json::Value;

use crate::models::{N_VOCAB, folder};

/// Channels of a tiny model.
pub const N_EMBD: usize = 64;

/// The prompts, as token ids.
pub fn prompts() -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string(folder().join("prompts.json")).expect("a file");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(all["prompts"].clone()).expect("token ids")
}

fn floats(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(folder().join(name)).expect("a file");
    let floats = bytes.chunks_exact(4);
    floats
        .map(|b| f32::from_le_bytes(b.try_into().expect("four")))
        .collect()
}

/// A prompt's rows of a file that holds `width` values for each token of each prompt.
fn rows(file: &str, width: usize, prompt: usize) -> Vec<Vec<f32>> {
    let lengths: Vec<usize> = prompts().iter().map(Vec::len).collect();
    let before: usize = lengths[..prompt].iter().sum();
    let all = floats(file);
    let rows = all.chunks_exact(width).skip(before).take(lengths[prompt]);
    rows.map(<[f32]>::to_vec).collect()
}

/// `transformers`' log-probabilities after each token of a prompt.
pub fn logprobs(model: &str, prompt: usize) -> Vec<Vec<f64>> {
    let rows = rows(&format!("{model}.logits"), N_VOCAB, prompt);
    let normal = |row: Vec<f32>| {
        let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        row.iter().map(|x| f64::from(*x) - total.ln()).collect()
    };
    rows.into_iter().map(normal).collect()
}

/// llama.cpp's vector of a prompt: the mean of its positions' hidden states, of length 1.
pub fn embedding(model: &str, prompt: usize) -> Vec<f64> {
    let rows = rows(&format!("{model}.embeddings"), N_EMBD, prompt);
    let sum = |i: usize| rows.iter().map(|r| f64::from(r[i])).sum::<f64>();
    unit((0..N_EMBD).map(sum).collect())
}

/// Scaled to length 1.
pub fn unit(v: Vec<f64>) -> Vec<f64> {
    let length = v.iter().map(|x| x * x).sum::<f64>().sqrt();
    v.iter().map(|x| x / length).collect()
}
