//! Drafting while verifying: the time it hides on simulated devices, and that the text does not notice.
//!
//! Times are of a clock that scripted lanes move, so they are exact; where threads are real, only texts are compared.
//!
//! Invariant: replies are compared with the ones made by hand in every case.
//! Not here: the law of text sampled by rejection (`speculate::enumeration` in the sources).

mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_engine::draft::{Ahead, Drafter, ModelDrafter, NgramDrafter, SuffixDrafter, Union};
use pilotfish_engine::session::{FinishReason, Session};
use pilotfish_engine::speculate::{
    Costs, Generation, Options, Pipelining, SpecSampling, Speculator, TokenTree,
};
use pilotfish_engine::{CachedLane, DraftError};
use pilotfish_lane::testing::{Fault, ScriptedLane};
use setup::{Case, Engines, Outcome, TwoLanes, both_params};

const VOCAB: usize = 40;
/// A pass of five rows, as was measured of one on a GPU, and of one row there.
const VERIFY_MS: f64 = 144.4;
const PLAIN_MS: f64 = 52.4;
/// The five calls of a drafter that were measured on a neural engine took 95.6 ms.
const GUESS_MS: f64 = 19.12;

fn us(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

/// What a simulated pair did in a reply of 60 tokens, four guesses a round.
struct Pair {
    engines: Engines,
    guess_ms: f64,
    /// What each row past the first adds to a pass.
    row_ms: f64,
    /// Devices of target and drafter.
    names: [&'static str; 2],
    /// How much the drafter's logits differ from the target's.
    noise: f32,
    parking: bool,
}

impl Pair {
    /// Of the measured times, and a drafter that is always right.
    fn new(engines: Engines) -> Self {
        let row_ms = (VERIFY_MS - PLAIN_MS) / 4.0;
        Self { engines, guess_ms: GUESS_MS, row_ms, names: ["gpu", "npu"], noise: 0.0, parking: false }
    }

    fn run(&self, pipeline: Pipelining) -> Outcome {
        let clock = TwoLanes::new(self.engines);
        let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 3, 6.0), &[1, 2, 3], 60);
        case.options = Options { clock: Arc::new(clock.clone()), ..Options::default() };
        let row_ms = self.row_ms;
        let pass = move |width: usize| PLAIN_MS + row_ms * (width as f64 - 1.0);
        let target = clock.lane(case.target.twin().with_name(self.names[0]), move |width| us(pass(width)));
        let guess_ms = self.guess_ms;
        let like = if self.noise > 0.0 { case.target.perturbed(1, self.noise) } else { case.target.twin() };
        let drafts = clock.lane(like.with_name(self.names[1]), move |_| us(guess_ms));
        let drafter = ModelDrafter::new(Box::new(drafts), VOCAB, 0.0);
        let mut speculator =
            Speculator::new(Box::new(drafter), Some(4), self.parking).with_pipeline(pipeline);
        if self.parking {
            speculator.set_costs(Costs::new([1, 2, 3, 4, 5].map(|width| (width, pass(width)))));
        }
        let outcome = case.run_on(&mut CachedLane::new(Box::new(target)), &mut speculator);
        assert_eq!(outcome.reply, case.by_hand(60));
        let times = outcome.stats.draft_ms + outcome.stats.verify_ms - outcome.stats.decode_ms;
        assert!(times.abs() < 1e-6, "times add up: {times}");
        outcome
    }

    fn decode_ms(&self, pipeline: Pipelining) -> f64 {
        self.run(pipeline).stats.decode_ms
    }
}

fn assert_ms(took: f64, expected: f64) {
    assert!((took - expected).abs() < 1e-6, "{took} ms, not {expected} ms");
}

#[test]
fn speculation_pipeline_hides_drafting_behind_verifying() {
    let pair = Pair::new(Engines::Apart);
    // Twelve rounds of four guesses and a bonus token; only the first waits for its guesses.
    assert_ms(pair.decode_ms(Pipelining::Off), 12.0 * (4.0 * GUESS_MS + VERIFY_MS));
    let outcome = pair.run(Pipelining::On);
    assert_ms(outcome.stats.decode_ms, 4.0 * GUESS_MS + 12.0 * VERIFY_MS);
    assert_eq!((outcome.stats.rounds, outcome.stats.ahead_rounds, outcome.stats.ahead_hits), (12, 11, 11));
    assert!(outcome.report.pipeline.on);
}

#[test]
fn speculation_pipeline_of_a_slow_drafter_takes_the_drafters_time() {
    // Five guesses of 60 ms a round. The pass ends within the third, which is waited for; two are left to make.
    let pair = Pair { guess_ms: 60.0, ..Pair::new(Engines::Apart) };
    let first = 4.0 * 60.0 + 180.0;
    let last = 2.0 * 60.0 + VERIFY_MS; // nothing is prepared behind the end
    assert_ms(pair.decode_ms(Pipelining::On), first + 10.0 * (5.0 * 60.0) + last);
}

