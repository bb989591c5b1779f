//! Attention of one activation row over the cached keys and values of one head.
//!
//! Positions are visited ascending, in splits of 64 counted from absolute position 0 (a sliding window may cut
//! the first split). In a split: scores, their maximum, exponentials, their sum, the weighted values; splits are
//! joined ascending by rescaling to the larger maximum.
//!
//! ```text
//! score_p = dot(q, k_p) * scale, or cap * tanh(that / cap)
//! dot: as the float matmul's, heads padded with zeros to whole eights
//! m = max score; w_p = exp(score_p - m); l = sum8 of w by (p mod 64) mod 8; o = fma(w_p, v_p, o), p ascending
//! M' = max(M, m); a = exp(M - M'); b = exp(m - M'); L = fma(l, b, L a); O = fma(o, b, O a);  out = O / L
//! ```
//!
//! Invariant: bits depend on the query and on keys and values *by position*; never on slots, widths or threads.
//! A NaN score makes the whole output of its query NaN.
//! Not here: which positions a row may see, or where new keys are written.

use std::ops::Range;

use super::activations;
use super::lanes::{self, Lanes, Rows8};
use crate::float16::f16_to_f32;
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
    /// The queries, padded, `[n_rep, head_dim / 8]`.
    queries: Vec<[f32; 8]>,
    /// Scores, then weights, of the current split, one entry a query.
    weights: Vec<[f32; SPLIT]>,
    /// Weighted values of the current split, `[n_rep, head_dim / 8]`.
    values: Vec<[f32; 8]>,
    /// The result so far, `[n_rep, head_dim / 8]`.
    joined: Vec<[f32; 8]>,
    /// Keys or values of up to 8 positions, widened and padded, `[head_dim / 8, 8]`.
    rows: Vec<[[f32; 8]; 8]>,
    /// One per query.
    states: Vec<Softmax>,
}

impl AttendScratch {
    /// Empty working memory.
    pub fn new() -> AttendScratch {
        AttendScratch::default()
    }

    /// Takes the queries in and forgets what was attended to.
    fn reset(&mut self, q: &[f32], head_dim: usize) {
        let (n_rep, eights) = (q.len() / head_dim, head_dim.div_ceil(8));
        let zeros = [0.0; 8];
        self.queries.resize(n_rep * eights, zeros);
        for (padded, query) in self.queries.chunks_exact_mut(eights).zip(q.chunks_exact(head_dim)) {
            activations::pad(query, padded);
        }
        self.weights.resize(n_rep, [0.0; SPLIT]);
        self.values.resize(n_rep * eights, zeros);
        self.joined.clear();
        self.joined.resize(n_rep * eights, zeros);
        self.rows.clear();
        self.rows.resize(eights, [zeros; 8]);
        self.states.clear();
        self.states.resize(n_rep, Softmax::EMPTY);
    }
}

