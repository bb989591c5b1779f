//! Random decisions, behind a trait so that tests can take every one of them.
//!
//! Whatever is decided by chance outside coupled sampling asks a [`Choice`]: which of these weights, or
//! yes with this probability. [`SeededDice`] answers by counter-based noise. A test answers with each
//! possible outcome in turn and multiplies their probabilities, which gives the exact law of the output.
//!
//! Every decision has a number of its own: a position is decided in one round only, so its verdicts are
//! named by the position; guesses are drawn again in every round, so they are named by the round's first.
//! A guess therefore never depends on a number that an earlier round looked at. A draft that was begun ahead and dropped
//! unseen is drawn again, for another text, by the same numbers (`speculate::pipeline`).
//!
//! Invariant: an index of weight 0 is never chosen; with probability 0 the answer is no, with 1 it is yes.
//! Not here: the weights (`Law`), what is decided (`speculate::reject`).

use super::noise::{Noise, Purpose};

/// Decides by chance.
pub trait Choice {
    /// An index, drawn with probability proportional to its weight: 0 or more, at least one above 0.
    fn categorical(&mut self, weights: &[f64]) -> usize;

    /// True with probability `p`, 0 to 1.
    fn bernoulli(&mut self, p: f64) -> bool;
}

/// Where the decisions of a reply come from.
pub trait Dice: Send + Sync {
    /// For the token of `position`: which guess is kept, and what comes where none is.
    fn verdict(&self, position: usize) -> Box<dyn Choice + '_>;

    /// For all guesses of the round whose first guess is for `position`, the first `made` of them made already.
    fn guesses_from(&self, position: usize, made: u32) -> Box<dyn Choice + '_>;

    /// For all guesses of the round whose first guess is for `position`.
    fn guesses(&self, position: usize) -> Box<dyn Choice + '_> {
        self.guesses_from(position, 0)
    }
}

/// Takes whatever is likeliest, the first on ties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Likeliest;

impl Choice for Likeliest {
    fn categorical(&mut self, weights: &[f64]) -> usize {
        let best = (0..weights.len()).reduce(|best, i| if weights[i] > weights[best] { i } else { best });
        best.expect("a weight is above 0")
    }

    fn bernoulli(&mut self, p: f64) -> bool {
        p >= 0.5
    }
}

/// Decisions that are a function of seed, choice index, position and purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeededDice {
    seed: u64,
    choice: u32,
}

impl SeededDice {
    /// Dice for the choice `choice` of a request (its `n`) under `seed`.
    pub fn new(seed: u64, choice: u32) -> Self {
        Self { seed, choice }
    }

    fn throws(&self, position: usize, yes_or_no: Purpose, which: Purpose, thrown: u32) -> Throws {
        let noise = |purpose| Noise::new(self.seed, self.choice, position, purpose);
        Throws { yes_or_no: noise(yes_or_no), which: noise(which), thrown }
    }
}

impl Dice for SeededDice {
    fn verdict(&self, position: usize) -> Box<dyn Choice + '_> {
        Box::new(self.throws(position, Purpose::Accept, Purpose::Residual, 0))
    }

    fn guesses_from(&self, position: usize, made: u32) -> Box<dyn Choice + '_> {
        Box::new(self.throws(position, Purpose::Draft, Purpose::Draft, made))
    }
}

/// One number after another of a position's noise.
struct Throws {
    yes_or_no: Noise,
    which: Noise,
    thrown: u32,
}

impl Throws {
    fn next(&mut self, noise: Noise) -> f64 {
        let uniform = noise.uniform(self.thrown);
        self.thrown += 1;
        uniform
    }
}

impl Choice for Throws {
    fn categorical(&mut self, weights: &[f64]) -> usize {
        let uniform = self.next(self.which);
        index_at(weights, uniform)
    }

    fn bernoulli(&mut self, p: f64) -> bool {
        self.next(self.yes_or_no) < p
    }
}

/// The index whose part of the weights' sum holds the share `uniform`, in [0, 1), of it.
fn index_at(weights: &[f64], uniform: f64) -> usize {
    let border = uniform * weights.iter().sum::<f64>();
    let mut reached = 0.0;
    let mut last = None;
    for (i, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        reached += weight;
        last = Some(i);
        if border < reached {
            break;
        }
    }
    // A subnormal product may have been rounded up to the whole sum; then the last one with a weight has it.
    last.expect("a weight is above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: f64 = 1.0 - f64::EPSILON / 2.0;

    #[test]
    fn sampling_choice_never_takes_weight_zero() {
        let weights = [0.0, 0.0, 0.25, 0.0, 0.75, 0.0, 0.0];
        for (uniform, expected) in [(0.0, 2), (0.2499, 2), (0.25, 4), (LARGEST, 4)] {
            assert_eq!(index_at(&weights, uniform), expected, "{uniform}");
        }
        // Here the largest uniform number times the sum is rounded up to the sum.
        let sum = f64::from_bits(1);
        assert_eq!(LARGEST * sum, sum);
        assert_eq!(index_at(&[0.0, sum, 0.0], LARGEST), 1);
    }

    #[test]
    fn sampling_choice_goes_on_where_a_round_was_left() {
        let dice = SeededDice::new(7, 1);
        let weights = [1.0; 1 << 10];
        let mut in_one_go = dice.guesses(5);
        for made in 0..8 {
            let alone = dice.guesses_from(5, made).categorical(&weights);
            assert_eq!(alone, in_one_go.categorical(&weights));
        }
    }

    #[test]
    fn sampling_choice_of_the_likeliest_takes_the_first_of_equals() {
        assert_eq!(Likeliest.categorical(&[0.1, 0.4, 0.1, 0.4]), 1);
        assert!(Likeliest.bernoulli(0.5) && !Likeliest.bernoulli(0.4));
    }

    #[test]
    fn sampling_choice_is_sure_at_both_ends() {
        let dice = SeededDice::new(7, 0);
        for position in 0..2_000 {
            assert!(!dice.verdict(position).bernoulli(0.0));
            assert!(dice.verdict(position).bernoulli(1.0));
        }
    }

    #[test]
    fn sampling_choices_use_numbers_of_their_own() {
        let dice = SeededDice::new(7, 1);
        let weights = [1.0; 1 << 10];
        let mut verdict = dice.verdict(5);
        let mut guesses = dice.guesses(5);
        let drawn = [
            verdict.categorical(&weights),
            verdict.categorical(&weights),
            guesses.categorical(&weights),
            guesses.categorical(&weights),
            dice.verdict(6).categorical(&weights),
            SeededDice::new(8, 1).verdict(5).categorical(&weights),
            SeededDice::new(7, 2).verdict(5).categorical(&weights),
        ];
        for (i, a) in drawn.iter().enumerate() {
            assert!(drawn[..i].iter().all(|b| a != b), "{drawn:?}");
        }
        assert_eq!(dice.verdict(5).categorical(&weights), drawn[0], "a function of its name");
        // The number that rejects a guess must not choose what replaces it.
        let rejected: Vec<_> = (0..4_000).filter(|&at| !dice.verdict(at).bernoulli(0.5)).collect();
        let replaced = rejected.iter().filter(|&&at| {
            let mut verdict = dice.verdict(at);
            verdict.bernoulli(0.5);
            verdict.categorical(&[1.0, 1.0]) == 0
        });
        let (low, all) = (replaced.count(), rejected.len());
        assert!((0.45..0.55).contains(&(low as f64 / all as f64)), "{low} of {all}");
    }
}
