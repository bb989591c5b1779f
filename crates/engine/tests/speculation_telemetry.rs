//! What rounds say of themselves: their figures add up to the generation's, and every text has its token.
//!
//! Time is a counter that scripted lanes advance by the cost of each pass.
//!
//! Invariant: sums are compared with counts kept elsewhere, never with themselves.
//! Not here: the counting of one round (`speculate::sources`), holding text back (`session::pieces`).

mod setup;

use std::sync::Arc;

use pilotfish_engine::CachedLane;
use pilotfish_engine::draft::{Drafter, ModelDrafter, NgramDrafter, SuffixDrafter, Union};
use pilotfish_engine::speculate::{BySource, Generation, Options, Round, Source, Speculator, Stats};
use pilotfish_lane::testing::ScriptedLane;
use setup::{Case, FakeClock, Planned, both_params};

const VOCAB: usize = 40;
const PASS_US: u64 = 10_000;
const GUESS_US: u64 = 1_003;

fn all_drafters(case: &Case, clock: &FakeClock) -> Box<dyn Drafter> {
    let draft_lane = case.target.perturbed(1, 1.0).with_cost(Arc::clone(&clock.0), |_| GUESS_US);
    let model = ModelDrafter::new(Box::new(draft_lane), VOCAB, 0.0);
    let members: Vec<Box<dyn Drafter>> =
        vec![Box::new(NgramDrafter::new()), Box::new(SuffixDrafter::default()), Box::new(model)];
    Box::new(Union::new(members, None))
}

/// The rounds of a reply, and the generation's own sums.
fn rounds(case: &Case, clock: &FakeClock, speculator: &mut Speculator) -> (Vec<Round>, Stats) {
    let target = case.target.twin().with_cost(Arc::clone(&clock.0), |width| PASS_US + 7 * (width as u64 - 1));
    let mut lane = CachedLane::new(Box::new(target));
    let mut generation = Generation::new(&mut lane, speculator, case.session(), case.options.clone())
        .expect("the session fits");
    let mut rounds = vec![];
    while let Some(round) = generation.next_round().expect("a round runs") {
        rounds.push(round);
    }
    (rounds, generation.stats().clone())
}

fn case(seed: u64, clock: &FakeClock) -> Case {
    let mut case = Case::new(ScriptedLane::markov(VOCAB, 400, seed, 6.0, 2), &[1, 2, 3, 1, 2], 120);
    case.options = Options { clock: Arc::new(clock.clone()), ..Options::default() };
    case
}

#[test]
fn speculation_rounds_add_up_to_the_generation() {
    let mut from_several = 0;
    for seed in 0..4 {
        for params in both_params(seed) {
            for parking in [false, true] {
                let clock = FakeClock::default();
                let mut case = case(seed, &clock);
                case.params = params.clone();
                let drafter = all_drafters(&case, &clock);
                let (rounds, stats) = rounds(&case, &clock, &mut Speculator::new(drafter, Some(4), parking));
                let sum = |figure: fn(&Round) -> usize| rounds.iter().map(figure).sum::<usize>();
                assert_eq!(rounds.len(), stats.rounds);
                assert_eq!(sum(|r| r.figures.drafted), stats.drafted);
                assert_eq!(sum(|r| r.figures.accepted), stats.accepted);
                assert_eq!(sum(|r| r.figures.committed), stats.tokens);
                let mut by_source = BySource::default();
                for round in &rounds {
                    let figures = round.figures;
                    assert_eq!(figures.width, figures.drafted + 1);
                    assert!(figures.drafted <= figures.proposed && figures.depth <= figures.drafted);
                    assert_eq!(figures.committed, round.tokens.len());
                    assert_eq!(round.sources.len(), round.tokens.len());
                    assert_eq!(round.sources.iter().flatten().count(), figures.accepted);
                    assert_eq!(figures.verify_us, PASS_US + 7 * (figures.width as u64 - 1));
                    by_source += figures.by_source;
                }
                assert_eq!(by_source, stats.by_source);
                let counts = || by_source.iter().map(|(_, count)| count);
                assert_eq!(counts().map(|count| count.drafted).sum::<usize>(), stats.drafted);
                assert_eq!(counts().map(|count| count.accepted).sum::<usize>(), stats.accepted);
                assert!(counts().all(|count| count.rounds <= stats.drafted_rounds));
                from_several += usize::from(counts().count() > 1);
            }
        }
    }
    assert!(from_several > 4, "drafts of several sources are common: {from_several}");
}

