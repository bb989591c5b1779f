//! Attention of one activation row over the cached keys and values of one head.
//!
//! Positions are visited ascending, in splits of 64 counted from absolute position 0 (a sliding window may cut
//! the first split). In a split: scores, their maximum, exponentials, their sum, the weighted values; splits are
//! joined ascending by rescaling to the larger maximum.
//!
//! ```text
//! score_p = dot(q, k_p) * scale, or cap * tanh(that / cap)
//! m = max score; w_p = exp(score_p - m); l = sum8 of w by (p mod 64) mod 8; o = fma(w_p, v_p, o), p ascending
//! M' = max(M, m); a = exp(M - M'); b = exp(m - M'); L = fma(l, b, L a); O = fma(o, b, O a);  out = O / L
//! ```
//!
//! Invariant: bits depend on the query and on keys and values *by position*; never on slots, widths or threads.
//! A NaN score makes the whole output of its query NaN.
//! Not here: which positions a row may see, or where new keys are written.

use super::lanes;
use crate::math::{exp, tanh};

/// Positions in a split: enough to amortise joining, few enough that scores stay in registers and L1.
pub(super) const SPLIT: usize = 64;

/// The cached keys and values of one layer and one key/value head, as f16 bit patterns.
///
/// The row of slot `s` is `[s * stride .. s * stride + head_dim]` of either slice. Positions below `committed`
/// lie in the slot of their own number; position `committed + i` lies in slot `path[i]`.
#[derive(Clone, Copy, Debug)]
pub struct KvRows<'a> {
    /// Keys, starting at this head's first number in slot 0.
    pub keys: &'a [u16],
    /// Values, starting at this head's first number in slot 0.
    pub values: &'a [u16],
    /// Numbers from one slot to the next.
    pub stride: usize,
    /// Numbers in a head.
    pub head_dim: usize,
    /// Positions that lie in the slot of their own number.
    pub committed: usize,
    /// Slots of the positions from `committed` on: the row's ancestors in order, itself last.
    pub path: &'a [u32],
}

impl KvRows<'_> {
    #[inline(always)]
    fn offset(&self, position: usize) -> usize {
        let slot = match position.checked_sub(self.committed) {
            None => position,
            Some(beyond) => self.path[beyond] as usize,
        };
        slot * self.stride
    }
}

/// What one row attends to, and how scores are made.
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    /// First position visible.
    pub first: usize,
    /// Last position visible, inclusive.
    pub last: usize,
    /// Factor on the dot product of query and key.
    pub scale: f32,
    /// `cap * tanh(score / cap)`, if given.
    pub softcap: Option<f32>,
}

/// Working memory of attention; keep one per thread.
#[derive(Debug, Default)]
pub struct AttendScratch {
    /// `[n_rep, SPLIT]`.
    weights: Vec<f32>,
    /// Weighted values of the current split, `[n_rep, head_dim]`.
    values: Vec<f32>,
    /// One key or value, widened.
    row: Vec<f32>,
    /// One per query.
    states: Vec<Softmax>,
}

impl AttendScratch {
    /// Empty working memory.
    pub fn new() -> AttendScratch {
        AttendScratch::default()
    }
}

/// Attends `q` `[n_rep, head_dim]` to the rows of `kv`; `widen` turns halves to floats, exactly.
#[inline(always)]
pub(super) fn attend(
    q: &[f32],
    kv: &KvRows<'_>,
    spec: &Attend,
    scratch: &mut AttendScratch,
    out: &mut [f32],
    widen: impl Fn(&[u16], &mut [f32]),
) {
    let head_dim = kv.head_dim;
    let n_rep = q.len() / head_dim;
    scratch.weights.resize(n_rep * SPLIT, 0.0);
    scratch.values.resize(n_rep * head_dim, 0.0);
    scratch.row.resize(head_dim, 0.0);
    scratch.states.clear();
    scratch.states.resize(n_rep, Softmax::EMPTY);
    let AttendScratch { weights, values, row, states } = scratch;
    out.fill(0.0);

    let mut start = spec.first;
    while start <= spec.last {
        let end = (start / SPLIT * SPLIT + SPLIT).min(spec.last + 1);
        // Positions of the split that are not visible keep a weight of exactly 0.
        weights.fill(f32::NEG_INFINITY);
        for position in start..end {
            widen(&kv.keys[kv.offset(position)..][..head_dim], row);
            for (query, weights) in q.chunks_exact(head_dim).zip(weights.chunks_exact_mut(SPLIT)) {
                let score = lanes::dot(query, row) * spec.scale;
                weights[position % SPLIT] = spec.softcap.map_or(score, |cap| cap * tanh(score / cap));
            }
        }
        let (splits, _) = weights.as_chunks_mut::<SPLIT>();
        for (weights, state) in splits.iter_mut().zip(states.iter_mut()) {
            state.soften(weights);
        }
        values.fill(0.0);
        for position in start..end {
            widen(&kv.values[kv.offset(position)..][..head_dim], row);
            for (values, weights) in values.chunks_exact_mut(head_dim).zip(weights.chunks_exact(SPLIT)) {
                let weight = weights[position % SPLIT];
                for (value, &v) in values.iter_mut().zip(row.iter()) {
                    *value = weight.mul_add(v, *value);
                }
            }
        }
        let joined = out.chunks_exact_mut(head_dim).zip(values.chunks_exact(head_dim));
        for ((out, values), state) in joined.zip(states.iter()) {
            for (out, &value) in out.iter_mut().zip(values) {
                *out = value.mul_add(state.new_factor, *out * state.old_factor);
            }
        }
        start = end;
    }
    for (out, state) in out.chunks_exact_mut(head_dim).zip(states.iter()) {
        for out in out {
            *out /= state.sum;
        }
    }
}

/// The softmax of one query so far.
#[derive(Clone, Copy, Debug)]
struct Softmax {
    top: f32,
    sum: f32,
    /// Factors of the old and the new values when the current split is joined.
    old_factor: f32,
    new_factor: f32,
}

impl Softmax {
    const EMPTY: Softmax = Softmax { top: f32::NEG_INFINITY, sum: 0.0, old_factor: 0.0, new_factor: 1.0 };

    /// Turns the scores of a split into weights and takes them into account.
    #[inline(always)]
    fn soften(&mut self, scores: &mut [f32; SPLIT]) {
        let mut tops = [f32::NEG_INFINITY; 8];
        for chunk in scores.as_chunks::<8>().0 {
            for l in 0..8 {
                tops[l] = if chunk[l] > tops[l] { chunk[l] } else { tops[l] };
            }
        }
        let top = tops.into_iter().fold(f32::NEG_INFINITY, |top, x| if x > top { x } else { top });
        let mut sums = [0f32; 8];
        for chunk in scores.as_chunks_mut::<8>().0 {
            for l in 0..8 {
                chunk[l] = exp(chunk[l] - top);
                sums[l] += chunk[l];
            }
        }
        let sum = lanes::sum8(sums);
        let joined = if top > self.top { top } else { self.top };
        self.old_factor = exp(self.top - joined);
        self.new_factor = exp(top - joined);
        self.sum = sum.mul_add(self.new_factor, self.sum * self.old_factor);
        self.top = joined;
    }
}
