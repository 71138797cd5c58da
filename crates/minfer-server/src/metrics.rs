//! Numbers for Prometheus, in its text format.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use minfer::engine::Stats;

use crate::app::{App, Shared};
use crate::counts::{COUNTERS, Histogram, Times};
use crate::models::Counted;

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
            let value = counted.totals.values().get(i).copied().unwrap_or_default();
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
            histogram(
                &mut out,
                &format!("minfer_{name}"),
                labels,
                of(&counted.times),
            );
        }
    }
    let format = "text/plain; version=0.0.4; charset=utf-8";
    (StatusCode::OK, [(header::CONTENT_TYPE, format)], out).into_response()
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

fn histogram(out: &mut String, name: &str, labels: &str, h: &Histogram) {
    let mut count = 0;
    for (bound, n) in h.up_to() {
        count = n;
        let bound = bound.map_or("+Inf".to_owned(), |b| b.to_string());
        line(
            out,
            &format!("{name}_bucket{{{labels},le=\"{bound}\"}} {n}"),
        );
    }
    line(out, &format!("{name}_sum{{{labels}}} {}", h.sum()));
    line(out, &format!("{name}_count{{{labels}}} {count}"));
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn classes_count_what_is_up_to_their_bound() {
        let h = Histogram::default();
        for ms in [1, 2, 30, 70_000] {
            h.note(Duration::from_millis(ms));
        }
        let mut out = String::new();
        histogram(&mut out, "x", "m=\"a\"", &h);
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
