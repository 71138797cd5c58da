//! Log-probabilities in the shape of OpenAI's older endpoint: four lists, one entry a token.

use std::fmt::Write;
use std::sync::Arc;

use minfer::sampling::LogProbs;
use minfer::tokenizer::{Decoder, Tokenizer};
use serde_json::{Map, Value, json};

use crate::logprobs::finite;

/// The lists as they grow.
pub struct Lists {
    tokenizer: Arc<Tokenizer>,
    /// Knows where in the text a token begins.
    decoder: Decoder<Arc<Tokenizer>>,
    /// Characters before the next token.
    at: usize,
    entries: Vec<Entry>,
}

struct Entry {
    token: String,
    logprob: Option<f32>,
    top: Value,
    offset: usize,
}

impl Lists {
    /// For an answer whose text begins `at` so many characters into what is returned.
    pub fn answer(tokenizer: &Arc<Tokenizer>, at: usize) -> Lists {
        Lists {
            tokenizer: tokenizer.clone(),
            decoder: Decoder::new(tokenizer.clone(), false),
            at,
            entries: Vec::new(),
        }
    }

    /// For a whole text that begins what is returned, control tokens shown.
    pub fn text(tokenizer: &Arc<Tokenizer>) -> Lists {
        Lists {
            decoder: Decoder::for_text(tokenizer.clone(), true),
            ..Lists::answer(tokenizer, 0)
        }
    }

    /// A token that has no place in the text.
    pub fn push_hidden(&mut self, id: u32) {
        let entry = self.entry(id, None);
        self.entries.push(entry);
    }

    /// The next token; without log-probabilities if nothing comes before it.
    pub fn push(&mut self, id: u32, logprobs: Option<&LogProbs>) {
        let entry = self.entry(id, logprobs);
        self.entries.push(entry);
        let said = self.decoder.push(id).chars().count();
        self.at = self.at.saturating_add(said);
    }

    fn entry(&self, id: u32, logprobs: Option<&LogProbs>) -> Entry {
        let token = name(&self.tokenizer, id);
        let top = logprobs.map(|p| {
            let mut top = Map::new();
            for (id, logprob) in p.top.iter().chain([&(id, p.chosen)]) {
                // Two tokens may have one text: the likelier one is said.
                let name = name(&self.tokenizer, *id);
                top.entry(name).or_insert_with(|| json!(finite(*logprob)));
            }
            Value::Object(top)
        });
        Entry {
            token,
            logprob: logprobs.map(|p| finite(p.chosen)),
            top: top.unwrap_or(Value::Null),
            offset: self.at,
        }
    }

    /// What has come since the last call.
    pub fn take(&mut self) -> Value {
        let entries = std::mem::take(&mut self.entries);
        let list = |of: &dyn Fn(&Entry) -> Value| -> Value { entries.iter().map(of).collect() };
        json!({
            "tokens": list(&|e| json!(e.token)),
            "token_logprobs": list(&|e| json!(e.logprob)),
            "top_logprobs": list(&|e| e.top.clone()),
            "text_offset": list(&|e| json!(e.offset)),
        })
    }
}

/// A token's text; where it is no text by itself its bytes, as OpenAI writes them.
fn name(tokenizer: &Tokenizer, id: u32) -> String {
    let bytes = tokenizer.piece(id).unwrap_or_default();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let mut out = "bytes:".to_owned();
            for byte in bytes {
                // Writing to a string does not fail.
                let _ = write!(out, "\\x{byte:02x}");
            }
            out
        }
    }
}
