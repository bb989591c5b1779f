//! Sampling by rejection through the whole loop: what must hold beside the law, and the law by counting.
//!
//! Invariant: seeds are fixed, so a failure repeats.
//! Not here: the exact law (`speculate::enumeration` in the sources).

mod setup;

use std::sync::Arc;

use pilotfish_engine::CachedLane;
use pilotfish_engine::draft::{Drafter, ModelDrafter, NgramDrafter, NoDrafter};
use pilotfish_engine::sampling::{SamplingParams, logprobs};
use pilotfish_engine::speculate::{Options, Pipelining, SpecSampling, Speculator, Stats};
use pilotfish_lane::testing::ScriptedLane;
use setup::{Case, Engines, Planned, Shape, TwoLanes, both_params};

const VOCAB: usize = 40;

fn case(target: ScriptedLane, max_tokens: usize) -> Case {
    let mut case = Case::new(target, &[1, 2, 3], max_tokens);
    case.options = Options { spec_sampling: SpecSampling::Rejection, ..Options::default() };
    case
}

fn model(lane: ScriptedLane) -> Box<dyn Drafter> {
    Box::new(ModelDrafter::new(Box::new(lane), VOCAB, 0.0))
}

fn drafters(case: &Case, seed: u64) -> Vec<(&'static str, Box<dyn Drafter>)> {
    vec![
        ("none", Box::new(NoDrafter)),
        ("ngram", Box::new(NgramDrafter::new())),
        ("the target itself", model(case.target.twin())),
        ("a similar model", model(case.target.perturbed(seed, 2.0))),
        ("planned chains", Box::new(Planned::mixed(case, seed, false))),
        ("planned trees", Box::new(Planned::mixed(case, seed, true))),
    ]
}

#[test]
fn speculation_by_rejection_is_greedy_at_temperature_zero() {
    let penalized = SamplingParams { repeat_penalty: 1.4, repeat_last_n: -1, ..SamplingParams::greedy() };
    for seed in 0..4 {
        for params in [SamplingParams::greedy(), penalized.clone()] {
            let mut case = case(ScriptedLane::markov(VOCAB, 400, seed, 6.0, 2), 40);
            case.params = params;
            let expected = case.by_hand(40);
            for (name, drafter) in drafters(&case, seed) {
                assert_eq!(case.run(drafter, 4).reply, expected, "{name}");
            }
        }
    }
}

#[test]
fn speculation_by_rejection_repeats_itself_per_seed() {
    let mut case = case(ScriptedLane::markov(VOCAB, 400, 7, 3.0, 2), 60);
    for i in 0..6 {
        let mut run = |seed| {
            case.params = both_params(seed)[1].clone();
            let (name, drafter) = drafters(&case, 5).remove(i);
            (name, case.run(drafter, 4).reply)
        };
        let first = run(1);
        assert_eq!(run(1), first);
        assert_ne!(run(2), first);
    }
}

#[test]
fn speculation_by_rejection_keeps_every_guess_of_the_targets_own_law() {
    for seed in 0..4 {
        let mut case = case(ScriptedLane::hashed(VOCAB, 400, seed, 3.0), 60);
        case.params = both_params(seed)[1].clone();
        let outcome = case.run(model(case.target.twin()), 4);
        assert_eq!((outcome.stats.accepted, outcome.stats.rounds), (outcome.stats.drafted, 12));
    }
}

#[test]
fn speculation_by_rejection_keeps_more_than_coupled_sampling() {
    let mut kept = [0, 0];
    for (sum, mode) in kept.iter_mut().zip([SpecSampling::Rejection, SpecSampling::Coupled]) {
        for seed in 0..20 {
            let mut case = case(ScriptedLane::hashed(VOCAB, 400, seed, 3.0), 100);
            case.options.spec_sampling = mode;
            case.params = SamplingParams { temperature: 1.5, seed, ..SamplingParams::greedy() };
            *sum += case.run(model(case.target.perturbed(seed, 4.0)), 1).stats.accepted;
        }
    }
    // Not many more: two draws with the same Gumbel noise agree nearly as often as two draws can.
    assert!(kept[0] > kept[1] + kept[1] / 50, "{kept:?}");
}

