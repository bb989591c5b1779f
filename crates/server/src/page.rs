//! The page at `/`: a chat that shows speculation at work.
//!
//! Invariant: it fetches nothing but this server's own interface, and its policy lets it fetch nothing else.
//! Not here: the page itself (`page.html`).

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

/// What the page may do: run its own script, wear its own style, ask this server.
fn policy() -> String {
    let own = |tag: &str| {
        let (_, inside) = PAGE.split_once(&format!("<{tag}>")).expect("the page has this element");
        let (inside, _) = inside.split_once(&format!("</{tag}>")).expect("it is closed");
        STANDARD.encode(Sha256::digest(inside.as_bytes()))
    };
    format!(
        "default-src 'none'; connect-src 'self'; style-src 'sha256-{}'; script-src 'sha256-{}'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        own("style"),
        own("script")
    )
}

/// The page.
pub(crate) fn response() -> Response<Body> {
    let mut response = Response::new(Body::from(PAGE));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy()).expect("plain ASCII"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("x-frame-options"), HeaderValue::from_static("DENY"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
