//! A head as drafter over the life of a target: turns, holes, faults, parking.
//!
//! The scripted head reads its context out of the taps it is given and panics when they are not those of the text, so
//! every reply here also checks what the engine hands over.
//!
//! Invariant: replies are compared with the ones made by hand in every case.
//! Not here: heads with weights (`pilotfish-lane`, `pilotfish`).

mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_engine::CachedLane;
use pilotfish_engine::draft::{Drafter, HeadDrafter, NgramDrafter, SuffixDrafter, Union};
use pilotfish_engine::speculate::{Generation, Options, Source, Speculator};
use pilotfish_lane::testing::{ScriptedHead, ScriptedLane};
use setup::{Case, FakeClock, Outcome};

const VOCAB: usize = 40;

fn target(seed: u64) -> ScriptedLane {
    ScriptedLane::hashed(VOCAB, 400, seed, 6.0)
}

/// A head that guesses what `guesser` says.
fn head(target: &ScriptedLane, guesser: ScriptedLane) -> Box<dyn Drafter> {
    Box::new(HeadDrafter::new(Box::new(ScriptedHead::new(target, guesser, 5, true))))
}

#[test]
fn speculation_head_that_knows_everything_is_accepted_fully() {
    for seed in 0..4 {
        let case = Case::new(target(seed), &[1, 2, 3], 60);
        let outcome = case.run(head(&case.target, case.target.twin()), 5);
        assert_eq!(outcome.reply, case.by_hand(60));
        assert_eq!(outcome.stats.rounds, 10, "five guesses and a bonus a round");
        assert_eq!(outcome.report.drafter, "head");
    }
}

#[test]
fn speculation_head_runners_up_are_side_branches() {
    let case = Case::new(target(3), &[1, 2, 3], 40);
    let outcome = case.run(head(&case.target, case.target.perturbed(5, 2.0)), 3);
    assert_eq!(outcome.reply, case.by_hand(40));
    let most = outcome.stats.drafted_rounds * 6;
    assert!(
        outcome.stats.drafted > most * 8 / 10,
        "{} guesses in chains and branches",
        outcome.stats.drafted
    );
}

#[test]
fn speculation_head_follows_a_chat_with_replies_it_did_not_see() {
    let target = target(2);
    let mut lane = CachedLane::new(Box::new(target.twin()));
    let mut heads = Speculator::new(head(&target, target.perturbed(1, 1.5)), Some(5), false);
    let mut prompt = vec![1, 2, 3, 4];
    let (mut reused, mut read) = (vec![], vec![]);
    for turn in 0..6 {
        let case = Case::new(target.twin(), &prompt, 9);
        // Turn 2 is plain: the head misses it.
        let outcome = match turn {
            2 => case.run_on(&mut lane, &mut Speculator::none()),
            _ => case.run_on(&mut lane, &mut heads),
        };
        assert_eq!(outcome.reply, case.by_hand(9), "turn {turn}");
        assert_eq!(outcome.stats.drafted > 0, turn != 2, "turn {turn}");
        reused.push(outcome.stats.reused_tokens);
        read.push(outcome.stats.read_tokens);
        prompt.extend(&outcome.reply);
        prompt.extend([5, 6]);
        if turn == 4 {
            prompt.truncate(10); // the user takes something back
        }
    }
    // Turn 3 reads again what turn 2 added.
    assert_eq!(reused, [0, 12, 23, 23, 45, 9]);
    assert_eq!(read, [4, 3, 3, 14, 3, 1]);
}

#[test]
fn speculation_head_reads_no_more_of_a_text_than_it_can_see() {
    let prompt: Vec<u32> = (0..60).map(|i| i * 7 % 40).collect();
    let case = Case::new(target(4), &prompt, 20);
    let mut lane = CachedLane::new(Box::new(case.target.twin()));
    case.run_on(&mut lane, &mut Speculator::none());
    let mut heads = Speculator::new(head(&case.target, case.target.twin()), Some(5), false);
    let outcome = case.run_on(&mut lane, &mut heads);
    assert_eq!(outcome.reply, case.by_hand(20));
    // Its window of 16, and the prompt's last token.
    assert_eq!((outcome.stats.reused_tokens, outcome.stats.read_tokens), (43, 17));
    assert!(outcome.stats.drafted > 0);
    // And then it knows the text, and no more is read.
    let again = case.run_on(&mut lane, &mut heads);
    assert_eq!((again.reply, again.stats.read_tokens), (outcome.reply, 1));
}