#[test]
fn speculation_by_rejection_gives_the_models_own_log_probabilities() {
    let mut case = case(ScriptedLane::hashed(VOCAB, 400, 3, 3.0), 30);
    case.options.logprobs = Some(3);
    for seed in 0..3 {
        case.params = both_params(seed)[1].clone();
        for (name, drafter) in drafters(&case, seed) {
            let outcome = case.run(drafter, 4);
            let mut text = case.prompt.clone();
            for (entry, &token) in outcome.logprobs.iter().zip(&outcome.reply) {
                assert_eq!(*entry, logprobs(&case.target.logits(&text), token, 3), "{name}");
                text.push(token);
            }
            assert_eq!(outcome.logprobs.len(), 30);
        }
    }
}

/// Counts of the first `N` tokens of replies one longer over many seeds, against the target's law; as in
/// `enumeration::sampled`. `set` prepares the case; returns what all replies together did.
fn check_law<const N: u32>(
    what: &str,
    (width, draft_max): (usize, usize),
    set: &dyn Fn(&mut Case),
    make: &dyn Fn(&Case) -> Box<dyn Drafter>,
) -> Stats {
    const REPLIES: usize = 60_000;
    let cells = 3_usize.pow(N);
    let mut case = case(ScriptedLane::hashed(3, 400, 2, 1.5), N as usize + 1);
    case.prompt = vec![1, 2, 0];
    set(&mut case);
    let mut counts = vec![0_usize; cells];
    let mut lane = CachedLane::new(Box::new(case.target.twin().with_max_width(width)));
    let mut speculator = Speculator::new(make(&case), Some(draft_max), false).with_pipeline(case.pipeline);
    let mut sum = Stats::default();
    for seed in 0..REPLIES as u64 {
        case.params = SamplingParams { temperature: 0.8, seed, ..SamplingParams::greedy() };
        let outcome = case.run_on(&mut lane, &mut speculator);
        counts[outcome.reply[..N as usize].iter().fold(0, |cell, &token| cell * 3 + token as usize)] += 1;
        sum.drafted += outcome.stats.drafted;
        sum.ahead_rounds += outcome.stats.ahead_rounds;
        sum.ahead_hits += outcome.stats.ahead_hits;
    }
    let mut law = vec![(case.prompt.clone(), 1.0)];
    for _ in 0..N {
        let longer = law.iter().flat_map(|(text, p)| {
            let weights: Vec<f64> =
                case.target.logits(text).iter().map(|&x| (f64::from(x) / 0.8).exp()).collect();
            let sum: f64 = weights.iter().sum();
            (0..3).zip(weights).map(move |(token, weight)| ([&text[..], &[token]].concat(), p * weight / sum))
        });
        law = longer.collect();
    }
    let off = |(&count, (_, p)): (&usize, &(Vec<u32>, f64))| (count as f64 / REPLIES as f64 - p).abs();
    let distance: f64 = counts.iter().zip(&law).map(off).sum::<f64>() / 2.0;
    let bound = ((cells as f64 * std::f64::consts::LN_2 + 1e9_f64.ln()) / (2.0 * REPLIES as f64)).sqrt();
    assert!(sum.drafted >= REPLIES, "{what}: {} guesses", sum.drafted);
    assert!(distance < bound, "{what}: {distance} is not below {bound}");
    sum
}

#[test]
fn speculation_by_rejection_follows_the_targets_law() {
    check_law::<2>("a similar model", (9, 2), &|_| (), &|case| {
        Box::new(ModelDrafter::new(Box::new(case.target.perturbed(4, 1.5)), 3, 0.0))
    });
    check_law::<2>("picked trees", (4, 2), &|_| (), &|case| {
        Box::new(Planned::new(case, |limit| Shape::Bushy { right: limit }))
    });
}

#[test]
fn speculation_by_rejection_follows_the_targets_law_with_work_ahead() {
    // The third token's guess is drawn ahead, and once more by the same numbers where that was dropped.
    let set = |case: &mut Case| {
        case.options.clock = Arc::new(TwoLanes::new(Engines::DrafterFirst));
        case.pipeline = Pipelining::On;
    };
    let stats = check_law::<3>("a model that works ahead", (9, 1), &set, &|case| {
        Box::new(ModelDrafter::new(Box::new(case.target.perturbed(4, 1.5)), 3, 0.0))
    });
    let (hits, missed) = (stats.ahead_hits, stats.ahead_rounds - stats.ahead_hits);
    assert!(hits > 15_000 && missed > 15_000, "{hits} hits, {missed} misses");
}
