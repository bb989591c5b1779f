//! The work on records of 256: Q4_K, Q5_K, Q6_K.
//!
//! ```text
//! for each sub-block:  part[row] = sum over its groups of weights * 4 activations
//!                      words[row] += part * scale of the sub-block
//! f = words * d, less sum(min * activation sums) * dmin;   sum = fma(f, d_a, sum)
//! ```
//!
//! Q6_K weights are stored 32 too large: `32 * sum(scale * activation sums)` is taken off, in words.
//!
//! Invariant: no short or word overflows: see `DEPTH` in `super_records`; words stay below 2^28.
//! Not here: the order of the walk (`tiles`).

use super::super_records::{Expanded, ExpandedOf, SuperRecord};
use super::walk::{Ahead, Kept, walk};
use super::{Entries, Sums, Wide, by_rows, for_groups, next_sums, of_tile, source_for};
use crate::kernels::activations::Activations;
use crate::kernels::columns::ColumnBlock;
use crate::kernels::matrix::Matrix;

/// `y = x W^T` for the columns of `y`.
#[inline(always)]
pub(super) fn matmul<C: Entries, T: SuperRecord>(
    cpu: C,
    weight: &Matrix,
    x: &Activations,
    y: &mut ColumnBlock<'_>,
) {
    let mut kept = Kept::zero();
    let mut expanded = ExpandedOf::<C>::zero(cpu);
    walk::<C, T>(weight, x, y, 1, |records, block, row_tiles, sums| {
        let record = &records[0];
        record.expand(cpu, &mut expanded);
        let mut rest = sums;
        for (index, &tile) in row_tiles.iter().enumerate() {
            let sums = next_sums(&mut rest, tile);
            let ahead = Ahead::of(records, index);
            let input = SuperInput { record, expanded: &expanded, x, block, first: tile.first, ahead };
            let source = source_for::<C>(index, row_tiles.len());
            by_rows!(cpu.super_::<C, T>(input, &mut kept, sums), tile.rows, source);
        }
    });
}

/// One block of one tile of rows.
pub(in crate::kernels) struct SuperInput<'a, T, S, P> {
    record: &'a T,
    expanded: &'a Expanded<S, P>,
    x: &'a Activations,
    block: usize,
    first: usize,
    ahead: Ahead,
}

/// The input `C` takes, and parts of its lanes too.
pub(in crate::kernels) type InputOf<'a, T, C> = SuperInput<'a, T, <C as Wide>::Scales, <C as Wide>::Pairs>;

