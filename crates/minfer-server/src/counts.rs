//! What is counted of models' work: numbers, whoever shows them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use minfer::engine::{Event, Stats};

/// Upper bounds of a histogram's classes, in seconds.
const BOUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One for each bound, and one for what is above.
    classes: [AtomicU64; BOUNDS.len() + 1],
    /// Microseconds in all.
    sum: AtomicU64,
}

impl Histogram {
    /// Counts one.
    pub fn note(&self, took: Duration) {
        let class = BOUNDS.partition_point(|b| *b < took.as_secs_f64());
        if let Some(class) = self.classes.get(class) {
            class.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    /// The upper bound of each class, in seconds, and how many are up to it; the last has none.
    pub fn up_to(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        let counts = self.classes.iter().scan(0u64, |count, class| {
            *count = count.saturating_add(class.load(Ordering::Relaxed));
            Some(*count)
        });
        bounds.zip(counts)
    }

    /// Seconds in all.
    pub fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// What clients of one model wait for.
#[derive(Debug, Default)]
pub struct Times {
    /// From a request's submission to its first token, with the time in the queue.
    pub first: Histogram,
    /// From one token of an answer to the next.
    pub between: Histogram,
}

/// The clock of one answer.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    last: Instant,
    begun: bool,
}

impl Clock {
    /// Runs from the submission.
    pub fn start() -> Clock {
        Clock {
            last: Instant::now(),
            begun: false,
        }
    }

    /// An event is handed on.
    pub fn note(&mut self, event: &Event, times: &Times) {
        if matches!(event, Event::Token { .. }) {
            let took = self.last.elapsed();
            let which = match std::mem::replace(&mut self.begun, true) {
                false => &times.first,
                true => &times.between,
            };
            which.note(took);
            self.last = Instant::now();
        }
    }
}

/// Counters of an engine: names and what they count, in the order of [`Totals`].
pub const COUNTERS: [(&str, &str); 12] = [
    ("submitted_total", "Prompts given to the engine"),
    ("finished_total", "Prompts answered"),
    ("failed_total", "Prompts that ended with a failure"),
    ("cancelled_total", "Prompts whose client left"),
    ("prompt_tokens_total", "Prompt tokens computed"),
    ("cached_tokens_total", "Prompt tokens found in the cache"),
    ("predicted_tokens_total", "Tokens generated"),
    ("drafted_tokens_total", "Tokens guessed and verified"),
    ("accepted_tokens_total", "Guessed tokens that were right"),
    ("preempted_total", "Sequences that lost their pages"),
    ("steps_total", "Steps of the engine"),
    ("forward_seconds_total", "Time in forward passes"),
];

/// What engines of a model have counted, those that are gone included: so a counter never falls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals([f64; COUNTERS.len()]);

impl Totals {
    fn of(s: &Stats) -> Totals {
        Totals([
            s.requests as f64,
            s.finished as f64,
            s.failed as f64,
            s.cancelled as f64,
            s.prompt_tokens as f64,
            s.cached_tokens as f64,
            s.predicted_tokens as f64,
            s.drafted_tokens as f64,
            s.accepted_tokens as f64,
            s.preempted as f64,
            s.steps as f64,
            s.forward.as_secs_f64(),
        ])
    }

    /// In the order of [`COUNTERS`].
    pub fn values(&self) -> [f64; COUNTERS.len()] {
        self.0
    }

    /// What an engine has counted.
    pub fn add(&mut self, stats: &Stats) {
        self.add_since(stats, &Stats::default());
    }

    /// What an engine has counted since `before`.
    pub fn add_since(&mut self, stats: &Stats, before: &Stats) {
        let (now, before) = (Totals::of(stats).0, Totals::of(before).0);
        for (total, (now, before)) in self.0.iter_mut().zip(now.into_iter().zip(before)) {
            *total += (now - before).max(0.0);
        }
    }
}
