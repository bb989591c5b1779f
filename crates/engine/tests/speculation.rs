//! The same tokens, whoever drafts: speculation over scripted lanes against decoding by hand.
//!
//! Invariant: every comparison is exact.
//! Not here: where replies end (`speculation_ends`), parking and failing drafters (`speculation_parking`).

mod setup;

use pilotfish_engine::CachedLane;
use pilotfish_engine::draft::{Drafter, ModelDrafter, NgramDrafter, NoDrafter, SuffixDrafter, Union};
use pilotfish_engine::sampling::SamplingParams;
use pilotfish_engine::speculate::{Options, Pipelining, Speculator};
use pilotfish_lane::testing::ScriptedLane;
use setup::{Case, Planned, Shape, both_params};

const VOCAB: usize = 40;

/// Targets whose text never repeats, and whose text does.
fn targets(seed: u64) -> [ScriptedLane; 2] {
    [ScriptedLane::hashed(VOCAB, 400, seed, 6.0), ScriptedLane::markov(VOCAB, 400, seed, 6.0, 2)]
}

/// A drafter lane that has only the first `vocab` of the target's tokens.
fn shorter(target: &ScriptedLane, vocab: usize) -> ScriptedLane {
    let target = target.twin();
    ScriptedLane::new(vocab, 400, move |prefix| target.logits(prefix)[..vocab].to_vec())
}

type Make = Box<dyn Fn(&Case, u64) -> Box<dyn Drafter>>;

/// Everything that only looks up.
fn lookup() -> Vec<Box<dyn Drafter>> {
    vec![Box::new(NgramDrafter::new()), Box::new(SuffixDrafter::default())]
}

/// A drafter that remembers the reply with every seventh token wrong.
fn experienced(case: &Case, seed: u64) -> SuffixDrafter {
    let wrong =
        |(i, token): (usize, u32)| if i as u64 % 7 == seed { (token + 1) % VOCAB as u32 } else { token };
    let mut drafter = SuffixDrafter::default();
    drafter.learn(&case.by_hand(40).into_iter().enumerate().map(wrong).collect::<Vec<_>>());
    drafter
}

/// Every drafter, by name.
fn drafters() -> Vec<(&'static str, Make)> {
    fn model(lane: ScriptedLane, p_min: f32) -> Box<dyn Drafter> {
        Box::new(ModelDrafter::new(Box::new(lane), VOCAB, p_min))
    }
    vec![
        ("none", Box::new(|_, _| Box::new(NoDrafter))),
        ("ngram", Box::new(|_, _| Box::new(NgramDrafter::new()))),
        ("suffix", Box::new(|_, _| Box::new(SuffixDrafter::default()))),
        ("suffix with a past", Box::new(|case, seed| Box::new(experienced(case, seed)))),
        ("lookup", Box::new(|_, _| Box::new(Union::new(lookup(), None)))),
        (
            "lookup and a model",
            Box::new(|case, seed| {
                let model = model(case.target.perturbed(seed, 2.0), 0.0);
                Box::new(Union::new(lookup().into_iter().chain([model]).collect(), None))
            }),
        ),
        ("the target itself", Box::new(|case, _| model(case.target.twin(), 0.0))),
        ("a similar model", Box::new(|case, seed| model(case.target.perturbed(seed, 2.0), 0.0))),
        ("a similar model, cut", Box::new(|case, seed| model(case.target.perturbed(seed, 2.0), 0.4))),
        ("a narrow model", Box::new(|case, _| model(case.target.twin().with_max_width(2), 0.0))),
        ("another model", Box::new(|_, seed| model(ScriptedLane::hashed(VOCAB, 400, seed + 9, 6.0), 0.0))),
        ("a shorter vocabulary", Box::new(|case, _| model(shorter(&case.target, 30), 0.0))),
        ("planned chains", Box::new(|case, seed| Box::new(Planned::mixed(case, seed, false)))),
        ("planned trees", Box::new(|case, seed| Box::new(Planned::mixed(case, seed, true)))),
    ]
}

