//! OpenAI's surface.

mod chat;
mod completions;
mod embeddings;
mod legacy;
pub mod logprobs;
mod models;
mod others;
mod responses;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use minfer::engine::Timings;
use serde_json::{Value, json};

use crate::app::App;

/// Its paths, below `/v1` and without it.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/models", get(models::list))
        .route("/models/{*id}", get(models::one))
        .route("/chat/completions", post(chat::completions))
        .route("/responses", post(responses::create))
        .route("/completions", post(completions::completions))
        .route("/embeddings", post(embeddings::create))
}

/// Token counts of a request. With several answers, of all of them; the prompt counts once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    prompt: usize,
    cached: usize,
    completion: usize,
    reasoning: usize,
}

impl Usage {
    /// Counts an answer that has ended.
    pub fn add(&mut self, timings: &Timings) {
        self.prompt = timings.prompt_n;
        self.cached = self.cached.max(timings.cached_n);
        self.completion = self.completion.saturating_add(timings.predicted_n);
    }

    /// Counts tokens of reasoning among those of the answers.
    pub fn reasoned(&mut self, n: usize) {
        self.reasoning = self.reasoning.saturating_add(n);
    }

    /// Of this and another answer to the same prompt.
    #[must_use]
    pub fn beside(&self, other: &Usage) -> Usage {
        Usage {
            prompt: self.prompt.max(other.prompt),
            cached: self.cached.max(other.cached),
            completion: self.completion.saturating_add(other.completion),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    /// Of this and another prompt's answers.
    #[must_use]
    pub fn plus(&self, other: &Usage) -> Usage {
        Usage {
            prompt: self.prompt.saturating_add(other.prompt),
            cached: self.cached.saturating_add(other.cached),
            completion: self.completion.saturating_add(other.completion),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    /// OpenAI's object.
    pub fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt.saturating_add(self.completion),
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        })
    }
}

/// Equal fingerprints and seeds, equal answers.
pub fn fingerprint() -> String {
    format!("minfer-{}", env!("CARGO_PKG_VERSION"))
}

/// llama-server's object of times.
pub fn timings(t: &Timings) -> Value {
    let ms = |d: std::time::Duration| d.as_secs_f64() * 1e3;
    let rate = |n: usize, d: std::time::Duration| match d.is_zero() {
        true => 0.0,
        false => n as f64 / d.as_secs_f64(),
    };
    let prompt_n = t.prompt_n.saturating_sub(t.cached_n);
    json!({
        "cache_n": t.cached_n,
        "prompt_n": prompt_n,
        "prompt_ms": ms(t.prompt),
        "prompt_per_second": rate(prompt_n, t.prompt),
        "predicted_n": t.predicted_n,
        "predicted_ms": ms(t.predicted),
        "predicted_per_second": rate(t.predicted_n, t.predicted),
        "draft_n": t.drafted_n,
        "draft_n_accepted": t.accepted_n,
        "queued_ms": ms(t.queued),
    })
}
