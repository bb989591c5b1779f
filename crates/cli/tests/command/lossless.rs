//! `bench --lossless`: what it compares is kept, and a record goes on where it stopped.

use serde_json::Value;

use crate::bench::home;
use crate::harness::keys;

#[test]
fn a_lossless_record_goes_on_where_it_stopped() {
    let home = home();
    let args = |tokens: &'static str| {
        let common = ["bench", "-m", "model.gguf", "-md", "model.gguf", "-n", "6", "-t", "1", "--json"];
        [&common[..], &["--lossless", tokens, "--out", "record.json"]].concat()
    };
    let first = home.run(&args("100")).json();
    assert_eq!(
        keys(&first),
        [
            "schema",
            "model",
            "draft_model",
            "numerics_id",
            "predict",
            "next_case",
            "tokens",
            "differing",
            "rounds",
            "tree_rounds",
            "accepted",
            "sources",
            "settings",
            "differences",
            "runs"
        ]
    );
    assert_eq!(first["differing"], 0);
    let tokens = |record: &Value| record["tokens"].as_u64().unwrap();
    assert!((100..106).contains(&tokens(&first)), "{first}");

    let second = home.run(&args("400")).json();
    assert!((400..406).contains(&tokens(&second)), "{second}");
    assert!(second["next_case"].as_u64() > first["next_case"].as_u64());
    let runs = second["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs.iter().map(tokens).sum::<u64>(), tokens(&second));
    let of_setting = |name: &str| -> u64 {
        let settings = second["settings"].as_object().unwrap();
        settings.iter().filter(|(key, _)| key.starts_with(name)).map(|(_, n)| n.as_u64().unwrap()).sum()
    };
    for setting in ["drafter ", "spec-draft-n-max ", "spec o", "threads ", "pipeline "] {
        assert!(of_setting(setting) > 0, "{setting}: {second}");
    }
    assert_eq!(of_setting("drafter "), tokens(&second));
    assert!(second["sources"]["model"][1].as_u64() > Some(0), "the model drafts for itself: {second}");
    let rounds = second["accepted"].as_object().unwrap().values();
    let rounds: u64 = rounds.flat_map(|n| n.as_array().unwrap()).map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(rounds, second["rounds"].as_u64().unwrap());

    let full = home.run(&args("400")).json();
    assert_eq!(tokens(&full), tokens(&second), "nothing is left to do");
}

#[test]
fn a_lossless_record_of_something_else_is_refused() {
    let home = home();
    home.write("record.json", b"{\"schema\": \"pilotfish-bench/1\"}");
    let args = ["bench", "-m", "model.gguf", "-n", "4", "--lossless", "10", "--out", "record.json"];
    let refused = home.run(&args);
    refused.fails(1, &["no record of --lossless"]);
    for flags in [&["--spec", "on"][..], &["--drafter", "ngram"], &["--spec-draft-n-max", "4"]] {
        let run = home.run(&[&["bench", "-m", "model.gguf", "--lossless", "10"][..], flags].concat());
        run.fails(2, &[flags[0]]);
    }
}
