//! Streams of JSON values: server-sent events, with pings where nothing is to be said, or lines.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt, unfold};
use serde_json::Value;

/// Without anything said for so long, a comment is sent: proxies cut silent connections.
const PING: Duration = Duration::from_secs(15);

/// One event.
#[derive(Debug)]
pub struct Message {
    /// Its name, where the surface has names.
    pub event: Option<&'static str>,
    /// Its data.
    pub data: String,
}

impl Message {
    /// A JSON value without a name.
    pub fn json(value: &Value) -> Message {
        Message {
            event: None,
            data: value.to_string(),
        }
    }

    /// A JSON value with a name.
    pub fn named(event: &'static str, value: &Value) -> Message {
        Message {
            event: Some(event),
            ..Message::json(value)
        }
    }

    /// OpenAI's last word.
    pub fn done() -> Message {
        Message {
            event: None,
            data: "[DONE]".to_owned(),
        }
    }
}

/// Where messages come from.
pub trait Source: Send + 'static {
    /// Waits for the next ones and adds them to `out`; `false` if they were the last.
    fn more(&mut self, out: &mut VecDeque<Message>) -> impl Future<Output = bool> + Send;
}

/// What a source says, as it comes. It is read as fast as the client reads: who is slow holds up nobody else, and with a
/// client that has gone the source is dropped.
fn messages(source: impl Source) -> impl Stream<Item = Message> + Send + 'static {
    let begin = (source, VecDeque::new(), true);
    unfold(begin, |(mut source, mut ready, mut more)| async move {
        while more && ready.is_empty() {
            more = source.more(&mut ready).await;
        }
        let message = ready.pop_front()?;
        Some((message, (source, ready, more)))
    })
}

/// A response of lines, a JSON value each.
pub fn lines(source: impl Source) -> Response {
    let lines = messages(source).map(|m| Ok::<_, Infallible>(m.data + "\n"));
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(lines)).into_response()
}

/// A response of server-sent events.
pub fn response(source: impl Source) -> Response {
    let events = messages(source).map(|m| {
        let event = match m.event {
            Some(name) => Event::default().event(name),
            None => Event::default(),
        };
        Ok::<_, Infallible>(event.data(m.data))
    });
    let ping = KeepAlive::new().interval(PING).text("ping");
    Sse::new(events).keep_alive(ping).into_response()
}
