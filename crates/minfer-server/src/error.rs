//! What a client is told when its request fails.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use minfer::engine::EngineError;
use minfer::sampling::{ConstraintError, SamplingError};
use serde_json::{Value, json};

/// A failure as clients see it. As a response it has OpenAI's shape; other surfaces write their own.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// What happened, and the way out.
    pub message: String,
    /// The field at fault.
    pub param: Option<String>,
    /// OpenAI's code, where it has one.
    pub code: Option<&'static str>,
    /// Seconds after which to try again.
    pub retry_after: Option<u64>,
}

impl ApiError {
    /// With a status and a message.
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
        }
    }

    /// A request that can't be honoured as it is.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field that can't be honoured: the message begins with its name.
    pub fn field(name: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError {
            param: Some(name.to_owned()),
            ..ApiError::bad_request(format!("{name}: {why}"))
        }
    }

    /// The same about a field: the message begins with its name.
    #[must_use]
    pub fn of_field(mut self, name: &str) -> ApiError {
        self.message = format!("{name}: {}", self.message);
        self.param = Some(name.to_owned());
        self
    }

    /// The same about a field of an object: both names say where that stands.
    #[must_use]
    pub fn within(self, object: &str) -> ApiError {
        match &self.param {
            None => self,
            Some(name) => {
                let why = self.message.strip_prefix(name.as_str());
                let why = why.and_then(|w| w.strip_prefix(": "));
                ApiError {
                    message: format!("{object}.{name}: {}", why.unwrap_or(&self.message)),
                    param: Some(format!("{object}.{name}")),
                    ..self
                }
            }
        }
    }

    /// With one of OpenAI's codes.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// OpenAI's name for this kind of failure.
    pub fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            503 => "unavailable_error",
            _ => "server_error",
        }
    }

    /// OpenAI's body.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        }})
    }

    /// A response with this failure's status and headers, and a body of the surface's own shape.
    pub fn response(&self, body: &Value) -> Response {
        let mut response = (self.status, axum::Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.response(&self.body())
    }
}

impl From<minfer::Error> for ApiError {
    fn from(e: minfer::Error) -> ApiError {
        use minfer::Error;
        let message = e.to_string();
        match &e {
            Error::Engine(EngineError::PromptTooLong { .. }) => {
                ApiError::bad_request(message).with_code("context_length_exceeded")
            }
            Error::Engine(EngineError::QueueFull { .. }) => ApiError {
                retry_after: Some(1),
                ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
            },
            Error::Engine(EngineError::Stopped) => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
            }
            Error::Engine(
                EngineError::EmptyPrompt
                | EngineError::TokenOutOfRange { .. }
                | EngineError::OptionOutOfRange { .. }
                | EngineError::NoDraft
                | EngineError::BudgetWithoutReasoning
                | EngineError::NothingToShift { .. }
                | EngineError::Pooling { .. },
            )
            | Error::Chat(_)
            | Error::Sampling(
                SamplingError::Parameter { .. }
                | SamplingError::Sampler { .. }
                | SamplingError::NoneLeft
                // Only where it was followed to showed that it can't be.
                | SamplingError::Constraint(
                    ConstraintError::Limit { .. } | ConstraintError::DeadEnd { .. },
                ),
            )
            | Error::Constraint(_) => ApiError::bad_request(message),
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broken model is no client's fault.
    #[test]
    fn the_server_s_own_failures_are_500() {
        let (token, value) = (7, f32::NAN);
        let broken = SamplingError::NonFinite { token, value };
        let status = |e: SamplingError| ApiError::from(minfer::Error::from(e)).status;
        assert_eq!(status(broken), 500);
        assert_eq!(status(SamplingError::NoneLeft), 400);
        let kind = "JSON schema";
        let why = "too much can come next".to_owned();
        let constraint = |e| status(SamplingError::Constraint(e));
        assert_eq!(constraint(ConstraintError::Limit { kind, why }), 400);
        assert_eq!(constraint(ConstraintError::DeadEnd { kind }), 400);
        assert_eq!(constraint(ConstraintError::Complete { kind }), 500);
    }

    #[test]
    fn a_failure_has_openai_s_shape_and_names_its_field() {
        let e = ApiError::field("top_k", "must be 0 or more, is -3");
        assert_eq!(
            e.body(),
            json!({"error": {"message": "top_k: must be 0 or more, is -3", "type": "invalid_request_error",
                "param": "top_k", "code": null}})
        );
        let full = ApiError::from(minfer::Error::from(EngineError::QueueFull { waiting: 7 }));
        let response = full.into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "1");
    }
}
