//! `--trace` and `--show-drafts`: what rounds did, and who guessed what.

use std::fs;

use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;
use serde_json::Value;

use crate::harness::{Home, keys};

const ANSWER: [&str; 7] = ["-m", "model.gguf", "-n", "200", "--ignore-eos", "-t", "1"];

/// The first line of a trace and its rounds.
fn trace(home: &Home, name: &str) -> (Value, Vec<Value>) {
    let text = fs::read_to_string(home.path(name)).unwrap();
    assert!(text.ends_with('\n'), "whole lines only");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (lines.next().expect("a header"), lines.collect())
}

fn sum(rounds: &[Value], field: &str) -> u64 {
    rounds.iter().map(|round| round[field].as_u64().unwrap()).sum()
}

fn sum_of_sources(rounds: &[Value], field: &str) -> u64 {
    let counts = rounds.iter().flat_map(|round| round[field].as_object().unwrap().values());
    counts.map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn a_trace_adds_up_to_the_answer() {
    let home = Home::with_model();
    home.write("trace", &[b'x'; 1 << 20]); // longer than what replaces it
    for drafter in [&[][..], &["--drafter", "none"], &["-md", "model.gguf"]] {
        let args =
            [&["run", "--raw", "ab ab ab", "--json", "--trace", "trace"][..], &ANSWER, drafter].concat();
        let answer = home.run(&args).json();
        let (header, rounds) = trace(&home, "trace");
        assert_eq!(keys(&header), ["schema", "model", "drafter", "numerics_id", "lane", "threads"]);
        assert_eq!(header["schema"], "pilotfish-trace/1");
        assert_eq!(header["drafter"], answer["speculation"]["drafter"]);
        let timings = &answer["timings"];
        assert_eq!(sum(&rounds, "committed"), 200);
        assert_eq!(sum(&rounds, "drafted"), timings["draft_n"]);
        assert_eq!(sum(&rounds, "accepted"), timings["draft_n_accepted"]);
        assert_eq!(sum_of_sources(&rounds, "sources"), sum(&rounds, "drafted"));
        assert_eq!(sum_of_sources(&rounds, "accepted_sources"), sum(&rounds, "accepted"));
        assert_eq!(sum(&rounds, "width"), sum(&rounds, "drafted") + rounds.len() as u64);
        let micros = ["draft_us", "verify_us", "host_us"].map(|part| sum(&rounds, part)).iter().sum::<u64>();
        let millis = timings["predicted_ms"].as_f64().unwrap();
        assert!(
            (micros as f64 / 1e3 - millis).abs() < 1e-3 * rounds.len() as f64,
            "{micros} µs, {millis} ms"
        );
        for (i, round) in rounds.iter().enumerate() {
            assert_eq!((round["reply"].as_u64(), round["round"].as_u64()), (Some(0), Some(i as u64)));
            assert!(round["proposed"].as_u64() >= round["drafted"].as_u64(), "{round}");
        }
        assert_eq!(rounds.last().unwrap()["parked"], answer["speculation"]["parked"]);
        assert_eq!(
            rounds.last().unwrap().get("reason").unwrap_or(&Value::Null),
            &answer["speculation"]["reason"]
        );
    }
    let round = &trace(&home, "trace").1[0];
    let fields = ["reply", "round", "width", "proposed", "drafted", "accepted", "committed", "sources"];
    let rest = ["accepted_sources", "draft_us", "verify_us", "host_us", "parked"];
    assert!(keys(round).iter().take(13).eq(fields.iter().chain(&rest)), "{round}");
}

#[test]
fn a_chat_traces_every_reply() {
    let home = Home::with_model();
    let args = ["chat", "-m", "model.gguf", "-n", "5", "--ignore-eos", "--trace", "trace"];
    let ran = home.run_with_input(&args, b"hello\n/nonsense\nand then?\n");
    assert_eq!(ran.code, Some(1), "one line of it failed");
    let (_, rounds) = trace(&home, "trace");
    for reply in 0..2 {
        let own: Vec<Value> = rounds.iter().filter(|round| round["reply"] == reply).cloned().collect();
        assert_eq!(sum(&own, "committed"), 5);
    }
}

#[test]
fn a_bench_traces_every_run_and_counts_by_source() {
    let home = Home::new();
    home.write("model.gguf", &TinySpec { layers: 1, context: 4096, ..TinySpec::new(Family::Llama) }.gguf());
    let args = ["bench", "-m", "model.gguf", "-n", "60", "-r", "2", "--only", "edit", "-t", "1"];
    let record = home.run(&[&args[..], &["--json", "--trace", "trace"]].concat()).json();
    let (_, rounds) = trace(&home, "trace");
    let (drafted, plain): (Vec<Value>, Vec<Value>) =
        rounds.into_iter().partition(|round| round["speculative"] == true);
    assert!(plain.iter().chain(&drafted).all(|round| round["prompt"] == "edit"));
    let tokens = record["prompts"][0]["tokens"].as_u64().unwrap();
    assert_eq!((sum(&plain, "drafted"), sum(&plain, "committed")), (0, 2 * tokens));
    assert_eq!(sum(&drafted, "committed"), 2 * tokens);
    let by_source = record["prompts"][0]["by_source"].as_array().unwrap();
    let of_record = |field: &str| by_source.iter().map(|count| count[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!(of_record("drafted"), sum(&drafted, "drafted"));
    assert_eq!(of_record("accepted"), sum(&drafted, "accepted"));
    assert!(by_source.iter().all(|count| keys(count) == ["source", "rounds", "drafted", "accepted"]));
    let table = home.run(&[&args[..], &["-md", "model.gguf", "--drafter", "model"]].concat()).ok();
    assert!(table.contains("SOURCE") && table.contains("SHARE") && table.contains("model"), "{table}");
    home.run(&["bench", "-m", "none.gguf", "--curve", "--trace", "t"]).fails(2, &["--trace", "--curve"]);
    home.run(&["bench", "-m", "none.gguf", "--out", "t", "--trace", "t"]).fails(2, &["--trace", "--out"]);
    assert!(!home.path("t").exists());
}

#[test]
fn a_trace_that_cannot_be_written_is_told_before_the_model_is_loaded() {
    let home = Home::new();
    for (command, more) in [("run", &["hello"][..]), ("chat", &[]), ("bench", &[])] {
        for path in ["no/trace", "."] {
            let args = [&[command, "-m", "none.gguf", "--trace", path][..], more].concat();
            home.run(&args).fails(1, &["cannot write", path]);
        }
    }
    let same = ["run", "-m", "none.gguf", "--spec-history", "f", "--trace", "f", "x"];
    home.run(&same).fails(2, &["--trace and --spec-history"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_trace_that_fails_later_is_told_once_and_the_answer_is_whole() {
    let home = Home::with_model();
    let base = [&["run", "--raw", "ab ab ab"][..], &ANSWER].concat();
    let whole = home.run(&base).ok();
    let ran = home.run(&[&base[..], &["--trace", "/dev/full"]].concat());
    assert_eq!((ran.code, ran.stdout), (Some(1), whole));
    assert_eq!(ran.stderr.matches("cannot write the trace `/dev/full`").count(), 1, "{}", ran.stderr);
}

#[test]
fn shown_drafts_off_a_terminal_are_the_plain_answer_and_a_legend() {
    let home = Home::with_model();
    let base = [&["run", "--raw", "ab ab ab"][..], &ANSWER].concat();
    let plain = home.run(&base);
    assert!(!plain.stderr.contains("by source"));
    let ran = home.run(&[&base[..], &["--show-drafts"]].concat());
    assert_eq!((ran.code, &ran.stdout), (Some(0), &plain.stdout));
    assert!(ran.stderr.contains("shows no colours: stdout is no terminal"), "{}", ran.stderr);
    assert!(ran.stderr.contains("tokens by source: ") && !ran.stderr.contains('\x1b'), "{}", ran.stderr);
    let unwanted =
        home.command(&[&base[..], &["--show-drafts"]].concat()).env("NO_COLOR", "1").output().unwrap();
    assert!(String::from_utf8(unwanted.stderr).unwrap().contains("NO_COLOR is set"));
}

#[test]
fn shown_drafts_need_drafts_and_a_streamed_answer() {
    let home = Home::new();
    let base = ["run", "-m", "none.gguf", "x", "--show-drafts"];
    for (more, part) in [
        (&["--json"][..], "--json"),
        (&["--logprobs", "1"], "--logprobs"),
        (&["--drafter", "none"], "--drafter"),
    ] {
        home.run(&[&base[..], more].concat()).fails(2, &["--show-drafts", part]);
    }
}
