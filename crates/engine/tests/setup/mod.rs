//! Shared by the speculation tests: one way to run a generation, and drafters that play a plan.
//!
//! Invariant: the oracle (`by_hand`) uses the script and the sampler only, never the engine's loop.
//! Not here: the tests themselves.

#![allow(dead_code, unreachable_pub, reason = "each test file is a crate that uses its own part")]
#![allow(clippy::unwrap_used, reason = "code of tests: a panic is the failure")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pilotfish_engine::draft::Drafter;
use pilotfish_engine::sampling::{Logprobs, Sampler, SamplingParams};
use pilotfish_engine::session::{FinishReason, Limits, ReplyText, Session, TextStep};
use pilotfish_engine::speculate::{
    Generation, Guess, Options, Pipelining, Source, SpeculationReport, Speculator, Stats, TokenTree,
};
use pilotfish_engine::{CachedLane, Clock, DraftError};
use pilotfish_lane::testing::{ScriptedLane, hash_tokens};
use pilotfish_model::text::StopStrings;

/// Microseconds that pass only in scripted lanes.
#[derive(Clone, Default)]
pub struct FakeClock(pub Arc<AtomicU64>);

impl Clock for FakeClock {
    fn now_ms(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e3
    }
}

/// How two lanes that work at once bear each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engines {
    /// Each has its own.
    Apart,
    /// They share one, which serves the drafter first.
    DrafterFirst,
    /// They share one, which serves the target first.
    TargetFirst,
    /// Each has its own, but beside the other takes so many percent of its time.
    Slowed(u64),
}

/// A clock moved by scripted lanes only, two of which may work at once: no threads, so every time is exact.
#[derive(Clone)]
pub struct TwoLanes {
    pub now: Arc<AtomicU64>, // microseconds
    percent: Arc<AtomicU64>,
    engines: Engines,
}

impl TwoLanes {
    pub fn new(engines: Engines) -> Self {
        Self { now: Arc::default(), percent: Arc::new(AtomicU64::new(100)), engines }
    }

    /// `lane` with passes of `us(width)` microseconds.
    pub fn lane(
        &self,
        lane: ScriptedLane,
        us: impl Fn(usize) -> u64 + Send + Sync + 'static,
    ) -> ScriptedLane {
        let percent = Arc::clone(&self.percent);
        let cost = move |width: usize| us(width) * percent.load(Ordering::Relaxed) / 100;
        lane.with_cost(Arc::clone(&self.now), cost)
    }
}

impl Clock for TwoLanes {
    fn now_ms(&self) -> f64 {
        self.now.load(Ordering::Relaxed) as f64 / 1e3
    }

    fn both(&self, aside: &mut (dyn FnMut() + Send), here: &mut dyn FnMut()) {
        let start = self.now.load(Ordering::Relaxed);
        match self.engines {
            Engines::DrafterFirst => {
                here();
                return aside();
            }
            Engines::TargetFirst => {
                aside();
                return here();
            }
            Engines::Slowed(percent) => self.percent.store(percent, Ordering::Relaxed),
            Engines::Apart => {}
        }
        aside();
        let ended = self.now.swap(start, Ordering::Relaxed);
        here();
        self.now.fetch_max(ended, Ordering::Relaxed);
        self.percent.store(100, Ordering::Relaxed);
    }
}

/// What to generate.
pub struct Case {
    pub target: ScriptedLane,
    pub prompt: Vec<u32>,
    pub params: SamplingParams,
    pub limits: Limits,
    pub stops: Vec<String>,
    pub options: Options,
    /// Whether drafters work ahead.
    pub pipeline: Pipelining,
}

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    pub reply: Vec<u32>,
    pub text: String,
    pub logprobs: Vec<Logprobs>,
    pub finish: FinishReason,
    pub stats: Stats,
    pub report: SpeculationReport,
    /// Drafted rounds that were accepted fully, in part and not at all.
    pub verdicts: [usize; 3],
}

impl Case {
    /// Up to `max_tokens` tokens behind `prompt`, greedy, with room to spare.
    pub fn new(target: ScriptedLane, prompt: &[u32], max_tokens: usize) -> Self {
        let limits =
            Limits { max_tokens: Some(max_tokens), context: 400, end_tokens: vec![], ignore_eos: false };
        Self {
            target,
            prompt: prompt.to_vec(),
            params: SamplingParams::greedy(),
            limits,
            stops: vec![],
            options: Options::default(),
            pipeline: Pipelining::Off,
        }
    }

    pub fn sampler(&self) -> Sampler {
        use pilotfish_lane::Lane;
        Sampler::new(self.params.clone(), self.target.info().vocab, 0).unwrap()
    }

    pub fn session(&self) -> Session {
        let stops = StopStrings::new(self.stops.clone()).unwrap();
        let text = Box::new(Spelled { stops });
        Session::new(self.prompt.clone(), self.limits.clone(), self.sampler(), text).unwrap()
    }

    /// `n` tokens behind the prompt, chosen one by one from the script: the oracle.
    pub fn by_hand(&self, n: usize) -> Vec<u32> {
        let mut sampler = self.sampler();
        let mut tokens = self.prompt.clone();
        for _ in 0..n {
            let logits = self.target.logits(&tokens);
            tokens.push(sampler.sample(&logits, &tokens).unwrap());
        }
        tokens.split_off(self.prompt.len())
    }

    /// Generates with `drafter`, at most `draft_max` deep, never parked.
    pub fn run(&self, drafter: Box<dyn Drafter>, draft_max: usize) -> Outcome {
        self.run_with(&mut Speculator::new(drafter, Some(draft_max), false).with_pipeline(self.pipeline))
    }

