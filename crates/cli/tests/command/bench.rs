//! `bench`, `eval ppl` and `models`: their objects, and that measuring changes no token.

use pilotfish_measure::record::Record;
use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;

use crate::harness::{Home, keys, names};

/// A model whose context holds the longest prompt, one token a byte.
pub(crate) fn home() -> Home {
    let home = Home::new();
    home.write("model.gguf", &TinySpec { layers: 1, context: 4096, ..TinySpec::new(Family::Llama) }.gguf());
    home
}

#[test]
fn a_bench_gives_the_documented_record() {
    let home = home();
    let args = ["bench", "-m", "model.gguf", "-n", "12", "-r", "2", "--json", "--out", "record.json"];
    let json = home.run(&args).json();
    assert_eq!(
        keys(&json),
        [
            "schema",
            "command",
            "machine",
            "commit",
            "dirty",
            "numerics_id",
            "model",
            "drafter",
            "lane",
            "context",
            "prompts",
            "mean",
            "roofline",
            "curve",
            "energy"
        ]
    );
    assert_eq!(
        keys(&json["machine"]),
        ["cpu", "isa", "threads", "memory_bytes", "os", "gpu", "apple_chip", "power_source"]
    );
    let prompts = json["prompts"].as_array().unwrap();
    let listed: Vec<&str> = prompts.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(listed, ["math", "code", "explain", "summary", "advice", "translate", "edit"]);
    for prompt in prompts {
        assert_eq!(
            keys(prompt),
            [
                "name",
                "tokens",
                "plain_tok_s",
                "spec_tok_s",
                "ratio_ci95",
                "tau",
                "accepted_by_position",
                "by_source",
                "lossless",
                "parked",
                "reason"
            ]
        );
        assert_eq!(prompt["lossless"], true);
        assert_eq!(prompt["ratio_ci95"].as_array().unwrap().len(), 2);
        assert!(prompt["tau"].as_f64() >= Some(1.0), "{prompt}");
    }
    let widths: Vec<u64> =
        json["curve"].as_array().unwrap().iter().map(|p| p["width"].as_u64().unwrap()).collect();
    assert_eq!(widths, [1, 2, 3, 4, 6, 8, 12, 16, 32]);
    assert_eq!(
        keys(&json["curve"][0]),
        ["width", "context", "ms_p50", "ms_min", "ms_max", "bytes", "floor_ms"]
    );
    assert!(json["curve"][0]["floor_ms"].as_f64() > Some(0.0));
    assert_eq!(keys(&json["roofline"]), ["bytes_per_second", "macs_per_second"]);
    assert!(json["command"].as_str().unwrap().starts_with("pilotfish bench -m model.gguf -n 12"));
    assert_eq!(keys(&json["energy"]), ["joules_per_token", "source"]);
    assert_eq!(keys(&json["model"]), ["name", "sha256", "bytes"]);
    let record = Record::read(&home.path("record.json")).unwrap();
    assert_eq!(serde_json::to_value(&record).unwrap(), json);
}

#[test]
fn a_bench_reports_what_helps_what_hurts_and_neither() {
    let home = home();
    let only = ["--only", "edit", "--only", "math", "-n", "10", "-r", "1"];
    for (drafter, name) in [
        (&["--drafter", "none"][..], None),
        (&["--drafter", "model", "-md", "model.gguf"], Some("model.gguf")),
        (&["-md", "model.gguf"], Some("ngram+suffix+model.gguf")),
    ] {
        let args = [&["bench", "-m", "model.gguf", "--json"][..], &only, drafter].concat();
        let json = home.run(&args).json();
        assert_eq!(json["drafter"]["name"].as_str(), name);
        assert_eq!(json["mean"]["ratio"].is_null(), name.is_none());
        assert_eq!(json["prompts"][0]["lossless"].is_null(), name.is_none());
        assert!(json["prompts"][0]["ratio_ci95"].is_null(), "one pair has no interval");
    }
    let table = home.run(&[&["bench", "-m", "model.gguf"][..], &only].concat()).ok();
    for part in ["PROMPT", "edit", "mean", "WIDTH", "energy: ", "e456ac9a"] {
        assert!(table.contains(part), "{table}");
    }
}

