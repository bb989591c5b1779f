//! The work on records of 256 in tile registers.
//!
//! ```text
//! for each group of column tiles, each chunk of rows, each column tile, each record, each tile of up to 16 rows:
//!     for each quarter of the record:
//!         start its products
//!         with the first tile of rows: fold a quarter of the next record
//!         combine some sums of the step before
//! ```
//!
//! A tile product takes long to come out, and a CPU looks only so far ahead for other work: so the three are woven
//! together. All products of a block are summed in words before its scale comes in, so the bits are those of every
//! other table.
//!
//! Invariant: per output, blocks are added in ascending order, as `tiles::super_loop` adds them.
//! Not here: instructions, or small numbers of rows.

use std::arch::x86_64::__m512i;
use std::cell::RefCell;
use std::ops::Range;

use super::super::zmm::Zmm;
use super::fold::{Folded, Quarter, fold, high_shift};
use super::instructions::{MOST_ROWS, Registers, Words};
use crate::blocks::SUPER;
use crate::kernels::activations::Activations;
use crate::kernels::columns::ColumnBlock;
use crate::kernels::matrix::{Matrix, TILE};
use crate::kernels::tiles::records::records;
use crate::kernels::tiles::super_records::{Expanded, SuperRecord};
use crate::kernels::tiles::walk::{Ahead, COLUMN_TILES, ROWS, RowTile};
use crate::kernels::tiles::{Sums, Wide};

/// One record times one tile of rows.
struct Step<'a, T> {
    record: &'a T,
    /// Where its scales and folded weights are.
    side: usize,
    block: usize,
    /// First column, counted from the first of the output.
    column: usize,
    tile: RowTile,
    /// Where its rows begin among those of the chunk.
    at: usize,
    last: bool,
}

impl<T> Clone for Step<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Step<'_, T> {}

/// What is too large for registers. Each part is written before it is read.
struct Work {
    folded: [Folded; 2],
    words: [Words; 2],
    sums: [Sums; ROWS],
}

thread_local! {
    /// Kept between products: clearing it would take as long as a record.
    static WORK: RefCell<Box<Work>> = RefCell::new(Box::new(Work {
        folded: [const { [Quarter::ZERO; 4] }; 2],
        words: [Words([[0; TILE]; MOST_ROWS]); 2],
        sums: [[0.0; TILE]; ROWS],
    }));
}

