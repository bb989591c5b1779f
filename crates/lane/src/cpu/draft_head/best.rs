//! The likeliest draft tokens of each row.
//!
//! As with the target's own head, the product is made and searched piece by piece: whole rows of logits are never
//! written.
//!
//! Invariant: of equal logits the lower id is better; what is not finite is never among the best.
//! Not here: which target token a draft token is (`sequential`).

use std::cell::RefCell;

use pilotfish_tensor::kernels::{Activations, ColumnBlock, Kernels, Matrix};

use super::super::threads::Threads;

/// Tokens searched at a time.
const PIECE: usize = 1024;

thread_local! {
    static LOGITS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// A draft token and its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Best {
    pub(super) token: usize,
    pub(super) logit: f32,
}

/// The `n` best tokens of each row of `x`, best first.
pub(super) fn find(
    kernels: &'static Kernels,
    threads: &mut Threads,
    weight: &Matrix,
    x: &Activations,
    n: usize,
) -> Vec<Vec<Best>> {
    let (rows, vocab) = (x.rows(), weight.n_out());
    let mut found = vec![vec![Vec::new(); rows]; vocab.div_ceil(PIECE)];
    let pieces: Vec<(usize, &mut Vec<Vec<Best>>)> = found.iter_mut().enumerate().collect();
    threads.for_each(pieces, |(piece, found)| {
        let columns = piece * PIECE..((piece + 1) * PIECE).min(vocab);
        LOGITS.with_borrow_mut(|logits| {
            logits.resize(rows * columns.len(), 0.0);
            kernels.matmul(weight, x, &mut ColumnBlock::alone(logits, rows, vocab, columns.clone()));
            for (logits, best) in logits.chunks_exact(columns.len()).zip(found) {
                for (at, &logit) in logits.iter().enumerate() {
                    keep(best, n, Best { token: columns.start + at, logit });
                }
            }
        });
    });
    let of_row = |row: usize| {
        let mut best = Vec::new();
        let all = found.iter().flat_map(|piece| &piece[row]);
        all.for_each(|one| keep(&mut best, n, *one));
        best
    };
    (0..rows).map(of_row).collect()
}

/// Adds `new` to the best, if it is one of the `n` best. Tokens come in ascending order.
#[inline]
fn keep(best: &mut Vec<Best>, n: usize, new: Best) {
    let better = best.len() < n || best.last().is_some_and(|last| new.logit > last.logit);
    if better && new.logit.is_finite() {
        let at = best.partition_point(|other| other.logit >= new.logit);
        best.insert(at, new);
        best.truncate(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_sorted_and_the_lower_id_is_first() {
        let mut best = Vec::new();
        for (token, logit) in [1.0, f32::NAN, 3.0, 3.0, f32::INFINITY, 2.0, -1.0, 3.0].into_iter().enumerate()
        {
            keep(&mut best, 4, Best { token, logit });
        }
        assert_eq!(best.iter().map(|best| best.token).collect::<Vec<_>>(), [2, 3, 7, 5]);
        keep(&mut best, 0, Best { token: 9, logit: 9.0 });
        assert!(best.is_empty());
    }
}