#[test]
fn speculation_times_of_rounds_add_up_to_the_microsecond() {
    let clock = FakeClock::default();
    let case = case(3, &clock);
    let drafter = all_drafters(&case, &clock);
    let (rounds, stats) = rounds(&case, &clock, &mut Speculator::new(drafter, Some(4), false));
    let sum = |part: fn(&Round) -> u64| rounds.iter().map(part).sum::<u64>() as f64;
    assert!((sum(|r| r.figures.draft_us) - stats.draft_ms * 1e3).abs() < 1e-3);
    assert!((sum(|r| r.figures.verify_us) - stats.verify_ms * 1e3).abs() < 1e-3);
    assert!((sum(|r| r.figures.total_us()) - stats.decode_ms * 1e3).abs() < 1e-3);
    assert!(stats.draft_ms > 0.0 && sum(|r| r.figures.host_us) == 0.0, "only lanes take time here");
}

#[test]
fn speculation_sources_name_the_guesser_of_each_token() {
    let clock = FakeClock::default();
    let case = case(5, &clock);
    let drafter = Planned::mixed(&case, 5, true); // all of its guesses are a model's
    let (rounds, stats) = rounds(&case, &clock, &mut Speculator::new(Box::new(drafter), Some(4), false));
    for round in &rounds {
        let (guessed, bonus) = round.sources.split_at(round.figures.accepted);
        assert!(guessed.iter().all(|source| *source == Some(Source::Model)), "{round:?}");
        assert!(bonus.iter().all(Option::is_none) && bonus.len() <= 1, "{round:?}");
    }
    assert_eq!(stats.by_source.get(Source::Model).drafted, stats.drafted);
    let (plain, stats) = self::rounds(&case, &clock, &mut Speculator::none());
    assert!(plain.iter().all(|round| round.sources == [None] && round.figures.width == 1));
    assert_eq!(stats.by_source, BySource::default());
}

#[test]
fn speculation_text_stays_with_its_token_while_it_is_held_back() {
    let clock = FakeClock::default();
    for draft_max in [0, 1, 4] {
        let mut case = case(7, &clock);
        let reply = case.by_hand(120);
        // It begins again and again and is complete late, if at all.
        let spelled = |tokens: &[u32]| tokens.iter().map(|token| format!("<{token}>")).collect::<String>();
        case.stops = vec![format!("{}!", spelled(&reply[4..7])), spelled(&reply[30..33])];
        let drafter = Planned::mixed(&case, 7, false);
        let mut speculator = Speculator::new(Box::new(drafter), Some(draft_max), false);
        let (rounds, stats) = rounds(&case, &clock, &mut speculator);
        let mut of_token = vec![String::new(); stats.tokens];
        let mut last = 0;
        for round in &rounds {
            let joined: String = round.pieces.iter().map(|piece| piece.text.as_str()).collect();
            assert_eq!(joined, round.text);
            for piece in &round.pieces {
                assert!(piece.token >= last && !piece.text.is_empty(), "in order, and never nothing");
                last = piece.token;
                of_token[piece.token] += &piece.text;
            }
        }
        let text: String = rounds.iter().map(|round| round.text.as_str()).collect();
        let whole = of_token.iter().zip(&reply).take_while(|(text, token)| **text == format!("<{token}>"));
        let shown = whole.count();
        assert_eq!(spelled(&reply[..shown]), text, "each token's text is its own");
        assert!(of_token[shown..].iter().all(String::is_empty), "nothing of the stop string");
        assert!(shown < stats.tokens, "the stop string was met");
    }
}
