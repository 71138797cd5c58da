//! What the HTTP parser refuses: it answers that itself, without a body, and asks nobody for one.

use axum::http::StatusCode;

use crate::ApiError;

/// The most fields of a head: the parser's own number.
const MOST_FIELDS: usize = 100;

/// What is said in place of the parser's bare answer. Handlers' refusals always have a body: what is refused with none is
/// the parser's own.
pub struct Refusal {
    /// Bytes that a head may have.
    head: usize,
    /// The words, and how many bytes of them are out.
    instead: Option<(Vec<u8>, usize)>,
}

impl Refusal {
    /// On a connection whose requests have heads of at most so many bytes.
    pub fn new(head: usize) -> Refusal {
        Refusal {
            head,
            instead: None,
        }
    }

    /// Whether these bytes are not to be written, but what is [`left`](Refusal::left) in their place.
    pub fn takes(&mut self, bytes: &[u8]) -> bool {
        if self.instead.is_none() {
            let words = bare(bytes).map(|status| (self.explain(status), 0));
            self.instead = words;
        }
        self.instead.is_some()
    }

    /// The words that are still to be written.
    pub fn left(&self) -> Option<&[u8]> {
        let (words, said) = self.instead.as_ref()?;
        words.get(*said..).filter(|rest| !rest.is_empty())
    }

    /// So many bytes of them more are out.
    pub fn said(&mut self, bytes: usize) {
        if let Some((_, said)) = &mut self.instead {
            *said = said.saturating_add(bytes);
        }
    }

    /// Whether something was refused.
    pub fn is_said(&self) -> bool {
        self.instead.is_some()
    }

    fn explain(&self, status: u16) -> Vec<u8> {
        let message = match status {
            // The parser says the same of both.
            431 => format!(
                "the request's head is larger than {} bytes or has more than {MOST_FIELDS} fields",
                self.head
            ),
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
