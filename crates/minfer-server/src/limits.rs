//! How much of everything a client may have: connections, bytes, time.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use futures_util::stream::{StreamExt, unfold};
use tokio::time::{Instant, timeout, timeout_at};

use crate::ApiError;

/// The limits of a server. What goes past one is refused with a status of its own.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; more are told 503.
    pub connections: usize,
    /// Bytes of a request's head; more: 431.
    pub head: usize,
    /// Bytes of a request's body; more: 413.
    pub body: usize,
    /// How long a connection may keep silent in front of a request and within one; 408 within one.
    pub idle: Duration,
    /// A client that takes nothing of an answer for so long has left.
    pub stalled: Duration,
    /// How long a request may take, its answer included; 504, or an error in the stream. `None`: as long as it likes.
    pub request: Option<Duration>,
    /// How long running requests may go on once the server is to end.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            head: 64 << 10,
            body: 16_000_000,
            idle: Duration::from_secs(75),
            stalled: Duration::from_secs(120),
            request: Some(Duration::from_secs(3600)),
            drain: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The whole body of a request.
    ///
    /// # Errors
    /// 413 for one that is too large, before it is read if it says so itself; 408 for one that stops coming; 400 for
    /// one that is cut off.
    pub async fn read(&self, body: Body) -> Result<Bytes, ApiError> {
        let too_large = || {
            let message = format!(
                "the body is larger than {} bytes (--max-body of the server)",
                self.body
            );
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        };
        let said = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if said > self.body {
            return Err(too_large());
        }
        let mut whole = Vec::with_capacity(said);
        let mut frames = body.into_data_stream();
        loop {
            let frame = timeout(self.idle, frames.next()).await.map_err(|_| {
                let message = format!("nothing of the body came for {:?}", self.idle);
                ApiError::new(StatusCode::REQUEST_TIMEOUT, message)
            })?;
            let Some(frame) = frame else {
                return Ok(whole.into());
            };
            let frame =
                frame.map_err(|e| ApiError::bad_request(format!("the body was cut off: {e}")))?;
            if whole.len().saturating_add(frame.len()) > self.body {
                return Err(too_large());
            }
            whole.extend_from_slice(&frame);
        }
    }

    /// What a request is told that took too long.
    pub fn too_long(&self) -> ApiError {
        let message = format!(
            "the request took longer than {:?} (--request-timeout of the server)",
            self.request.unwrap_or_default()
        );
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, message)
    }
}

/// A stream that ends with `last` when it is not at its own end by then.
pub fn until(body: Body, end: Instant, last: Bytes) -> Body {
    let begin = Some((body.into_data_stream(), last));
    Body::from_stream(unfold(begin, move |state| async move {
        let (mut frames, last) = state?;
        // A stream that always has something to say would never be late otherwise.
        if Instant::now() >= end {
            return Some((Ok(last), None));
        }
        match timeout_at(end, frames.next()).await {
            Ok(Some(Ok(frame))) => Some((Ok(frame), Some((frames, last)))),
            Ok(Some(Err(e))) => Some((Err(e), None)),
            Ok(None) => None,
            Err(_) => Some((Ok(last), None)),
        }
    }))
}
