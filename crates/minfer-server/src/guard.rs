//! Who may come in: the door in front of every path.

use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tokio::time::{Instant, timeout_at};

use crate::app::Shared;
use crate::connection::Unread;
use crate::cors::{Origin, Origins, authority, is_visit};
use crate::limits::until;
use crate::shape::Shape;
use crate::{ApiError, Limits, page};

/// Who may come in.
#[derive(Clone, Default)]
pub struct GuardOptions {
    /// One of these is asked for; none: everybody may come.
    pub keys: Vec<String>,
    /// Names that a request's `Host` may have besides this machine's own; `*`: any.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the server from a browser; `*`: any.
    pub cors_origins: Vec<String>,
}

/// Keys are not for logs.
impl std::fmt::Debug for GuardOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardOptions")
            .field("keys", &self.keys.len())
            .field("allowed_hosts", &self.allowed_hosts)
            .field("cors_origins", &self.cors_origins)
            .finish()
    }
}

/// What a door can't be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// A key that no header can carry. It is not repeated here.
    #[error("API key {0} is empty or has spaces or characters other than ASCII")]
    Key(usize),
    /// No name of a host.
    #[error("'{0}' is no host name: give it without scheme, port and path, or * for any")]
    Host(String),
    /// No origin.
    #[error(
        "'{0}' is no origin: it looks like https://example.org or http://localhost:3000, or is * for any"
    )]
    Origin(String),
}

/// The door.
pub struct Guard {
    /// Digests: so a comparison takes the same time whatever the length.
    keys: Vec<[u8; 32]>,
    hosts: Vec<String>,
    origins: Origins,
    /// Only this machine's own programs reach the server: its browser is the way in for others.
    local: bool,
}

impl Guard {
    /// Of a server that listens on this address.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn new(options: &GuardOptions, address: SocketAddr) -> Result<Guard, GuardError> {
        let mut keys = Vec::new();
        for (i, key) in options.keys.iter().enumerate() {
            if key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(GuardError::Key(i.saturating_add(1)));
            }
            keys.push(Sha256::digest(key).into());
        }
        let mut hosts = Vec::new();
        for host in &options.allowed_hosts {
            if host.is_empty() || host.contains(['/', ':', ' ']) {
                return Err(GuardError::Host(host.clone()));
            }
            hosts.push(host.trim_end_matches('.').to_ascii_lowercase());
        }
        Ok(Guard {
            keys,
            hosts,
            origins: Origins::new(&options.cors_origins)?,
            local: address.ip().is_loopback(),
        })
    }

    /// Against DNS rebinding: a web page whose name leads to this machine sends that name. A page has no key, so a server
    /// for others that asks for one looks at names only if it was told which there are.
    fn check_host(&self, request: &Request) -> Result<(), ApiError> {
        let in_headers = request.headers().get_all(header::HOST).iter();
        let in_headers = in_headers.map(|h| h.to_str().unwrap_or("(no text)"));
        if request.version() >= Version::HTTP_11 && !request.headers().contains_key(header::HOST) {
            let message = "the request has no Host header, which HTTP/1.1 asks for";
            return Err(ApiError::bad_request(message));
        }
        if !self.local && self.hosts.is_empty() && !self.keys.is_empty() {
            return Ok(());
        }
        let in_line = request.uri().authority().map(|a| a.as_str());
        for host in in_headers.chain(in_line) {
            let (name, _) = authority(host);
            if !self.knows_host(&name) {
                let message = format!(
                    "host '{name}' is not allowed here: allow it with --allowed-host of the server ('*': any)"
                );
                return Err(ApiError::new(StatusCode::FORBIDDEN, message));
            }
        }
        Ok(())
    }

    fn knows_host(&self, name: &str) -> bool {
        let plain = name.trim_start_matches('[').trim_end_matches(']');
        match plain.parse::<IpAddr>() {
            // Rebinding needs a name.
            Ok(ip) => ip.is_loopback() || !self.local || self.allows(name),
            Err(_) => name == "localhost" || self.allows(name),
        }
    }

    fn allows(&self, name: &str) -> bool {
        self.hosts.iter().any(|h| h == "*" || h == name)
    }

    /// Where a request comes from. A link to the chat page may stand anywhere.
    fn check_origin(&self, request: &Request) -> Result<Origin, ApiError> {
        match is_page(request) && is_visit(request.headers()) {
            true => Ok(Origin::Own),
            false => self.origins.check(request.headers()),
        }
    }

    fn check_key(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|h| {
            let (scheme, key) = h.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        let own = headers.get("x-api-key").and_then(|h| h.to_str().ok());
        let given = bearer.into_iter().chain(own);
        let known = given.fold(Choice::from(0), |known, key| known | self.knows_key(key));
        if known.into() {
            return Ok(());
        }
        let message = match (bearer, own) {
            (None, None) => {
                "an API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
            }
            _ => "this API key is not valid",
        };
        let error = ApiError::new(StatusCode::UNAUTHORIZED, message);
        Err(error.with_code("invalid_api_key"))
    }

    /// Looks at all keys whichever fits: the time says nothing.
    fn knows_key(&self, given: &str) -> Choice {
        let given: [u8; 32] = Sha256::digest(given).into();
        let all = self.keys.iter();
        all.fold(Choice::from(0), |known, key| known | key.ct_eq(&given))
    }
}

