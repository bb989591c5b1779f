//! One small case: a target, a drafter, parameters; the law of its text, and the law it must have.
//!
//! The law of a text is put together round by round. What a round adds depends only on the text before it
//! (a drafter of these tests keeps nothing but a cache), so each round starts the production loop anew with
//! that text as its prompt, and rounds with the same end of text are enumerated once. `text_law_in_one_go` instead
//! runs the loop to the reply's end.
//!
//! Invariant: `target_law` uses the script and the naive filters only, never laws, the loop or the rule.
//! Not here: which cases there are (`exact`, `planted`).

#![cfg(test)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pilotfish_lane::testing::{ScriptedLane, hash_tokens};

use super::replay::law_of;
use crate::CachedLane;
use crate::clock::Clock;
use crate::draft::{Drafter, ModelDrafter};
use crate::sampling::tests::naive_kept;
use crate::sampling::{Dice, Sampler, SamplingParams};
use crate::session::{Limits, NoText, Session};
use crate::speculate::{Generation, Options, Pipelining, SpecSampling, Speculator};

/// Largest error of a probability that still counts as none: rounding of some thousand sums.
pub(super) const EXACT: f64 = 1e-12;

/// Logits behind a text.
pub(super) type Script = Arc<dyn Fn(&[u32]) -> Vec<f32> + Send + Sync>;

/// Replies with their probabilities.
pub(super) type TextLaw = BTreeMap<Vec<u32>, f64>;

/// Makes the drafter of a case.
pub(super) type MakeDrafter = Arc<dyn Fn() -> Box<dyn Drafter> + Send + Sync>;

/// Tokens that a round adds to a text where so many fit, and whether the reply ends with them.
pub(super) type Round<'a> = dyn FnMut(&[u32], usize, Arc<dyn Dice>) -> (Vec<u32>, bool) + 'a;

const PROMPT: [u32; 2] = [1, 0];
const CONTEXT: usize = 32;

/// A case.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) vocab: usize,
    pub(super) target: Script,
    pub(super) params: SamplingParams,
    pub(super) drafter: MakeDrafter,
    /// Most guesses on a path.
    pub(super) depth: usize,
    /// Most tokens of the reply.
    pub(super) length: usize,
    pub(super) end_tokens: Vec<u32>,
    pub(super) max_width: usize,
    /// The last tokens that a round depends on; `None` for the whole text.
    pub(super) memory: Option<usize>,
    /// Whether the drafter works ahead: it keeps something then, so replies must be made in one go.
    pub(super) ahead: bool,
}

/// A clock that stands still, and by which the drafter always ends what it does ahead.
struct DrafterFirst;

impl Clock for DrafterFirst {
    fn now_ms(&self) -> f64 {
        0.0
    }

    fn both(&self, aside: &mut (dyn FnMut() + Send), here: &mut dyn FnMut()) {
        here();
        aside();
    }
}

impl Setting {
    /// A case at temperature 1 whose target and drafting model look at the last token only; replies are
    /// three tokens longer than a draft.
    pub(super) fn new(vocab: usize, depth: usize) -> Self {
        Self {
            vocab,
            target: dyadic(vocab, 11),
            params: SamplingParams { temperature: 1.0, ..SamplingParams::greedy() },
            drafter: model(vocab, vocab, dyadic(vocab, 23), 0.0),
            depth,
            length: depth + 3,
            end_tokens: vec![],
            max_width: 64,
            memory: Some(1),
            ahead: false,
        }
    }

    pub(super) fn sampler(&self) -> Sampler {
        Sampler::new(self.params.clone(), self.vocab, 0).unwrap()
    }

    /// A session that continues `text` by at most `room` tokens.
    pub(super) fn session(&self, text: &[u32], room: usize) -> Session {
        let end_tokens = self.end_tokens.clone();
        let limits = Limits { max_tokens: Some(room), context: CONTEXT, end_tokens, ignore_eos: false };
        Session::new(text.to_vec(), limits, self.sampler(), Box::new(NoText)).unwrap()
    }

    /// The law of the production loop's replies.
    pub(super) fn text_law(&self) -> TextLaw {
        self.law_by_rounds(&mut |text, room, dice| self.generate(text, room, dice, 1))
    }

    /// The same, each reply in one go.
    pub(super) fn text_law_in_one_go(&self) -> TextLaw {
        let law = law_of(&mut |dice| self.generate(&PROMPT, self.length, dice, usize::MAX));
        law.into_iter().map(|((reply, _), p)| (reply, p)).collect()
    }