#[test]
fn speculation_pipeline_switches_itself_on_where_lanes_work_side_by_side() {
    let pair = Pair::new(Engines::Apart);
    let outcome = pair.run(Pipelining::Auto);
    // The first round tells what each lane takes alone; from the second on the drafter works ahead.
    assert_ms(outcome.stats.decode_ms, 2.0 * 4.0 * GUESS_MS + 12.0 * VERIFY_MS);
    assert_eq!((outcome.report.pipeline.on, outcome.report.pipeline.reason), (true, None));
    // With a budget as well, which finds the length that pays, and guesses that are not always right.
    let pair = Pair { parking: true, noise: 0.1, row_ms: 5.0, guess_ms: 8.0, ..pair };
    let (off, auto) = (pair.decode_ms(Pipelining::Off), pair.run(Pipelining::Auto));
    assert!(auto.report.pipeline.on && auto.stats.ahead_hits > 3, "{:?}", auto.stats);
    assert!(auto.stats.decode_ms < 0.95 * off, "{} and {off} ms", auto.stats.decode_ms);
}

#[test]
fn speculation_pipeline_stays_off_where_lanes_share_an_engine() {
    for engines in [Engines::DrafterFirst, Engines::TargetFirst, Engines::Slowed(180)] {
        let pair = Pair::new(engines);
        let off = pair.decode_ms(Pipelining::Off);
        let outcome = pair.run(Pipelining::Auto);
        assert!(!outcome.report.pipeline.on, "{engines:?}");
        let reason = outcome.report.pipeline.reason.unwrap();
        assert!(reason.starts_with("the lanes slow each other: "), "{engines:?}: {reason}");
        assert_eq!(outcome.stats.ahead_rounds, 3, "{engines:?}: measured three times");
        // All right, so what was done ahead was of use; even so, three rounds tell.
        let lost = outcome.stats.decode_ms - off;
        assert!(lost < 3.0 * 0.8 * VERIFY_MS, "{engines:?}: {lost} ms lost");
    }
    // One engine hides nothing: a round takes the sum, asked for or not.
    let outcome = Pair::new(Engines::DrafterFirst).run(Pipelining::On);
    assert_ms(outcome.stats.decode_ms, 4.0 * GUESS_MS + 11.0 * (5.0 * GUESS_MS + VERIFY_MS) + VERIFY_MS);
    // Where the lanes say that they share a device, nothing is tried.
    let pair = Pair { names: ["cpu", "cpu"], ..Pair::new(Engines::Apart) };
    let outcome = pair.run(Pipelining::Auto);
    assert_ms(outcome.stats.decode_ms, pair.decode_ms(Pipelining::Off));
    let reason = outcome.report.pipeline.reason.unwrap();
    assert_eq!(reason, "target and drafter share one device, cpu");
}

#[test]
fn speculation_pipeline_pays_for_a_miss_with_one_guess_at_most() {
    // Nothing the drafter expects happens, so every block made ahead is dropped.
    for guess_ms in [GUESS_MS, 60.0, 400.0] {
        let pair = Pair { guess_ms, noise: 60.0, ..Pair::new(Engines::Apart) };
        let (off, on) = (pair.run(Pipelining::Off), pair.run(Pipelining::On));
        assert_eq!((on.stats.drafted, on.stats.accepted), (off.stats.drafted, off.stats.accepted));
        let missed = on.stats.ahead_rounds - on.stats.ahead_hits;
        assert!(missed > 20, "{:?}", on.stats);
        let lost = on.stats.decode_ms - off.stats.decode_ms;
        assert!(lost <= missed as f64 * guess_ms + 1e-6, "{lost} ms lost in {missed} misses");
    }
}

fn model(lane: ScriptedLane, p_min: f32) -> Box<dyn Drafter> {
    Box::new(ModelDrafter::new(Box::new(lane), VOCAB, p_min))
}

fn drafters(case: &Case, seed: u64) -> Vec<Box<dyn Drafter>> {
    let similar = || case.target.perturbed(seed, 1.0);
    let lookup =
        || vec![Box::new(NgramDrafter::new()) as Box<dyn Drafter>, Box::new(SuffixDrafter::default())];
    vec![
        model(case.target.twin(), 0.0),
        model(similar(), 0.0),
        model(similar(), 0.4),
        model(similar().with_max_width(2), 0.0),
        Box::new(Union::new(lookup().into_iter().chain([model(similar(), 0.0)]).collect(), None)),
    ]
}

