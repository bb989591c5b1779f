//! Tests of parameters: defaults, names and seeds.
#![cfg(test)]

use serde_json::json;

use super::Wishes;
use crate::config::Defaults;

fn wishes(value: serde_json::Value) -> Wishes {
    serde_json::from_value(value).unwrap()
}

#[test]
fn what_is_not_asked_for_is_the_default() {
    let defaults = Defaults { fresh_seed: false, max_tokens: Some(9), ..Defaults::default() };
    let ask = wishes(json!({})).ask(&defaults, 10, None).unwrap_or_else(|e| panic!("{}", e.message));
    assert_eq!(ask.options.sampling, defaults.sampling);
    assert_eq!((ask.options.max_tokens, ask.choices, ask.options.logprobs), (Some(9), 1, None));
    let all = json!({
        "temperature": 0.5, "top_p": 0.25, "top_k": 3, "min_p": 0.125, "repeat_penalty": 2, "repeat_last_n": -1,
        "presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"3": -2}, "seed": 8, "n": 2,
        "stop": ["a"], "max_completion_tokens": 4, "max_tokens": 5, "ignore_eos": true
    });
    let ask = wishes(all).ask(&defaults, 10, Some(2)).unwrap_or_else(|e| panic!("{}", e.message));
    let sampling = &ask.options.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p), (0.5, 0.25, 3, 0.125));
    assert_eq!((sampling.repeat_penalty, sampling.repeat_last_n), (2.0, -1));
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty), (1.0, -1.0));
    assert_eq!((sampling.logit_bias.as_slice(), sampling.seed), (&[(3, -2.0)][..], 8));
    assert_eq!((ask.choices, ask.options.max_tokens, ask.options.logprobs), (2, Some(4), Some(2)));
    assert_eq!((ask.options.stop, ask.options.ignore_eos), (vec!["a".to_owned()], true));
}

#[test]
fn seeds_are_kept_or_fresh() {
    let seed = |value: serde_json::Value, fresh_seed| {
        let defaults = Defaults { fresh_seed, ..Defaults::default() };
        wishes(value)
            .ask(&defaults, 10, None)
            .unwrap_or_else(|e| panic!("{}", e.message))
            .options
            .sampling
            .seed
    };
    assert_eq!(seed(json!({}), false), 0);
    assert_ne!(seed(json!({}), true), seed(json!({}), true));
    assert_ne!(seed(json!({"seed": -1}), false), seed(json!({"seed": -1}), false));
    assert_eq!(seed(json!({"seed": 5}), true), 5);
    assert_eq!(seed(json!({"seed": u64::MAX}), true), u64::MAX);
    assert_eq!(seed(json!({"seed": -2}), true), u64::MAX - 1);
}