    /// Tokens of at most `rounds` rounds behind `text`, and whether the reply has ended.
    fn generate(&self, text: &[u32], room: usize, dice: Arc<dyn Dice>, rounds: usize) -> (Vec<u32>, bool) {
        let script = Arc::clone(&self.target);
        let lane = ScriptedLane::new(self.vocab, CONTEXT, move |text| script(text));
        let mut lane = CachedLane::new(Box::new(lane.with_max_width(self.max_width)));
        let pipeline = if self.ahead { Pipelining::On } else { Pipelining::Off };
        let drafter = (self.drafter)();
        let mut speculator = Speculator::new(drafter, Some(self.depth), false).with_pipeline(pipeline);
        let clock = Arc::new(DrafterFirst);
        let options = Options { spec_sampling: SpecSampling::Rejection, clock, ..Options::default() };
        let session = self.session(text, room);
        let mut generation = Generation::new(&mut lane, &mut speculator, session, options).unwrap();
        // Greedy text has no dice.
        generation.session.dice = generation.session.dice.take().map(|_| dice);
        for _ in 0..rounds {
            if generation.next_round().unwrap().is_none() {
                break;
            }
        }
        assert_eq!(generation.report().reason, None, "the drafter was not retired");
        let session = generation.into_session();
        (session.reply().to_vec(), session.done())
    }

    /// Puts the law of replies together from `round`, which adds tokens to a text.
    pub(super) fn law_by_rounds(&self, round: &mut Round<'_>) -> TextLaw {
        let mut known = HashMap::new();
        let mut unfinished = vec![TextLaw::new(); self.length];
        unfinished[0].insert(vec![], 1.0);
        let mut finished = TextLaw::new();
        for len in 0..self.length {
            let room = self.length - len;
            for (reply, p) in std::mem::take(&mut unfinished[len]) {
                let text = [&PROMPT[..], &reply].concat();
                let memory = self.memory.unwrap_or(text.len());
                let key = (text[text.len() - memory..].to_vec(), room);
                let added = known.entry(key).or_insert_with(|| law_of(&mut |dice| round(&text, room, dice)));
                for ((tokens, done), q) in added {
                    let longer = [&reply[..], tokens].concat();
                    let law = if *done { &mut finished } else { &mut unfinished[longer.len()] };
                    *law.entry(longer).or_insert(0.0) += p * *q;
                }
            }
        }
        finished
    }

    /// The law that plain sampling has, computed the dumbest way.
    pub(super) fn target_law(&self) -> TextLaw {
        let mut unfinished = TextLaw::from([(vec![], 1.0)]);
        let mut finished = TextLaw::new();
        while let Some((reply, p)) = unfinished.pop_first() {
            let text = [&PROMPT[..], &reply].concat();
            for (token, q) in naive_law(&self.params, &(self.target)(&text), &text) {
                let longer = [&reply[..], &[token]].concat();
                let done = longer.len() == self.length || self.end_tokens.contains(&token);
                let law = if done { &mut finished } else { &mut unfinished };
                law.insert(longer, p * q);
            }
        }
        finished
    }

    /// Largest difference between the production loop's law and the target's.
    pub(super) fn error(&self) -> f64 {
        largest_difference(&self.text_law(), &self.target_law())
    }
}

/// Largest difference of a probability.
pub(super) fn largest_difference(a: &TextLaw, b: &TextLaw) -> f64 {
    let of = |law: &TextLaw, reply| law.get(reply).copied().unwrap_or(0.0);
    a.keys().chain(b.keys()).map(|reply| (of(a, reply) - of(b, reply)).abs()).fold(0.0, f64::max)
}

/// Probabilities of the next token.
fn naive_law(params: &SamplingParams, logits: &[f32], text: &[u32]) -> Vec<(u32, f64)> {
    if params.temperature == 0.0 {
        let unfiltered = SamplingParams { top_k: 0, top_p: 1.0, min_p: 0.0, ..params.clone() };
        let all = naive_kept(&unfiltered, logits, text);
        let best = all.iter().fold(all[0], |best, &c| if c.1 > best.1 { c } else { best });
        return vec![(best.0, 1.0)];
    }
    let kept = naive_kept(params, logits, text);
    let largest = kept.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
    let weight = |logit: f64| ((logit - largest) / f64::from(params.temperature)).exp();
    let sum: f64 = kept.iter().map(|c| weight(c.1)).sum();
    kept.into_iter().map(|(token, logit)| (token, weight(logit) / sum)).collect()
}

/// Logits whose exponentials are small powers of two and depend on the last token: many ties, and none
/// so unlikely that its mistakes would hide below the border.
pub(super) fn dyadic(vocab: usize, seed: u64) -> Script {
    let row = |last: u32| {
        let power = |id| hash_tokens(seed, &[last, id]) % 4;
        (0..vocab as u32).map(|id| (power(id) as f32) * std::f32::consts::LN_2).collect()
    };
    let rows: Vec<Vec<f32>> = (0..vocab as u32 + 2).map(row).collect();
    Arc::new(move |text| rows[text[text.len() - 1] as usize].clone())
}

/// The real drafting model, with `vocab` logits of `script`.
pub(super) fn model(target_vocab: usize, vocab: usize, script: Script, p_min: f32) -> MakeDrafter {
    Arc::new(move || {
        let script = Arc::clone(&script);
        let lane = ScriptedLane::new(vocab, CONTEXT, move |text| script(text));
        Box::new(ModelDrafter::new(Box::new(lane), target_vocab, p_min))
    })
}
