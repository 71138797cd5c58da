//! Web pages of other origins: a browser sends their requests, and says where they come from.
//!
//! What a script asks for has an `Origin`. An image, a frame or a form of a page has none when it only gets something:
//! there `Sec-Fetch-Site` tells whether the page is one of this server.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::ApiError;
use crate::guard::GuardError;

/// A browser may remember what it was allowed for so many seconds.
const MAX_AGE: &str = "600";
const METHODS: &str = "GET, POST, HEAD, OPTIONS";

/// The origins that may use the server.
pub struct Origins {
    any: bool,
    listed: Vec<String>,
}

/// Where a request comes from.
#[derive(Debug)]
pub enum Origin {
    /// From a program, or from a page of this server.
    Own,
    /// From a page elsewhere that may.
    Other(HeaderValue),
}

impl Origins {
    /// Of a list of origins; `*`: any.
    ///
    /// # Errors
    /// [`GuardError::Origin`].
    pub fn new(list: &[String]) -> Result<Origins, GuardError> {
        for origin in list {
            let rest = origin.split_once("://").map(|(_, rest)| rest);
            let fits = rest.is_some_and(|r| {
                let graphic = r.bytes().all(|b| b.is_ascii_graphic());
                !r.is_empty() && graphic && !r.contains(['/', '*'])
            });
            if !fits && origin != "*" && origin != "null" {
                return Err(GuardError::Origin(origin.clone()));
            }
        }
        Ok(Origins {
            any: list.iter().any(|o| o == "*"),
            listed: list.iter().map(|o| o.to_ascii_lowercase()).collect(),
        })
    }

    /// Where a request comes from.
    ///
    /// # Errors
    /// 403: from a page elsewhere that may not.
    pub fn check(&self, headers: &HeaderMap) -> Result<Origin, ApiError> {
        let Some(value) = headers.get(header::ORIGIN) else {
            return match self.any || !is_of_another_page(headers) {
                true => Ok(Origin::Own),
                false => Err(refused("another origin")),
            };
        };
        let origin = value.to_str().unwrap_or("(no text)").to_ascii_lowercase();
        let host = headers.get(header::HOST).and_then(|h| h.to_str().ok());
        // The scheme is left out: a proxy may have taken TLS off.
        let from = origin.split_once("://").map(|(_, rest)| authority(rest));
        if from.is_some() && from == host.map(authority) {
            return Ok(Origin::Own);
        }
        if self.any || self.listed.contains(&origin) {
            return Ok(Origin::Other(value.clone()));
        }
        Err(refused(&origin))
    }
}

fn refused(origin: &str) -> ApiError {
    let message = format!("web pages of {origin} may not use this server (--cors-origin)");
    ApiError::new(StatusCode::FORBIDDEN, message)
}

/// Whether a browser says that a page of another origin asks. Programs send no such header, nor does an address that
/// a user types.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|v| v.to_str().ok());
    matches!(site, Some("cross-site" | "same-site"))
}

/// Whether a browser goes to what it asks for, as when a link is followed: the page that has the link sees nothing of
/// it, and frames are no documents of their own.
pub fn is_visit(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|v| v == value);
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Host and port, both in one form: small letters, no final dot, the usual ports left out.
pub fn authority(text: &str) -> (String, Option<String>) {
    let text = text.to_ascii_lowercase();
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text.as_str(), None),
    };
    let port = port.filter(|p| !matches!(*p, "" | "80" | "443"));
    (
        name.trim_end_matches('.').to_owned(),
        port.map(str::to_owned),
    )
}

impl Origin {
    /// The answer to a browser that asks before it sends the request itself.
    pub fn preflight(&self, request: &Request) -> Option<Response> {
        let asked = request.headers();
        if request.method() != Method::OPTIONS
            || !asked.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        {
            return None;
        }
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        self.mark(headers);
        let mut say = |name, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        say(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        say(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        // A page of the wide web that asks a server in the house.
        if asked.contains_key("access-control-request-private-network") {
            let allowed = HeaderValue::from_static("true");
            headers.insert("access-control-allow-private-network", allowed);
        }
        Some(response)
    }

    /// Lets the page read a response.
    pub fn mark(&self, headers: &mut HeaderMap) {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Origin::Other(origin) = self {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            let all = HeaderValue::from_static("*");
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_have_one_form() {
        let of = |text| {
            let (name, port) = authority(text);
            format!("{name} {}", port.unwrap_or_default())
        };
        assert_eq!(of("LocalHost:8080"), "localhost 8080");
        assert_eq!(of("example.org.:443"), "example.org ");
        assert_eq!(of("[::1]"), "[::1] ");
        assert_eq!(of("[::1]:8080"), "[::1] 8080");
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for wrong in [
            "example.org",
            "https://",
            "https://a/b",
            "https://*.org",
            "",
        ] {
            assert!(Origins::new(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        for fine in ["*", "null", "https://a.org:1", "chrome-extension://abc"] {
            assert!(Origins::new(&[fine.to_owned()]).is_ok(), "{fine}");
        }
    }
}
