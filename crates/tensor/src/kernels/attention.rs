//! Attention of some activation rows over the cached keys and values of one head.
//!
//! Positions are visited ascending, in splits of 64 counted from absolute position 0 (a sliding window may cut
//! the first split). In a split: scores, their maximum, exponentials, their sum, the weighted values; splits are
//! joined ascending by rescaling to the larger maximum.
//!
//! ```text
//! dot:  two fused multiply-add chains over the numbers of a head, even and odd ones, ascending; then their sum
//!       q8_0: such a sum over the quants of each group; s = fma(sum, scale, s), groups ascending
//! score_p = dot(q, k_p) * scale, or cap * tanh(that / cap)
//! m = max score; w_p = exp(score_p - m); l = sum8 of w by (p mod 64) mod 8; o = fma(w_p, v_p, o), p ascending
//!       q8_0: o = fma(w_p * scale, quant, o)
//! M' = max(M, m); a = exp(M - M'); b = exp(m - M'); L = fma(l, b, L a); O = fma(o, b, O a);  out = O / L
//! ```
//!
//! Keys of eight slots lie together, number by number, so that one register holds a number of eight positions and a
//! dot product needs no sum across lanes. All rows take a split while it is in the cache.
//!
//! Invariant: bits depend on the query and on keys and values *by position*; never on slots, widths or threads.
//! A NaN score makes the whole output of its query NaN.
//! Not here: which positions a row may see, how keys and values lie (`cached`), or where new ones are written.

use std::ops::Range;

use super::ColumnBlock;
use super::cached::{Gathered, Head, KEY_BLOCK, KV_GROUP, Keys, KvNumbers, KvPair, KvRows, Number};
use super::lanes::{self, Lanes, Plain};
use crate::math::{exp, tanh};

/// Positions in a split: enough to amortise joining, few enough that scores stay in registers and L1.
pub(super) const SPLIT: usize = 64;

/// What one row attends to, and how scores are made.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'a> {
    /// First position visible.
    pub first: usize,
    /// Last position visible, inclusive.
    pub last: usize,
    /// Slots of the positions from `committed` on: the row's ancestors in order, itself last.
    pub path: &'a [u32],
    /// Factor on the dot product of query and key.
    pub scale: f32,
    /// `cap * tanh(score / cap)`, if given.
    pub softcap: Option<f32>,
}

/// Working memory of attention; keep one per thread.
#[derive(Debug, Default)]
pub struct AttendScratch {
    /// Scores, then weights, of the current split and row, one entry a query.
    weights: Vec<[f32; SPLIT]>,
    /// Weighted values of the current split and row, `[queries, eights]`.
    values: Vec<[f32; 8]>,
    /// The results so far, `[rows, queries, eights]`.
    joined: Vec<[f32; 8]>,
    /// `[rows, queries]`.
    states: Vec<Softmax>,
    gathered: Gathered,
}

impl AttendScratch {
    /// Empty working memory.
    pub fn new() -> AttendScratch {
        AttendScratch::default()
    }

    fn reset(&mut self, rows: usize, queries: usize, head_dim: usize) {
        let eights = head_dim.div_ceil(8);
        self.weights.resize(queries, [0.0; SPLIT]);
        self.values.resize(queries * eights, [0.0; 8]);
        self.joined.clear();
        self.joined.resize(rows * queries * eights, [0.0; 8]);
        self.states.clear();
        self.states.resize(rows * queries, Softmax::EMPTY);
    }
}

