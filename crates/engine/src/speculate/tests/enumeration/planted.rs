//! Mistakes that the enumeration must see, or it proves nothing.
//!
//! Each is a wrong rule or a drafter that lies about its law, in the place of the right one. Without a
//! mistake the same machinery finds no difference, so what it finds is the mistake.
//!
//! Invariant: the wrong code is here only.
//! Not here: the right rule (`reject`).

use std::sync::Arc;

use pilotfish_lane::{Outputs, Rows};

use super::drafters::guess;
use super::settings::{EXACT, Setting, TextLaw, dyadic, largest_difference};
use crate::sampling::{Choice, Dice, Law, SamplingParams};
use crate::session::Session;
use crate::speculate::TokenTree;
use crate::speculate::accept::{row_logits, walk};

/// A difference that nobody could take for rounding.
const SEEN: f64 = 1e-6;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// After a rejection p itself is sampled from.
    ResampleFromTarget,
    /// After a rejection |p - q| is.
    ResampleFromDifference,
    /// After a rejection p without the guess is, as if it had been picked.
    ResampleWithoutGuess,
    /// A guess is kept when p(x) / q(x) is at least this.
    Threshold(f64),
    /// The probability of keeping a guess is larger by this factor.
    KeepMore(f64),
    /// Every guess is kept.
    KeepAll,
    /// A rejected sibling stays in q.
    SiblingsWithReplacement,
    /// A picked guess that was rejected may still be sampled.
    PickedStays,
    /// Behind the last guess the drafter's law is sampled from.
    BonusFromDrafter,
    /// Behind the last guess the row before it is.
    BonusFromRowBefore,
    /// Guesses are drawn at temperature 0.8, but said to be drawn at 1.
    OtherTemperature,
    /// The likeliest guess is picked, but said to be drawn.
    PickedAsDrawn,
    /// A drawn guess is dropped when it turns out to be unlikely.
    DroppedOnceKnown,
}

/// A case and the mistake made in it.
struct Planted {
    setting: Setting,
    siblings: usize,
    picks: bool,
    mistake: Mistake,
}

impl Planted {
    /// Chains of two guesses, drawn unless told otherwise.
    fn new(mistake: Mistake) -> Self {
        let setting = Setting { length: 4, ..Setting::new(4, 2) };
        Self { setting, siblings: 1, picks: false, mistake }
    }

    fn text_law(&self) -> TextLaw {
        self.setting.law_by_rounds(&mut |text, room, dice| self.round(text, room, dice.as_ref()))
    }

    fn error(&self) -> f64 {
        largest_difference(&self.text_law(), &self.setting.target_law())
    }

    /// A round as the loop makes it, but for the mistake.
    fn round(&self, text: &[u32], room: usize, dice: &dyn Dice) -> (Vec<u32>, bool) {
        let mut session: Session = self.setting.session(text, room);
        let mut tree = TokenTree::root(session.last());
        let depth = self.setting.depth.min(room - 1);
        self.draft(&mut tree, 0, text, depth, dice.guesses(text.len()).as_mut());
        let rows = self.rows(&tree, text);
        let mut sampler = self.setting.sampler();
        let accepted = walk(&tree, text, &mut |i, history| {
            let last = tree.children(i).next().is_none() && i > 0;
            let row = match tree.parent(i) {
                Some(parent) if last && self.mistake == Mistake::BonusFromRowBefore => parent,
                _ => i,
            };
            let law = if last && self.mistake == Mistake::BonusFromDrafter {
                self.draft_law(history, 1.0)
            } else {
                sampler.law(row_logits(&rows, row, history)?, history)?
            };
            Ok(self.token_behind(i, &tree, law, dice.verdict(history.len()).as_mut()))
        });
        let committed = session.commit(&accepted.unwrap().tokens);
        (session.reply()[..committed.count].to_vec(), session.done())
    }

    fn rows(&self, tree: &TokenTree, text: &[u32]) -> Rows {
        let row = |i: usize| {
            let mut path = vec![];
            let mut at = i;
            while let Some(parent) = tree.parent(at) {
                path.push(tree.token(at));
                at = parent;
            }
            let behind: Vec<u32> = text.iter().copied().chain(path.into_iter().rev()).collect();
            Outputs::Logits((self.setting.target)(&behind))
        };
        Rows::new((0..tree.width()).map(row).collect())
    }

