//! A reply ends at the same token, with the same text and reason, wherever in an accepted run it ends.
//!
//! Invariant: every expectation is worked out from the reply made by hand, not from the engine.
//! Not here: stop strings across token borders (`pilotfish_model::text`).

mod setup;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_engine::draft::{Drafter, ModelDrafter, NgramDrafter};
use pilotfish_engine::sampling::SamplingParams;
use pilotfish_engine::session::{FinishReason, Limits, NoText, Session};
use pilotfish_engine::speculate::{Generation, Options, Speculator};
use pilotfish_engine::{CachedLane, EngineError};
use pilotfish_lane::testing::ScriptedLane;
use setup::{Case, FakeClock, Outcome, both_params};

const VOCAB: usize = 200;
const K: usize = 4;

/// A case whose first tokens differ from each other, so that each may serve as an end token.
fn case(max_tokens: usize) -> Case {
    let of_seed = |seed| Case::new(ScriptedLane::hashed(VOCAB, 400, seed, 6.0), &[1, 2, 3], max_tokens);
    let distinct = |case: &Case| case.by_hand(14).into_iter().collect::<BTreeSet<_>>().len() == 14;
    (0..).map(of_seed).find(distinct).expect("some seed gives distinct tokens")
}

/// A drafter whose guesses are all right.
fn perfect(case: &Case) -> Box<dyn Drafter> {
    Box::new(ModelDrafter::new(Box::new(case.target.twin()), VOCAB, 0.0))
}

fn spelled(tokens: &[u32]) -> String {
    tokens.iter().map(|token| format!("<{token}>")).collect()
}

#[test]
fn speculation_ends_at_an_end_token_inside_a_run() {
    for seed in 0..3 {
        for params in both_params(seed) {
            for k in 0..=8 {
                let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 21 + seed, 6.0), &[1, 2, 3], 50);
                case.params = params.clone();
                let all = case.by_hand(50);
                case.limits.end_tokens = vec![VOCAB as u32 - 1, all[k]];
                // The token may occur earlier than at k: then the reply ends there.
                let first = all.iter().position(|token| case.limits.end_tokens.contains(token)).unwrap();
                for draft_max in 0..=8 {
                    let outcome = case.run(perfect(&case), draft_max);
                    assert_eq!(outcome.reply, all[..=first], "end token {k}, {draft_max} guesses");
                    assert_eq!(outcome.finish, FinishReason::EndToken);
                    assert_eq!(outcome.text, spelled(&all[..first]), "the end token has no text");
                    assert!(outcome.stats.accepted <= outcome.reply.len());
                }
            }
        }
    }
}

#[test]
fn speculation_ignores_end_tokens_when_told() {
    let mut case = case(20);
    let all = case.by_hand(20);
    case.limits.end_tokens = vec![all[3], all[5]];
    case.limits.ignore_eos = true;
    let outcome = case.run(perfect(&case), K);
    assert_eq!((outcome.reply, outcome.finish), (all, FinishReason::MaxTokens));
}

#[test]
fn speculation_stop_string_and_limit_meet_in_a_run() {
    for draft_max in [0, 1, K, 8] {
        for n in [1, K, K + 1] {
            let mut case = case(n);
            let all = case.by_hand(12);
            // Completed by token `at`, begun in the one before: `9><17` of `<9><17>`.
            for at in 1..=n {
                let stop = |i: usize| {
                    let text = spelled(&all[i.saturating_sub(2)..i]);
                    text[1..text.len() - 1].to_owned()
                };
                case.stops = vec![stop(at)];
                let outcome = case.run(perfect(&case), draft_max);
                assert_eq!(outcome.finish, FinishReason::StopString, "stop at {at}, limit {n}");
                assert_eq!(outcome.reply, all[..at]);
                let text = spelled(&all[..at]);
                assert_eq!(outcome.text, text[..text.find(&case.stops[0]).unwrap()]);

                // Completed by the first token past the limit: what was held back is released.
                case.stops = vec![stop(n + 1)];
                let outcome = case.run(perfect(&case), draft_max);
                assert_eq!(outcome.finish, FinishReason::MaxTokens);
                assert_eq!(outcome.finish.as_str(), "length");
                assert_eq!(outcome.reply, all[..n]);
                assert_eq!(outcome.text, spelled(&all[..n]));
            }
        }
    }
}

