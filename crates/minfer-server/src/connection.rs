//! One connection: HTTP/1.1, request after request.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

use crate::parser::{Explaining, last_words};
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
    let inner = TowerToHyperService::new(router);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (answer, unread) = (inner.call(request), unread.clone());
        Box::pin(async move {
            let response = answer.await?;
            if response.extensions().get::<Unread>().is_some() {
                unread.store(true, Ordering::Relaxed);
            }
            Ok::<_, std::convert::Infallible>(response)
        })
    });
    let io = Stalling::new(io, rules.limits.stalled);
    let io = Explaining::new(io, rules.limits.head);
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
            Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|cx| connection.poll_without_shutdown(cx)).await
        }
    };
    let parts = connection.into_parts();
    let (mut io, refused) = parts.io.into_inner().into_inner();
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
    if refused || unread.load(Ordering::Relaxed) {
        drop(timeout(LINGER, discard(&mut io)).await);
    }
}

/// Takes what the client still sends: closed with something unread, a socket throws away what was said last.
async fn discard(io: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = [0; 16 << 10];
    while io.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
}

/// A stream whose writer gives up when nothing has been taken for so long.
struct Stalling<T> {
    io: T,
    limit: Duration,
    since: Option<Pin<Box<Sleep>>>,
}

impl<T> Stalling<T> {
    fn new(io: T, limit: Duration) -> Stalling<T> {
        Stalling {
            io,
            limit,
            since: None,
        }
    }

    fn watch<V>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<V>>,
    ) -> Poll<io::Result<V>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let limit = self.limit;
        let since = self.since.get_or_insert_with(|| Box::pin(sleep(limit)));
        match since.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stalling<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stalling<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}
