//! How failures look to the clients of each surface.

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::ApiError;

/// Whose words an error is told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// OpenAI's and llama-server's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
    /// Ollama's.
    Ollama,
}

impl Shape {
    /// Of a request for this path.
    pub fn of(path: &str) -> Shape {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        match path {
            "/messages" => Shape::Anthropic,
            _ if path.starts_with("/messages/") => Shape::Anthropic,
            _ if path.starts_with("/api/") => Shape::Ollama,
            _ => Shape::OpenAi,
        }
    }

    /// An error's body.
    pub fn body(self, e: &ApiError) -> Value {
        match self {
            Shape::OpenAi => e.body(),
            Shape::Ollama => json!({"error": e.message}),
            Shape::Anthropic => {
                json!({"type": "error", "error": {"type": anthropic_kind(e), "message": e.message}})
            }
        }
    }

    /// An error as a response.
    pub fn response(self, e: &ApiError) -> Response {
        let mut response = e.response(&self.body(e));
        if e.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }

    /// What an error that ends a stream says. Ollama's errors are texts; within a stream no status tells what kind they are of, so that stands beside.
    pub fn last(self, e: &ApiError) -> Value {
        match self {
            Shape::Ollama => json!({"error": e.message, "type": e.kind()}),
            _ => self.body(e),
        }
    }

    /// The error that ends a stream.
    pub fn last_words(self, e: &ApiError) -> Bytes {
        let body = self.last(e);
        Bytes::from(match self {
            Shape::OpenAi => format!("data: {body}\n\n"),
            Shape::Anthropic => format!("event: error\ndata: {body}\n\n"),
            Shape::Ollama => format!("{body}\n"),
        })
    }
}

/// Anthropic's name for a kind of failure.
fn anthropic_kind(e: &ApiError) -> &'static str {
    match e.status.as_u16() {
        413 => "request_too_large",
        503 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => e.kind(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A router knows by it whether another server may have the answer.
    #[test]
    fn a_stream_s_last_error_tells_its_kind() {
        let gone = ApiError::from(minfer::Error::from(minfer::engine::EngineError::Stopped));
        for (path, at, kind) in [
            ("/v1/chat/completions", "/error/type", "unavailable_error"),
            ("/v1/messages", "/error/type", "overloaded_error"),
            ("/api/chat", "/type", "unavailable_error"),
        ] {
            let words = Shape::of(path).last_words(&gone);
            let words = std::str::from_utf8(&words).unwrap();
            let json = words.find('{').map(|at| &words[at..]);
            let json: Value = serde_json::from_str(json.unwrap().trim()).unwrap();
            assert_eq!(json.pointer(at).unwrap(), kind, "{path}");
        }
    }

    #[test]
    fn anthropic_s_kinds_are_in_one_place() {
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (408, "invalid_request_error"),
            (413, "request_too_large"),
            (429, "rate_limit_error"),
            (500, "api_error"),
            (503, "overloaded_error"),
            (504, "timeout_error"),
        ] {
            let e = ApiError::new(StatusCode::from_u16(status).unwrap(), "why");
            let body = Shape::of("/v1/messages").body(&e);
            assert_eq!(body["error"]["type"], kind, "{status}");
        }
    }
}
