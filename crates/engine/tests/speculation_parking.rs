//! Losing and failing drafters are parked with a reason, and the text does not notice.
//!
//! Time is a counter that scripted lanes advance by the cost of each pass.
//!
//! Invariant: replies are compared with the ones made by hand in every case.
//! Not here: the rules of parking, round by round (`speculate::budget`).

mod setup;

use std::sync::Arc;

use pilotfish_engine::draft::{Drafter, ModelDrafter, NgramDrafter, SuffixDrafter, Union};
use pilotfish_engine::speculate::{Generation, Options, Speculator};
use pilotfish_engine::{CachedLane, EngineError};
use pilotfish_lane::LaneError;
use pilotfish_lane::testing::{Fault, ScriptedLane, hash_tokens};
use setup::{Case, FakeClock, Outcome, Planned, Shape, both_params};

const VOCAB: usize = 40;

/// A target with 10 ms a pass and `row_us` for each row past the first.
fn costly(target: &ScriptedLane, clock: &FakeClock, row_us: u64) -> CachedLane {
    let cost = move |width: usize| 10_000 + row_us * (width as u64 - 1);
    CachedLane::new(Box::new(target.twin().with_cost(Arc::clone(&clock.0), cost)))
}

/// A model drafter with `ms` per pass.
fn model(lane: ScriptedLane, clock: &FakeClock, ms: u64) -> Box<dyn Drafter> {
    let lane = lane.with_cost(Arc::clone(&clock.0), move |_| 1_000 * ms);
    Box::new(ModelDrafter::new(Box::new(lane), VOCAB, 0.0))
}

fn run(seed: u64, drafter: impl Fn(&Case, &FakeClock) -> Box<dyn Drafter>) -> Outcome {
    let clock = FakeClock::default();
    let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, seed, 6.0), &[1, 2, 3], 300);
    case.options = Options { clock: Arc::new(clock.clone()), ..Options::default() };
    let mut lane = costly(&case.target, &clock, 1_000);
    let mut speculator = Speculator::new(drafter(&case, &clock), Some(3), true);
    let outcome = case.run_on(&mut lane, &mut speculator);
    assert_eq!(outcome.reply, case.by_hand(300));
    outcome
}

#[test]
fn speculation_parks_a_drafter_that_loses() {
    for seed in 0..5 {
        let outcome = run(seed, |_, clock| model(ScriptedLane::hashed(VOCAB, 400, 99, 6.0), clock, 4));
        assert!(outcome.report.parked);
        let reason = outcome.report.reason.expect("parking has a reason");
        assert!(reason.contains("accepted of") && reason.contains("plain 10.0 ms"), "{reason}");
        // Plain would have taken 3,000 ms; the verdict and the probes are all that was lost.
        assert!(outcome.stats.decode_ms < 3_000.0 * 1.16, "{} ms", outcome.stats.decode_ms);
        assert!(outcome.stats.drafted_rounds < 30);
    }
}

#[test]
fn speculation_keeps_a_drafter_that_wins() {
    for seed in 0..5 {
        let outcome = run(seed, |case, clock| model(case.target.perturbed(seed, 1.0), clock, 1));
        assert!(!outcome.report.parked, "{:?}", outcome.report);
        assert_eq!(outcome.report.reason, None);
        assert!(outcome.stats.decode_ms < 0.7 * 3_000.0, "{} ms", outcome.stats.decode_ms);
    }
}

#[test]
fn speculation_comes_back_when_the_text_turns_easy() {
    // Wrong for the first proposals of the reply, right ever after.
    let outcome = run(1, |case, _| {
        let mut asked = 0;
        Box::new(Planned::new(case, move |limit| {
            asked += 1;
            Shape::Chain { right: if asked > 12 { limit } else { 0 } }
        }))
    });
    // Planned drafts know 120 tokens; behind them they are wrong again.
    assert!(outcome.stats.accepted > 30, "{:?}", outcome.stats);
}

#[test]
fn speculation_times_add_up() {
    let outcome = run(2, |case, clock| model(case.target.perturbed(2, 1.0), clock, 1));
    let stats = outcome.stats;
    assert_eq!(stats.prefill_ms, 11.0, "two prompt tokens in one pass");
    assert_eq!(stats.draft_prefill_ms, 1.0);
    assert!((stats.draft_ms + stats.verify_ms - stats.decode_ms).abs() < 1e-6);
    assert_eq!(outcome.report.tau, stats.tokens as f64 / stats.rounds as f64);
}

/// A drafter that goes wrong at its `pass`-th pass.
fn failing(case: &Case, pass: usize, fault: Fault) -> Box<dyn Drafter> {
    let lane = case.target.perturbed(1, 1.0).with_fault(pass, fault);
    Box::new(ModelDrafter::new(Box::new(lane), VOCAB, 0.0))
}

