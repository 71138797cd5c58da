//! What the HTTP parser refuses: it answers that itself, without a body, and asks nobody for one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ApiError;

/// A connection on which the parser's bare answers get a body. Handlers' refusals always have one: what is refused
/// with none is the parser's own.
pub struct Explaining<T> {
    io: T,
    /// Bytes that a head may have.
    head: usize,
    /// What is said in place of a bare answer, and how much of it is out.
    instead: Option<(Vec<u8>, usize)>,
}

impl<T> Explaining<T> {
    /// Around a connection whose requests have heads of at most so many bytes.
    pub fn new(io: T, head: usize) -> Explaining<T> {
        Explaining {
            io,
            head,
            instead: None,
        }
    }

    /// The connection, and whether something was refused.
    pub fn into_inner(self) -> (T, bool) {
        (self.io, self.instead.is_some())
    }

    fn explain(&self, status: u16) -> Vec<u8> {
        let message = match status {
            431 => format!("the request's head is larger than {} bytes", self.head),
            414 => "the request's address is too long".to_owned(),
            _ => "this is no HTTP/1.1 request".to_owned(),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        last_words(&ApiError::new(status, message))
    }
}

/// A response that ends a connection on which no request has come; in OpenAI's shape, since none says whose it is.
pub fn last_words(e: &ApiError) -> Vec<u8> {
    let (status, body) = (e.status, e.body().to_string());
    let reason = status.canonical_reason().unwrap_or_default();
    let code = status.as_u16();
    let length = body.len();
    format!(
        "HTTP/1.1 {code} {reason}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The status of a refusal that has no body.
fn bare(bytes: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, rest) = text.strip_prefix("HTTP/1.1 4")?.split_once("\r\n\r\n")?;
    let empty = head.lines().any(|l| l == "content-length: 0");
    let status = text.get(9..12).filter(|_| empty && rest.is_empty())?;
    status.parse().ok()
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Explaining<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.instead.is_none() {
            let Some(status) = bare(bytes) else {
                return Pin::new(&mut this.io).poll_write(cx, bytes);
            };
            this.instead = Some((this.explain(status), 0));
        }
        while let Some((text, done)) = &mut this.instead {
            let rest = text.get(*done..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let written = ready!(Pin::new(&mut this.io).poll_write(cx, rest))?;
            *done = done.saturating_add(written);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = bytes.iter().filter(|b| !b.is_empty());
        match (filled.next(), filled.next()) {
            (Some(only), None) => self.poll_write(cx, only),
            _ => Pin::new(&mut self.io).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Explaining<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_without_a_body_are_bare() {
        let refused = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(bare(refused.as_bytes()), Some(431));
        for other in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nmore",
            "data: HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            "",
        ] {
            assert_eq!(bare(other.as_bytes()), None, "{other}");
        }
    }
}
