//! One connection: HTTP/1.1, request after request.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::parser::last_words;
use crate::wire::Wire;
use crate::{ApiError, Limits};

/// Who is refused while it still sends has so long to read why.
const LINGER: Duration = Duration::from_secs(2);

/// What holds for a connection.
pub struct Rules<'a> {
    /// Limits.
    pub limits: &'a Limits,
    /// True: the running request is the last one.
    pub draining: watch::Receiver<bool>,
}

/// Marks a response to a request whose body was not read.
#[derive(Clone, Copy, Debug)]
pub struct Unread;

/// Serves a connection to its end. Dropping this, or the client's leaving, drops the running request's response.
pub async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin + Send,
    router: Router,
    rules: Rules<'_>,
) {
    let unread = Arc::new(AtomicBool::new(false));
    // Whether the head of a request has come.
    let begun = AtomicBool::new(false);
    let inner = TowerToHyperService::new(router);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        begun.store(true, Ordering::Relaxed);
        let (answer, unread) = (inner.call(request), unread.clone());
        Box::pin(async move {
            let response = answer.await?;
            if response.extensions().get::<Unread>().is_some() {
                unread.store(true, Ordering::Relaxed);
            }
            Ok::<_, std::convert::Infallible>(response)
        })
    });
    let io = Wire::new(io, rules.limits);
    let mut draining = rules.draining;
    let late = *draining.borrow();
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(rules.limits.idle)
        .max_header_size(rules.limits.head)
        .keep_alive(!late)
        .serve_connection(TokioIo::new(io), service);
    let told = async { drop(draining.wait_for(|d| *d).await) };
    let ended = tokio::select! {
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended,
        // Whoever comes while the server drains may still ask, once.
        () = told, if !late => {
            // What has come is read first: a request whose head is there is answered.
            let read = poll_fn(|cx| Poll::Ready(connection.poll_without_shutdown(cx))).await;
            match read {
                Poll::Ready(ended) => ended,
                // Nothing was asked: there is nothing to lose. A later head that is not whole ends with the connection
                // that is idle as long.
                Poll::Pending if !begun.load(Ordering::Relaxed) => Ok(()),
                Poll::Pending => {
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                    poll_fn(|cx| connection.poll_without_shutdown(cx)).await
                }
            }
        }
    };
    let parts = connection.into_parts();
    let mut io = parts.io.into_inner();
    match ended {
        Ok(()) => {}
        Err(e) if e.is_timeout() && !parts.read_buf.is_empty() => {
            let idle = rules.limits.idle;
            let message = format!("the rest of the request's head did not come within {idle:?}");
            let late = ApiError::new(StatusCode::REQUEST_TIMEOUT, message);
            drop(io.write_all(&last_words(&late)).await);
        }
        Err(e) => tracing::debug!("a connection ended early: {e}"),
    }
    drop(io.shutdown().await);
    if io.refused() || unread.load(Ordering::Relaxed) {
        drop(timeout(LINGER, discard(&mut io)).await);
    }
}

/// Takes what the client still sends: closed with something unread, a socket throws away what was said last.
async fn discard(io: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = [0; 16 << 10];
    while io.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
}