#[test]
fn speculation_end_token_at_the_limit_is_a_stop() {
    for draft_max in [0, K] {
        let mut case = case(5);
        let all = case.by_hand(6);
        case.limits.end_tokens = vec![all[4]];
        assert_eq!(case.run(perfect(&case), draft_max).finish, FinishReason::EndToken);
        case.limits.end_tokens = vec![all[5]];
        let outcome = case.run(perfect(&case), draft_max);
        assert_eq!((outcome.finish, outcome.reply.len()), (FinishReason::MaxTokens, 5));
    }
}

#[test]
fn speculation_with_no_tokens_asked_for_does_nothing() {
    let case = case(0);
    let outcome = case.run(perfect(&case), K);
    assert_eq!((outcome.finish, outcome.reply.len()), (FinishReason::MaxTokens, 0));
    assert_eq!((outcome.stats.rounds, outcome.text.as_str()), (0, ""));
}

#[test]
fn speculation_exact_limits_hold_for_every_length() {
    for max_tokens in 1..=12 {
        for draft_max in 0..=8 {
            let case = case(max_tokens);
            let outcome = case.run(perfect(&case), draft_max);
            assert_eq!(outcome.reply, case.by_hand(max_tokens));
            assert_eq!(outcome.finish, FinishReason::MaxTokens);
        }
    }
}

#[test]
fn speculation_fills_the_context_exactly() {
    for context in 4..=14 {
        for draft_max in 0..=8 {
            // The lane holds no more than the session may use.
            let script = ScriptedLane::hashed(VOCAB, 400, 21, 6.0);
            let target = ScriptedLane::new(VOCAB, context, move |prefix| script.logits(prefix));
            let mut case = Case::new(target, &[1, 2, 3], 0);
            case.limits = Limits { max_tokens: None, context, end_tokens: vec![], ignore_eos: false };
            for drafter in [perfect(&case), Box::new(NgramDrafter::new())] {
                let outcome = case.run(drafter, draft_max);
                assert_eq!(outcome.finish, FinishReason::ContextFull);
                assert_eq!(outcome.finish.as_str(), "length");
                assert_eq!(outcome.reply, case.by_hand(context - 3));
            }
        }
    }
}

#[test]
fn speculation_refuses_a_prompt_that_does_not_fit() {
    let session = |prompt: usize, context| {
        let case = Case::new(ScriptedLane::hashed(VOCAB, 64, 1, 1.0), &[1], 5);
        let limits = Limits { context, ..case.limits.clone() };
        Session::new(vec![7; prompt], limits, case.sampler(), Box::new(NoText))
    };
    assert!(session(31, 32).is_ok());
    for prompt in [32, 33, 320] {
        let error = session(prompt, 32).err().expect("refused");
        assert_eq!(
            error.to_string(),
            format!("the prompt has {prompt} tokens and the context holds 32: no room for a reply")
        );
    }
    assert!(matches!(session(0, 32), Err(EngineError::EmptyPrompt)));
    let mut lane = CachedLane::new(Box::new(ScriptedLane::hashed(VOCAB, 16, 1, 1.0)));
    let mut plain = Speculator::none();
    let too_long = Generation::new(&mut lane, &mut plain, session(3, 32).unwrap(), Options::default());
    assert!(matches!(too_long.err(), Some(EngineError::ContextBeyondLane { asked: 32, lane: 16 })));
}

#[test]
fn speculation_refuses_prompt_tokens_outside_the_vocabulary() {
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 1, 1.0), &[1, 999, 2], 5);
    let mut lane = CachedLane::new(Box::new(case.target.twin()));
    let mut plain = Speculator::none();
    let error = Generation::new(&mut lane, &mut plain, case.session(), Options::default()).err().unwrap();
    assert_eq!(error.to_string(), "prompt token 1 has id 999, outside the vocabulary of 200");
}