#[test]
fn speculation_pipeline_changes_no_proposal() {
    // Rejection, too: another proposal would give another text there.
    let mut hits = 0;
    for seed in 0..4 {
        for target in
            [ScriptedLane::hashed(VOCAB, 400, seed, 6.0), ScriptedLane::markov(VOCAB, 400, seed, 6.0, 2)]
        {
            for (params, spec_sampling) in both_params(seed).into_iter().flat_map(|params| {
                [SpecSampling::Coupled, SpecSampling::Rejection].map(|mode| (params.clone(), mode))
            }) {
                let mut case = Case::new(target.twin(), &[1, 2, 3], 40);
                case.params = params;
                case.options.spec_sampling = spec_sampling;
                for draft_max in [1, 2, 3, 4, 8] {
                    let run = |pipeline, options: Options| -> Vec<Outcome> {
                        let mut case = Case {
                            target: target.twin(),
                            prompt: case.prompt.clone(),
                            params: case.params.clone(),
                            limits: case.limits.clone(),
                            stops: vec![],
                            options,
                            pipeline,
                        };
                        case.options.spec_sampling = spec_sampling;
                        drafters(&case, seed)
                            .into_iter()
                            .map(|drafter| case.run(drafter, draft_max))
                            .collect()
                    };
                    let off = run(Pipelining::Off, Options::default());
                    // Real threads, where chance decides how far the drafter comes, and one that always comes to its end.
                    let clock = Arc::new(TwoLanes::new(Engines::DrafterFirst));
                    let whole = Options { clock, ..Options::default() };
                    for on in [run(Pipelining::On, Options::default()), run(Pipelining::On, whole)] {
                        for (i, (on, off)) in on.iter().zip(&off).enumerate() {
                            let what =
                                format!("drafter {i}, seed {seed}, {draft_max} guesses, {spec_sampling:?}");
                            assert_eq!(on.reply, off.reply, "{what}");
                            assert_eq!(on.stats.by_position, off.stats.by_position, "{what}");
                            assert_eq!(on.stats.rounds, off.stats.rounds, "{what}");
                            hits += on.stats.ahead_hits;
                        }
                    }
                    if spec_sampling == SpecSampling::Coupled {
                        assert!(off.iter().all(|off| off.reply == case.by_hand(40)));
                    }
                }
            }
        }
    }
    assert!(hits > 1_000, "{hits}");
}

/// A case that always works ahead to the end, by a clock without threads.
fn ahead(target: ScriptedLane, max_tokens: usize) -> Case {
    let mut case = Case::new(target, &[1, 2, 3], max_tokens);
    case.options.clock = Arc::new(TwoLanes::new(Engines::DrafterFirst));
    case.pipeline = Pipelining::On;
    case
}

#[test]
fn speculation_pipeline_ends_where_plain_decoding_does() {
    for params in both_params(2) {
        for draft_max in 1..=5 {
            let mut case = ahead(ScriptedLane::hashed(VOCAB, 400, 21, 6.0), 30);
            case.params = params.clone();
            let all = case.by_hand(30);
            for k in 0..12 {
                case.limits.end_tokens = vec![all[k]];
                let first = all.iter().position(|token| *token == all[k]).unwrap();
                let outcome = case.run(model(case.target.twin(), 0.0), draft_max);
                assert_eq!(
                    (outcome.reply.as_slice(), outcome.finish),
                    (&all[..=first], FinishReason::EndToken)
                );
            }
            case.limits.end_tokens.clear();
            for n in 1..12 {
                case.limits.max_tokens = Some(n);
                let outcome = case.run(model(case.target.twin(), 0.0), draft_max);
                assert_eq!((outcome.reply.as_slice(), outcome.finish), (&all[..n], FinishReason::MaxTokens));
            }
        }
        for context in 5..=16 {
            // Neither lane holds more than the session may use, or the drafter's holds even less.
            for short in [0, 1, 2, 4] {
                let lane = |context| {
                    let script = ScriptedLane::hashed(VOCAB, 400, 21, 6.0);
                    ScriptedLane::new(VOCAB, context, move |prefix| script.logits(prefix))
                };
                let mut case = ahead(lane(context), 0);
                (case.limits.max_tokens, case.limits.context) = (None, context);
                case.params = params.clone();
                let outcome = case.run(model(lane(context - short), 0.0), 3);
                assert_eq!(outcome.finish, FinishReason::ContextFull);
                assert_eq!(outcome.reply, case.by_hand(context - 3));
                let full = format!("the drafter's context of {} is full", context - short);
                assert!(outcome.report.reason.is_none_or(|reason| reason == full), "nothing else went wrong");
            }
        }
    }
}

