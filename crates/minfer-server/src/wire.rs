//! A connection's bytes, watched: a writer gives up on a reader who takes nothing, and what the HTTP parser refuses gets
//! words.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::Limits;
use crate::parser::Refusal;

/// A stream that passes on all that it does not watch.
pub struct Wire<T> {
    io: T,
    refusal: Refusal,
    stall: Stall,
}

impl<T> Wire<T> {
    /// Around a connection.
    pub fn new(io: T, limits: &Limits) -> Wire<T> {
        Wire {
            io,
            refusal: Refusal::new(limits.head),
            stall: Stall {
                limit: limits.stalled,
                since: None,
            },
        }
    }

    /// Whether the parser has refused something.
    pub fn refused(&self) -> bool {
        self.refusal.is_said()
    }
}

/// Gives up when nothing has been taken for so long.
struct Stall {
    limit: Duration,
    since: Option<Pin<Box<Sleep>>>,
}

impl Stall {
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

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Wire { io, refusal, stall } = &mut *self;
        if !refusal.takes(bytes) {
            let written = Pin::new(io).poll_write(cx, bytes);
            return stall.watch(cx, written);
        }
        while let Some(words) = refusal.left() {
            let written = Pin::new(&mut *io).poll_write(cx, words);
            let written = ready!(stall.watch(cx, written))?;
            refusal.said(written);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = bytes.iter().filter(|b| !b.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next()) {
            return self.poll_write(cx, only);
        }
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.stall.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.stall.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.stall.watch(cx, shut)
    }
}
