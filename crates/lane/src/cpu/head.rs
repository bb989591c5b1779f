//! What rows want of the vocabulary matrix: their logits, or only the best token.
//!
//! Verifying a draft needs one token id per row, so for those the product is made and searched piece by piece: with
//! 151,936 tokens, writing and reading back whole rows of logits would be a good part of a narrow pass.
//!
//! Invariant: the best token is that of the whole row, or of the part that was asked for: of equal logits the lowest id,
//! and no token when any logit is not finite.
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

/// Logits that lie further below the best one are left out of its probability: together they weigh little.
const FAR: f32 = 12.0;

/// The best token of one row among some.
#[derive(Clone, Copy)]
struct Best {
    token: usize,
    logit: f32,
    /// Sum of e^(logit - best logit), where it is wanted.
    mass: f32,
    finite: bool,
}

impl Best {
    /// The best of both.
    fn with(self, other: Best) -> Best {
        let (best, less) = if other.logit > self.logit { (other, self) } else { (self, other) };
        let mass = best.mass + less.mass * (less.logit - best.logit).exp();
        Best { mass, finite: self.finite && other.finite, ..best }
    }
}

/// The best of the first `among` tokens for each row of `x`, with its probability when `weighed`.
pub(super) fn argmax(
    kernels: &'static Kernels,
    threads: &mut Threads,
    weight: &Matrix,
    x: &Activations,
    among: usize,
    weighed: bool,
) -> Vec<Outputs> {
    let (rows, vocab) = (x.rows(), weight.n_out());
    let none = Best { token: 0, logit: f32::NEG_INFINITY, mass: 0.0, finite: true };
    let mut found = vec![none; among.div_ceil(PIECE) * rows];
    let pieces: Vec<(usize, &mut [Best])> = found.chunks_mut(rows).enumerate().collect();
    threads.for_each(pieces, |(piece, found)| {
        let asked = piece * PIECE..((piece + 1) * PIECE).min(among);
        // Products come in whole tiles of columns.
        let columns = asked.start..asked.end.next_multiple_of(weight.column_tile()).min(vocab);
        LOGITS.with_borrow_mut(|logits| {
            logits.resize(rows * columns.len(), 0.0);
            let mut block = ColumnBlock::alone(logits, rows, vocab, columns.clone());
            kernels.matmul(weight, x, &mut block);
            for (logits, found) in logits.chunks_exact(columns.len()).zip(found) {
                let logits = &logits[..asked.len()];
                let token = kernels.argmax(logits);
                let finite = kernels.all_finite(logits);
                let best = logits[token];
                let mass = if weighed { mass(logits, best) } else { 0.0 };
                *found = Best { token: columns.start + token, logit: best, mass, finite };
            }
        });
    });
    let best = |row| {
        let pieces = || found.iter().skip(row).step_by(rows);
        let best = pieces().copied().reduce(Best::with).unwrap_or(none);
        match best.finite {
            false => Outputs::NonFinite,
            true if weighed => Outputs::Likeliest(id(best.token), 1.0 / best.mass),
            true => Outputs::Argmax(id(best.token)),
        }
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
            Want::Likeliest => {
                let logits = &logits[..among];
                let token = kernels.argmax(logits);
                Outputs::Likeliest(id(token), 1.0 / mass(logits, logits[token]))
            }
            Want::Logits => Outputs::Logits(logits.to_vec()),
        }
    };
    logits.chunks_exact(vocab).zip(wants).map(output).collect()
}

/// The sum of e^(logit - best).
fn mass(logits: &[f32], best: f32) -> f32 {
    logits.iter().map(|&logit| logit - best).filter(|&below| below > -FAR).map(f32::exp).sum()
}

fn id(token: usize) -> u32 {
    u32::try_from(token).expect("token ids are 32 bits wide")
}