#[test]
fn speculation_goes_on_without_a_drafter_that_fails() {
    for params in both_params(3) {
        for fault in [Fault::Device, Fault::NonFinite] {
            // Pass 0 reads the prompt and wants no logits, so only a broken device shows in it.
            for pass in [0, 1, 2, 7].into_iter().skip(usize::from(fault == Fault::NonFinite)) {
                let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 60);
                case.params = params.clone();
                let outcome = case.run(failing(&case, pass, fault), 3);
                assert_eq!(outcome.reply, case.by_hand(60));
                assert!(outcome.report.parked);
                let reason = outcome.report.reason.expect("a failure has a reason");
                assert!(reason.starts_with("the drafter failed: "), "{reason}");
            }
        }
    }
}

#[test]
fn speculation_a_failing_target_is_an_error_and_keeps_what_was_said() {
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 60);
    let mut lane = CachedLane::new(Box::new(case.target.twin().with_fault(5, Fault::Device)));
    let mut speculator = Speculator::none();
    let mut generation =
        Generation::new(&mut lane, &mut speculator, case.session(), Options::default()).unwrap();
    for _ in 0..4 {
        generation.next_round().unwrap().unwrap();
    }
    let error = generation.next_round().unwrap_err();
    assert!(matches!(error, EngineError::Lane(LaneError::Device { .. })), "{error}");
    assert_eq!(generation.session().reply(), case.by_hand(4));
    // The fault was passing: the same generation can go on.
    generation.next_round().unwrap().unwrap();
    assert_eq!(generation.session().reply(), case.by_hand(5));
}

#[test]
fn speculation_is_not_harmed_by_nan_behind_a_wrong_guess() {
    // The script is poisoned wherever the text leaves the reply that plain decoding gives.
    for params in both_params(5) {
        let mut honest = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 40);
        honest.params = params.clone();
        let mut truth = honest.prompt.clone();
        truth.extend(honest.by_hand(120));
        let script = honest.target.twin();
        let mut case = Case::new(
            ScriptedLane::new(VOCAB, 400, move |prefix| {
                if truth.starts_with(prefix) { script.logits(prefix) } else { vec![f32::NAN; VOCAB] }
            }),
            &[1, 2, 3],
            40,
        );
        case.params = params;
        for seed in 0..5 {
            for bushy in [false, true] {
                let outcome = case.run(Box::new(Planned::mixed(&honest, seed, bushy)), 5);
                assert_eq!(outcome.reply, honest.by_hand(40));
            }
        }
    }
}

#[test]
fn speculation_meets_the_same_error_as_plain_decoding() {
    // Non-finite logits on the way itself: both end there, with the same tokens said.
    let script = ScriptedLane::hashed(VOCAB, 400, 4, 6.0);
    let target = ScriptedLane::new(VOCAB, 400, move |prefix| {
        if prefix.len() < 20 { script.logits(prefix) } else { vec![f32::NAN; VOCAB] }
    });
    let case = Case::new(target, &[1, 2, 3], 60);
    let said = |mut speculator: Speculator| {
        let mut lane = CachedLane::new(Box::new(case.target.twin()));
        let mut generation =
            Generation::new(&mut lane, &mut speculator, case.session(), Options::default()).unwrap();
        let error = loop {
            if let Err(error) = generation.next_round() {
                break error.to_string();
            }
        };
        (generation.session().reply().to_vec(), error)
    };
    let plain = said(Speculator::none());
    assert_eq!(plain.0.len(), 17);
    assert!(plain.1.contains("non-finite logits at position 19"), "{}", plain.1);
    for draft_max in 1..=8 {
        let healthy = ScriptedLane::hashed(VOCAB, 400, 4, 6.0);
        let drafter = ModelDrafter::new(Box::new(healthy), VOCAB, 0.0);
        assert_eq!(said(Speculator::new(Box::new(drafter), Some(draft_max), false)), plain);
    }
}

#[test]
fn speculation_stops_drafting_when_the_drafter_context_is_full() {
    let script = ScriptedLane::hashed(VOCAB, 400, 4, 6.0);
    let small = ScriptedLane::new(VOCAB, 24, move |prefix| script.logits(prefix));
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 60);
    let outcome = case.run(Box::new(ModelDrafter::new(Box::new(small), VOCAB, 0.0)), 4);
    assert_eq!(outcome.reply, case.by_hand(60));
    assert_eq!(outcome.report.reason.as_deref(), Some("the drafter's context of 24 is full"));
    // Up to 24 tokens it drafted, the 25th included: the last guess need not be read.
    assert!(outcome.stats.accepted >= 16, "{:?}", outcome.stats);
    // A prompt longer than its context is no error either.
    let long = Case::new(case.target.twin(), &[3; 30], 10);
    let script = ScriptedLane::hashed(VOCAB, 400, 4, 6.0);
    let small = ScriptedLane::new(VOCAB, 24, move |prefix| script.logits(prefix));
    let outcome = long.run(Box::new(ModelDrafter::new(Box::new(small), VOCAB, 0.0)), 4);
    assert_eq!((outcome.reply, outcome.stats.drafted), (long.by_hand(10), 0));
}

