//! OpenAI's surface.

mod chat;
mod completions;
mod embeddings;
mod legacy;
mod models;
mod others;
mod responses;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use minfer::engine::Timings;
use serde_json::{Value, json};

use crate::app::App;
use crate::logprobs;
use crate::pace::timings;

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
