//! The same tokens with and without guesses; drafters that do not fit are refused.

use std::fs;

use pilotfish_model::Family;
use pilotfish_model::testing::TinySpec;
use serde_json::Value;

use crate::harness::{Home, ids};

#[test]
fn every_drafter_gives_the_same_tokens() {
    let home = Home::new();
    let k = 3;
    for family in [Family::Llama, Family::Gemma3] {
        let spec = TinySpec { layers: 3, ..TinySpec::new(family) };
        home.write("model.gguf", &spec.gguf());
        home.write("other.gguf", &TinySpec { layers: 1, ..spec.clone() }.with_seed(9).gguf());
        // Lengths around the draft's and around Gemma's window.
        for n in [1, k, k + 1, spec.window - 1, spec.window, spec.window + 1] {
            let prompt = "abcabcab".repeat(8)[..n].to_owned();
            for sampling in [&[][..], &["--temp", "0.8", "-s", "5"]] {
                let base = [&["--raw", &prompt, "-n", "40", "--ignore-eos"][..], sampling].concat();
                let plain = ids(&home.answer(&[&base[..], &["--drafter", "none"]].concat())["tokens"]);
                assert_eq!(plain.len(), 40);
                let right =
                    home.answer(&[&base[..], &["-md", "model.gguf", "--spec-draft-n-max", "3"]].concat());
                assert_eq!(ids(&right["tokens"]), plain, "{family:?} {n} {sampling:?}");
                assert!(right["timings"]["draft_n_accepted"].as_u64() > Some(0), "{right}");
                let model = &["--drafter", "model", "-md", "other.gguf"][..];
                for drafter in
                    [&["--drafter", "ngram"][..], &["--drafter", "suffix"], model, &["-md", "other.gguf"]]
                {
                    let answer = home.answer(&[&base[..], drafter].concat());
                    assert_eq!(ids(&answer["tokens"]), plain, "{family:?} {n} {sampling:?} {drafter:?}");
                }
            }
        }
    }
}

#[test]
fn a_model_that_works_ahead_gives_the_same_tokens() {
    let home = Home::new();
    let spec = TinySpec { layers: 3, ..TinySpec::new(Family::Llama) };
    home.write("model.gguf", &spec.gguf());
    home.write("other.gguf", &TinySpec { layers: 1, ..spec }.with_seed(9).gguf());
    for sampling in
        [&[][..], &["--temp", "0.8", "-s", "5"], &["--temp", "0.8", "--spec-sampling", "rejection"]]
    {
        for model in ["model.gguf", "other.gguf"] {
            let base = ["--raw", "abcab", "-n", "40", "--ignore-eos", "--spec", "on", "-md", model];
            let base = [&base[..], &["--drafter", "model", "--spec-draft-n-max", "3"], sampling].concat();
            let with = |name| home.answer(&[&base[..], &["--pipeline", name]].concat());
            let (off, auto, on) = (with("off"), with("auto"), with("on"));
            assert_eq!(on["tokens"], off["tokens"], "{model} {sampling:?}");
            assert_eq!(auto["tokens"], off["tokens"], "{model} {sampling:?}");
            let pipeline = |answer: &Value| answer["speculation"]["pipeline"].clone();
            assert_eq!(pipeline(&on)["on"], true);
            assert_eq!(pipeline(&off)["reason"], "it is switched off");
            assert_eq!(pipeline(&auto)["reason"], "target and drafter share one device, cpu");
        }
    }
    let run = ["run", "-m", "model.gguf", "-md", "model.gguf", "--drafter", "model", "--spec", "on"];
    let told = |name: &str| home.run(&[&run[..], &["--pipeline", name, "-n", "20", "--raw", "ab"]].concat());
    assert!(told("on").stderr.contains("drafts begun ahead were of use"));
    assert!(!told("auto").stderr.contains("begun ahead"));
}

#[test]
fn a_long_answer_is_the_same_with_ngrams() {
    let home = Home::with_model();
    let base = ["--raw", "ab ab ab ab", "-n", "480", "--ignore-eos"];
    let plain = home.answer(&[&base[..], &["--drafter", "none"]].concat());
    let guessed = home.answer(&[&base[..], &["--drafter", "ngram", "--spec-draft-n-max", "8"]].concat());
    assert_eq!(plain["tokens"], guessed["tokens"]);
    assert_eq!(plain["timings"]["draft_n"], 0);
}