/// Attends the query heads of `q` in the columns of `out` to `kv`, for each of `rows`. Compiled once for each table.
#[inline(always)]
pub(super) fn attend<L: Inner>(
    lanes: L,
    q: &[f32],
    rows: &[Attend<'_>],
    kv: &KvRows<'_>,
    scratch: &mut AttendScratch,
    out: &mut ColumnBlock<'_>,
) {
    const NO_SCALES: KvPair<'_, f32> = KvPair { keys: &[], values: &[] };
    match kv.numbers {
        KvNumbers::F16(halves) => {
            attend_head(lanes, q, rows, &Head::new(kv, halves, NO_SCALES), scratch, out);
        }
        KvNumbers::Q8_0 { quants, scales } => {
            attend_head(lanes, q, rows, &Head::new(kv, quants, scales), scratch, out);
        }
    }
}

#[inline(always)]
fn attend_head<L: Inner, T: Number>(
    lanes: L,
    q: &[f32],
    rows: &[Attend<'_>],
    kv: &Head<'_, T>,
    scratch: &mut AttendScratch,
    out: &mut ColumnBlock<'_>,
) {
    let (columns, n_out) = (out.columns(), out.n_out());
    let queries = columns.len() / kv.dim;
    let eights = kv.dim.div_ceil(8);
    scratch.reset(rows.len(), queries, kv.dim);
    let AttendScratch { weights, values, joined, states, gathered } = scratch;
    let first = rows.iter().map(|row| row.first / SPLIT).min().unwrap_or(0);
    let last = rows.iter().map(|row| row.last / SPLIT).max().unwrap_or(0);
    for split in first..=last {
        let start = split * SPLIT;
        for (r, row) in rows.iter().enumerate() {
            let visible = row.first.max(start) - start..(row.last + 1).min(start + SPLIT).max(start) - start;
            if visible.is_empty() {
                continue;
            }
            let q = &q[r * n_out..][columns.clone()];
            let states = &mut states[r * queries..][..queries];
            for at in (visible.start / KEY_BLOCK * KEY_BLOCK..visible.end).step_by(KEY_BLOCK) {
                let wanted = at.max(visible.start)..(at + KEY_BLOCK).min(visible.end);
                let wanted = start + wanted.start..start + wanted.end;
                if r == 0 {
                    kv.prefetch(lanes, start + at);
                }
                let keys = kv.keys(row.path, start + at, wanted, gathered);
                for (first, count) in Groups(0..queries) {
                    let q = &q[first * kv.dim..][..count * kv.dim];
                    let weights = &mut weights[first..first + count];
                    match count {
                        6 => products::<L, T, 6>(lanes, q, keys, at, weights),
                        4 => products::<L, T, 4>(lanes, q, keys, at, weights),
                        3 => products::<L, T, 3>(lanes, q, keys, at, weights),
                        2 => products::<L, T, 2>(lanes, q, keys, at, weights),
                        _ => products::<L, T, 1>(lanes, q, keys, at, weights),
                    }
                }
            }
            for (weights, state) in weights.iter_mut().zip(states.iter_mut()) {
                row.score(weights, visible.clone());
                state.soften(weights);
            }
            let mut offsets = [0; SPLIT];
            for at in visible.clone() {
                offsets[at] = kv.slot(row.path, start + at) * kv.width;
            }
            let seen = Seen { kv, offsets: &offsets, visible };
            for (first, count) in Groups(0..queries) {
                let weights = &weights[first..first + count];
                let values = &mut values[first * eights..(first + count) * eights];
                match count {
                    6 => seen.add_weighted::<L, 6, 2>(lanes, weights, values),
                    4 => seen.add_weighted::<L, 4, 2>(lanes, weights, values),
                    3 => seen.add_weighted::<L, 3, 2>(lanes, weights, values),
                    2 => seen.add_weighted::<L, 2, 4>(lanes, weights, values),
                    _ => seen.add_weighted::<L, 1, 4>(lanes, weights, values),
                }
            }
            let joined = joined[r * queries * eights..][..queries * eights].chunks_exact_mut(eights);
            for ((joined, values), state) in joined.zip(values.chunks_exact(eights)).zip(states.iter()) {
                for (joined, &value) in joined.as_flattened_mut().iter_mut().zip(values.as_flattened()) {
                    *joined = value.mul_add(state.new_factor, *joined * state.old_factor);
                }
            }
        }
    }
    for r in 0..rows.len() {
        let joined = joined[r * queries * eights..].chunks_exact(eights);
        let states = &states[r * queries..];
        for ((out, joined), state) in out.row_mut(r).chunks_exact_mut(kv.dim).zip(joined).zip(states) {
            for (out, joined) in out.iter_mut().zip(joined.as_flattened()) {
                *out = joined / state.sum;
            }
        }
    }
}

/// Queries in groups whose sums fit the registers: first and count, which is 1, 2, 3, 4 or 6.
///
/// An iterator, and plain loops below, because a closure would be compiled without the table's CPU features.
struct Groups(Range<usize>);

impl Iterator for Groups {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let count = match self.0.len() {
            0 => return None,
            left @ 1..=4 => left,
            5 => 3,
            _ => 6,
        };
        let first = self.0.start;
        self.0.start += count;
        Some((first, count))
    }
}

/// Dot products of `N` queries with the keys of eight positions, to entries `at..at + 8` of `out`.
#[inline(always)]
fn products<L: Inner, T: Number, const N: usize>(
    lanes: L,
    q: &[f32],
    keys: Keys<'_, T>,
    at: usize,
    out: &mut [[f32; SPLIT]],
) {
    let dim = keys.numbers.len();
    let mut queries = [&q[..0]; N];
    let mut products = [lanes.splat(0.0); N];
    if T::SCALED {
        let groups = keys.numbers.as_chunks::<KV_GROUP>().0;
        for (g, (group, scale)) in groups.iter().zip(keys.scales).enumerate() {
            for n in 0..N {
                queries[n] = &q[n * dim + g * KV_GROUP..][..KV_GROUP];
            }
            let sums = chains(lanes, queries, group);
            let scale = lanes.load(scale);
            for n in 0..N {
                products[n] = lanes.fma(sums[n], scale, products[n]);
            }
        }
    } else {
        for n in 0..N {
            queries[n] = &q[n * dim..][..dim];
        }
        products = chains(lanes, queries, keys.numbers);
    }
    for (out, product) in out.iter_mut().zip(products) {
        let out = out[at..].first_chunk_mut().expect("a split is whole blocks");
        lanes.store(out, product);
    }
}

/// Sums over numbers of eight keys, times the same numbers of `N` queries: even and odd ones apart, then together.
#[inline(always)]
fn chains<L: Inner, T: Number, const N: usize>(
    lanes: L,
    queries: [&[f32]; N],
    keys: &[[T; KEY_BLOCK]],
) -> [L::Eight; N] {
    let (pairs, tail) = keys.as_chunks::<2>();
    let queries: [(&[[f32; 2]], &[f32]); N] = std::array::from_fn(|n| queries[n].as_chunks());
    let mut sums = lanes.chains::<T, N>(std::array::from_fn(|n| queries[n].0), pairs);
    for key in tail {
        let key = T::widen(lanes, key);
        for n in 0..N {
            sums[n][0] = lanes.fma(lanes.splat(queries[n].1[0]), key, sums[n][0]);
        }
    }
    let mut both = [lanes.splat(0.0); N];
    for n in 0..N {
        both[n] = lanes.add(sums[n][0], sums[n][1]);
    }
    both
}

/// The two innermost loops. CPUs with registers of sixteen floats write them anew, with the same operations on each
/// number.
pub(super) trait Inner: Lanes {
    /// Sums over numbers of eight keys, times the same numbers of `N` queries: of even numbers, and of odd ones.
    #[inline(always)]
    fn chains<T: Number, const N: usize>(
        self,
        mut queries: [&[[f32; 2]]; N],
        pairs: &[[[T; KEY_BLOCK]; 2]],
    ) -> [[Self::Eight; 2]; N] {
        for n in 0..N {
            // So that the loop below needs no checks.
            queries[n] = &queries[n][..pairs.len()];
        }
        let mut sums = [[self.splat(0.0); 2]; N];
        for (i, [even, odd]) in pairs.iter().enumerate() {
            let keys = [T::widen(self, even), T::widen(self, odd)];
            for n in 0..N {
                let q = queries[n][i];
                for side in 0..2 {
                    sums[n][side] = self.fma(self.splat(q[side]), keys[side], sums[n][side]);
                }
            }
        }
        sums
    }

    /// Weighted sums of the values for `N` queries: `EIGHTS` registers of numbers, from eight `at` on.
    #[inline(always)]
    fn weighted<T: Number, const N: usize, const EIGHTS: usize>(
        self,
        seen: &Seen<'_, T>,
        weights: &[[f32; SPLIT]; N],
        at: usize,
    ) -> [[Self::Eight; EIGHTS]; N] {
        let mut sums = [[self.splat(0.0); EIGHTS]; N];
        for position in seen.positions() {
            let row = seen.eights::<EIGHTS>(position, at);
            let mut values = [self.splat(0.0); EIGHTS];
            for e in 0..EIGHTS {
                values[e] = T::widen(self, &row[e]);
            }
            for n in 0..N {
                let weight = self.splat(weights[n][position]);
                for e in 0..EIGHTS {
                    sums[n][e] = self.fma(weight, values[e], sums[n][e]);
                }
            }
        }
        sums
    }
}

impl Inner for Plain {}

/// The values a row sees in a split.
pub(super) struct Seen<'a, T> {
    kv: &'a Head<'a, T>,
    /// Where the numbers of each visible position begin.
    offsets: &'a [usize; SPLIT],
    visible: Range<usize>,
}

