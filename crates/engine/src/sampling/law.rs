//! The probabilities a token is drawn with.
//!
//! Invariant: ids rise, every probability is above 0, and they sum to 1 up to rounding. A token that is not
//! listed has probability 0.
//! Not here: how logits become a law (`Sampler::law`), what two laws decide (`speculate::reject`).

use super::choice::Choice;

/// Probabilities by token id.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    tokens: Vec<u32>,
    probabilities: Vec<f64>,
}

impl Law {
    /// The law of `weights` (0 or more, finite), whose ids must rise; `None` when all are 0.
    pub fn new(weights: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let (tokens, mut probabilities): (Vec<_>, Vec<_>) =
            weights.into_iter().filter(|(_, weight)| *weight > 0.0).unzip();
        debug_assert!(tokens.is_sorted_by(|a, b| a < b), "ids rise");
        let sum: f64 = probabilities.iter().sum();
        probabilities.iter_mut().for_each(|weight| *weight /= sum);
        (!tokens.is_empty()).then_some(Self { tokens, probabilities })
    }

    /// Always `token`.
    pub fn sure(token: u32) -> Self {
        Self { tokens: vec![token], probabilities: vec![1.0] }
    }

    /// Probability of `token`.
    pub fn of(&self, token: u32) -> f64 {
        self.tokens.binary_search(&token).map_or(0.0, |i| self.probabilities[i])
    }

    /// Probability of the likeliest token.
    pub fn largest(&self) -> f64 {
        self.probabilities.iter().copied().fold(0.0, f64::max)
    }

    /// The largest id that may be drawn.
    pub fn last_token(&self) -> u32 {
        *self.tokens.last().expect("a law has a token")
    }

    /// Draws a token.
    pub fn draw(&self, choice: &mut dyn Choice) -> u32 {
        self.tokens[choice.categorical(&self.probabilities)]
    }

    /// The law given that it is not `token`; `None` when it can be nothing else.
    pub fn without(&self, token: u32) -> Option<Self> {
        Self::new(self.entries().filter(|&(id, _)| id != token))
    }

    /// What is left where `other` takes its share: max(0, this - other), scaled up to a law; `None` when
    /// nothing is left.
    pub fn minus(&self, other: &Self) -> Option<Self> {
        let mut others = other.entries().peekable();
        Self::new(self.entries().map(|(id, p)| {
            while others.next_if(|&(token, _)| token < id).is_some() {}
            let share = others.next_if(|&(token, _)| token == id).map_or(0.0, |(_, share)| share);
            (id, (p - share).max(0.0))
        }))
    }

    fn entries(&self) -> impl Iterator<Item = (u32, f64)> {
        self.tokens.iter().copied().zip(self.probabilities.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(weights: &[f64]) -> Law {
        Law::new((0..).zip(weights.iter().copied())).unwrap()
    }

    #[test]
    fn sampling_laws_are_scaled_and_hold_no_zero() {
        let some = law(&[1.0, 0.0, 3.0]);
        assert_eq!([0, 1, 2, 9].map(|id| some.of(id)), [0.25, 0.0, 0.75, 0.0]);
        assert_eq!((some.largest(), some.last_token()), (0.75, 2));
        assert_eq!(Law::new([(3, 0.0)]), None);
        assert_eq!(Law::sure(3).of(3), 1.0);
    }

    #[test]
    fn sampling_laws_are_taken_from_each_other() {
        let p = law(&[0.5, 0.25, 0.25]);
        assert_eq!(p.without(0), Some(law(&[0.0, 0.5, 0.5])));
        assert_eq!(p.without(7), Some(p.clone()));
        assert_eq!(Law::sure(3).without(3), None);
        assert_eq!(p.minus(&law(&[0.25, 0.0, 0.0, 0.75])), Some(law(&[1.0, 1.0, 1.0])));
        assert_eq!(p.minus(&law(&[0.25, 0.5, 0.25])), Some(Law::sure(0)));
        assert_eq!(p.minus(&p), None);
    }
}
