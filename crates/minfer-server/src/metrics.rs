//! Numbers for Prometheus, in its text format.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use minfer::engine::{Event, Stats};

use crate::app::{App, Shared};
use crate::models::Counted;

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

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut count = 0u64;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (class, bound) in self.classes.iter().zip(bounds) {
            count = count.saturating_add(class.load(Ordering::Relaxed));
            line(
                out,
                &format!("{name}_bucket{{{labels},le=\"{bound}\"}} {count}"),
            );
        }
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        line(out, &format!("{name}_sum{{{labels}}} {sum}"));
        line(out, &format!("{name}_count{{{labels}}} {count}"));
    }
}

/// What clients of one model wait for.
#[derive(Debug, Default)]
pub struct Times {
    /// From a request's submission to its first token, with the time in the queue.
    first: Histogram,
    /// From one token of an answer to the next.
    between: Histogram,
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

/// Requests by method, path and status.
#[derive(Debug, Default)]
pub struct Requests(Mutex<Vec<(String, u64)>>);

impl Requests {
    fn note(&self, labels: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, n)) => *n = n.saturating_add(1),
            None => all.push((labels, 1)),
        }
    }
}

/// The status under which a request is counted whose client left before it was answered; nginx's number.
const LEFT: u16 = 499;

/// Counts a request and the status it was answered with; a stream counts when it begins. Paths are the server's own,
/// never what a client wrote: their number is bounded.
pub async fn count(State(app): Shared, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("other", MatchedPath::as_str).to_owned();
    let mut counting = Counting {
        app,
        path,
        status: LEFT,
    };
    let response = next.run(request).await;
    counting.status = response.status().as_u16();
    response
}

/// Counts a request when it is dropped: also one that is cut off.
struct Counting {
    app: Arc<App>,
    path: String,
    status: u16,
}

impl Drop for Counting {
    fn drop(&mut self) {
        let labels = format!("path=\"{}\",status=\"{}\"", self.path, self.status);
        self.app.requests.note(labels);
    }
}

/// `GET /metrics`.
pub async fn show(State(app): Shared) -> Response {
    let mut out = String::new();
    head(
        &mut out,
        "requests_total",
        "counter",
        "HTTP requests answered",
    );
    {
        let all = app.requests.0.lock();
        for (labels, n) in all.unwrap_or_else(PoisonError::into_inner).iter() {
            line(&mut out, &format!("minfer_requests_total{{{labels}}} {n}"));
        }
    }
    let models: Vec<(String, Counted)> = (app.models.counted().into_iter())
        .map(|c| (format!("model=\"{}\"", escaped(&c.id)), c))
        .collect();
    for (i, (name, help)) in COUNTERS.into_iter().enumerate() {
        head(&mut out, name, "counter", help);
        for (labels, counted) in &models {
            let value = counted.totals.0.get(i).copied().unwrap_or_default();
            line(&mut out, &format!("minfer_{name}{{{labels}}} {value}"));
        }
    }
    let loaded = models
        .iter()
        .filter_map(|(l, c)| Some((l.as_str(), c.now.as_ref()?)));
    let loaded: Vec<(&str, &Stats)> = loaded.collect();
    for (name, help, of) in GAUGES {
        head(&mut out, name, "gauge", help);
        for (labels, stats) in &loaded {
            let value = of(stats);
            line(&mut out, &format!("minfer_{name}{{{labels}}} {value}"));
        }
    }
    pages(&mut out, &loaded);
    type Of = fn(&Times) -> &Histogram;
    let histograms: [(&str, &str, Of); 2] = [
        (
            "time_to_first_token_seconds",
            "From a request's submission to its first token",
            |t| &t.first,
        ),
        (
            "inter_token_seconds",
            "Between two tokens of an answer, as they are handed on",
            |t| &t.between,
        ),
    ];
    for (name, help, of) in histograms {
        head(&mut out, name, "histogram", help);
        for (labels, counted) in &models {
            of(&counted.times).write(&mut out, &format!("minfer_{name}"), labels);
        }
    }
    let format = "text/plain; version=0.0.4; charset=utf-8";
    (StatusCode::OK, [(header::CONTENT_TYPE, format)], out).into_response()
}

/// Counters of an engine, in the order of [`Totals`].
const COUNTERS: [(&str, &str); 12] = [
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

/// A number of an engine that goes up and down: its name, what it means and where it comes from.
type Gauge = (&'static str, &'static str, fn(&Stats) -> usize);

const GAUGES: [Gauge; 2] = [
    ("running", "Prompts being worked on", |s| s.running),
    ("waiting", "Prompts that wait", |s| s.waiting),
];

fn pages(out: &mut String, stats: &[(&str, &Stats)]) {
    head(
        out,
        "kv_pages",
        "gauge",
        "Pages of the KV cache; kept ones hold what may be asked for again",
    );
    for (labels, s) in stats {
        for (layers, pages) in [("full", s.pages_full), ("windowed", s.pages_windowed)] {
            let held = pages
                .total
                .saturating_sub(pages.free)
                .saturating_sub(pages.idle);
            for (state, n) in [("used", held), ("free", pages.free), ("kept", pages.idle)] {
                let text = format!(
                    "minfer_kv_pages{{{labels},layers=\"{layers}\",state=\"{state}\"}} {n}"
                );
                line(out, &text);
            }
        }
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, &format!("# HELP minfer_{name} {help}."));
    line(out, &format!("# TYPE minfer_{name} {kind}"));
}

fn line(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_count_what_is_up_to_their_bound() {
        let h = Histogram::default();
        for ms in [1, 2, 30, 70_000] {
            h.note(Duration::from_millis(ms));
        }
        let mut out = String::new();
        h.write(&mut out, "x", "m=\"a\"");
        for want in [
            "x_bucket{m=\"a\",le=\"0.001\"} 1",
            "x_bucket{m=\"a\",le=\"0.0025\"} 2",
            "x_bucket{m=\"a\",le=\"0.05\"} 3",
            "x_bucket{m=\"a\",le=\"60\"} 3",
            "x_bucket{m=\"a\",le=\"+Inf\"} 4",
            "x_sum{m=\"a\"} 70.033",
            "x_count{m=\"a\"} 4",
        ] {
            assert!(out.lines().any(|l| l == want), "{want} in {out}");
        }
    }
}