/// Attends `q` `[n_rep, head_dim]` to the rows of `kv`. Compiled once for each table.
#[inline(always)]
pub(super) fn attend<L: Lanes>(
    lanes: L,
    q: &[f32],
    kv: &KvRows<'_>,
    spec: &Attend,
    scratch: &mut AttendScratch,
    out: &mut [f32],
) {
    let eights = kv.head_dim.div_ceil(8);
    scratch.reset(q, kv.head_dim);
    let AttendScratch { queries, weights, values, joined, rows, states } = scratch;

    let mut start = spec.first;
    while start <= spec.last {
        let end = (start / SPLIT * SPLIT + SPLIT).min(spec.last + 1);
        let visible = start % SPLIT..(end - 1) % SPLIT + 1;
        for first in (start..end).step_by(8) {
            let count = 8.min(end - first);
            widen(lanes, kv.keys, kv, first..first + count, rows);
            for (query, weights) in queries.chunks_exact(eights).zip(weights.iter_mut()) {
                let products = lanes::dots(lanes, query, rows);
                weights[first % SPLIT..][..count].copy_from_slice(&products[..count]);
            }
        }
        for (weights, state) in weights.iter_mut().zip(states.iter_mut()) {
            spec.score(weights, visible.clone());
            state.soften(weights);
        }
        values.fill([0.0; 8]);
        for first in (start..end).step_by(8) {
            let count = 8.min(end - first);
            widen(lanes, kv.values, kv, first..first + count, rows);
            for (values, weights) in values.chunks_exact_mut(eights).zip(weights.iter()) {
                add_weighted(lanes, &weights[first % SPLIT..][..count], rows, values);
            }
        }
        let joins = joined.chunks_exact_mut(eights).zip(values.chunks_exact(eights));
        for ((joined, values), state) in joins.zip(states.iter()) {
            for (joined, &value) in joined.as_flattened_mut().iter_mut().zip(values.as_flattened()) {
                *joined = value.mul_add(state.new_factor, *joined * state.old_factor);
            }
        }
        start = end;
    }
    let heads = out.chunks_exact_mut(kv.head_dim).zip(joined.chunks_exact(eights));
    for ((out, joined), state) in heads.zip(states.iter()) {
        for (out, joined) in out.iter_mut().zip(joined.as_flattened()) {
            *out = joined / state.sum;
        }
    }
}

/// Widens keys or values of up to 8 positions; the padding stays zero.
#[inline(always)]
fn widen<L: Lanes>(lanes: L, data: &[u16], kv: &KvRows<'_>, positions: Range<usize>, rows: &mut Rows8) {
    for (r, position) in positions.enumerate() {
        let (halves, tail) = data[kv.offset(position)..][..kv.head_dim].as_chunks::<8>();
        for (halves, rows) in halves.iter().zip(rows.iter_mut()) {
            lanes.store(&mut rows[r], lanes.widen(halves));
        }
        if let Some(rows) = rows.get_mut(halves.len()) {
            for (float, &half) in rows[r].iter_mut().zip(tail) {
                *float = f16_to_f32(half);
            }
        }
    }
}

/// Adds the weighted values of these positions, ascending, to the sums of one query.
#[inline(always)]
fn add_weighted<L: Lanes>(lanes: L, weights: &[f32], rows: &Rows8, sums: &mut [[f32; 8]]) {
    /// Sums kept in registers at a time.
    const AT_ONCE: usize = 8;
    let weights = &weights[..weights.len().min(8)];
    let (rows, rows_tail) = rows.as_chunks::<AT_ONCE>();
    let (sums, sums_tail) = sums.as_chunks_mut::<AT_ONCE>();
    for (rows, sums) in rows.iter().zip(sums) {
        let mut registers = sums.map(|sums| lanes.load(&sums));
        for (r, &weight) in weights.iter().enumerate() {
            let weight = lanes.splat(weight);
            for i in 0..AT_ONCE {
                registers[i] = lanes.fma(weight, lanes.load(&rows[i][r]), registers[i]);
            }
        }
        for (sums, register) in sums.iter_mut().zip(registers) {
            lanes.store(sums, register);
        }
    }
    for (rows, sums) in rows_tail.iter().zip(sums_tail) {
        let mut register = lanes.load(sums);
        for (r, &weight) in weights.iter().enumerate() {
            register = lanes.fma(lanes.splat(weight), lanes.load(&rows[r]), register);
        }
        lanes.store(sums, register);
    }
}

impl Attend {
    /// Turns products to scores. Positions of the split that are not visible get a weight of exactly 0.
    #[inline(always)]
    fn score(&self, products: &mut [f32; SPLIT], visible: Range<usize>) {
        for score in &mut products[visible.clone()] {
            *score *= self.scale;
        }
        if let Some(cap) = self.softcap {
            for score in &mut products[visible.clone()] {
                *score = cap * tanh(*score / cap);
            }
        }
        products[..visible.start].fill(f32::NEG_INFINITY);
        products[visible.end..].fill(f32::NEG_INFINITY);
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
