//! The work on records of 256: Q4_K, Q5_K, Q6_K.
//!
//! ```text
//! for each sub-block:  t[row][octet] = sum over its groups of mul_bytes(weights, 4 activations)   shorts
//!                      acc[row][octet] += mul_shorts(t, scale of the sub-block)                   words
//! f = acc * d, less sum(min * activation sums) * dmin;   sum = fma(f, d_a, sum)
//! ```
//!
//! Q6_K weights are stored 32 too large: `32 * sum(scale * activation sums)` is taken off, in words.
//!
//! Invariant: no short or word overflows: see `DEPTH` in `super_records`; words stay below 2^28.
//! Not here: the order of the walk (`tiles`).

use super::records::OCTETS;
use super::super_records::{Expanded, SuperRecord};
use super::tiles::{Ahead, Kept, Sums, of_tile, source, walk};
use super::vector::{Avx2, Int, in_order};
use crate::kernels::activations::Activations;
use crate::kernels::columns::ColumnBlock;
use crate::kernels::lanes::Lanes;
use crate::kernels::matrix::Matrix;

/// `y = x W^T` for the columns of `y`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<T: SuperRecord>(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    let cpu = Avx2::here();
    let mut kept = Kept::zero();
    let mut expanded = Expanded::zero(cpu);
    walk::<T>(weight, x, y, 1, |records, block, row_tiles, sums| {
        let record = &records[0];
        record.expand(cpu, &mut expanded);
        let mut rest = sums;
        for (index, &tile) in row_tiles.iter().enumerate() {
            let (sums, tail) = rest.split_at_mut(tile.rows);
            rest = tail;
            let ahead = Ahead::of(records, index, row_tiles.len());
            let input = Input { x, block, first: tile.first, ahead };
            match (tile.rows, row_tiles.len() > 2, index) {
                (1, false, _) => add::<T, 1, { source::UNPACK }>(record, &expanded, &mut kept, input, sums),
                (2, false, _) => add::<T, 2, { source::UNPACK }>(record, &expanded, &mut kept, input, sums),
                (3, false, _) => add::<T, 3, { source::UNPACK }>(record, &expanded, &mut kept, input, sums),
                (4, false, _) => add::<T, 4, { source::UNPACK }>(record, &expanded, &mut kept, input, sums),
                (3, true, 0) => add::<T, 3, { source::KEEP }>(record, &expanded, &mut kept, input, sums),
                (4, true, 0) => add::<T, 4, { source::KEEP }>(record, &expanded, &mut kept, input, sums),
                (3, true, _) => add::<T, 3, { source::KEPT }>(record, &expanded, &mut kept, input, sums),
                (4, true, _) => add::<T, 4, { source::KEPT }>(record, &expanded, &mut kept, input, sums),
                _ => unreachable!("three tiles and more have 3 or 4 rows each"),
            }
        }
    });
}

/// One block of one tile of rows.
#[derive(Clone, Copy)]
struct Input<'a> {
    x: &'a Activations,
    block: usize,
    first: usize,
    ahead: Ahead,
}

/// Adds the products of a record with `ROWS` rows.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn add<T: SuperRecord, const ROWS: usize, const SOURCE: u8>(
    record: &T,
    expanded: &Expanded,
    kept: &mut Kept,
    input: Input<'_>,
    sums: &mut [Sums],
) {
    let cpu = Avx2::here();
    let Input { x, block, first, ahead } = input;
    let quants = of_tile::<_, ROWS>(&x.tiles.quants, x, block, first, 64);
    let scales: &[f32; ROWS] = &of_tile::<_, ROWS>(&x.tiles.scales, x, block, first, 1)[0];
    let sums = sums.first_chunk_mut::<ROWS>().expect("one sum a row");

    let mut words = [[cpu.zero(); OCTETS]; ROWS];
    if !T::MINS {
        let pairs = of_tile::<_, ROWS>(&x.tiles.pairs_of_16, x, block, first, 8);
        let offsets = pair_products(cpu, &expanded.pairs, pairs);
        for r in 0..ROWS {
            for octet in 0..OCTETS {
                words[r][octet] = cpu.sub_i32(cpu.zero(), cpu.left_i32::<5>(offsets[r][octet]));
            }
        }
    }
    for sub in 0..64 / T::GROUPS {
        ahead.fetch(cpu, sub, 64 / T::GROUPS);
        for part in 0..T::GROUPS / T::DEPTH {
            let mut shorts = [[cpu.zero(); OCTETS]; ROWS];
            for depth in 0..T::DEPTH {
                let group = part * T::DEPTH + depth;
                let at = sub * T::GROUPS + group;
                let weights = kept.weights::<SOURCE>(cpu, at, |octet| record.weights(cpu, sub, group, octet));
                for r in 0..ROWS {
                    let acts = cpu.splat_quad(quants[at][r]);
                    for octet in 0..OCTETS {
                        let products = cpu.mul_bytes(weights[octet], acts);
                        let sum = cpu.add_i16(shorts[r][octet], products);
                        shorts[r][octet] = if ROWS > 2 { in_order(sum) } else { sum };
                    }
                }
            }
            for r in 0..ROWS {
                for octet in 0..OCTETS {
                    let scaled = cpu.mul_shorts(shorts[r][octet], expanded.scales[sub][octet]);
                    words[r][octet] = cpu.add_i32(words[r][octet], scaled);
                }
            }
        }
    }

    let mins = match T::MINS {
        true => {
            let pairs = of_tile::<_, ROWS>(&x.tiles.pairs_of_32, x, block, first, 4);
            pair_products(cpu, &expanded.pairs, pairs)
        }
        false => words,
    };
    for octet in 0..OCTETS {
        let scale = cpu.widen(&record.scale()[octet]);
        for r in 0..ROWS {
            let mut step = cpu.mul(cpu.to_floats(words[r][octet]), scale);
            if T::MINS {
                let min_scale = cpu.widen(&record.min_scale()[octet]);
                step = cpu.negated_fma(cpu.to_floats(mins[r][octet]), min_scale, step);
            }
            let sum = &mut sums[r][octet];
            let added = cpu.fma(step, cpu.splat(scales[r]), cpu.load(sum));
            cpu.store(sum, added);
        }
    }
}

/// Sums of products of weight-side pairs (scales or minimums) with pairs of activation sums.
#[inline(always)]
fn pair_products<const ROWS: usize>(
    cpu: Avx2,
    weights: &[[Int; OCTETS]; 8],
    sums: &[[[i16; 2]; ROWS]],
) -> [[Int; OCTETS]; ROWS] {
    let mut words = [[cpu.zero(); OCTETS]; ROWS];
    for (weights, sums) in weights.iter().zip(sums) {
        for r in 0..ROWS {
            let pair = cpu.splat_pair(sums[r]);
            for octet in 0..OCTETS {
                words[r][octet] = cpu.add_i32(words[r][octet], cpu.mul_shorts(weights[octet], pair));
            }
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
}
