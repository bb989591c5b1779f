//! API keys, compared in the same time whatever was sent.
//!
//! Only digests are kept. A key that is compared is hashed first, so neither its length nor the place of its first
//! wrong byte shows; and every kept digest is looked at.
//!
//! Invariant: a key is never kept, printed or logged.
//! Not here: which paths need one (`app`).

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The keys that open the server.
pub(crate) struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Takes the keys' digests.
    pub(crate) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    /// Whether no key is needed.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the headers carry one of the keys: as `Authorization: Bearer`, or as `x-api-key`.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        if self.is_open() {
            return true;
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
        });
        let sent = bearer.or(headers.get("x-api-key").map(|value| value.as_bytes()));
        let sent = digest(sent.unwrap_or_default().trim_ascii());
        let found = self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&sent));
        found.into()
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[cfg(test)]
#[path = "tests/auth.rs"]
mod tests;
