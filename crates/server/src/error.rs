//! Everything a client can be told is wrong, with its status and its form in both interfaces.
//!
//! ```text
//! OpenAI     {"error": {"message", "type", "param", "code"}}
//! Anthropic  {"type": "error", "error": {"type", "message"}}
//! ```
//!
//! Invariant: only this module makes statuses out of errors.
//! Not here: finding the errors.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use pilotfish::{Error, ErrorKind};
use serde_json::{Value, json};

/// Which interface a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
}

impl Dialect {
    /// The interface a path belongs to.
    pub(crate) fn of_path(path: &str) -> Self {
        if path.starts_with("/v1/messages") { Self::Anthropic } else { Self::OpenAi }
    }
}

/// Why a request is not answered.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    kind: &'static str,
    pub(crate) message: String,
    param: Option<String>,
    code: Option<&'static str>,
    retry_after: Option<u32>,
    counts: Option<(u32, u32)>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, kind, message, param: None, code: None, retry_after: None, counts: None }
    }

    /// A parameter that cannot be used.
    pub(crate) fn param(param: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let param = param.into();
        let message = format!("{param}: {why}");
        let param = Some(param);
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message) }
    }

    /// A parameter whose meaning this server does not have.
    pub(crate) fn unsupported(param: impl Into<String>, why: &str) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::param(param, why) }
    }

    /// A request that is malformed as a whole.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A request refused before it was read, by the status that says why.
    pub(crate) fn refused(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    /// A request from somewhere that may not ask.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// A request without a right key.
    pub(crate) fn unauthorized() -> Self {
        let message = "a valid API key is needed, as `Authorization: Bearer KEY` or `x-api-key: KEY`";
        Self {
            code: Some("invalid_api_key"),
            ..Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
        }
    }

    /// A place that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// A model that is not the one served.
    pub(crate) fn unknown_model(asked: &str, served: &str) -> Self {
        let shown: String = asked.chars().take(100).collect();
        let message = format!("model: there is no model {shown:?} here; the one served is {served:?}");
        Self {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
        }
    }

    /// Something this server does not do.
    pub(crate) fn not_supported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    /// A prompt that leaves no room for a reply.
    pub(crate) fn context(param: &str, prompt: usize, context: usize) -> Self {
        let message = format!(
            "{param}: the prompt has {prompt} tokens and the context holds {context}: no room for a reply"
        );
        Self {
            param: Some(param.to_owned()),
            code: Some("context_length_exceeded"),
            counts: Some((saturated(prompt), saturated(context))),
            ..Self::new(StatusCode::BAD_REQUEST, "exceed_context_size_error", message)
        }
    }

    /// A full queue.
    pub(crate) fn busy(waiting: usize, retry_after: u32) -> Self {
        let message = format!("{waiting} requests are waiting already; try again later");
        Self {
            code: Some("queue_full"),
            retry_after: Some(retry_after),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
        }
    }

    /// A server that is not ready, or not any more.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self {
            retry_after: Some(5),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
        }
    }

    /// A request that took too long.
    pub(crate) fn timed_out(seconds: u64) -> Self {
        let message = format!("the request took longer than the {seconds} s that are allowed");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message)
    }

    /// Something that failed here.
    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// What the library says; `param` is where the prompt came from.
    pub(crate) fn library(param: &str, error: &Error) -> Self {
        match error {
            Error::Template(_) | Error::NoTemplate { .. } => Self::param(param, error),
            Error::Engine(_) if error.is_context_overflow() => Self::param(param, error),
            _ if error.kind() == ErrorKind::Usage => Self::malformed(error.to_string()),
            _ => Self::server(error.to_string()),
        }
    }

    /// The JSON text of the error.
    pub(crate) fn json(&self, dialect: Dialect) -> String {
        let object = match dialect {
            Dialect::OpenAi => self.openai(),
            Dialect::Anthropic => json!({
                "type": "error",
                "error": {"type": self.anthropic_kind(), "message": self.message},
            }),
        };
        object.to_string()
    }

    fn openai(&self) -> Value {
        let mut error = json!({
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        });
        if let Some((prompt, context)) = self.counts {
            error["n_prompt_tokens"] = prompt.into();
            error["n_ctx"] = context.into();
        }
        json!({ "error": error })
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status {
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => match self.kind {
                "exceed_context_size_error" => "invalid_request_error",
                kind => kind,
            },
        }
    }

    /// The error as a reply.
    pub(crate) fn response(&self, dialect: Dialect) -> Response<Body> {
        let mut response = Response::new(Body::from(self.json(dialect)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

// The error is in many results, so it is kept small.
fn saturated(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
