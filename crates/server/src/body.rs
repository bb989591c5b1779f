//! Reads request bodies: bounded in bytes, time and depth, and parsed so that an error names the parameter.
//!
//! Invariant: nothing deeper than [`MAX_DEPTH`] is parsed, and what is parsed is one JSON object.
//! Not here: what the parameters mean (`ask`, `api`).

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::config::Limits;
use crate::error::ApiError;
use crate::guard::check_body_type;

/// Deepest nesting of a body's lists and objects.
pub(crate) const MAX_DEPTH: usize = 64;

/// A request's parameters.
pub(crate) struct Parameters {
    bytes: Bytes,
    /// All of them, as they came.
    pub(crate) map: Map<String, Value>,
}

impl Parameters {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What is wrong with it: its type, size, pace, or what it says.
    pub(crate) async fn read(request: Request<Body>, limits: &Limits) -> Result<Self, ApiError> {
        check_body_type(request.headers())?;
        let body = Limited::new(request.into_body(), limits.max_body).collect();
        let Ok(read) = tokio::time::timeout(limits.body_timeout, body).await else {
            return Err(ApiError::refused(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"));
        };
        let bytes = read.map_err(|error| {
            if error.is::<LengthLimitError>() {
                let why = format!("the body is larger than the {} bytes that are allowed", limits.max_body);
                ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, why)
            } else {
                ApiError::malformed("the body could not be read to its end")
            }
        })?;
        Self::new(bytes.to_bytes())
    }

    /// Reads a body's text.
    ///
    /// # Errors
    /// Where it is not one JSON object of bearable depth.
    pub(crate) fn new(bytes: Bytes) -> Result<Self, ApiError> {
        if std::str::from_utf8(&bytes).is_err() {
            return Err(ApiError::malformed("the body is not UTF-8"));
        }
        check_depth(&bytes)?;
        let invalid = |error| ApiError::malformed(format!("the body is not JSON: {error}"));
        match serde_json::from_slice(&bytes).map_err(invalid)? {
            Value::Object(map) => Ok(Self { bytes, map }),
            _ => Err(ApiError::malformed("the body must be a JSON object")),
        }
    }

    /// The parameters that `T` has; others are passed over.
    ///
    /// # Errors
    /// The parameter that is missing, given twice, or of a wrong type.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let mut reader = serde_json::Deserializer::from_slice(&self.bytes);
        serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let why = reason(error.inner());
            let missing = why.split('`').nth(1).filter(|_| why.starts_with("missing field"));
            match (missing, error.path().to_string()) {
                (Some(field), path) if path == "." => ApiError::param(field, "it is missing"),
                (Some(field), path) => ApiError::param(format!("{path}.{field}"), "it is missing"),
                (None, path) if path == "." => ApiError::malformed(why),
                (None, path) => ApiError::param(path, why),
            }
        })
    }

    /// Refuses parameters that would be passed over though they ask for something.
    ///
    /// # Errors
    /// The first of them.
    pub(crate) fn refuse(&self, unsupported: &[(&'static str, &'static str)]) -> Result<(), ApiError> {
        for (name, why) in unsupported {
            if self.map.get(*name).is_some_and(asks_for_something) {
                return Err(ApiError::unsupported(*name, why));
            }
        }
        Ok(())
    }
}

/// Whether a value is more than the absence of one.
fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        _ => true,
    }
}

/// The reason without the place in the text, which means nothing to a client that did not write it by hand.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(reason, _)| reason.to_owned())
}

/// Refuses deep nesting before it is parsed.
fn check_depth(bytes: &[u8]) -> Result<(), ApiError> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for &byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    let why = format!("the body nests lists and objects deeper than {MAX_DEPTH}");
                    return Err(ApiError::malformed(why));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/body.rs"]
mod tests;
