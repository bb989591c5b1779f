//! Contexts that are too small, and sampling at the edges of its ranges.

use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;

use crate::harness::{Home, ids};

/// A raw prompt of exactly `n` tokens: bytes without merges are a token each.
fn prompt(n: usize) -> String {
    "z".repeat(n)
}

#[test]
fn a_prompt_fits_or_is_refused_with_both_counts() {
    let home = Home::with_model();
    let run = |n: usize| {
        let text = prompt(n);
        home.run(&["run", "--json", "-m", "model.gguf", "-c", "64", "--raw", "-n", "5", &text])
    };
    let fits = run(63).json();
    assert_eq!(ids(&fits["prompt_tokens"]).len(), 63);
    assert_eq!(fits["finish_reason"], "length");
    assert_eq!(ids(&fits["tokens"]).len(), 1, "only one position is left");
    run(64).fails(1, &["64"]);
    run(65).fails(1, &["65 tokens", "64"]);
    run(640).fails(1, &["640 tokens", "64"]);
}

#[test]
fn a_full_context_ends_an_answer_but_loses_nothing() {
    let home = Home::with_model();
    let long = home.answer(&["--raw", "zz", "-c", "128", "--ignore-eos"]);
    assert_eq!(ids(&long["prompt_tokens"]).len() + ids(&long["tokens"]).len(), 128);
    assert_eq!(long["finish_reason"], "length");
    let ran = home.run(&["run", "--json", "-m", "model.gguf", "--raw", "zz", "-c", "32", "--ignore-eos"]);
    assert!(ran.stderr.contains("the context of 32 tokens is full; -c makes it larger"), "{}", ran.stderr);
    let short = ran.json();
    let (long, short) = (ids(&long["tokens"]), ids(&short["tokens"]));
    assert_eq!(short, long[..short.len()], "the context's size changes no token");
}

#[test]
fn an_answer_without_a_limit_still_ends() {
    let home = Home::new();
    home.write("model.gguf", &TinySpec { layers: 1, context: 2000, ..TinySpec::new(Family::Llama) }.gguf());
    let ran = home.run(&["run", "--json", "-m", "model.gguf", "--raw", "zz", "--ignore-eos", "-t", "1"]);
    assert!(ran.stderr.contains("-n -1"), "{}", ran.stderr);
    assert_eq!(ids(&ran.json()["tokens"]).len(), 1024);
    let ran = home.run(&["run", "--json", "-m", "model.gguf", "--raw", "zz", "--ignore-eos", "-n", "-1"]);
    assert!(ran.stderr.contains("the context of 2000 tokens is full; the model"), "{}", ran.stderr);
    let all = ran.json();
    assert_eq!(ids(&all["prompt_tokens"]).len() + ids(&all["tokens"]).len(), 2000);
}

#[test]
fn an_empty_prompt_is_an_error() {
    let home = Home::with_model();
    home.write("empty", b" \n\n");
    for prompt in [&[""][..], &["--raw", ""], &[" \n\t"], &["-p", ""], &["-f", "empty"], &["-"], &[]] {
        home.run(&[&["run", "-m", "model.gguf"][..], prompt].concat()).fails(2, &["prompt is empty"]);
    }
}

#[test]
fn sampling_values_at_the_edge_still_leave_a_token() {
    let home = Home::with_model();
    let cases: &[&[&str]] = &[
        &["--temp", "0"],
        &["--temp", "1e-9"],
        &["--temp", "1e9"],
        &["--temp", "1", "--top-p", "0"],
        &["--temp", "1", "--top-p", "1"],
        &["--temp", "1", "--top-k", "-1"],
        &["--temp", "1", "--top-k", "0"],
        &["--temp", "1", "--top-k", "1000000000"],
        &["--temp", "1", "--min-p", "1"],
        &[
            "--temp",
            "1",
            "--min-p",
            "1",
            "--top-p",
            "0",
            "--top-k",
            "1",
            "--repeat-penalty",
            "2",
            "--repeat-last-n",
            "-1",
        ],
        &["--min-p", "1", "--top-k", "1", "--temp", "1", "--top-p", "0"],
        &["--repeat-penalty", "1.5", "--repeat-last-n", "0"],
        &["--presence-penalty", "-2", "--frequency-penalty", "2"],
        &["--logit-bias", "65+100"],
    ];
    for case in cases {
        let args = [&["--raw", "the", "-n", "4", "--ignore-eos"][..], case].concat();
        assert_eq!(ids(&home.answer(&args)["tokens"]).len(), 4, "{case:?}");
    }
}

#[test]
fn greedy_edges_agree() {
    let home = Home::with_model();
    let base = ["--raw", "the", "-n", "8", "--ignore-eos"];
    let greedy = ids(&home.answer(&base)["tokens"]);
    for one in [
        &["--temp", "1", "--top-k", "1"][..],
        &["--temp", "1", "--min-p", "1"],
        &["--temp", "1", "--top-p", "0"],
    ] {
        assert_eq!(ids(&home.answer(&[&base[..], one].concat())["tokens"]), greedy, "{one:?}");
    }
}

#[test]
fn biases_choose_and_forbid() {
    let home = Home::with_model();
    let base = ["--raw", "the", "-n", "5", "--ignore-eos"];
    assert_eq!(ids(&home.answer(&[&base[..], &["--logit-bias", "65+1000"]].concat())["tokens"]), [65; 5]);
    // The same amount off every token changes nothing, which is documented by example here.
    let all: Vec<String> = (0..320).map(|id| format!("--logit-bias={id}-100")).collect();
    let flags: Vec<&str> = all.iter().map(String::as_str).collect();
    let even = ids(&home.answer(&[&base[..], &flags].concat())["tokens"]);
    assert_eq!(even, ids(&home.answer(&base)["tokens"]));
    let first = even[0];
    let without =
        ids(&home.answer(&[&base[..], &[&format!("--logit-bias={first}-1000")]].concat())["tokens"]);
    assert!(!without.contains(&first), "{without:?}");
}

#[test]
fn a_seed_repeats_its_answer() {
    let home = Home::with_model();
    let base = ["--raw", "the", "-n", "12", "--ignore-eos", "--temp", "1"];
    let with = |seed: &str| ids(&home.answer(&[&base[..], &["-s", seed]].concat())["tokens"]);
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7"), with("8"));
    assert_eq!(with("0"), ids(&home.answer(&base)["tokens"]), "0 is the documented default");
    let told = home.run(&["run", "-m", "model.gguf", "--raw", "the", "-n", "1", "-s", "-1"]);
    assert!(told.stderr.contains("seed: "), "{}", told.stderr);
}