/// Adds the products of a record with `ROWS` rows.
#[inline(always)]
pub(in crate::kernels) fn add<C: Wide, T: SuperRecord, const ROWS: usize, const SOURCE: u8>(
    cpu: C,
    input: &InputOf<'_, T, C>,
    kept: &mut Kept,
    sums: &mut [Sums],
) {
    let SuperInput { record, expanded, x, block, first, ahead } = *input;
    let quants: &[[_; 64]; ROWS] = of_tile(x, x.quants.as_chunks::<4>().0, block, first);
    let scales: &[[_; 1]; ROWS] = of_tile(x, &x.scales, block, first);
    let sums = sums.first_chunk_mut::<ROWS>().expect("one sum a row");

    let mut words = [cpu.splat_word(0); ROWS];
    if !T::MINS {
        let pairs: &[[_; 8]; ROWS] = of_tile(x, x.sums.as_chunks::<2>().0, block, first);
        let offsets = pair_products(cpu, &expanded.pairs, pairs);
        for r in 0..ROWS {
            words[r] = cpu.sub(words[r], cpu.left_words::<5>(offsets[r]));
        }
    }
    let depth = if C::SHORT { T::DEPTH } else { T::GROUPS };
    // Sums of either half of the sub-blocks, where they are whole numbers that floats hold exactly.
    let exact = C::FLOATS && T::HALF_IS_EXACT;
    let (mut half, mut first_half) = ([cpu.splat(0.0); ROWS], [cpu.splat(0.0); ROWS]);
    for sub in 0..64 / T::GROUPS {
        if (sub * T::GROUPS).is_multiple_of(8) {
            ahead.fetch(cpu, sub * T::GROUPS / 8, size_of::<T>() / 8);
        }
        let mut parts = [cpu.no_part(); ROWS];
        for_groups!(group, {
            if group < T::GROUPS {
                let at = sub * T::GROUPS + group;
                let weights = kept.weights::<C, SOURCE>(cpu, at, || record.weights(cpu, sub, group));
                for r in 0..ROWS {
                    let acts = &quants[r][sub * T::GROUPS..][..T::GROUPS];
                    let part = cpu.add_unsigned(parts[r], weights, acts, group);
                    parts[r] = if ROWS > 2 { cpu.in_order(part) } else { part };
                }
                if (group + 1) % depth == 0 {
                    for r in 0..ROWS {
                        if exact {
                            half[r] = cpu.add_scaled_floats(half[r], parts[r], expanded.scales[sub]);
                        } else {
                            words[r] = cpu.add_scaled(words[r], parts[r], expanded.scales[sub]);
                        }
                        parts[r] = cpu.no_part();
                    }
                }
            }
        });
        if exact && sub + 1 == 32 / T::GROUPS {
            (first_half, half) = (half, [cpu.splat(0.0); ROWS]);
        }
    }

    let scale = cpu.widen(record.scale());
    let mut steps = [scale; ROWS];
    for r in 0..ROWS {
        // Added once, the halves are rounded as their sum in words is when it becomes a float.
        let total =
            if exact { cpu.fma(half[r], cpu.splat(1.0), first_half[r]) } else { cpu.floats(words[r]) };
        steps[r] = cpu.mul(total, scale);
    }
    if T::MINS {
        let pairs: &[[_; 4]; ROWS] = of_tile(x, &x.pairs_of_32, block, first);
        let mins = pair_products(cpu, &expanded.pairs, pairs);
        let min_scale = cpu.widen(record.min_scale());
        for r in 0..ROWS {
            steps[r] = cpu.negated_fma(cpu.floats(mins[r]), min_scale, steps[r]);
        }
    }
    for r in 0..ROWS {
        let sum = cpu.fma(steps[r], cpu.splat(scales[r][0]), cpu.load_sums(&sums[r]));
        cpu.store_sums(&mut sums[r], sum);
    }
}

/// Sums of products of weight-side pairs (scales or minimums) with pairs of activation sums.
#[inline(always)]
fn pair_products<C: Wide, const ROWS: usize, const PAIRS: usize>(
    cpu: C,
    weights: &[C::Pairs; 8],
    sums: &[[[i16; 2]; PAIRS]; ROWS],
) -> [C::Words; ROWS] {
    let mut words = [cpu.splat_word(0); ROWS];
    for pair in 0..PAIRS {
        for r in 0..ROWS {
            words[r] = cpu.add_pairs(words[r], weights[pair], sums[r][pair]);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::super_records::{Q4K, Q5K, Q6K};
    use super::*;

    #[test]
    fn depths_keep_shorts_in_range() {
        fn check<T: SuperRecord>(max_weight: usize) {
            assert!(2 * max_weight * 127 * T::DEPTH <= 32767);
            assert_eq!(size_of::<T>(), 16 * T::BLOCK_BYTES);
        }
        check::<Q4K>(15);
        check::<Q5K>(31);
        check::<Q6K>(63);
    }

    #[test]
    fn floats_hold_half_a_record_where_they_must() {
        // Weights, activations and numbers; scales and sub-blocks of a half.
        const { assert!(!Q4K::HALF_IS_EXACT || 15 * 127 * 32 * 63 * 4 < 1 << 24) };
        const { assert!(!Q5K::HALF_IS_EXACT || 31 * 127 * 32 * 63 * 4 < 1 << 24) };
        const { assert!(!Q6K::HALF_IS_EXACT || 63 * 127 * 16 * 128 * 8 < 1 << 24) };
    }
}