#[test]
fn speculation_vocabulary_of_either_side_may_be_longer() {
    for params in both_params(2) {
        let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 39, 3], 80);
        case.params = params;
        let expected = case.by_hand(80);
        assert!(expected.iter().any(|&token| token >= 30), "the text leaves the short vocabulary");
        let script = case.target.twin();
        let short = ScriptedLane::new(30, 400, move |prefix| script.logits(prefix)[..30].to_vec());
        let outcome = case.run(Box::new(ModelDrafter::new(Box::new(short), VOCAB, 0.0)), 4);
        assert_eq!(outcome.reply, expected);
        assert!(outcome.stats.accepted > 0, "leaving tokens out does not stop it");
        assert!(!outcome.report.parked, "no id outside its table reached it: {:?}", outcome.report);

        // The drafter's own extra ids are its favourites; none of them may be guessed.
        let script = case.target.twin();
        let long = ScriptedLane::new(60, 400, move |prefix| {
            let mut logits = script.logits(prefix);
            logits.resize(60, 50.0);
            logits
        });
        let outcome = case.run(Box::new(ModelDrafter::new(Box::new(long), VOCAB, 0.0)), 4);
        assert_eq!(outcome.reply, expected);
        assert!(!outcome.report.parked);
        assert_eq!(outcome.stats.accepted, outcome.stats.drafted, "the shared part agrees");
        // A greedy drafter asks its lane for the argmax alone, which is foreign here, and stays silent.
        let silent = case.params.temperature == 0.0;
        assert_eq!(outcome.stats.drafted == 0, silent, "{:?}", outcome.stats);
    }
}

#[test]
fn speculation_least_probability_cuts_unsure_drafts() {
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 60);
    let drafted = |p_min| {
        let drafter = ModelDrafter::new(Box::new(case.target.perturbed(1, 2.0)), VOCAB, p_min);
        let outcome = case.run(Box::new(drafter), 4);
        assert_eq!(outcome.reply, case.by_hand(60));
        (outcome.stats.drafted, outcome.stats.accepted as f64 / outcome.stats.drafted.max(1) as f64)
    };
    let (all, some, none) = (drafted(0.0), drafted(0.5), drafted(1.0));
    assert!(all.0 > some.0 && some.0 > 0 && none.0 == 0, "{all:?} {some:?} {none:?}");
    assert!(some.1 > all.1, "sure guesses are right more often");
}

/// A reply of text that repeats in 3-grams but goes on differently each time, where rows are dear.
fn against_the_odds(drafter: Box<dyn Drafter>) -> Outcome {
    let clock = FakeClock::default();
    let target = ScriptedLane::new(6, 400, |prefix| {
        let place = prefix.len() % 4;
        let next = if place < 3 { place } else { 3 + (hash_tokens(5, prefix) % 3) as usize };
        (0..6).map(|id| if id == next { 9.0 } else { 0.0 }).collect()
    });
    let mut case = Case::new(target, &[0, 1, 2, 3], 300);
    case.options = Options { clock: Arc::new(clock.clone()), ..Options::default() };
    let mut lane = costly(&case.target, &clock, 8_000);
    let outcome = case.run_on(&mut lane, &mut Speculator::new(drafter, None, true));
    assert_eq!(outcome.reply, case.by_hand(300));
    outcome
}

#[test]
fn speculation_lookup_does_not_lose_where_rows_are_dear() {
    let (ngram, suffix) = (NgramDrafter::new, SuffixDrafter::default);
    let both = Union::new(vec![Box::new(ngram()), Box::new(suffix())], None);
    for drafter in [Box::new(ngram()) as Box<dyn Drafter>, Box::new(suffix()), Box::new(both)] {
        let outcome = against_the_odds(drafter);
        // Plain decoding takes 10 ms a token.
        assert!(outcome.stats.decode_ms < 1.03 * 3_000.0, "{:?}", outcome.stats);
    }
}

#[test]
fn speculation_a_union_goes_on_without_a_model_that_fails() {
    for pass in [0, 1, 7] {
        let case = Case::new(ScriptedLane::markov(VOCAB, 400, 3, 6.0, 2), &[1, 2, 3], 200);
        let members = vec![Box::new(NgramDrafter::new()) as _, failing(&case, pass, Fault::Device)];
        let outcome = case.run(Box::new(Union::new(members, None)), 8);
        assert_eq!(outcome.reply, case.by_hand(200));
        assert!(!outcome.report.parked && outcome.stats.accepted > 50, "{:?}", outcome.stats);
        let reason = outcome.report.reason.expect("a failure has a reason");
        assert!(reason.starts_with("model: the drafter failed: "), "{reason}");
    }
}