#[test]
fn quantized_keys_and_values_give_the_same_tokens_with_every_drafter() {
    let home = Home::with_model();
    home.write("narrow.gguf", &TinySpec { head_dim: 16, ..TinySpec::new(Family::Llama) }.gguf());
    let prompt = "ab cd ".repeat(20);
    let base = ["--raw", &prompt, "-n", "60", "--ignore-eos", "-ctk", "q8_0", "-ctv", "q8_0"];
    let plain = home.answer(&[&base[..], &["--drafter", "none"]].concat());
    // The drafter's own keys and values stay f16, so its heads may have any width.
    for drafter in [&["--drafter", "ngram"][..], &["-md", "model.gguf"], &["-md", "narrow.gguf"]] {
        let guessed = home.answer(&[&base[..], drafter].concat());
        assert_eq!(guessed["tokens"], plain["tokens"], "{drafter:?}");
        assert!(guessed["timings"]["draft_n"].as_u64() > Some(0), "{guessed}");
    }
    let kept = [&["run", "-m", "narrow.gguf"][..], &base].concat();
    home.run(&kept).fails(1, &["cannot load", "multiple of 32", "have 16"]);
    let shown = home.run(&["inspect", "narrow.gguf", "-ctk", "q8_0", "-ctv", "q8_0"]).ok();
    assert!(shown.contains("cannot run") && shown.contains("have 16"), "{shown}");
}

#[test]
fn answers_kept_in_a_file_are_looked_up_by_the_next_run() {
    let home = Home::with_model();
    let base = ["--raw", "the fish", "-n", "40", "--ignore-eos", "--temp", "0.9", "-s", "3"];
    let plain = home.answer(&[&base[..], &["--drafter", "none"]].concat());
    let with_history =
        || home.answer(&[&base[..], &["--drafter", "suffix", "--spec-history", "past"]].concat());
    let [first, second] = [with_history(), with_history()];
    assert_eq!((&first["tokens"], &second["tokens"]), (&plain["tokens"], &plain["tokens"]));
    let accepted = |answer: &Value| answer["timings"]["draft_n_accepted"].as_u64().unwrap();
    assert!(accepted(&second) > accepted(&first), "{first} {second}");
    let auto = home.answer(&[&base[..], &["--spec-history", "past"]].concat());
    assert_eq!(
        (&auto["tokens"], &auto["speculation"]["drafter"]),
        (&plain["tokens"], &"ngram+suffix".into())
    );
}