/// Needs no key: whether the server lives, and the page, which asks for the key itself.
fn is_open(request: &Request) -> bool {
    request.uri().path() == "/health" || is_page(request)
}

/// Asks for a file of the page.
fn is_page(request: &Request) -> bool {
    page::has(request.uri().path()) && matches!(*request.method(), Method::GET | Method::HEAD)
}

/// In front of every path.
pub async fn pass(State(app): Shared, request: Request, next: Next) -> Response {
    let shape = Shape::of(request.uri().path());
    let guard = &app.guard;
    let looked = guard.check_host(&request);
    let looked = looked.and_then(|()| guard.check_origin(&request));
    let origin = match looked {
        Ok(origin) => origin,
        Err(e) => return unread(shape.response(&e)),
    };
    if let Some(answer) = origin.preflight(&request) {
        return answer;
    }
    let draining = *app.draining.borrow() && request.uri().path() != "/health";
    let admitted = match draining {
        true => Err(ApiError {
            retry_after: Some(1),
            ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending")
        }),
        false if is_open(&request) => Ok(()),
        false => guard.check_key(request.headers()),
    };
    let mut response = match admitted {
        Err(e) => unread(shape.response(&e)),
        Ok(()) => limited(&app.options.limits, shape, request, next).await,
    };
    origin.mark(response.headers_mut());
    match *app.draining.borrow() {
        true => last(response),
        false => response,
    }
}

/// Reads the body and answers, within the limits.
async fn limited(limits: &Limits, shape: Shape, request: Request, next: Next) -> Response {
    let answer = async {
        let (parts, body) = request.into_parts();
        match limits.read(body).await {
            Ok(body) => next.run(Request::from_parts(parts, Body::from(body))).await,
            Err(e) => unread(shape.response(&e)),
        }
    };
    let end = limits.request.and_then(|t| Instant::now().checked_add(t));
    let Some(end) = end else {
        return answer.await;
    };
    match timeout_at(end, answer).await {
        Err(_) => unread(shape.response(&limits.too_long())),
        Ok(response) if is_stream(&response) => {
            let last = shape.last_words(&limits.too_long());
            response.map(|body| until(body, end, last))
        }
        Ok(response) => response,
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|k| k.to_str().ok()).unwrap_or_default();
    kind.starts_with("text/event-stream") || kind.starts_with("application/x-ndjson")
}

/// A response before the request was read is the connection's last.
fn unread(mut response: Response) -> Response {
    response.extensions_mut().insert(Unread);
    last(response)
}

/// Says that nothing follows on this connection.
fn last(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}
