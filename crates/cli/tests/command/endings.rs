//! Where answers end: stop strings, end tokens, limits, characters; always the same with and without guesses.

use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;
use serde_json::Value;

use crate::harness::{Home, ids};

/// Every way to guess: plain, by lookup, and a drafter that is always right.
const DRAFTERS: [&[&str]; 6] = [
    &["--drafter", "none"],
    &["--drafter", "ngram"],
    &["--drafter", "suffix"],
    &["-md", "model.gguf"],
    &["-md", "model.gguf", "--spec-draft-n-max", "4"],
    &["--drafter", "head", "--head", "head", "--spec", "on"],
];

fn text(answer: &Value) -> &str {
    answer["text"].as_str().unwrap()
}

/// Streams what `answer` gives as an object, and returns stdout without the final line break.
fn streamed(home: &Home, args: &[&str]) -> String {
    let mut all = vec!["run", "-m", "model.gguf", "-t", "1"];
    all.extend(args);
    let out = home.run(&all).ok();
    out.strip_suffix('\n').unwrap_or(&out).to_owned()
}

/// Texts of some characters inside an answer, at token borders and across them.
fn stops_inside(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let slice = |from: usize, to: usize| chars[from..to].iter().collect::<String>();
    vec![
        slice(0, 1),
        slice(2, 6),
        slice(chars.len() / 2, chars.len() / 2 + 5),
        slice(chars.len() - 3, chars.len()),
    ]
}

#[test]
fn a_stop_text_cuts_alike_in_every_mode() {
    let home = Home::with_model();
    for prompt in [&["repeat: alpha beta gamma delta"][..], &["--raw", "repeat: alpha beta gamma delta"]] {
        let base = [prompt, &["-n", "80", "--ignore-eos"]].concat();
        let whole = home.answer(&[&base[..], &["--drafter", "none"]].concat());
        let whole = text(&whole).to_owned();
        assert!(whole.chars().count() >= 20, "{whole:?}");
        for stop in stops_inside(&whole) {
            let expected = &whole[..whole.find(&stop).unwrap()];
            for drafter in DRAFTERS {
                let args = [&base[..], drafter, &["--stop", &stop]].concat();
                let answer = home.answer(&args);
                assert_eq!(
                    (text(&answer), answer["finish_reason"].as_str()),
                    (expected, Some("stop")),
                    "{args:?}"
                );
            }
            for drafter in [DRAFTERS[0], DRAFTERS[2]] {
                let args = [&base[..], drafter, &["--stop", &stop]].concat();
                // The streamed text may itself end with the line break that ends the last line.
                let shown = streamed(&home, &args);
                assert_eq!(shown, expected.strip_suffix('\n').unwrap_or(expected), "{args:?}");
            }
        }
    }
}

#[test]
fn a_stop_text_that_never_completes_changes_nothing() {
    let home = Home::with_model();
    let base = ["--raw", "alpha beta", "-n", "30", "--ignore-eos"];
    let whole = text(&home.answer(&base)).to_owned();
    let begun = format!("{}\u{1f41f}", whole.chars().skip(whole.chars().count() - 4).collect::<String>());
    let answer = home.answer(&[&base[..], &["--stop", &begun]].concat());
    assert_eq!((text(&answer), answer["finish_reason"].as_str()), (whole.as_str(), Some("length")));
}

#[test]
fn of_several_stop_texts_the_first_completed_counts() {
    let home = Home::with_model();
    let base = ["--raw", "alpha beta", "-n", "30", "--ignore-eos"];
    let whole = text(&home.answer(&base)).to_owned();
    let chars: Vec<char> = whole.chars().collect();
    let (early, late): (String, String) = (chars[3..6].iter().collect(), chars[12..15].iter().collect());
    for order in [[&early, &late], [&late, &early]] {
        let answer = home.answer(&[&base[..], &["--stop", order[0], "-r", order[1]]].concat());
        assert_eq!(text(&answer), &whole[..whole.find(&early).unwrap()]);
    }
}