#[test]
fn a_history_that_cannot_be_used_is_told_and_costs_no_answer() {
    let home = Home::with_model();
    home.write("other.gguf", &TinySpec::new(Family::Gemma3).gguf());
    let run = |model: &str, file: &str| {
        let ran =
            home.run(&["run", "-m", model, "--raw", "ab", "-n", "4", "--ignore-eos", "--spec-history", file]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr
            .lines()
            .filter(|line| line.starts_with("note: the history "))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(run("model.gguf", "past"), "");
    assert_eq!(run("model.gguf", "past"), "");
    let other = run("other.gguf", "past");
    assert!(
        other.contains("past` is not used and will be replaced: it is of a model with another vocabulary"),
        "{other}"
    );
    let mut bytes = fs::read(home.path("past")).unwrap();
    bytes.truncate(bytes.len() - 3);
    home.write("past", &bytes);
    let cut = run("other.gguf", "past");
    assert!(cut.contains("it is damaged") && cut.lines().count() == 1, "{cut}");
    assert_eq!(run("other.gguf", "past"), "");
    home.write("notes", b"dear diary");
    let notes = run("model.gguf", "notes");
    assert!(notes.lines().count() == 2 && notes.contains("is left as it is"), "{notes}");
    assert_eq!(fs::read(home.path("notes")).unwrap(), b"dear diary");
    let nowhere = run("model.gguf", "no/folder");
    assert!(nowhere.contains("cannot write"), "{nowhere}");
}

#[test]
fn log_probabilities_are_the_same_with_every_drafter() {
    let home = Home::with_model();
    home.write("other.gguf", &TinySpec::new(Family::Llama).with_seed(9).gguf());
    for sampling in [&[][..], &["--temp", "0.8", "-s", "5"]] {
        let base =
            [&["--raw", "ab ab ab", "-n", "30", "--ignore-eos", "--logprobs", "3"][..], sampling].concat();
        let plain = home.answer(&[&base[..], &["--drafter", "none"]].concat());
        for drafter in [&["--drafter", "ngram"][..], &["-md", "model.gguf"], &["-md", "other.gguf"]] {
            let guessed = home.answer(&[&base[..], drafter].concat());
            assert_eq!(guessed["logprobs"], plain["logprobs"], "{drafter:?} {sampling:?}");
            assert!(guessed["timings"]["draft_n"].as_u64() > Some(0), "{guessed}");
        }
    }
}

#[test]
fn sampling_by_rejection_changes_only_sampled_text() {
    let home = Home::with_model();
    // With --spec auto, what is drafted depends on time, and with it the text.
    let base = ["--raw", "ab ab ab", "-n", "40", "--ignore-eos", "-md", "model.gguf", "--spec", "on"];
    let tokens = |extra: &[&str]| home.answer(&[&base[..], extra].concat())["tokens"].clone();
    assert_eq!(tokens(&["--spec-sampling", "rejection"]), tokens(&[]));
    let rejection = tokens(&["--temp", "1", "--spec-sampling", "rejection"]);
    assert_eq!(tokens(&["--temp", "1", "--spec-sampling", "rejection"]), rejection, "repeatable per seed");
    assert_ne!(tokens(&["--temp", "1", "--spec-sampling", "rejection", "-s", "1"]), rejection);
    assert_ne!(tokens(&["--temp", "1", "--spec-sampling", "coupled"]), rejection);
}

#[test]
fn threads_change_no_token() {
    let home = Home::with_model();
    let base = ["run", "--json", "-m", "model.gguf", "--raw", "the fish", "-n", "16", "--ignore-eos"];
    let run = |extra: &[&str]| home.run(&[&base[..], extra].concat()).json()["tokens"].clone();
    let one = run(&["-t", "1"]);
    assert_eq!(run(&["-t", "2"]), one);
    assert_eq!(run(&["-t", "3"]), one);
}

#[test]
fn a_drafter_with_another_vocabulary_is_refused_with_the_reason() {
    let home = Home::with_model();
    home.write("gemma.gguf", &TinySpec::new(Family::Gemma3).gguf());
    home.write("large.gguf", &TinySpec { vocab: 640, ..TinySpec::new(Family::Llama) }.gguf());
    home.write("shifted.gguf", &TinySpec { vocab: 330, ..TinySpec::new(Family::Llama) }.gguf());
    for (drafter, reason) in
        [("gemma.gguf", "tokenizer"), ("large.gguf", "640"), ("shifted.gguf", "token 317")]
    {
        home.run(&["run", "-m", "model.gguf", "-md", drafter, "x"])
            .fails(1, &[drafter, "model.gguf", reason]);
    }
}

#[test]
fn a_drafter_never_changes_what_is_refused() {
    let home = Home::with_model();
    let text = "z".repeat(600);
    for drafter in [&["--drafter", "none"][..], &["-md", "model.gguf"]] {
        let args = [&["run", "-m", "model.gguf", "--raw", &text][..], drafter].concat();
        home.run(&args).fails(1, &["600 tokens", "512"]);
    }
}

#[test]
fn any_draft_length_gives_the_same_tokens() {
    let home = Home::with_model();
    let base = ["--raw", "ab ab ab", "-n", "30", "--ignore-eos"];
    let plain = home.answer(&[&base[..], &["--drafter", "none"]].concat())["tokens"].clone();
    for drafter in [&["--drafter", "ngram"][..], &["--drafter", "suffix"], &[], &["-md", "model.gguf"]] {
        for max in ["0", "1", "8", "1000000000"] {
            let answer = home.answer(&[&base[..], drafter, &["--spec-draft-n-max", max]].concat());
            assert_eq!(answer["tokens"], plain, "{drafter:?} {max}");
            assert!(max != "0" || answer["timings"]["draft_n"] == 0, "{answer}");
        }
    }
}

#[test]
fn speculation_is_switched_by_one_flag() {
    let home = Home::with_model();
    let base = ["--raw", "ab ab ab", "-n", "40", "--ignore-eos"];
    let answer = |extra: &[&str]| home.answer(&[&base[..], extra].concat());
    let (off, auto, on) =
        (answer(&["--spec", "off"]), answer(&["--spec", "auto"]), answer(&["--spec", "on"]));
    assert_eq!((&off["tokens"], &off["tokens"]), (&auto["tokens"], &on["tokens"]));
    assert_eq!(off["timings"]["draft_n"], 0);
    assert!(on["timings"]["draft_n"].as_u64() > Some(0), "{on}");
    assert_eq!(answer(&["--spec-draft-n-max", "auto"])["tokens"], off["tokens"]);
    for (flags, part) in [
        (&["--spec", "off", "-md", "model.gguf"][..], "-md has no meaning with --spec off"),
        (
            &["--spec", "off", "--spec-draft-p-min", "0.5"],
            "--spec-draft-p-min has no meaning with --spec off",
        ),
        (&["--spec", "on", "--drafter", "none"], "--spec on has no meaning with --drafter none"),
        (&["--spec-draft-n-max", "much"], "not a whole number, or auto"),
    ] {
        let ran = home.run(&[&["run", "x"][..], flags].concat());
        assert_eq!(ran.code, Some(2), "{flags:?}");
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

#[test]
fn curves_are_measured_once() {
    let home = Home::with_model();
    let run = |extra: &[&str]| {
        let ran = home.run(
            &[&["run", "-v", "-m", "model.gguf", "--raw", "ab", "-n", "2", "--ignore-eos"][..], extra]
                .concat(),
        );
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr.contains("measuring what passes")
    };
    assert!(!run(&["--spec", "off"]) && !run(&["--spec", "on"]), "nobody asks what passes cost");
    assert!(run(&["-t", "1"]));
    assert!(!run(&["-t", "1"]));
    assert!(run(&["-t", "2"]), "another number of threads is another curve");
}