#[test]
fn speculation_pipeline_goes_on_without_a_drafter_that_fails() {
    for params in both_params(3) {
        for fault in [Fault::Device, Fault::NonFinite] {
            for pass in 1..14 {
                for mut case in [ahead(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), 40), {
                    let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 40);
                    case.pipeline = Pipelining::On;
                    case
                }] {
                    case.params = params.clone();
                    let lane = case.target.perturbed(1, 1.0).with_fault(pass, fault);
                    let outcome = case.run(model(lane, 0.0), 3);
                    assert_eq!(outcome.reply, case.by_hand(40), "{fault:?} in pass {pass}");
                    // A failure ahead is met by the next proposal or was passing.
                    let reason = outcome.report.reason.unwrap_or_default();
                    assert!(reason.is_empty() || reason.starts_with("the drafter failed: "), "{reason}");
                    assert_eq!(outcome.report.parked, !reason.is_empty());
                }
            }
        }
    }
}

/// A drafter of its own device that panics when it works ahead for the third time, or cancels the reply.
struct Sudden {
    inner: Box<dyn Drafter>,
    asked: usize,
    cancel: Option<Arc<AtomicBool>>,
}

impl Drafter for Sudden {
    fn name(&self) -> &str {
        "sudden"
    }

    fn default_max(&self) -> usize {
        4
    }

    fn is_costly(&self) -> bool {
        true
    }

    fn device(&self) -> Option<&str> {
        Some("npu")
    }

    fn draft_ahead(
        &mut self,
        session: &Session,
        path: &[u32],
        limit: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Ahead {
        self.asked += 1;
        if self.asked == 3 {
            let cancel = self.cancel.as_ref().expect("the engine caught fire");
            cancel.store(true, Ordering::Relaxed);
        }
        self.inner.draft_ahead(session, path, limit, go_on)
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        self.inner.propose(session, limit)
    }
}

#[test]
fn speculation_pipeline_survives_a_drafter_that_panics() {
    for params in both_params(3) {
        let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 60);
        case.params = params;
        case.pipeline = Pipelining::On;
        let inner = model(case.target.twin(), 0.0);
        let outcome = case.run(Box::new(Sudden { inner, asked: 0, cancel: None }), 3);
        assert_eq!(outcome.reply, case.by_hand(60));
        assert!(outcome.report.parked);
        let reason = outcome.report.reason.unwrap();
        assert_eq!(reason, "the drafter panicked: the engine caught fire");
        assert_eq!(outcome.stats.drafted_rounds, 3, "nobody asks it again");
    }
}

#[test]
fn speculation_pipeline_is_cancelled_like_any_round_and_starts_anew() {
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 4, 6.0), &[1, 2, 3], 60);
    let cancel = Arc::clone(&case.options.cancel);
    let inner = model(case.target.twin(), 0.0);
    let drafter = Sudden { inner, asked: 0, cancel: Some(Arc::clone(&cancel)) };
    let mut speculator = Speculator::new(Box::new(drafter), Some(3), false).with_pipeline(Pipelining::On);
    let mut lane = CachedLane::new(Box::new(case.target.twin()));
    let outcome = case.run_on(&mut lane, &mut speculator);
    assert_eq!(outcome.finish, FinishReason::Cancelled);
    assert_eq!(outcome.reply, case.by_hand(12), "the round that was running is kept");
    cancel.store(false, Ordering::Relaxed);
    let again = case.run_on(&mut lane, &mut speculator);
    assert_eq!((again.reply, again.finish), (case.by_hand(60), FinishReason::MaxTokens));
}

#[test]
fn speculation_pipeline_does_not_outlive_a_reply_that_was_dropped() {
    // The block prepared for one reply must not turn up in another with another seed.
    let mut case = ahead(ScriptedLane::hashed(VOCAB, 400, 4, 3.0), 60);
    case.options.spec_sampling = SpecSampling::Rejection;
    let drafter = || model(case.target.perturbed(1, 1.0), 0.0);
    let make = || Speculator::new(drafter(), Some(3), false).with_pipeline(Pipelining::On);
    for seed in 0..10 {
        let mut first = ahead(case.target.twin(), 60);
        first.params = both_params(seed)[1].clone();
        first.options.spec_sampling = SpecSampling::Rejection;
        let mut speculator = make();
        let mut lane = CachedLane::new(Box::new(case.target.twin()));
        let mut dropped =
            Generation::new(&mut lane, &mut speculator, first.session(), first.options.clone()).unwrap();
        let round = dropped.next_round().unwrap().unwrap();
        drop(dropped);
        let mut second = ahead(case.target.twin(), 40);
        second.prompt.extend(round.tokens);
        second.params = both_params(seed + 100)[1].clone();
        second.options.spec_sampling = SpecSampling::Rejection;
        let used = second.run_on(&mut lane, &mut speculator);
        let fresh = second.run_with(&mut make());
        assert_eq!(used.reply, fresh.reply, "seed {seed}");
    }
}
