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