#[test]
fn a_curve_alone_has_all_widths_at_each_context_that_fits() {
    let home = home();
    let json = home.run(&["bench", "-m", "model.gguf", "--curve", "--json"]).json();
    let points: Vec<(u64, u64)> = json["curve"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["context"].as_u64().unwrap(), p["width"].as_u64().unwrap()))
        .collect();
    assert!(points.contains(&(128, 1)) && points.contains(&(128, 64)), "{points:?}");
    assert!(points.is_sorted());
    assert_eq!(json["prompts"].as_array().unwrap().len(), 0);
    assert!(json["mean"].is_null() && json["drafter"].is_null());
    let table = home.run(&["bench", "-m", "model.gguf", "--curve"]).ok();
    assert!(table.contains("of floor") && !table.contains("PROMPT"), "{table}");
}

#[test]
fn a_record_that_cannot_be_written_is_told_before_measuring() {
    let home = home();
    let out = |out: &str| home.run(&["bench", "-m", "model.gguf", "--out", out]);
    out("nowhere/record.json").fails(1, &["nowhere"]);
    out(".").fails(1, &["folder"]);
}

#[test]
fn a_perplexity_follows_the_protocol() {
    let home = home();
    home.write("text", "the cat sat on the mat and on the hat. ".repeat(20).as_bytes());
    let eval = |extra: &[&str]| {
        home.run(&[&["eval", "ppl", "text", "-m", "model.gguf", "-c", "64", "--json"][..], extra].concat())
            .json()
    };
    let all = eval(&[]);
    assert_eq!(
        keys(&all),
        [
            "model",
            "numerics_id",
            "context",
            "n_tokens",
            "chunks",
            "scored",
            "cumulative_ppl",
            "ppl",
            "stderr"
        ]
    );
    let chunks = all["n_tokens"].as_u64().unwrap() / 64;
    assert!(chunks >= 3);
    // Half of each chunk is context, and its last token has nothing to predict.
    assert_eq!((all["chunks"].as_u64(), all["scored"].as_u64()), (Some(chunks), Some(chunks * 31)));
    let cumulative = all["cumulative_ppl"].as_array().unwrap();
    assert_eq!(cumulative.last(), Some(&all["ppl"]));
    let two = eval(&["--chunks", "2"]);
    assert_eq!(two["cumulative_ppl"].as_array().unwrap()[..], cumulative[..2]);
    let text = home.run(&["eval", "ppl", "text", "-m", "model.gguf", "-c", "64", "--chunks", "1"]).ok();
    assert!(text.starts_with("chunk 1: ") && text.contains("perplexity "), "{text}");
    assert!(text.contains(", 1 chunk of 64, 31 tokens scored"), "{text}");
    let piped = ["eval", "ppl", "-", "-m", "model.gguf", "-c", "64", "--json"];
    let words = "the cat sat on the mat and on the hat. ".repeat(20);
    assert_eq!(home.run_with_input(&piped, words.as_bytes()).json(), all);
    home.run_with_input(&piped, b"\xff").fails(1, &["stdin", "UTF-8"]);
    home.run(&["eval", "ppl", "text", "-m", "model.gguf", "-c", "4096"]).fails(1, &["4096"]);
    home.run(&["eval", "ppl", "nowhere", "-m", "model.gguf"]).fails(1, &["nowhere"]);
}

#[test]
fn a_list_of_models_needs_no_network() {
    let home = Home::new();
    let json = home.run(&["models", "--json"]).json();
    assert_eq!(json["default"], "smollm2-135m");
    let models = json["models"].as_array().unwrap();
    assert!(models.iter().any(|m| m["name"] == "qwen2.5-coder-1.5b" && m["installed"] == false));
    let table = home.run(&["models"]).ok();
    assert!(table.contains("smollm2-135m") && table.contains("Apache-2.0"), "{table}");
    assert_eq!(names(&home.path("")), [] as [String; 0], "listing writes nothing");
}
