//! Sampling by rejection: guesses decide which token follows, not with what probability.
//!
//! The rule of Leviathan et al. ("Fast inference from transformers via speculative decoding", 2023) and
//! Chen et al. (2023), for one guess x drawn from q where the target's law is p: keep x with probability
//! min(1, p(x) / q(x)); else go on with what p has more than q, max(0, p - q) scaled up. For siblings, in the
//! order they were drawn in without replacement:
//!
//! ```text
//! for x in guesses { keep x with min(1, p(x) / q(x)); p <- p minus q; q <- q without x }
//! draw from p
//! ```
//!
//! A picked guess is one that q is sure of, so it is kept with p(x) and p goes on without it. p is what
//! plain sampling draws from: bias and penalties (with the guesses before as history), temperature and filters
//! are in it. Whatever q is, the token has law p, as `enumeration` proves for small cases.
//!
//! Invariant: the law of the text is that of plain sampling if the guesses were drawn as the tree says.
//! Not here: following the kept guess (`accept`), drawing guesses (`draft`).

use std::borrow::Cow;

use pilotfish_lane::Rows;

use super::accept::{Accepted, row_logits, walk};
use super::tree::TokenTree;
use crate::error::EngineError;
use crate::sampling::{Choice, Dice, Law, Sampler};

/// Walks `tree`, verified as `rows`, by rejection; `history` holds the committed tokens, the root last.
///
/// # Errors
/// As [`super::accept`].
pub(super) fn accept_by_rejection(
    tree: &TokenTree,
    rows: &Rows,
    history: &[u32],
    sampler: &mut Sampler,
    dice: &dyn Dice,
) -> Result<Accepted, EngineError> {
    walk(tree, history, &mut |i, history| {
        let law = sampler.law(row_logits(rows, i, history)?, history)?;
        Ok(token_behind(i, tree, law, dice.verdict(history.len()).as_mut()))
    })
}

/// The token behind node `at`: a child's where one is kept. `p` is the target's law there.
fn token_behind(at: usize, tree: &TokenTree, mut p: Law, choice: &mut dyn Choice) -> u32 {
    let mut drawn_from = tree.law(at).map(Cow::Borrowed);
    for child in tree.children(at) {
        let token = tree.token(child);
        // A picked guess is drawn from a law that has nothing else.
        let q = drawn_from.unwrap_or_else(|| Cow::Owned(Law::sure(token)));
        if q.of(token) == 0.0 {
            break; // no draw from this law: a broken drafter may cost time, but not lend a token weight
        }
        if choice.bernoulli((p.of(token) / q.of(token)).min(1.0)) {
            return token;
        }
        let Some(rest) = p.minus(&q) else { break }; // only rounding can have rejected the guess
        p = rest;
        drawn_from = tree.law(at).and_then(|_| q.without(token)).map(Cow::Owned);
    }
    p.draw(choice)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pilotfish_lane::{LaneError, Outputs};

    use super::*;
    use crate::sampling::{SamplingParams, SeededDice};
    use crate::speculate::{Guess, Source};

    fn guess(token: u32) -> Guess {
        Guess { token, probability: 0.5, source: Source::Model }
    }

    fn law(weights: [f64; 4]) -> Arc<Law> {
        Arc::new(Law::new((0..).zip(weights)).unwrap())
    }

    /// Tokens under many seeds; every row has `logits`.
    fn tokens(tree: &TokenTree, logits: [f32; 4], temperature: f32) -> Vec<Vec<u32>> {
        let params = SamplingParams { temperature, ..SamplingParams::greedy() };
        let mut sampler = Sampler::new(params, 4, 0).unwrap();
        let rows = Rows::new(vec![Outputs::Logits(logits.to_vec()); tree.width()]);
        let mut walk = |seed| {
            let dice = SeededDice::new(seed, 0);
            accept_by_rejection(tree, &rows, &[0], &mut sampler, &dice).unwrap().tokens
        };
        (0..200).map(&mut walk).collect()
    }

    #[test]
    fn speculation_rejection_at_temperature_zero_is_greedy() {
        let logits = [0.0, 3.0, 2.9, 3.0];
        let mut drawn = TokenTree::root(0);
        drawn.draw_behind(0, law([1.0, 1.0, 5.0, 1.0]));
        for token in [2, 1, 0] {
            drawn.push(0, guess(token));
        }
        for (tree, expected) in [
            (TokenTree::root(0), &[1][..]),
            (TokenTree::chain(0, &[1, 1, 3]), &[1, 1, 1]),
            (TokenTree::chain(0, &[3]), &[1]),
            (drawn, &[1, 1]),
        ] {
            assert!(tokens(&tree, logits, 0.0).iter().all(|tokens| tokens == expected), "{tree:?}");
        }
    }

    #[test]
    fn speculation_rejection_never_takes_what_the_target_would_not() {
        // Token 0 has no weight worth naming; guesses and laws insist on it, some without being draws.
        let logits = [-2000.0, 0.0, 0.0, 0.0];
        for weights in [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]] {
            let mut tree = TokenTree::root(0);
            tree.draw_behind(0, law(weights));
            for token in [0, 3, 1, 2] {
                tree.push(0, guess(token));
            }
            assert!(tokens(&tree, logits, 1.0).iter().flatten().all(|&token| token != 0), "{weights:?}");
        }
    }

    #[test]
    fn speculation_rejection_of_bad_logits_behind_a_guess_ends_the_walk_only() {
        let mut sampler = Sampler::new(SamplingParams::default(), 2, 0).unwrap();
        let sure = Outputs::Logits(vec![-500.0, 500.0]);
        let tree = TokenTree::chain(0, &[1]);
        let dice = SeededDice::new(0, 0);
        let mut walk = |rows| accept_by_rejection(&tree, &Rows::new(rows), &[0], &mut sampler, &dice);
        let accepted = walk(vec![sure.clone(), Outputs::NonFinite]).unwrap();
        assert_eq!(accepted, Accepted { rows: vec![0], tokens: vec![1] });
        let error = walk(vec![Outputs::NonFinite, sure]).unwrap_err();
        assert!(matches!(error, EngineError::Lane(LaneError::NonFinite { position: 0 })), "{error}");
    }
}
