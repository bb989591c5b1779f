//! Keeps web pages of other places from reaching a server that listens on a private address.
//!
//! A page can make its visitor's browser send requests anywhere, and by DNS rebinding even read what comes back; the
//! browser then still says under which name it asked (`Host`) and from which page (`Origin`).
//!
//! Invariant: a request whose `Host` is not ours, or whose `Origin` is another place, reaches no handler.
//! Not here: keys (`auth`); cross-origin access, which is never granted.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::error::ApiError;

/// The names this server goes by.
pub(crate) struct Hosts {
    bound: IpAddr,
    names: Vec<String>,
}

impl Hosts {
    /// A server that listens on `bound` and also goes by `names`.
    pub(crate) fn new(bound: IpAddr, names: &[String]) -> Self {
        Self { bound, names: names.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Checks where a request was sent to and where it came from.
    ///
    /// # Errors
    /// 400 where `Host` is missing, given twice or malformed, 403 where it is not ours or the origin is another place.
    pub(crate) fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
        let malformed = |why| Err(ApiError::malformed(why));
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return malformed("a request needs exactly one Host");
        };
        let Ok(host) = host.to_str() else { return malformed("Host is not a name") };
        if uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host)) {
            return malformed("Host and the address asked for are not the same");
        }
        if !self.is_ours(host) {
            return Err(ApiError::forbidden("this server does not go by the name in Host"));
        }
        let foreign = |origin: &HeaderValue| !is_same_place(origin, host);
        if headers.get_all(header::ORIGIN).iter().any(foreign) {
            return Err(ApiError::forbidden("requests from pages of other places are refused"));
        }
        Ok(())
    }

    /// Whether the host, with or without a port, is a name of this server.
    fn is_ours(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let name = name.to_ascii_lowercase();
        let literal = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).map_or_else(
            || name.parse().ok().filter(IpAddr::is_ipv4),
            |inside| inside.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        );
        match literal {
            // A rebound name is a name; an address in Host was typed, and can only be one of this machine's.
            Some(ip) => ip == self.bound || is_plain_loopback(ip) || self.bound.is_unspecified(),
            None => name == "localhost" || self.names.contains(&name),
        }
    }
}

fn is_plain_loopback(ip: IpAddr) -> bool {
    ip == IpAddr::from([127, 0, 0, 1]) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

/// The name in front of a port; `None` where what follows it is no port.
fn without_port(host: &str) -> Option<&str> {
    let end_of_name = host.rfind(']').map_or(0, |at| at + 1);
    match host[end_of_name..].rfind(':') {
        None => Some(host),
        Some(at) => {
            let (name, port) = host.split_at(end_of_name + at);
            port[1..].parse::<u16>().ok().map(|_| name)
        }
    }
}

/// Whether the page and the server are one place.
fn is_same_place(origin: &HeaderValue, host: &str) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    place.is_some_and(|place| place.eq_ignore_ascii_case(host))
}

/// Refuses bodies that are not plain JSON. A form of another place cannot send that type without asking first.
///
/// # Errors
/// 415 that says what would do.
pub(crate) fn check_body_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |why: &str| Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return refuse("the body must be of type application/json");
    }
    let encoding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
        return refuse("a compressed body is not taken");
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/guard.rs"]
mod tests;
