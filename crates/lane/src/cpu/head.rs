//! What rows want of the vocabulary matrix: their logits, or only the best token.
//!
//! Verifying a draft needs one token id per row, so for those the product is made and searched piece by piece: with
//! 151,936 tokens, writing and reading back whole rows of logits would be a good part of a narrow pass.
//!
//! Invariant: the best token is that of the whole row, or of the part that was asked for: of equal logits the lowest id, and no token when any logit is
//! not finite.
//! Not here: gathering and quantizing the rows (`run`).

use std::cell::RefCell;

use pilotfish_tensor::kernels::{Activations, ColumnBlock, Kernels, Matrix};

use super::threads::Threads;
use crate::{Outputs, Want};

/// Tokens searched at a time: their logits stay in a near cache, also for a wide pass.
const PIECE: usize = 1024;

thread_local! {
    static LOGITS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// The best token of one row among some.
#[derive(Clone, Copy)]
struct Best {
    token: usize,
    logit: f32,
    finite: bool,
}

/// The best of the first `among` tokens for each row of `x`.
pub(super) fn argmax(
    kernels: &'static Kernels,
    threads: &mut Threads,
    weight: &Matrix,
    x: &Activations,
    among: usize,
) -> Vec<Outputs> {
    let (rows, vocab) = (x.rows(), weight.n_out());
    let none = Best { token: 0, logit: f32::NEG_INFINITY, finite: true };
    let mut found = vec![none; among.div_ceil(PIECE) * rows];
    let pieces: Vec<(usize, &mut [Best])> = found.chunks_mut(rows).enumerate().collect();
    threads.for_each(pieces, |(piece, found)| {
        let columns = piece * PIECE..((piece + 1) * PIECE).min(among);
        LOGITS.with_borrow_mut(|logits| {
            logits.resize(rows * columns.len(), 0.0);
            let mut block = ColumnBlock::alone(logits, rows, vocab, columns.clone());
            kernels.matmul(weight, x, &mut block);
            for (logits, found) in logits.chunks_exact(columns.len()).zip(found) {
                let token = kernels.argmax(logits);
                let finite = kernels.all_finite(logits);
                *found = Best { token: columns.start + token, logit: logits[token], finite };
            }
        });
    });
    let best = |row| {
        let pieces = || found.iter().skip(row).step_by(rows);
        if !pieces().all(|piece| piece.finite) {
            return Outputs::NonFinite;
        }
        let better = |best: Best, piece: &Best| if piece.logit > best.logit { *piece } else { best };
        Outputs::Argmax(id(pieces().fold(none, better).token))
    };
    (0..rows).map(best).collect()
}

/// What rows with these `wants` get from their `logits`, `[wants, vocab]`; the best token is one of the first `among`.
pub(super) fn outputs(
    kernels: &Kernels,
    logits: &[f32],
    vocab: usize,
    among: usize,
    wants: impl Iterator<Item = Want>,
) -> Vec<Outputs> {
    let output = |(logits, want): (&[f32], Want)| {
        if !kernels.all_finite(logits) {
            return Outputs::NonFinite;
        }
        match want {
            Want::Nothing => Outputs::Nothing,
            Want::Argmax => Outputs::Argmax(id(kernels.argmax(&logits[..among]))),
            Want::Logits => Outputs::Logits(logits.to_vec()),
        }
    };
    logits.chunks_exact(vocab).zip(wants).map(output).collect()
}

fn id(token: usize) -> u32 {
    u32::try_from(token).expect("token ids are 32 bits wide")
}
