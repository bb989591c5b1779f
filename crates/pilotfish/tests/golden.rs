//! Agreement with llama.cpp on real models: the same prompt ids, the same choices, near log-probabilities.
//!
//! `data/llamacpp_greedy.json` says how it was made. llama.cpp's own two kernel sets part from each other at
//! margins up to 0.34, so choices are compared where its recorded margin is at least 0.4.
//!
//! SmolLM2 is fetched through the catalog; `PILOTFISH_TEST_MODELS=all` adds the other three models.
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use pilotfish::{Engine, LoadOptions};
use pilotfish_engine::CachedLane;
use pilotfish_lane::{Batch, Want};
use pilotfish_model::text::Specials;
use serde_json::Value;

/// Choices are compared where llama.cpp's two best logits are at least this far apart.
const CLEAR_MARGIN: f64 = 0.4;

/// Largest difference of a log-probability among llama.cpp's five best.
///
/// SmolLM2's is wider than the 0.2 aimed at: of the four values that differ by more, two are nearer to the same
/// weights run in f32 here and two there, by up to 0.32 and 0.28 away, so this is int8 activations on both sides.
fn tolerance(model: &str) -> f64 {
    match model {
        "smollm2-135m" => 0.3,
        "gemma3-270m" => 0.4,
        _ => 0.2,
    }
}

struct Case {
    name: String,
    chat: bool,
    prompt: String,
    prompt_ids: Vec<u32>,
    gen_ids: Vec<u32>,
    margins: Vec<f64>,
    top5_first: Vec<(u32, f64)>,
}

fn cases(model: &str) -> Vec<Case> {
    let data: Value = serde_json::from_str(include_str!("data/llamacpp_greedy.json")).unwrap();
    let ids = |v: &Value| v.as_array().unwrap().iter().map(id).collect::<Vec<u32>>();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let case = |case: &Value| Case {
        name: format!("{model} {}", case["name"].as_str().unwrap()),
        chat: case["kind"] == "chat",
        prompt: text(&case["prompt"]),
        prompt_ids: ids(&case["prompt_ids"]),
        gen_ids: ids(&case["gen_ids"]),
        margins: case["margins"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect(),
        top5_first: case["top5_first"]
            .as_array()
            .unwrap()
            .iter()
            .map(|top| (id(&top["id"]), top["logprob"].as_f64().unwrap()))
            .collect(),
    };
    data[model].as_array().unwrap().iter().map(case).collect()
}

fn id(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn models() -> Vec<&'static str> {
    let mut models = vec!["smollm2-135m"];
    if std::env::var("PILOTFISH_TEST_MODELS").is_ok_and(|v| v == "all") {
        models.extend(["gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]);
    }
    models
}

fn load(model: &str) -> Engine {
    Engine::load(&LoadOptions::new(model)).unwrap()
}

/// Feeds tokens behind what the lane holds and returns the last row's logits.
fn feed(lane: &mut CachedLane, tokens: &[u32]) -> Vec<f32> {
    let rows = lane.forward(&Batch::chain(tokens, Want::Logits)).unwrap();
    let logits = rows.logits(tokens.len() - 1).unwrap().to_vec();
    lane.keep(&(0..tokens.len()).collect::<Vec<_>>()).unwrap();
    logits
}

fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] {
            best = i;
        }
    }
    best as u32
}

fn logprob(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
    f64::from(logits[token as usize] - max) - sum.ln()
}

#[test]
fn golden_prompt_ids_are_equal() {
    for model in models() {
        let engine = load(model);
        for case in cases(model) {
            let ids = if case.chat {
                engine.tokenizer().encode_prompt(&case.prompt, Specials::Parse)
            } else {
                engine.tokenizer().encode_prompt(&case.prompt, Specials::Plain)
            };
            assert_eq!(ids, case.prompt_ids, "{}", case.name);
        }
    }
}

#[test]
fn golden_choices_are_equal_where_the_margin_is_clear() {
    let mut faults = Vec::new();
    for model in models() {
        let mut engine = load(model);
        let tolerance = tolerance(model);
        let mut compared = 0;
        for case in cases(model) {
            let lane = engine.target();
            lane.truncate(0);
            let mut logits = feed(lane, &case.prompt_ids);
            for &(token, expected) in &case.top5_first {
                let ours = logprob(&logits, token);
                if (ours - expected).abs() > tolerance {
                    faults.push(format!("{}: token {token}: {ours:.3} against {expected:.3}", case.name));
                }
            }
            for (i, (&token, &margin)) in case.gen_ids.iter().zip(&case.margins).enumerate() {
                if margin >= CLEAR_MARGIN {
                    compared += 1;
                    if argmax(&logits) != token {
                        faults.push(format!("{} at {i}, margin {margin}", case.name));
                    }
                }
                logits = feed(lane, &[token]);
            }
        }
        println!("{model}: {compared} choices compared");
        assert!(compared > 200, "{model}: only {compared} clear choices were compared");
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn golden_continuations_part_only_at_small_margins() {
    for model in models() {
        let mut engine = load(model);
        for case in cases(model) {
            let lane = engine.target();
            lane.truncate(0);
            let mut logits = feed(lane, &case.prompt_ids);
            for (i, &token) in case.gen_ids.iter().enumerate() {
                let ours = argmax(&logits);
                if ours != token {
                    let margin = case.margins[i];
                    assert!(margin < CLEAR_MARGIN, "{} parts at {i}, margin {margin}", case.name);
                    break;
                }
                logits = feed(lane, &[ours]);
            }
        }
    }
}