#[test]
fn speculation_is_cancelled_between_prompt_chunks() {
    let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 1, 6.0), &[3; 40], 20);
    let cancel = Arc::new(AtomicBool::new(false));
    case.options = Options { prefill_chunk: Some(8), cancel: Arc::clone(&cancel), ..Options::default() };
    let mut lane = CachedLane::new(Box::new(case.target.twin()));
    let mut speculator = Speculator::new(perfect(&case), Some(K), false);
    let mut generation =
        Generation::new(&mut lane, &mut speculator, case.session(), case.options.clone()).unwrap();
    let mut heard = vec![];
    generation
        .prefill(&mut |done, total| {
            heard.push((done, total));
            cancel.store(done >= 16, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(heard, [(0, 40), (8, 40), (16, 40)]);
    assert_eq!(generation.stats().read_tokens, 16);
    let round = generation.next_round().unwrap().expect("one last round tells of it");
    assert_eq!((round.finish, round.tokens.len()), (Some(FinishReason::Cancelled), 0));
    assert_eq!(generation.next_round().unwrap(), None);
    assert_eq!(lane.held(), [3; 16]);

    // The lane is as good as new, and what was read is not read again.
    cancel.store(false, Ordering::Relaxed);
    let outcome = case.run_on(&mut lane, &mut speculator);
    assert_eq!(outcome.reply, case.by_hand(20));
    assert_eq!((outcome.stats.reused_tokens, outcome.stats.read_tokens), (16, 24));
}

#[test]
fn speculation_reads_a_prompt_in_passes_of_half_a_second() {
    // Milliseconds a row takes, and how far each pass reads.
    for (row_ms, expected) in [
        (30, vec![0, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384]),
        (5, vec![0, 64, 160, 256, 352, 384]),
        (0, vec![0, 64, 192, 384]),
    ] {
        let clock = FakeClock::default();
        let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 1, 6.0), &[3; 385], 5);
        case.options = Options { clock: Arc::new(clock.clone()), ..Options::default() };
        let cost = move |width: usize| width as u64 * row_ms * 1_000;
        let mut lane = CachedLane::new(Box::new(case.target.twin().with_cost(Arc::clone(&clock.0), cost)));
        let mut plain = Speculator::none();
        let mut generation =
            Generation::new(&mut lane, &mut plain, case.session(), case.options.clone()).unwrap();
        let mut heard = vec![];
        generation.prefill(&mut |done, _| heard.push(done)).unwrap();
        assert_eq!(heard, expected, "{row_ms} ms a row");
        assert_eq!(case.run_on(&mut lane, &mut plain).reply, case.by_hand(5));
    }
}

#[test]
fn speculation_counts_what_was_read_of_a_prompt() {
    let read = |outcome: &Outcome| (outcome.stats.read_tokens, outcome.stats.rounds);
    let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 1, 6.0), &[3; 100], 4);
    assert_eq!(read(&case.run_plain()), (100, 4));
    case.limits.max_tokens = Some(0);
    assert_eq!(read(&case.run_plain()), (0, 0), "nothing runs for no token");
    case.limits.max_tokens = Some(4);
    case.options.cancel.store(true, Ordering::Relaxed);
    let mut lane = CachedLane::new(Box::new(case.target.twin()));
    assert_eq!(read(&case.run_on(&mut lane, &mut Speculator::none())), (0, 0));
}

#[test]
fn speculation_is_cancelled_between_rounds_and_releases_held_text() {
    let mut case = case(50);
    let all = case.by_hand(50);
    case.stops = vec![format!("{}!", spelled(&all[..6]))]; // held back from the start
    let cancel = Arc::clone(&case.options.cancel);
    let mut lane = CachedLane::new(Box::new(case.target.twin()));
    let mut speculator = Speculator::new(perfect(&case), Some(2), false);
    let mut generation =
        Generation::new(&mut lane, &mut speculator, case.session(), case.options.clone()).unwrap();
    let first = generation.next_round().unwrap().unwrap();
    assert_eq!((first.tokens.as_slice(), first.text.as_str()), (&all[..3], ""));
    cancel.store(true, Ordering::Relaxed);
    let last = generation.next_round().unwrap().unwrap();
    assert_eq!(last.text, spelled(&all[..3]));
    assert_eq!(last.finish.map(FinishReason::as_str), Some("cancelled"));
    assert_eq!(generation.next_round().unwrap(), None);
}

#[test]
fn speculation_session_drops_what_lies_behind_the_end() {
    let limits = Limits { max_tokens: Some(9), context: 99, end_tokens: vec![7], ignore_eos: false };
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 1, 1.0), &[1], 5);
    let mut session = Session::new(vec![1, 2], limits, case.sampler(), Box::new(NoText)).unwrap();
    assert_eq!(session.commit(&[3, 4]).count, 2);
    assert_eq!(session.room(), 7);
    assert_eq!(session.commit(&[5, 7, 8, 9]).count, 2);
    assert_eq!(session.reply(), [3, 4, 5, 7]);
    assert_eq!(session.commit(&[8]).count, 0);
    assert_eq!(session.finish(), Some(FinishReason::EndToken));
    assert_eq!(session.cancel().text, "", "a reply that has ended is not cancelled");
    assert_eq!(session.sampler().params(), &SamplingParams::greedy());
}
