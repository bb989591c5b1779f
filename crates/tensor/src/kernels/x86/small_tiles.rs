//! The work on records of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.
//!
//! Eight blocks at a time, so that a tile's sums are loaded and stored once for 256 numbers.
//!
//! ```text
//! unsigned:  word = sum over groups of mul_bytes(w + offset, a) - offset * sum(a)
//! signed:    word = sum over groups of mul_bytes(|w|, a with the sign of w)
//! sum = fma(word * d_a, d, sum), then fma(m, d_a * sum(a), sum) if there is a minimum
//! ```
//!
//! Invariant: no short overflows: see `DEPTH` in `small_records`.
//! Not here: the order of the walk (`tiles`).

use super::records::OCTETS;
use super::small_records::SmallRecord;
use super::tiles::{Ahead, Kept, Sums, of_tile, source, walk};
use super::vector::{Avx2, Int, in_order};
use crate::kernels::activations::Activations;
use crate::kernels::columns::ColumnBlock;
use crate::kernels::lanes::Lanes;
use crate::kernels::matrix::Matrix;

/// Records worked on together; their unpacked weights fill a [`Kept`].
const RUN: usize = 8;

/// `y = x W^T` for the columns of `y`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<T: SmallRecord>(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    let mut kept = Kept::zero();
    walk::<T>(weight, x, y, RUN, |records, block, row_tiles, sums| {
        let mut rest = sums;
        for (index, &tile) in row_tiles.iter().enumerate() {
            let (sums, tail) = rest.split_at_mut(tile.rows);
            rest = tail;
            let ahead = Ahead::of(records, index, row_tiles.len());
            let input = Input { x, block, first: tile.first, ahead };
            match (tile.rows, T::UNPACKS && row_tiles.len() > 2, index) {
                (1, false, _) => add::<T, 1, { source::UNPACK }>(records, &mut kept, input, sums),
                (2, false, _) => add::<T, 2, { source::UNPACK }>(records, &mut kept, input, sums),
                (3, false, _) => add::<T, 3, { source::UNPACK }>(records, &mut kept, input, sums),
                (4, false, _) => add::<T, 4, { source::UNPACK }>(records, &mut kept, input, sums),
                (3, true, 0) => add::<T, 3, { source::KEEP }>(records, &mut kept, input, sums),
                (4, true, 0) => add::<T, 4, { source::KEEP }>(records, &mut kept, input, sums),
                (3, true, _) => add::<T, 3, { source::KEPT }>(records, &mut kept, input, sums),
                (4, true, _) => add::<T, 4, { source::KEPT }>(records, &mut kept, input, sums),
                _ => unreachable!("three tiles and more have 3 or 4 rows each"),
            }
        }
    });
}

/// A run of blocks of one tile of rows.
#[derive(Clone, Copy)]
struct Input<'a> {
    x: &'a Activations,
    block: usize,
    first: usize,
    ahead: Ahead,
}

/// Adds the products of a run of records with `ROWS` rows.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<T: SmallRecord, const ROWS: usize, const SOURCE: u8>(
    records: &[T],
    kept: &mut Kept,
    input: Input<'_>,
    sums: &mut [Sums],
) {
    let cpu = Avx2::here();
    let Input { x, block, first, ahead } = input;
    let sums = sums.first_chunk_mut::<ROWS>().expect("one sum a row");
    let mut totals = sums.map(|sums| [cpu.load(&sums[0]), cpu.load(&sums[1])]);
    for (index, record) in records[..records.len().min(RUN)].iter().enumerate() {
        ahead.fetch(cpu, index, records.len());
        let block = block + index;
        let scales = &of_tile::<_, ROWS>(&x.tiles.scales, x, block, first, 1)[0];
        let act_totals = &of_tile::<_, ROWS>(&x.tiles.totals, x, block, first, 1)[0];
        let scaled_totals = &of_tile::<_, ROWS>(&x.tiles.scaled_totals, x, block, first, 1)[0];
        let quants = of_tile::<_, ROWS>(&x.tiles.quants, x, block, first, 8);

        let mut words = [[cpu.zero(); OCTETS]; ROWS];
        if T::OFFSET != 0 {
            words = act_totals.map(|total| [cpu.splat_i32(-T::OFFSET * total); OCTETS]);
        }
        for part in 0..8 / T::DEPTH {
            let mut shorts = [[cpu.zero(); OCTETS]; ROWS];
            for depth in 0..T::DEPTH {
                let group = part * T::DEPTH + depth;
                let unpack = |octet| record.weights(cpu, group, octet);
                let weights = kept.weights::<SOURCE>(cpu, index * 8 + group, unpack);
                for r in 0..ROWS {
                    let acts = cpu.splat_quad(quants[group][r]);
                    for octet in 0..OCTETS {
                        let products = products::<T>(cpu, weights[octet], acts);
                        let sum = cpu.add_i16(shorts[r][octet], products);
                        shorts[r][octet] = if ROWS > 2 { in_order(sum) } else { sum };
                    }
                }
            }
            for r in 0..ROWS {
                for octet in 0..OCTETS {
                    let pairs = cpu.mul_shorts(shorts[r][octet], cpu.splat_i16(1));
                    words[r][octet] = cpu.add_i32(words[r][octet], pairs);
                }
            }
        }
        for octet in 0..OCTETS {
            let scale = cpu.widen(&record.scale()[octet]);
            for r in 0..ROWS {
                let step = cpu.mul(cpu.to_floats(words[r][octet]), cpu.splat(scales[r]));
                totals[r][octet] = cpu.fma(step, scale, totals[r][octet]);
                if let Some(min) = record.min() {
                    let min = cpu.widen(&min[octet]);
                    totals[r][octet] = cpu.fma(min, cpu.splat(scaled_totals[r]), totals[r][octet]);
                }
            }
        }
    }
    for r in 0..ROWS {
        for octet in 0..OCTETS {
            cpu.store(&mut sums[r][octet], totals[r][octet]);
        }
    }
}

#[inline(always)]
fn products<T: SmallRecord>(cpu: Avx2, weights: Int, acts: Int) -> Int {
    if T::SIGNED {
        cpu.mul_bytes(cpu.abs_i8(weights), cpu.sign_i8(acts, weights))
    } else {
        cpu.mul_bytes(weights, acts)
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
