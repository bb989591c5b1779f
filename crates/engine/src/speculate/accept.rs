//! Which guesses of a verified tree are right, and which token follows them.
//!
//! Start at the root. Choose the target's token behind a node from that node's row; if a child guessed
//! it, go there and repeat; if not, that token is the bonus and the walk ends. By default the token is what
//! the sampler makes of the row, whatever was guessed; with [`SpecSampling::Rejection`] the guesses have a
//! say in it (`reject`), in a way that leaves its law alone.
//!
//! Invariant: every token of [`accept`]'s result is the one plain decoding would have chosen at its
//! position. The walk keeps no state.
//! Not here: end tokens, stop strings and limits (`session`), the cache (`CachedLane`).

use pilotfish_lane::{LaneError, Outputs, Rows, Want};

use super::TokenTree;
use crate::error::EngineError;
use crate::sampling::Sampler;

/// How guesses are judged where the text is sampled; greedy text is the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecSampling {
    /// A guess is right when it equals the token that the target chooses by noise of its own: sampled
    /// text is equal with speculation on or off, token by token.
    #[default]
    Coupled,
    /// A guess is kept with a probability that depends on what it was drawn from, and replaced otherwise:
    /// no rule keeps a drawn guess more often. The text has the same law, but is another one.
    Rejection,
}

/// The accepted path and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The root and the right guesses: rows to keep.
    pub rows: Vec<usize>,
    /// The target's token behind each of those rows; the last one is the bonus.
    pub tokens: Vec<u32>,
}

impl Accepted {
    /// Number of right guesses.
    pub fn accepted(&self) -> usize {
        self.rows.len() - 1
    }
}

/// Walks `tree`, verified as `rows`; `history` holds the committed tokens, the root last.
///
/// # Errors
/// [`LaneError::NonFinite`] when the root's row holds no usable logits. A guess's row that does not
/// only ends the walk before it: should the guess be right, the next round meets that row as its root.
pub fn accept(
    tree: &TokenTree,
    rows: &Rows,
    history: &[u32],
    sampler: &mut Sampler,
) -> Result<Accepted, EngineError> {
    walk(tree, history, &mut |i, history| target_token(rows, i, history, sampler))
}

/// Chooses the token behind a node, given that node and the tokens up to it.
pub(super) type TokenBehind<'a> = dyn FnMut(usize, &[u32]) -> Result<u32, EngineError> + 'a;

/// Walks `tree` by the tokens that `token_behind` chooses.
///
/// # Errors
/// What `token_behind` says of the root. Behind a guess an error only ends the walk before that guess.
pub(super) fn walk(
    tree: &TokenTree,
    history: &[u32],
    token_behind: &mut TokenBehind<'_>,
) -> Result<Accepted, EngineError> {
    let mut history = history.to_vec();
    let bonus = token_behind(0, &history)?;
    let mut accepted = Accepted { rows: vec![0], tokens: vec![bonus] };
    let (mut at, mut token) = (0, bonus);
    while let Some(child) = tree.child(at, token) {
        history.push(token);
        let Ok(next) = token_behind(child, &history) else { break };
        accepted.rows.push(child);
        accepted.tokens.push(next);
        (at, token) = (child, next);
    }
    Ok(accepted)
}

/// The target's own token behind row `i`, whose prefix is `history`.
fn target_token(rows: &Rows, i: usize, history: &[u32], sampler: &mut Sampler) -> Result<u32, EngineError> {
    if sampler.want() == Want::Argmax && *rows.get(i) != Outputs::NonFinite {
        return Ok(rows.argmax(i).expect("a verifying pass asks for the argmax at least"));
    }
    Ok(sampler.sample(row_logits(rows, i, history)?, history)?)
}

/// The logits of row `i`, whose prefix is `history`.
pub(super) fn row_logits<'a>(rows: &'a Rows, i: usize, history: &[u32]) -> Result<&'a [f32], LaneError> {
    if *rows.get(i) == Outputs::NonFinite {
        return Err(LaneError::NonFinite { position: history.len() - 1 });
    }
    Ok(rows.logits(i).expect("a verifying pass asks for the sampler's logits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::SamplingParams;
    use crate::speculate::{Guess, Source};

    fn argmaxes(tokens: &[u32]) -> Rows {
        Rows::new(tokens.iter().map(|&token| Outputs::Argmax(token)).collect())
    }

    fn greedy() -> Sampler {
        Sampler::new(SamplingParams::greedy(), 100, 0).unwrap()
    }

    fn walk(tree: &TokenTree, targets: &[u32]) -> (Vec<usize>, Vec<u32>) {
        let accepted = accept(tree, &argmaxes(targets), &[1], &mut greedy()).unwrap();
        (accepted.rows, accepted.tokens)
    }

    #[test]
    fn speculation_accepts_up_to_the_first_wrong_guess() {
        let chain = TokenTree::chain(1, &[10, 11, 12]);
        assert_eq!(walk(&chain, &[10, 11, 12, 13]), (vec![0, 1, 2, 3], vec![10, 11, 12, 13]));
        assert_eq!(walk(&chain, &[10, 99, 12, 13]), (vec![0, 1], vec![10, 99]));
        assert_eq!(walk(&chain, &[99, 11, 12, 13]), (vec![0], vec![99]));
        assert_eq!(walk(&TokenTree::root(1), &[7]), (vec![0], vec![7]));
    }

    #[test]
    fn speculation_follows_the_branch_that_is_right() {
        let mut tree = TokenTree::chain(1, &[10, 11]); // rows 1, 2
        let guess = |token| Guess { token, probability: 0.5, source: Source::Suffix };
        let side = tree.push(0, guess(20)); // row 3
        tree.push(side, guess(21)); // row 4
        assert_eq!(walk(&tree, &[20, 0, 0, 21, 22]), (vec![0, 3, 4], vec![20, 21, 22]));
        assert_eq!(walk(&tree, &[20, 0, 0, 9, 22]), (vec![0, 3], vec![20, 9]));
    }

    #[test]
    fn speculation_bad_logits_behind_a_guess_end_the_walk_only() {
        let mut sampler = Sampler::new(SamplingParams::default(), 3, 0).unwrap();
        let sure = |id: usize| {
            let mut logits = vec![-50.0; 3];
            logits[id] = 50.0;
            Outputs::Logits(logits)
        };
        let tree = TokenTree::chain(0, &[1, 2]);
        for bad in [Outputs::NonFinite, Outputs::Logits(vec![f32::NAN; 3])] {
            let rows = Rows::new(vec![sure(1), bad.clone(), sure(0)]);
            let accepted = accept(&tree, &rows, &[0], &mut sampler).unwrap();
            assert_eq!(accepted, Accepted { rows: vec![0], tokens: vec![1] });
            let rows = Rows::new(vec![bad, sure(2), sure(0)]);
            assert!(accept(&tree, &rows, &[0], &mut sampler).is_err());
        }
    }
}