    /// Generates without speculation.
    pub fn run_plain(&self) -> Outcome {
        self.run_with(&mut Speculator::none())
    }

    pub fn run_with(&self, speculator: &mut Speculator) -> Outcome {
        let mut lane = CachedLane::new(Box::new(self.target.twin()));
        let outcome = self.run_on(&mut lane, speculator);
        let mut all = self.prompt.clone();
        all.extend(&outcome.reply);
        let held = lane.held();
        assert!(all.starts_with(held), "the cache holds a prefix of the text");
        if self.limits.max_tokens != Some(0) {
            assert!(held.len() + 1 >= all.len(), "at most the last token is missing from the cache");
        }
        outcome
    }

    pub fn run_on(&self, lane: &mut CachedLane, speculator: &mut Speculator) -> Outcome {
        let mut generation = Generation::new(lane, speculator, self.session(), self.options.clone()).unwrap();
        let (mut reply, mut text, mut logprobs) = (vec![], String::new(), vec![]);
        let mut verdicts = [0; 3];
        while let Some(round) = generation.next_round().unwrap() {
            assert!(!round.tokens.is_empty() || round.finish == Some(FinishReason::Cancelled));
            let figures = round.figures;
            assert!(figures.accepted <= figures.depth && figures.depth <= figures.drafted);
            if figures.drafted > 0 {
                let full = figures.accepted == figures.depth;
                verdicts[if full {
                    0
                } else if figures.accepted > 0 {
                    1
                } else {
                    2
                }] += 1;
            }
            reply.extend(round.tokens);
            text += &round.text;
            logprobs.extend(round.logprobs);
        }
        let (stats, report) = (generation.stats().clone(), generation.report());
        let session = generation.into_session();
        assert_eq!(session.reply(), reply, "rounds and session agree");
        assert_eq!(stats.tokens, reply.len());
        let finish = session.finish().expect("the reply has ended");
        Outcome { reply, text, logprobs, finish, stats, report, verdicts }
    }
}

/// Greedy, and sampling with everything switched on.
pub fn both_params(seed: u64) -> [SamplingParams; 2] {
    let sampled = SamplingParams {
        temperature: 0.8,
        top_k: 12,
        top_p: 0.95,
        min_p: 0.02,
        repeat_penalty: 1.1,
        repeat_last_n: 16,
        presence_penalty: 0.2,
        frequency_penalty: 0.1,
        logit_bias: vec![(1, 0.5), (2, -1.0)],
        seed,
    };
    [SamplingParams::greedy(), sampled]
}

/// Token 7 is spelled `<7>`; stop strings are searched in that.
pub struct Spelled {
    pub stops: StopStrings,
}

impl ReplyText for Spelled {
    fn push(&mut self, token: u32) -> TextStep {
        let spelled = format!("<{token}>");
        let step = self.stops.push(&spelled);
        TextStep { text: step.text, brought: spelled.len(), stopped: step.stop.is_some() }
    }

    fn finish(&mut self) -> String {
        self.stops.finish()
    }
}

/// What a planned draft looks like.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A chain whose first `right` guesses are right and the others wrong.
    Chain { right: usize },
    /// A right path of `right` guesses with wrong siblings before and behind each, and children of
    /// those; the path goes on wrong to the full length.
    Bushy { right: usize },
}

/// A drafter that knows the truth and errs on purpose.
pub struct Planned {
    truth: Vec<u32>, // prompt and reply
    vocab: u32,
    plan: Box<dyn FnMut(usize) -> Shape + Send>,
}

impl Planned {
    /// Drafts for `case`; `plan` maps the depth granted to the shape of the draft.
    pub fn new(case: &Case, plan: impl FnMut(usize) -> Shape + Send + 'static) -> Self {
        use pilotfish_lane::Lane;
        let mut truth = case.prompt.clone();
        truth.extend(case.by_hand(120));
        Self { truth, vocab: case.target.info().vocab as u32, plan: Box::new(plan) }
    }

    /// Shapes by a fixed pseudo-random plan: full, partial and no acceptance in equal parts.
    pub fn mixed(case: &Case, seed: u64, bushy: bool) -> Self {
        let mut round = 0;
        Self::new(case, move |limit| {
            round += 1;
            let hash = hash_tokens(seed, &[round]);
            let right = match hash % 3 {
                0 => limit,
                1 => 0,
                _ => (hash >> 8) as usize % limit.max(1),
            };
            if bushy { Shape::Bushy { right } } else { Shape::Chain { right } }
        })
    }
}

impl Drafter for Planned {
    fn name(&self) -> &str {
        "planned"
    }

    fn default_max(&self) -> usize {
        8
    }

    fn propose(&mut self, session: &Session, limit: usize) -> Result<TokenTree, DraftError> {
        let at = session.len();
        let mut tree = TokenTree::root(session.last());
        let shape = (self.plan)(limit);
        let (Shape::Chain { right } | Shape::Bushy { right }) = shape;
        let mut node = 0;
        for depth in 0..limit {
            let truth = self.truth.get(at + depth).copied().unwrap_or(0);
            let token = if depth < right { truth } else { (truth + 1) % self.vocab };
            if let Shape::Bushy { .. } = shape {
                let aside = tree.push(node, guess((truth + 2) % self.vocab));
                let below = tree.push(aside, guess(truth));
                tree.push(below, guess(truth));
            }
            let next = tree.push(node, guess(token));
            if let Shape::Bushy { .. } = shape {
                tree.push(node, guess((truth + 3) % self.vocab));
            }
            node = next;
        }
        Ok(tree)
    }
}

/// A guess the drafter is not sure of.
fn guess(token: u32) -> Guess {
    Guess { token, probability: 0.5, source: Source::Model }
}
