//! How fast an answer comes, while it comes.

use std::time::{Duration, Instant};

use minfer::engine::{Event, Timings};
use serde_json::{Value, json};

/// The clock of one answer. What only the engine knows (the queue, the cache) is told at the answer's end.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    begun: Instant,
    /// When the whole prompt was in.
    prompt: Option<Instant>,
    predicted: usize,
}

impl Pace {
    /// Runs from the submission.
    pub fn start() -> Pace {
        Pace {
            begun: Instant::now(),
            prompt: None,
            predicted: 0,
        }
    }

    /// An event came.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Prompt { done, total } => self.prompt(*done, *total),
            Event::Token { .. } => self.token(),
            _ => {}
        }
    }

    /// So much of the prompt is in.
    pub fn prompt(&mut self, done: usize, total: usize) {
        if done >= total {
            self.prompt = Some(Instant::now());
        }
    }

    /// A token came.
    pub fn token(&mut self) {
        self.predicted = self.predicted.saturating_add(1);
    }

    /// Tokens up to now.
    pub fn predicted(&self) -> usize {
        self.predicted
    }

    /// llama-server's object of progress.
    pub fn progress(&self, done: usize, total: usize) -> Value {
        json!({"total": total, "processed": done, "time_ms": ms(self.begun.elapsed())})
    }

    /// llama-server's object of times, as far as it is known.
    pub fn timings(&self) -> Value {
        let now = Instant::now();
        let prompt = self.prompt.unwrap_or(now);
        let predicted = now.saturating_duration_since(prompt);
        let rate = match predicted.is_zero() {
            true => 0.0,
            false => self.predicted as f64 / predicted.as_secs_f64(),
        };
        json!({
            "prompt_ms": ms(prompt.saturating_duration_since(self.begun)),
            "predicted_n": self.predicted,
            "predicted_ms": ms(predicted),
            "predicted_per_second": rate,
        })
    }
}

/// llama-server's object of times at an answer's end.
pub fn timings(t: &Timings) -> Value {
    let rate = |n: usize, d: Duration| match d.is_zero() {
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

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