#[test]
fn limits_end_inside_an_accepted_run() {
    let home = Home::with_model();
    let k = 4;
    let base = ["--raw", "alpha beta", "--ignore-eos", "-md", "model.gguf", "--spec-draft-n-max", "4"];
    let all = home.answer(&[&base[..], &["-n", "12", "--drafter", "model"]].concat());
    let all_tokens = ids(&all["tokens"]);
    for n in [0, 1, k, k + 1, k + 2] {
        let count = n.to_string();
        let answer = home.answer(&[&base[..], &["-n", &count]].concat());
        assert_eq!(ids(&answer["tokens"]), all_tokens[..n], "{n}");
        assert_eq!(answer["finish_reason"], "length", "{n}");
        assert_eq!(answer["timings"]["predicted_n"], n);
    }
}

#[test]
fn a_stop_text_wins_over_a_limit_reached_with_it() {
    let home = Home::with_model();
    let base = ["--raw", "alpha beta", "--ignore-eos"];
    let with = |extra: &[&str]| home.answer(&[&base[..], extra].concat());
    // A token count at which the text grew, so that its last character completes there.
    let n = (4..12)
        .find(|n| {
            let (before, at) = (with(&["-n", &(n - 1).to_string()]), with(&["-n", &n.to_string()]));
            text(&at).len() > text(&before).len() && text(&at).chars().count() > 3
        })
        .expect("some token adds text");
    let count = n.to_string();
    let whole = text(&with(&["-n", &count])).to_owned();
    let stop: String = whole.chars().skip(whole.chars().count() - 3).collect();
    let at = whole.find(&stop).unwrap();
    for drafter in DRAFTERS {
        let answer = with(&[drafter, &["-n", &count, "--stop", &stop]].concat());
        assert_eq!(
            (text(&answer), answer["finish_reason"].as_str()),
            (&whole[..at], Some("stop")),
            "{drafter:?}"
        );
    }
    if at + stop.len() == whole.len() {
        // One token less never completes it: what was held back is released, and the limit is the reason.
        let less = (n - 1).to_string();
        for drafter in DRAFTERS {
            let answer = with(&[drafter, &["-n", &less, "--stop", &stop]].concat());
            assert_eq!(answer["finish_reason"], "length", "{drafter:?}");
            assert_eq!(answer["text"], with(&["-n", &less])["text"], "{drafter:?}");
        }
    }
}

#[test]
fn an_end_token_ends_exactly_there() {
    let home = Home::with_model();
    let base = ["--raw", "alpha beta", "-n", "10"];
    let tokens = ids(&home.answer(&[&base[..], &["--drafter", "none", "--ignore-eos"]].concat())["tokens"]);
    for k in 0..9 {
        let end = tokens[k];
        let mut w = TinySpec::new(Family::Llama).writer();
        w.u32("tokenizer.ggml.eos_token_id", end);
        home.write("ending.gguf", &w.finish());
        let first = tokens.iter().position(|&token| token == end).unwrap();
        for drafter in [&["--drafter", "none"][..], &["-md", "ending.gguf", "--spec-draft-n-max", "4"]] {
            let args = [&["run", "--json", "-m", "ending.gguf"][..], &base, drafter].concat();
            let answer = home.run(&args).json();
            assert_eq!(ids(&answer["tokens"]), tokens[..=first], "{k} {drafter:?}");
            assert_eq!(answer["finish_reason"], "stop", "{k} {drafter:?}");
        }
    }
}

#[test]
fn no_piece_of_a_character_is_ever_text() {
    let home = Home::with_model();
    let mut longer = 0;
    let mut previous = String::new();
    for n in 0..40 {
        let answer = home.answer(&["--raw", "日本語 😀", "-n", &n.to_string(), "--ignore-eos"]);
        let text = text(&answer).to_owned();
        // Bytes of invalid characters may show as U+FFFD only once what follows proves them invalid, never at a cut.
        assert!(text.starts_with(&previous), "{previous:?} {text:?}");
        longer += usize::from(text.len() > previous.len());
        previous = text;
    }
    assert!(longer > 5, "{previous:?}");
    assert_eq!(
        streamed(&home, &["--raw", "日本語 😀", "-n", "39", "--ignore-eos"]),
        previous.trim_end_matches('\n')
    );
}