/// `y = x W^T` for the columns of `y`.
pub(super) fn matmul<T: SuperRecord>(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    // SAFETY: the table of this function is listed only where the CPU has these features.
    WORK.with_borrow_mut(|work| unsafe { walk::<T>(weight, x, y, work) });
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn walk<T: SuperRecord>(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>, work: &mut Work) {
    let cpu = Zmm::here();
    let n_blocks = weight.k / SUPER;
    let columns = y.columns();
    if columns.is_empty() || x.rows == 0 || n_blocks == 0 {
        return;
    }
    let all = records::<T>(weight.packed());
    let tiles = x.rows.div_ceil(MOST_ROWS);
    let chunks = tiles.div_ceil(ROWS / MOST_ROWS);
    // SAFETY: the table of this function is listed only where tile registers are allowed, and nothing below calls what
    // configures them.
    let registers = unsafe { Registers::configure(x.rows.div_ceil(tiles)) };
    let mut expanded = [Expanded::zero(cpu), Expanded::zero(cpu)];
    // With one chunk nothing is read twice, and there is no reason to stop between column tiles.
    let group = if chunks == 1 { columns.len() } else { COLUMN_TILES * TILE };
    let mut start = columns.start;
    while start < columns.end {
        let end = (start + group).min(columns.end);
        let records = &all[start / TILE * n_blocks..end.div_ceil(TILE) * n_blocks];
        for chunk in 0..chunks {
            let in_chunk = tiles * chunk / chunks..tiles * (chunk + 1) / chunks;
            let first_row = RowTile::of(x.rows, tiles, in_chunk.start).first;
            let mut before: Option<Step<'_, T>> = None;
            let mut odd = false;
            records[0].expand(cpu, &mut expanded[0]);
            for quarter in 0..4 {
                let ahead = Ahead::of(records, 0);
                fold(cpu, &records[0], quarter, &expanded[0], ahead, &mut work.folded[0][quarter]);
            }
            let (mut block, mut column) = (0, start - columns.start);
            for index in 0..records.len() {
                for index_of_tile in in_chunk.clone() {
                    let tile = RowTile::of(x.rows, tiles, index_of_tile);
                    let record = &records[index];
                    let (at, last) = (tile.first - first_row, block + 1 == n_blocks);
                    let step = Step { record, side: index % 2, block, column, tile, at, last };
                    let first = index_of_tile == in_chunk.start;
                    let next = if first { &records[index + 1..] } else { &[] };
                    // Two copies, because registers have names, not numbers.
                    if odd {
                        weave::<T, 1, 0>(cpu, &registers, step, before, next, x, &mut expanded, work, y);
                    } else {
                        weave::<T, 0, 1>(cpu, &registers, step, before, next, x, &mut expanded, work, y);
                    }
                    before = Some(step);
                    odd = !odd;
                }
                block += 1;
                if block == n_blocks {
                    (block, column) = (0, column + TILE);
                }
            }
            if let Some(step) = before {
                if odd {
                    registers.store::<0>(&mut work.words);
                } else {
                    registers.store::<1>(&mut work.words);
                }
                combine(cpu, &step, 0..step.tile.rows, x, &expanded[step.side].pairs, work, y);
            }
        }
        start = end;
    }
}

/// Starts `step` with the sums of set `SET`; finishes the step before, whose sums are set `OTHER`; folds the first of
/// the records `next`, if there is one.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one loop body, compiled twice")]
fn weave<T: SuperRecord, const SET: usize, const OTHER: usize>(
    cpu: Zmm,
    registers: &Registers,
    step: Step<'_, T>,
    before: Option<Step<'_, T>>,
    next: &[T],
    x: &Activations,
    expanded: &mut [Expanded<__m512i, __m512i>; 2],
    work: &mut Work,
    y: &mut ColumnBlock<'_>,
) {
    let (side, next_side) = (step.side, 1 - step.side);
    let acts = x.of_block::<_, SUPER>(&x.quants, step.block, step.tile.first).as_ptr().cast::<i8>();
    let ahead = Ahead::of(next, 0);
    registers.clear::<SET>();
    // What the step before still needs of the scales that the next record takes the place of.
    let pairs = match before {
        Some(before) => expanded[before.side].pairs,
        None => expanded[side].pairs,
    };
    if let Some(record) = next.first() {
        record.expand(cpu, &mut expanded[next_side]);
    }
    for quarter in 0..4 {
        let weights = &work.folded[side][quarter];
        // SAFETY: registers hold as many rows as the largest tile. Tiles differ by at most one row, and the last is a
        // largest one, so that every other tile is followed by a row.
        unsafe {
            let acts = acts.add(64 * quarter);
            if T::MINS {
                registers.multiply::<SET, false>(acts, weights);
            } else {
                registers.multiply::<SET, true>(acts, weights);
            }
        }
        if let Some(record) = next.first() {
            let out = &mut work.folded[next_side][quarter];
            fold(cpu, record, quarter, &expanded[next_side], ahead, out);
        }
        let Some(before) = &before else { continue };
        match quarter {
            0 => {}
            1 => registers.store::<OTHER>(&mut work.words),
            2 => combine(cpu, before, 0..before.tile.rows / 2, x, &pairs, work, y),
            _ => combine(cpu, before, before.tile.rows / 2..before.tile.rows, x, &pairs, work, y),
        }
    }
}

/// Adds what was stored of some rows of a step to their sums, and writes these out with the last block.
#[inline(always)]
fn combine<T: SuperRecord>(
    cpu: Zmm,
    step: &Step<'_, T>,
    rows: Range<usize>,
    x: &Activations,
    pairs: &[__m512i; 8],
    work: &mut Work,
    y: &mut ColumnBlock<'_>,
) {
    let Step { record, block, column, tile, at, last, .. } = *step;
    let scale = cpu.widen(record.scale());
    let min_scale = if T::MINS { cpu.widen(record.min_scale()) } else { cpu.splat(0.0) };
    let act_scales = &x.of_block::<_, 1>(&x.scales, block, tile.first)[..tile.rows];
    let sums_of_32: &[[[i16; 2]; 4]] =
        if T::MINS { &x.of_block(&x.pairs_of_32, block, tile.first)[..tile.rows] } else { &[] };
    let sums_of_16: &[[[i16; 2]; 8]] =
        if T::MINS { &[] } else { &x.of_block(x.sums.as_chunks::<2>().0, block, tile.first)[..tile.rows] };
    let Work { words: [low, high], sums, .. } = work;
    let sums = &mut sums[at..at + tile.rows];
    let (low, high) = (&low.0[..tile.rows], &high.0[..tile.rows]);
    for r in rows {
        let high = cpu.load_words(&high[r]);
        let high = if high_shift::<T>() == 3 { cpu.left_words::<3>(high) } else { cpu.left_words::<8>(high) };
        let mut words = cpu.add_part(cpu.load_words(&low[r]), high);
        let mut pair_sums = cpu.splat_word(0);
        if T::MINS {
            for pair in 0..4 {
                pair_sums = cpu.add_pairs(pair_sums, pairs[pair], sums_of_32[r][pair]);
            }
        } else {
            for pair in 0..8 {
                pair_sums = cpu.add_pairs(pair_sums, pairs[pair], sums_of_16[r][pair]);
            }
            words = cpu.sub(words, cpu.left_words::<5>(pair_sums));
        }
        let mut value = cpu.mul(cpu.floats(words), scale);
        if T::MINS {
            value = cpu.negated_fma(cpu.floats(pair_sums), min_scale, value);
        }
        let so_far = if block == 0 { cpu.splat(0.0) } else { cpu.load_sums(&sums[r]) };
        cpu.store_sums(&mut sums[r], cpu.fma(value, cpu.splat(act_scales[r][0]), so_far));
        if last {
            let row = y.row_mut(tile.first + r);
            match row[column..].first_chunk_mut::<TILE>() {
                Some(to) => *to = sums[r],
                None => {
                    let width = row.len() - column;
                    row[column..].copy_from_slice(&sums[r][..width]);
                }
            }
        }
    }
}
