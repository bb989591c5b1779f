//! Tests of keys: right ones, and all that is nearly right.
#![cfg(test)]

use axum::http::HeaderMap;

use super::Keys;

#[test]
fn keys_open_only_for_themselves() {
    let keys = Keys::new(&["alpha".to_owned(), "beta".to_owned()]);
    let admit = |name: &'static str, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        keys.admit(&headers)
    };
    assert!(admit("authorization", "Bearer alpha") && admit("authorization", "bEARER  beta "));
    assert!(admit("x-api-key", "beta"));
    for wrong in
        ["Bearer", "Bearer ", "Bearer alph", "Bearer alphaa", "alpha", "Basic alpha", "Bearer alpha beta"]
    {
        assert!(!admit("authorization", wrong), "{wrong}");
    }
    assert!(!keys.admit(&HeaderMap::new()));
    assert!(Keys::new(&[]).admit(&HeaderMap::new()));
}