#[test]
fn speculation_never_changes_a_token() {
    let mut verdicts = [0; 3];
    let drafters = drafters();
    for seed in 0..6 {
        for target in targets(seed) {
            for params in both_params(seed) {
                let prompt: Vec<u32> = (0..12).map(|i| (i * 5 + seed as u32) % 20).collect();
                let mut case = Case::new(target.twin(), &prompt, 40);
                case.params = params;
                let expected = case.by_hand(40);
                for (name, make) in &drafters {
                    for draft_max in 0..=8 {
                        case.options.prefill_chunk = [Some(1), Some(3), Some(16), None][draft_max % 4];
                        case.pipeline = [Pipelining::Off, Pipelining::On][(draft_max + seed as usize) % 2];
                        let outcome = case.run(make(&case, seed), draft_max);
                        let what = format!("{name}, seed {seed}, at most {draft_max} guesses");
                        assert_eq!(outcome.reply, expected, "{what}: {:?}", case.params);
                        assert!(outcome.stats.by_position.len() <= draft_max, "{what}");
                        assert_eq!(outcome.report.reason, None, "{what}");
                        if name.starts_with("planned") && draft_max > 1 {
                            for (sum, count) in verdicts.iter_mut().zip(outcome.verdicts) {
                                *sum += count;
                            }
                        }
                    }
                }
            }
        }
    }
    let rounds: usize = verdicts.iter().sum();
    for (what, count) in ["full", "partial", "no"].into_iter().zip(verdicts) {
        assert!(5 * count >= rounds, "{what} acceptance in {count} of {rounds} rounds");
    }
}

#[test]
fn speculation_with_the_target_as_drafter_is_accepted_fully() {
    for seed in 0..8 {
        for target in targets(seed) {
            for params in both_params(seed) {
                for draft_max in 1..=8 {
                    // One prompt shorter, as long as, and longer than the draft.
                    for prompt_len in [1, draft_max, draft_max + 1] {
                        let prompt: Vec<u32> = (0..prompt_len as u32).collect();
                        let mut case = Case::new(target.twin(), &prompt, 60);
                        case.params = params.clone();
                        let drafter = ModelDrafter::new(Box::new(target.twin()), VOCAB, 0.0);
                        let outcome = case.run(Box::new(drafter), draft_max);
                        assert_eq!(outcome.reply, case.by_hand(60));
                        assert_eq!(outcome.stats.accepted, outcome.stats.drafted, "coupled noise");
                        let rounds = 60_usize.div_ceil(draft_max + 1);
                        assert_eq!(outcome.stats.rounds, rounds, "{draft_max} guesses and a bonus a round");
                    }
                }
            }
        }
    }
}

#[test]
fn speculation_shared_noise_makes_sampled_drafts_match() {
    // A similar model, hot: with noise of its own it would agree far less often.
    let mut shared = 0;
    let mut greedy_guess = 0;
    for seed in 0..10 {
        let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, seed, 3.0), &[1, 2, 3], 80);
        case.params = SamplingParams { temperature: 1.5, seed, ..SamplingParams::greedy() };
        let similar = || case.target.perturbed(seed, 0.5);
        shared += case.run(Box::new(ModelDrafter::new(Box::new(similar()), VOCAB, 0.0)), 1).stats.accepted;
        // What greedy guesses of the same model would have earned.
        let mut tokens = case.prompt.clone();
        for token in case.by_hand(80) {
            let logits = similar().logits(&tokens);
            let best = (0..VOCAB).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            greedy_guess += usize::from(best as u32 == token);
            tokens.push(token);
        }
    }
    assert!(shared > 2 * greedy_guess, "{shared} against {greedy_guess}");
}

#[test]
fn speculation_ngram_wins_on_text_that_repeats() {
    let case = Case::new(ScriptedLane::markov(VOCAB, 400, 3, 6.0, 2), &[1, 2, 3], 200);
    let outcome = case.run(Box::new(NgramDrafter::new()), 32);
    assert_eq!(outcome.reply, case.by_hand(200));
    assert!(outcome.stats.tau() > 3.0, "τ = {}", outcome.stats.tau());
}

#[test]
fn speculation_suffix_wins_on_text_that_repeats() {
    let case = Case::new(ScriptedLane::markov(VOCAB, 400, 3, 6.0, 2), &[1, 2, 3], 200);
    for drafter in
        [Box::new(SuffixDrafter::default()) as Box<dyn Drafter>, Box::new(Union::new(lookup(), None))]
    {
        let outcome = case.run(drafter, 32);
        assert_eq!(outcome.reply, case.by_hand(200));
        assert!(outcome.stats.tau() > 3.0, "τ = {}", outcome.stats.tau());
    }
}

