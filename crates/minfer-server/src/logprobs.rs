//! Log-probabilities in OpenAI's shape, which llama-server has, too.

use minfer::sampling::LogProbs;
use minfer::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::chat::Token;

/// An entry of a chat answer's `logprobs.content`.
pub fn entry(tokenizer: &Tokenizer, token: &Token) -> Option<Value> {
    let LogProbs { chosen, top } = token.logprobs.as_ref()?;
    let mut entry = one(tokenizer, token.id, *chosen);
    let top: Vec<Value> = top.iter().map(|(id, p)| one(tokenizer, *id, *p)).collect();
    if let Some(map) = entry.as_object_mut() {
        map.insert("top_logprobs".to_owned(), Value::Array(top));
    }
    Some(entry)
}

fn one(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Value {
    let bytes = tokenizer.piece(id).unwrap_or_default();
    json!({
        "token": String::from_utf8_lossy(bytes),
        "logprob": finite(logprob),
        "bytes": bytes,
    })
}

/// JSON has no infinities; OpenAI writes -9999 for what is out of the question.
pub fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}
