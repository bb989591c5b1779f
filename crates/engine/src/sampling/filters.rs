//! The steps between a logits row and the tokens that may be chosen.
//!
//! In llama.cpp's order: logit bias, penalties, top-k, top-p, min-p; temperature comes last and belongs
//! to the draw. Arithmetic is in `f64`; sums run in id order, or in sorted order once top-k has sorted.
//!
//! Invariant: each filter keeps at least one candidate, and what it keeps is a function of the values
//! and ids alone: ties go to the lower id.
//! Not here: ranges of the parameters (`params`), the draw itself (`sampling`).

use std::cmp::Ordering;

use super::elementary::{exp, ln};

/// A token that may still be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Token id.
    pub token: u32,
    /// Its logit after the steps so far. Finite.
    pub logit: f64,
}

/// Larger logits first, lower ids first among equals: a total order on finite candidates.
pub(crate) fn better_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// The candidate of a token, among candidates that are in id order.
fn find(candidates: &mut [Candidate], token: u32) -> Option<&mut Candidate> {
    // Where all tokens are there, each stands in the place of its id.
    let in_place = candidates.get(token as usize).is_some_and(|candidate| candidate.token == token);
    let at = if in_place {
        token as usize
    } else {
        candidates.binary_search_by_key(&token, |candidate| candidate.token).ok()?
    };
    candidates.get_mut(at)
}

/// Adds `bias` to the logits; `candidates` are in id order, and ids that are not among them are passed over.
pub(crate) fn add_bias(candidates: &mut [Candidate], bias: &[(u32, f32)]) {
    for &(token, bias) in bias {
        // A drafter's vocabulary may be shorter than the target's, for which ids were checked.
        if let Some(candidate) = find(candidates, token) {
            candidate.logit += f64::from(bias);
        }
    }
}

/// The strengths of the penalties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Penalties {
    pub(crate) repeat: f64,
    pub(crate) presence: f64,
    pub(crate) frequency: f64,
}

/// Lowers the logits of the tokens in `recent`; `candidates` are in id order.
///
/// `counts` is scratch: all zero before and after, grown to the vocabulary as needed.
pub(crate) fn penalize(candidates: &mut [Candidate], recent: &[u32], by: Penalties, counts: &mut Vec<u32>) {
    let ids = candidates.last().map_or(0, |last| last.token as usize + 1);
    counts.resize(counts.len().max(ids), 0);
    for &token in recent {
        if let Some(count) = counts.get_mut(token as usize) {
            *count += 1;
        }
    }
    for &token in recent {
        // The first visit takes the count, so each distinct token is penalized once.
        let count = counts.get_mut(token as usize).map_or(0, std::mem::take);
        if count == 0 {
            continue;
        }
        let Some(Candidate { logit, .. }) = find(candidates, token) else { continue };
        *logit = if *logit <= 0.0 { *logit * by.repeat } else { *logit / by.repeat };
        *logit -= f64::from(count) * by.frequency + by.presence;
    }
}

/// Keeps the `k` best, best first.
pub(crate) fn top_k(candidates: &mut Vec<Candidate>, k: usize) {
    if k == 0 || candidates.is_empty() {
        return;
    }
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, better_first);
        candidates.truncate(k);
    }
    candidates.sort_unstable_by(better_first);
}

/// Keeps the best tokens up to and including the one that lifts their probability to `p`.
pub(crate) fn top_p(candidates: &mut Vec<Candidate>, p: f64) {
    if p >= 1.0 || candidates.is_empty() {
        return;
    }
    let largest = largest_logit(candidates);
    let total: f64 = candidates.iter().map(|c| exp(c.logit - largest)).sum();
    // The kept set is small nearly always, so only a front of the list is sorted, longer each time.
    let mut front = 256;
    loop {
        let sorted = front.min(candidates.len());
        if sorted < candidates.len() {
            candidates.select_nth_unstable_by(sorted - 1, better_first);
        }
        candidates[..sorted].sort_unstable_by(better_first);
        let mut reached = 0.0;
        let needed = candidates[..sorted].iter().position(|candidate| {
            reached += exp(candidate.logit - largest);
            reached >= p * total
        });
        match needed {
            Some(last) => return candidates.truncate(last + 1),
            // Rounding may leave the sum of all just under p.
            None if sorted == candidates.len() => return,
            None => front *= 8,
        }
    }
}

/// Keeps tokens with at least `p` times the largest probability.
pub(crate) fn min_p(candidates: &mut Vec<Candidate>, p: f64) {
    if p <= 0.0 || candidates.is_empty() {
        return;
    }
    let least = largest_logit(candidates) + if p < 1.0 { ln(p) } else { 0.0 };
    candidates.retain(|candidate| candidate.logit >= least);
}

/// The largest logit of a list that is not empty.
pub(crate) fn largest_logit(candidates: &[Candidate]) -> f64 {
    candidates.iter().fold(f64::NEG_INFINITY, |largest, candidate| largest.max(candidate.logit))
}