#[test]
fn speculation_head_is_cancelled_between_prompt_chunks_and_goes_on() {
    let mut case = Case::new(target(1), &[3; 40], 20);
    let cancel = Arc::new(AtomicBool::new(false));
    case.options = Options { prefill_chunk: Some(8), cancel: Arc::clone(&cancel), ..Options::default() };
    let mut lane = CachedLane::new(Box::new(case.target.twin()));
    let mut heads = Speculator::new(head(&case.target, case.target.perturbed(1, 1.0)), Some(5), false);
    let mut generation =
        Generation::new(&mut lane, &mut heads, case.session(), case.options.clone()).unwrap();
    generation.prefill(&mut |done, _| cancel.store(done >= 16, Ordering::Relaxed)).unwrap();
    generation.next_round().unwrap();
    drop(generation);
    cancel.store(false, Ordering::Relaxed);
    let outcome = case.run_on(&mut lane, &mut heads);
    assert_eq!(outcome.reply, case.by_hand(20));
    assert_eq!((outcome.stats.reused_tokens, outcome.stats.read_tokens), (16, 24));
    assert!(outcome.stats.accepted > 0);
}

#[test]
fn speculation_goes_on_without_a_head_that_fails() {
    for block in 0..4 {
        let case = Case::new(target(6), &[1, 2, 3], 60);
        let broken = ScriptedHead::new(&case.target, case.target.twin(), 5, false).with_fault(block);
        let outcome = case.run(Box::new(HeadDrafter::new(Box::new(broken))), 5);
        assert_eq!(outcome.reply, case.by_hand(60));
        assert!(outcome.report.parked);
        let reason = outcome.report.reason.unwrap();
        assert!(reason.contains("a fault in a block"), "{reason}");
    }
}

/// A reply where a pass takes 10 ms and one more a row, and a block `block_ms`.
fn timed(seed: u64, block_ms: u64, with_lookup: bool, guesser: impl Fn(&Case) -> ScriptedLane) -> Outcome {
    let clock = FakeClock::default();
    let mut case = Case::new(target(seed), &[1, 2, 3], 300);
    case.options = Options { clock: Arc::new(clock.clone()), ..Options::default() };
    let lane =
        case.target.twin().with_cost(Arc::clone(&clock.0), |width| 10_000 + 1_000 * (width as u64 - 1));
    let mut lane = CachedLane::new(Box::new(lane));
    let scripted = ScriptedHead::new(&case.target, guesser(&case), 5, true);
    let head = HeadDrafter::new(Box::new(scripted.with_cost(Arc::clone(&clock.0), 1_000 * block_ms)));
    let mut drafters: Vec<Box<dyn Drafter>> = vec![Box::new(head)];
    if with_lookup {
        drafters.push(Box::new(NgramDrafter::new()));
        drafters.push(Box::new(SuffixDrafter::default()));
    }
    let mut speculator = Speculator::new(Box::new(Union::new(drafters, None)), None, true);
    let outcome = case.run_on(&mut lane, &mut speculator);
    assert_eq!(outcome.reply, case.by_hand(300));
    outcome
}

#[test]
fn speculation_keeps_a_head_that_wins() {
    for with_lookup in [false, true] {
        for seed in 0..3 {
            let outcome = timed(seed, 2, with_lookup, |case| case.target.perturbed(seed, 1.0));
            assert!(!outcome.report.parked, "{:?}", outcome.report);
            assert!(outcome.stats.decode_ms < 3_000.0 / 1.5, "{} ms", outcome.stats.decode_ms);
            assert!(outcome.stats.by_source.get(Source::Head).accepted > 100);
        }
    }
}

#[test]
fn speculation_parks_a_head_that_loses() {
    for with_lookup in [false, true] {
        for seed in 0..3 {
            let outcome = timed(seed, 4, with_lookup, |_| target(99));
            assert!(outcome.report.parked);
            let reason = outcome.report.reason.expect("parking has a reason");
            assert!(reason.contains("accepted of"), "{reason}");
            assert!(outcome.stats.decode_ms < 3_000.0 * 1.08, "{} ms", outcome.stats.decode_ms);
        }
    }
}
