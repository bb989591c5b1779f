//! What one more guess must promise, for drafters that pay for every guess.
//!
//! A guess more costs its own time and a wider pass. It pays while the tokens it may bring, the chance that all guesses
//! up to it are right, are more than the round brings in that time anyway. A drafter that knows how likely its guesses
//! are ends there, and not at a depth that suits the average text.
//!
//! Invariant: what it says depends on earlier rounds and on the probabilities it is asked about, on no clock.
//! Not here: measuring the costs (`budget`, `costs`).

use super::chances::Tallies;

/// What guesses cost and how likely they turn out right. By default nothing is known of them.
#[derive(Clone, Debug, Default)]
pub struct Worth {
    /// `[made]`: chance that all `made` guesses are right from which one more pays.
    floors: Vec<f64>,
    tallies: Tallies,
    price: f64,
}

impl Worth {
    /// From the `floors` by guesses made, what became of guesses so far, and the tokens that the time of one guess
    /// brings anyway.
    pub(super) fn new(floors: Vec<f64>, tallies: Tallies, price: f64) -> Self {
        Self { floors, tallies, price }
    }

    /// Most guesses that can pay; `None` where nothing is known.
    pub fn most(&self) -> Option<usize> {
        (!self.floors.is_empty()).then_some(self.floors.len())
    }

    /// Whether one more guess pays behind guesses that their drafter held this likely, each given those before it.
    pub fn one_more(&self, probabilities: impl Iterator<Item = f32>) -> bool {
        let chances = probabilities.map(|probability| self.tallies.chance(probability));
        let (made, reached) = chances.fold((0, 1.0), |(made, reached), chance| (made + 1, reached * chance));
        self.floors.get(made).is_some_and(|&floor| reached >= floor)
    }

    /// Nothing known but what one guess costs.
    #[cfg(test)]
    pub(crate) fn priced(price: f64) -> Self {
        Self { price, ..Self::default() }
    }

    /// Tokens that one guess costs in time.
    pub fn price(&self) -> f64 {
        self.price
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speculation_one_more_guess_must_be_reached_often_enough() {
        let worth = Worth::new(vec![0.0, 0.6, 0.7], Tallies::default(), 0.3);
        assert_eq!(worth.most(), Some(3));
        assert!(worth.one_more([].into_iter()));
        assert!(worth.one_more([0.7].into_iter()) && !worth.one_more([0.5].into_iter()));
        assert!(worth.one_more([0.9, 0.9].into_iter()) && !worth.one_more([0.8, 0.8].into_iter()));
        assert!(!worth.one_more([0.99; 3].into_iter()), "no deeper than costs are known");
        assert_eq!(Worth::default().most(), None);
    }
}
