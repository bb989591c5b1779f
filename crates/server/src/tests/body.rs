//! Tests of bodies: depth, names of parameters in errors, parameters that are refused.
#![cfg(test)]

use bytes::Bytes;
use serde::Deserialize;

use super::{MAX_DEPTH, Parameters};
use crate::error::Dialect;

fn error<T>(result: Result<T, crate::error::ApiError>) -> serde_json::Value {
    let text = result.err().expect("an error").json(Dialect::OpenAi);
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["error"].clone()
}

fn parameters(text: &str) -> Parameters {
    Parameters::new(Bytes::copy_from_slice(text.as_bytes())).unwrap_or_else(|e| panic!("{}", e.message))
}

#[test]
fn depth_is_counted_outside_texts() {
    let nested = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    parameters(&nested(MAX_DEPTH - 1));
    let deep = Parameters::new(Bytes::from(nested(MAX_DEPTH)));
    assert!(error(deep)["message"].as_str().unwrap().contains("deeper than 64"));
    parameters(&format!("{{\"a\":\"{}\\\"{}\\\\\"}}", "[".repeat(1000), "{".repeat(1000)));
}

#[test]
fn errors_name_the_parameter() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only parsed")]
    struct Outer {
        needed: u32,
        inner: Option<Inner>,
    }
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only parsed")]
    struct Inner {
        list: Vec<u8>,
    }
    for (text, param) in [
        ("{}", "needed"),
        ("{\"needed\":\"x\"}", "needed"),
        ("{\"needed\":-1}", "needed"),
        ("{\"needed\":1,\"inner\":{}}", "inner.list"),
        ("{\"needed\":1,\"inner\":{\"list\":[1,256]}}", "inner.list[1]"),
    ] {
        assert_eq!(error(parameters(text).parse::<Outer>())["param"], param, "{text}");
    }
    assert!(
        error(parameters("{\"needed\":1,\"needed\":2}").parse::<Outer>())["message"]
            .as_str()
            .unwrap()
            .contains("duplicate field")
    );
    parameters("{\"needed\":1,\"other\":[{}]}").parse::<Outer>().unwrap_or_else(|e| panic!("{}", e.message));
}

#[test]
fn absence_in_many_forms_is_not_refused() {
    let unsupported = [("x", "no")];
    for absent in ["null", "false", "\"\"", "[]", "{}", "0"] {
        let given = parameters(&format!("{{\"x\":{absent}}}")).refuse(&unsupported);
        given.unwrap_or_else(|_| panic!("{absent}"));
    }
    for present in ["true", "1", "0.5", "\"y\"", "[null]", "{\"a\":1}"] {
        let given = parameters(&format!("{{\"x\":{present}}}")).refuse(&unsupported);
        assert_eq!(error(given)["param"], "x", "{present}");
    }
}
