//! Frames of server-sent events.
//!
//! Invariant: a frame ends with an empty line and its data is one line.
//! Not here: what is in them (`api`), when they are sent (`stream`).

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, header};
use serde_json::Value;

/// The last frame of OpenAI's streams.
pub(crate) const DONE: &str = "data: [DONE]\n\n";
/// What silence is filled with.
pub(crate) const KEEP_ALIVE: &str = ": keep-alive\n\n";

/// A frame without a name.
pub(crate) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A frame named by the `type` of its data.
pub(crate) fn event(value: &Value) -> String {
    let name = value["type"].as_str().unwrap_or("message");
    format!("event: {name}\ndata: {value}\n\n")
}

/// A reply that streams frames.
pub(crate) fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
