//! The promise on a real model: SmolLM2's token ids are equal with and without speculation.
//!
//! `PILOTFISH_TEST_MODELS=all` runs fifty prompts of 256 tokens; by default a few short ones run.
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use pilotfish::{DrafterChoice, Engine, Event, GenerateOptions, LoadOptions, Message, SamplingParams};

const TOPICS: [&str; 10] = [
    "how a CPU cache works",
    "the water cycle",
    "why the sky is blue",
    "how to bake bread",
    "what a prime number is",
    "the rules of chess",
    "how vaccines work",
    "what inflation means",
    "how bees make honey",
    "the phases of the moon",
];

const TASKS: [&str; 5] = [
    "Explain {} in simple words.",
    "Write a short list of ten facts about {}.",
    "Write a dialogue between a teacher and a pupil about {}.",
    "Repeat this sentence five times, then explain it: I want to learn about {}.",
    "Write a Python dictionary with eight entries about {}.",
];

fn prompts() -> Vec<String> {
    TASKS.iter().flat_map(|task| TOPICS.iter().map(move |topic| task.replace("{}", topic))).collect()
}

/// Reply tokens, and how many were drafted and accepted.
fn reply(engine: &mut Engine, prompt: &str, options: &GenerateOptions) -> (Vec<u32>, usize, usize) {
    for event in engine.chat(&[Message::user(prompt)], options).unwrap() {
        if let Event::Finished(summary) = event.unwrap() {
            return (summary.tokens, summary.stats.drafted, summary.stats.accepted);
        }
    }
    panic!("a generation ends with Finished")
}

#[test]
fn speculation_never_changes_a_real_answer() {
    let all = std::env::var("PILOTFISH_TEST_MODELS").is_ok_and(|v| v == "all");
    let (n_prompts, n_tokens) = if all { (50, 256) } else { (6, 48) };
    let load = |drafter| {
        let mut options = LoadOptions::new("smollm2-135m");
        options.drafter = drafter;
        // Parking would hide drafts where timing is noisy; here every draft must be tried.
        options.parking = false;
        Engine::load(&options).unwrap()
    };
    let (mut plain, mut speculative) = (load(DrafterChoice::None), load(DrafterChoice::Auto));
    let (mut compared, mut drafted, mut accepted) = (0, 0, 0);
    for (i, prompt) in prompts().iter().step_by(50 / n_prompts).take(n_prompts).enumerate() {
        for temperature in [0.0, 0.8] {
            let sampling = SamplingParams { temperature, seed: i as u64, ..SamplingParams::default() };
            let options =
                GenerateOptions { max_tokens: Some(n_tokens), sampling, ..GenerateOptions::default() };
            let (expected, none, _) = reply(&mut plain, prompt, &options);
            assert_eq!(none, 0);
            let (tokens, d, a) = reply(&mut speculative, prompt, &options);
            assert_eq!(tokens, expected, "temperature {temperature}: {prompt}");
            compared += tokens.len();
            drafted += d;
            accepted += a;
        }
    }
    println!("{compared} tokens equal; {drafted} drafted, {accepted} accepted");
    assert!(accepted > 0 && accepted < drafted, "right and wrong guesses must both occur");
}
