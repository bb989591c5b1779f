//! The work on records of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.
//!
//! Eight blocks at a time, so that a tile's sums are loaded and stored once for 256 numbers.
//!
//! ```text
//! word = sum over groups of (w + offset) * 4 activations, less offset * sum(a)
//! sum = fma(word * d_a, d, sum), then fma(m, d_a * sum(a), sum) if there is a minimum
//! ```
//!
//! Invariant: no short overflows: see `DEPTH` in `small_records`.
//! Not here: the order of the walk (`tiles`).

use super::small_records::SmallRecord;
use super::walk::{Ahead, Kept, source, walk};
use super::{Entries, Sums, Wide, by_rows, for_groups, next_sums, of_tile, source_for};
use crate::kernels::activations::Activations;
use crate::kernels::columns::ColumnBlock;
use crate::kernels::matrix::Matrix;

/// Records worked on together; their unpacked weights fill a [`Kept`].
const RUN: usize = 8;

/// `y = x W^T` for the columns of `y`.
#[inline(always)]
pub(super) fn matmul<C: Entries, T: SmallRecord>(
    cpu: C,
    weight: &Matrix,
    x: &Activations,
    y: &mut ColumnBlock<'_>,
) {
    let mut kept = Kept::zero();
    walk::<C, T>(weight, x, y, RUN, |records, block, row_tiles, sums| {
        let mut rest = sums;
        for (index, &tile) in row_tiles.iter().enumerate() {
            let sums = next_sums(&mut rest, tile);
            let ahead = Ahead::of(records, index);
            let input = SmallInput { records, x, block, first: tile.first, ahead };
            let source = if T::UNPACKS { source_for::<C>(index, row_tiles.len()) } else { source::UNPACK };
            by_rows!(cpu.small::<C, T>(input, &mut kept, sums), tile.rows, source);
        }
    });
}

/// A run of blocks of one tile of rows.
pub(in crate::kernels) struct SmallInput<'a, T> {
    records: &'a [T],
    x: &'a Activations,
    block: usize,
    first: usize,
    ahead: Ahead,
}

/// Adds the products of a run of records with `ROWS` rows.
#[inline(always)]
pub(in crate::kernels) fn add<C: Wide, T: SmallRecord, const ROWS: usize, const SOURCE: u8>(
    cpu: C,
    input: &SmallInput<'_, T>,
    kept: &mut Kept,
    sums: &mut [Sums],
) {
    let SmallInput { records, x, block, first, ahead } = *input;
    let sums = sums.first_chunk_mut::<ROWS>().expect("one sum a row");
    let mut totals = [cpu.splat(0.0); ROWS];
    for r in 0..ROWS {
        totals[r] = cpu.load_sums(&sums[r]);
    }
    let depth = if C::SHORT { T::DEPTH } else { 8 };
    let offset = if T::SIGNED { C::LIFT } else { T::OFFSET };
    for (index, record) in records[..records.len().min(RUN)].iter().enumerate() {
        ahead.fetch(cpu, index, size_of::<T>());
        let block = block + index;
        let scales: &[[_; 1]; ROWS] = of_tile(x, &x.scales, block, first);
        let act_totals: &[[_; 1]; ROWS] = of_tile(x, &x.totals, block, first);
        let scaled_totals: &[[_; 1]; ROWS] = of_tile(x, &x.scaled_totals, block, first);
        let quants: &[[_; 8]; ROWS] = of_tile(x, x.quants.as_chunks::<4>().0, block, first);

        let mut words = [cpu.splat_word(0); ROWS];
        if offset != 0 {
            for r in 0..ROWS {
                words[r] = cpu.splat_word(-offset * act_totals[r][0]);
            }
        }
        let mut parts = [cpu.no_part(); ROWS];
        for_groups!(group, {
            let weights = kept.weights::<C, SOURCE>(cpu, index * 8 + group, || {
                let weights = record.weights(cpu, group);
                if T::SIGNED { cpu.lifted(weights) } else { weights }
            });
            for r in 0..ROWS {
                let part = if T::SIGNED {
                    cpu.add_signed(parts[r], weights, &quants[r], group)
                } else {
                    cpu.add_unsigned(parts[r], weights, &quants[r], group)
                };
                parts[r] = if ROWS > 2 { cpu.in_order(part) } else { part };
            }
            if (group + 1) % depth == 0 {
                for r in 0..ROWS {
                    words[r] = cpu.add_part(words[r], parts[r]);
                    parts[r] = cpu.no_part();
                }
            }
        });
        let scale = cpu.widen(record.scale());
        for r in 0..ROWS {
            let step = cpu.mul(cpu.floats(words[r]), cpu.splat(scales[r][0]));
            totals[r] = cpu.fma(step, scale, totals[r]);
        }
        if let Some(min) = record.min() {
            let min = cpu.widen(min);
            for r in 0..ROWS {
                totals[r] = cpu.fma(min, cpu.splat(scaled_totals[r][0]), totals[r]);
            }
        }
    }
    for r in 0..ROWS {
        cpu.store_sums(&mut sums[r], totals[r]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::small_records::{Iq4Nl, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    use super::*;

    #[test]
    fn depths_keep_shorts_in_range() {
        fn check<T: SmallRecord>(max_weight: usize) {
            assert!(2 * max_weight * 127 * T::DEPTH <= 32767);
            assert_eq!(size_of::<T>(), 16 * T::BLOCK_BYTES);
        }
        check::<Q4_0>(15);
        check::<Q4_1>(15);
        check::<Q5_0>(31);
        check::<Q5_1>(31);
        check::<Q8_0>(128);
        check::<Iq4Nl>(127);
    }
}