    fn draft_law(&self, text: &[u32], temperature: f64) -> Law {
        let weight = |(id, logit): (u32, f32)| (id, (f64::from(logit) / temperature).exp());
        Law::new((0..).zip(dyadic(self.setting.vocab, 23)(text)).map(weight)).unwrap()
    }

    fn draft(&self, tree: &mut TokenTree, at: usize, text: &[u32], depth: usize, choice: &mut dyn Choice) {
        if depth == 0 {
            return;
        }
        let said = self.draft_law(text, 1.0);
        let likeliest =
            (0..self.setting.vocab as u32).find(|&token| said.of(token) == said.largest()).unwrap();
        let drawn_from =
            if self.mistake == Mistake::OtherTemperature { self.draft_law(text, 0.8) } else { said.clone() };
        if !self.picks {
            tree.draw_behind(at, Arc::new(said.clone()));
        }
        let mut rest = Some(drawn_from);
        for _ in 0..self.siblings {
            let Some(law) = rest else { break };
            let token = match self.picks || self.mistake == Mistake::PickedAsDrawn {
                true => likeliest,
                false => law.draw(choice),
            };
            rest = law.without(token);
            if self.mistake == Mistake::DroppedOnceKnown && said.of(token) < 0.2 {
                break;
            }
            let child = tree.push(at, guess(token));
            self.draft(tree, child, &[text, &[token]].concat(), depth - 1, choice);
        }
    }

    /// The rule in other words, with room for a mistake.
    fn token_behind(&self, at: usize, tree: &TokenTree, mut p: Law, choice: &mut dyn Choice) -> u32 {
        let mut q = tree.law(at).cloned();
        for child in tree.children(at) {
            let token = tree.token(child);
            let share = q.as_ref().map_or(1.0, |q| q.of(token));
            let keep = match self.mistake {
                Mistake::Threshold(least) => f64::from(p.of(token) / share >= least),
                Mistake::KeepMore(factor) => factor * p.of(token) / share,
                Mistake::KeepAll => 1.0,
                _ => p.of(token) / share,
            };
            if choice.bernoulli(keep.min(1.0)) {
                return token;
            }
            let rest = match (self.mistake, &q) {
                (Mistake::ResampleFromTarget, _) | (Mistake::PickedStays, None) => Some(p.clone()),
                (Mistake::ResampleFromDifference, Some(q)) => {
                    let ids = 0..self.setting.vocab as u32;
                    Law::new(ids.map(|id| (id, (p.of(id) - q.of(id)).abs())))
                }
                (Mistake::ResampleWithoutGuess, _) | (_, None) => p.without(token),
                (_, Some(q)) => p.minus(q),
            };
            let Some(rest) = rest else { break };
            p = rest;
            if self.mistake != Mistake::SiblingsWithReplacement {
                q = q.and_then(|q| q.without(token));
            }
        }
        p.draw(choice)
    }
}

/// Every mistake in a case where it can show.
fn planted() -> Vec<Planted> {
    let chains = [
        Mistake::ResampleFromTarget,
        Mistake::ResampleFromDifference,
        Mistake::ResampleWithoutGuess,
        Mistake::Threshold(0.5),
        Mistake::KeepMore(1.05),
        Mistake::KeepMore(1.005),
        Mistake::KeepAll,
        Mistake::BonusFromDrafter,
        Mistake::BonusFromRowBefore,
        Mistake::OtherTemperature,
        Mistake::PickedAsDrawn,
        Mistake::DroppedOnceKnown,
    ];
    let siblings = Planted { siblings: 2, ..Planted::new(Mistake::SiblingsWithReplacement) };
    let picked = Planted { picks: true, ..Planted::new(Mistake::PickedStays) };
    chains.into_iter().map(Planted::new).chain([siblings, picked]).collect()
}

#[test]
fn enumeration_sees_planted_mistakes() {
    for planted in planted() {
        let error = planted.error();
        println!("{:?}: {error:.1e}", planted.mistake);
        assert!(error >= SEEN, "{:?} was not seen: {error:e}", planted.mistake);
        let right = Planted { mistake: Mistake::None, ..planted };
        let error = right.error();
        assert!(error <= EXACT, "without it there is an error too: {error:e}");
    }
}

#[test]
fn enumeration_sees_a_wrong_target() {
    // The loop under other parameters than those its law is compared with.
    let setting = Setting::new(3, 2);
    let hotter = SamplingParams { temperature: 1.001, ..setting.params.clone() };
    let error = largest_difference(&setting.text_law(), &Setting { params: hotter, ..setting }.target_law());
    assert!(error >= SEEN, "{error:e}");
}