#[test]
fn speculation_suffix_remembers_the_replies_before() {
    // The text never repeats within a reply, and is the same in every reply.
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 5, 6.0), &[1, 2, 3], 100);
    let mut speculator = Speculator::new(Box::new(SuffixDrafter::default()), Some(16), false);
    let first = case.run_with(&mut speculator);
    let second = case.run_with(&mut speculator);
    for outcome in [&first, &second] {
        assert_eq!(outcome.reply, case.by_hand(100));
    }
    assert!(second.stats.rounds < 20 && first.stats.rounds > 60, "{:?} {:?}", first.stats, second.stats);
    let mut forgetful = Speculator::new(Box::new(SuffixDrafter::new(0)), Some(16), false);
    let again = [0, 1].map(|_| case.run_with(&mut forgetful).stats.rounds);
    assert_eq!(again[0], again[1]);
}

#[test]
fn speculation_follows_the_branches_of_a_tree() {
    // The right path lies behind a wrong first sibling at every depth, so a chain would fail.
    let case = Case::new(ScriptedLane::hashed(VOCAB, 400, 5, 6.0), &[1, 2, 3], 40);
    let drafter = Planned::new(&case, |limit| Shape::Bushy { right: limit });
    let outcome = case.run(Box::new(drafter), 3);
    assert_eq!(outcome.reply, case.by_hand(40));
    assert_eq!(outcome.stats.rounds, 10);
    assert!(outcome.stats.drafted > 3 * outcome.stats.accepted);
}

#[test]
fn speculation_trees_are_cut_to_the_lane_width() {
    let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 5, 6.0), &[1, 2, 3], 40);
    let expected = case.by_hand(40);
    for width in 1..12 {
        let narrow = case.target.twin().with_max_width(width);
        let mut lane = CachedLane::new(Box::new(narrow));
        let drafter = Planned::new(&case, |limit| Shape::Bushy { right: limit });
        let mut speculator = Speculator::new(Box::new(drafter), Some(4), false);
        case.options.prefill_chunk = Some(512);
        assert_eq!(case.run_on(&mut lane, &mut speculator).reply, expected, "width {width}");
    }
}

#[test]
fn speculation_log_probabilities_do_not_change() {
    for seed in 0..4 {
        for params in both_params(seed) {
            let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, seed, 6.0), &[1, 2, 3], 10);
            case.params = params;
            case.options = Options { logprobs: Some(3), ..Options::default() };
            let plain = case.run_plain();
            assert_eq!(plain.reply, case.by_hand(10));
            assert_eq!(plain.logprobs.len(), 10);
            for (name, make) in drafters() {
                for draft_max in [1, 4, 8] {
                    let outcome = case.run(make(&case, seed), draft_max);
                    assert_eq!(outcome.reply, plain.reply, "{name}");
                    assert_eq!(outcome.logprobs, plain.logprobs, "{name}");
                }
            }
            for (entry, &token) in plain.logprobs.iter().zip(&plain.reply) {
                assert_eq!((entry.token, entry.top.len()), (token, 3));
                assert!(entry.logprob < 0.0 && entry.top.is_sorted_by(|a, b| a.1 >= b.1));
                for &(id, logprob) in &entry.top {
                    assert!(id != token || logprob == entry.logprob, "the chosen token's own entry");
                }
            }
        }
    }
}

#[test]
fn speculation_choices_and_seeds_give_different_texts() {
    let text = |seed| {
        let mut case = Case::new(ScriptedLane::hashed(VOCAB, 400, 1, 3.0), &[1, 2, 3], 30);
        case.params = SamplingParams { temperature: 1.0, seed, ..SamplingParams::greedy() };
        case.run_plain().reply
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn speculation_reuses_the_cached_prefix_of_a_chat() {
    let target = ScriptedLane::hashed(VOCAB, 400, 2, 6.0);
    let mut lane = CachedLane::new(Box::new(target.twin()));
    let drafter = ModelDrafter::new(Box::new(target.perturbed(1, 2.0)), VOCAB, 0.0);
    let mut speculator = Speculator::new(Box::new(drafter), Some(4), false);
    let mut prompt = vec![1, 2, 3, 4];
    let mut reused = vec![];
    for turn in 0..4 {
        let case = Case::new(target.twin(), &prompt, 9);
        let outcome = case.run_on(&mut lane, &mut speculator);
        assert_eq!(outcome.reply, case.by_hand(9), "turn {turn}");
        reused.push(outcome.stats.reused_tokens);
        prompt.extend(&outcome.reply);
        prompt.extend([5, 6]);
        if turn == 2 {
            prompt.truncate(10); // the user takes something back
        }
    }
    // All but the reply's last token was in the cache, then the ten tokens but the last.
    assert_eq!(reused, [0, 4 + 8, 4 + 9 + 2 + 8, 9]);
}
