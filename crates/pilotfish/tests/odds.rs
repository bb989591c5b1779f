//! How sure lookup is of its guesses, against replies that models really gave.
//!
//! The replies are those recorded for `golden`: four models, seven prompts, 64 tokens each, greedy.
//!
//! Invariant: every position of every reply counts, and nothing is drafted behind the first guess.
//! Not here: whether drafting pays (`pilotfish bench`).
#![allow(clippy::unwrap_used, reason = "a panic is the test's failure")]

use pilotfish::SamplingParams;
use pilotfish_engine::draft::{Drafter, NgramDrafter, SuffixDrafter};
use pilotfish_engine::sampling::Sampler;
use pilotfish_engine::session::{Limits, NoText, Session};
use serde_json::Value;

/// Prompt and reply of each recorded run.
fn recorded() -> Vec<(Vec<u32>, Vec<u32>)> {
    let text = include_str!("data/llamacpp_greedy.json");
    let record: Value = serde_json::from_str(text).unwrap();
    let ids = |run: &Value, name: &str| -> Vec<u32> { serde_json::from_value(run[name].clone()).unwrap() };
    let models = record.as_object().unwrap().values().filter_map(Value::as_array);
    models.flatten().map(|run| (ids(run, "prompt_ids"), ids(run, "gen_ids"))).collect()
}

/// Guesses of one range of odds.
#[derive(Clone, Copy, Default)]
struct Bin {
    guesses: u32,
    right: u32,
    odds: f64,
}

/// First guesses over all positions, by quarters of odds: places in one reply are right or wrong together, so finer
/// ranges are luck.
fn tally(drafter: fn() -> Box<dyn Drafter>) -> [Bin; 4] {
    let mut bins = [Bin::default(); 4];
    for (prompt, reply) in recorded() {
        let limits = Limits { max_tokens: None, context: 10_000, end_tokens: vec![], ignore_eos: true };
        let sampler = Sampler::new(SamplingParams::greedy(), 1 << 20, 0).unwrap();
        let mut session = Session::new(prompt, limits, sampler, Box::new(NoText)).unwrap();
        let mut drafter = drafter();
        for token in reply {
            let draft = drafter.propose(&session, 1).unwrap();
            for node in 1..draft.width() {
                let guess = draft.guess(node);
                let bin = &mut bins[(4.0 * guess.probability) as usize];
                bin.guesses += 1;
                bin.right += u32::from(guess.token == token);
                bin.odds += f64::from(guess.probability);
            }
            session.commit(&[token]);
        }
    }
    bins
}

#[test]
fn odds_are_what_recorded_replies_show() {
    let drafters: [fn() -> Box<dyn Drafter>; 2] =
        [|| Box::new(NgramDrafter::new()), || Box::new(SuffixDrafter::new(0))];
    for drafter in drafters {
        let (bins, name) = (tally(drafter), drafter().name().to_owned());
        let mut all = Bin::default();
        for bin in bins.iter().filter(|bin| bin.guesses > 0) {
            let of = |sum: f64| sum / f64::from(bin.guesses);
            let (right, odds) = (of(bin.right.into()), of(bin.odds));
            println!("{name}: {} guesses at {odds:.2}, {right:.2} right", bin.guesses);
            assert!(bin.guesses < 50 || (right - odds).abs() < 0.15, "{name}: {right} at {odds}");
            all.guesses += bin.guesses;
            all.right += bin.right;
            all.odds += bin.odds;
        }
        let (right, odds, n) = (f64::from(all.right), all.odds, f64::from(all.guesses));
        println!("{name}: {n} guesses, {right} right, {odds:.1} expected");
        assert!(n > 200.0 && (right - odds).abs() < 0.1 * n, "{name}: {right} of {n}, expected {odds}");
    }
}