impl<T: Number> Seen<'_, T> {
    /// Weighted sums of the values for `N` queries, `EIGHTS` registers of numbers at a time; positions ascending.
    #[inline(always)]
    fn add_weighted<L: Inner, const N: usize, const EIGHTS: usize>(
        &self,
        lanes: L,
        weights: &[[f32; SPLIT]],
        out: &mut [[f32; 8]],
    ) {
        let weights: &[[f32; SPLIT]; N] = weights.first_chunk().expect("one entry a query");
        if T::SCALED {
            for group in 0..self.kv.dim / KV_GROUP {
                let weights = self.scaled(weights, group);
                for part in 0..KV_GROUP / 8 / EIGHTS {
                    let at = group * (KV_GROUP / 8) + part * EIGHTS;
                    self.some::<L, N, EIGHTS>(lanes, &weights, at, out);
                }
            }
            return;
        }
        let whole = self.kv.dim / 8;
        let mut at = 0;
        while at + EIGHTS <= whole {
            self.some::<L, N, EIGHTS>(lanes, weights, at, out);
            at += EIGHTS;
        }
        while at < whole {
            self.some::<L, N, 1>(lanes, weights, at, out);
            at += 1;
        }
        if !self.kv.dim.is_multiple_of(8) {
            self.last::<L, N>(lanes, weights, out);
        }
    }

    /// The weights times the scales of a group; what is not visible stays arbitrary.
    #[inline(always)]
    fn scaled<const N: usize>(&self, weights: &[[f32; SPLIT]; N], group: usize) -> [[f32; SPLIT]; N] {
        let mut scales = [0.0; SPLIT];
        for position in self.visible.clone() {
            scales[position] = self.kv.scales.values[self.offsets[position] / KV_GROUP + group];
        }
        let mut scaled = *weights;
        for n in 0..N {
            for position in 0..SPLIT {
                scaled[n][position] *= scales[position];
            }
        }
        scaled
    }

    /// The visible positions; they end inside the split, so that loops over them need no checks of it.
    #[inline(always)]
    pub(super) fn positions(&self) -> Range<usize> {
        self.visible.start..self.visible.end.min(SPLIT)
    }

    /// `EIGHTS` eights of the value at `position`, from eight `at` on.
    #[inline(always)]
    pub(super) fn eights<const EIGHTS: usize>(&self, position: usize, at: usize) -> &[[T; 8]; EIGHTS] {
        let row = &self.kv.numbers.values[self.offsets[position] + at * 8..][..EIGHTS * 8];
        row.as_chunks().0.first_chunk().expect("cut to the length")
    }

    #[inline(always)]
    fn some<L: Inner, const N: usize, const EIGHTS: usize>(
        &self,
        lanes: L,
        weights: &[[f32; SPLIT]; N],
        at: usize,
        out: &mut [[f32; 8]],
    ) {
        let sums = lanes.weighted::<T, N, EIGHTS>(self, weights, at);
        let eights = out.len() / N;
        for n in 0..N {
            for e in 0..EIGHTS {
                lanes.store(&mut out[n * eights + at + e], sums[n][e]);
            }
        }
    }

    /// The numbers behind the last whole eight of a head.
    #[inline(always)]
    fn last<L: Lanes, const N: usize>(&self, lanes: L, weights: &[[f32; SPLIT]; N], out: &mut [[f32; 8]]) {
        let (start, end) = (self.kv.dim / 8 * 8, self.kv.dim);
        let mut sums = [lanes.splat(0.0); N];
        for position in self.visible.clone() {
            let mut numbers = [T::default(); 8];
            let row = &self.kv.numbers.values[self.offsets[position]..][start..end];
            numbers[..row.len()].copy_from_slice(row);
            let value = T::widen(lanes, &numbers);
            for n in 0..N {
                sums[n] = lanes.fma(lanes.splat(weights[n][position]), value, sums[n]);
            }
        }
        let eights = out.len() / N;
        for n in 0..N {
            lanes.store(&mut out[(n + 1) * eights - 1], sums[n]);
        }
    }
}

impl Attend<'_> {
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
