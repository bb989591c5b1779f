//! What the token before adds to a guess: DSpark's Markov head, and its confidence head.
//!
//! ```text
//! e = w1[previous]      logit(token) += w2[token] · e      confidence = sigmoid(w · [hidden ; e] + b)
//! with a gate:          logit(token) += w2[token] · (sigmoid(G [hidden ; e] + b) * e)
//! ```
//!
//! Only the likeliest tokens are corrected, so a guess reads a few rows of the file, which stay there.
//!
//! Invariant: a guess depends on its own row, and on the token before, alone.
//! Not here: finding the likeliest tokens (`best`), choosing among them (`pilotfish-engine`).

use super::CpuHead;
use crate::head::Slot;

impl CpuHead {
    /// The candidates of guess `at` behind `previous`, best first, and the confidence in it.
    pub(super) fn slot(&self, at: usize, previous: u32) -> Slot {
        let (config, ids) = (self.head.config(), self.head.draft_ids());
        let target = |token: usize| ids.map_or(token as u32, |ids| ids[token]);
        let before = self.row("markov_head.markov_w1.weight", previous as usize);
        let hidden = &self.hidden[at * config.hidden..][..config.hidden];
        let open = self.gated(hidden, &before);
        let share = |token: usize| dot(&self.row("markov_head.markov_w2.weight", token), open.iter());
        let corrected = self.best[at].iter().map(|best| (target(best.token), best.logit + share(best.token)));
        let mut candidates: Vec<(u32, f32)> = corrected.filter(|(_, logit)| logit.is_finite()).collect();
        candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let confidence = self.weights.confidence.as_ref().map(|(weight, bias)| {
            // Without the Markov head's share the weights end with the hidden state.
            sigmoid(dot(weight, hidden.iter().chain(&before)) + bias)
        });
        Slot { candidates, confidence: confidence.filter(|chance| chance.is_finite()) }
    }

    /// What the gate lets through of `before`, all of it where there is no gate.
    fn gated(&self, hidden: &[f32], before: &[f32]) -> Vec<f32> {
        let Some((weight, bias)) = &self.weights.gate else { return before.to_vec() };
        let rows = weight.chunks_exact(hidden.len() + before.len());
        let gates = rows.zip(bias).map(|(row, bias)| sigmoid(dot(row, hidden.iter().chain(before)) + bias));
        gates.zip(before).map(|(gate, x)| gate * x).collect()
    }

    /// A row of a part of the Markov head; empty where there is none.
    fn row(&self, name: &str, row: usize) -> Vec<f32> {
        let mut numbers = Vec::new();
        if self.head.config().markov_rank > 0 {
            self.head.tensors().row_f32s(name, row, &mut numbers).expect("checked by `DraftHead`");
        }
        numbers
    }
}

fn dot<'a>(a: &[f32], b: impl Iterator<Item = &'a f32>) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
