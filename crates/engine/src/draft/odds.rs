//! How likely a guess by lookup is right.
//!
//! Of `total` earlier places that look like this one over the last m tokens, `count` went on with the
//! guess. Its odds are `count / (total + 2 / m)`: more evidence and longer matches are better, and one of
//! one is never certain. Behind one earlier place that is m / (m + 2): a half for two tokens, 0.8 for eight.
//! Recorded replies bear it out (`odds_are_what_recorded_replies_show`, in the tests of `pilotfish`).
//!
//! Invariant: odds are above 0 and below 1.
//! Not here: which places are looked at (`ngram`, `suffix`), how much is drafted (`speculate::budget`).

use crate::speculate::TokenTree;

/// Doubt about a match of one token, in places that would have gone on otherwise.
const DOUBT: f32 = 2.0;

/// Odds of a continuation that followed `count` of `total` places with the same last `matched` tokens.
pub(super) fn odds(count: u32, total: u32, matched: usize) -> f32 {
    count as f32 / (total as f32 + DOUBT / matched as f32)
}

/// Expected number of right guesses on the accepted path, should all probabilities be honest.
pub(super) fn expected(tree: &TokenTree) -> f32 {
    let mut reached = vec![1.0; tree.width()];
    for node in 1..tree.width() {
        let parent = tree.parent(node).expect("only the root has no parent");
        reached[node] = reached[parent] * tree.guess(node).probability;
    }
    reached[1..].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculate::{Guess, Source};

    #[test]
    fn speculation_odds_grow_with_evidence_and_length_and_are_never_certain() {
        for matched in 1..64 {
            assert!(odds(1, 1, matched) < odds(1, 1, matched + 1));
            assert!(odds(1, 1, matched) < odds(2, 2, matched));
            assert!(odds(1, 2, matched) < odds(1, 1, matched));
            assert!(odds(9, 9, matched) < 1.0 && odds(1, 1000, matched) > 0.0);
        }
    }

    #[test]
    fn speculation_expected_counts_every_branch_by_the_chance_to_reach_it() {
        let guess = |token, probability| Guess { token, probability, source: Source::Suffix };
        let mut tree = TokenTree::root(1);
        assert_eq!(expected(&tree), 0.0);
        let left = tree.push(0, guess(2, 0.5));
        tree.push(0, guess(3, 0.25));
        tree.push(left, guess(4, 0.5));
        assert_eq!(expected(&tree), 0.5 + 0.25 + 0.25);
    }
}
