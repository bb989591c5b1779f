//! Walks a tiled matmul: tiles of 16 columns, then blocks of k, then tiles of rows.
//!
//! Weights are streamed once, in ascending order; the activations of a block and the sums of up to 64 rows stay
//! in the L1 cache. How rows are cut changes no bit: each (row, column) has its own sum, and blocks are added
//! to it ascending.
//!
//! Invariant: as `matmul`.
//! Not here: the work on one record (`super_tiles`, `small_tiles`).

use super::records::{OCTETS, Pair, Record, records};
use super::vector::{Avx2, Int};
use crate::kernels::act_tiles::RowTile;
use crate::kernels::activations::Activations;
use crate::kernels::columns::ColumnBlock;
use crate::kernels::matrix::{Matrix, TILE};

/// Sums of one row for the 16 columns of a tile.
pub(super) type Sums = [[f32; 8]; OCTETS];

/// Tiles of rows one record is used for before the next: 64 rows of sums and activations fit the L1 cache.
const ROW_TILES: usize = 16;

/// Cache lines prefetched this far ahead: about two records, so that the reads overlap the arithmetic between.
const AHEAD: usize = 4096;

/// Where the weights of a record come from, and whether they are kept unpacked for the next tile of rows.
/// With one or two tiles of rows unpacking again is cheaper than storing and loading.
pub(super) mod source {
    /// Unpack.
    pub(in super::super) const UNPACK: u8 = 0;
    /// Unpack and keep.
    pub(in super::super) const KEEP: u8 = 1;
    /// Take what was kept.
    pub(in super::super) const KEPT: u8 = 2;
}

/// Unpacked weights of 256 numbers.
#[repr(align(64))]
pub(super) struct Kept(pub(super) [Pair; 64]);

impl Kept {
    pub(super) fn zero() -> Kept {
        Kept([[[[0; 4]; 8]; OCTETS]; 64])
    }

    /// The weights of group `at`: unpacked by `unpack`, or kept.
    #[inline(always)]
    pub(super) fn weights<const SOURCE: u8>(
        &mut self,
        cpu: Avx2,
        at: usize,
        unpack: impl Fn(usize) -> Int,
    ) -> [Int; OCTETS] {
        std::array::from_fn(|octet| {
            if SOURCE == source::KEPT {
                return cpu.load_bytes(&self.0[at][octet]);
            }
            let weights = unpack(octet);
            if SOURCE == source::KEEP {
                cpu.store_bytes(&mut self.0[at][octet], weights);
            }
            weights
        })
    }
}

/// Spreads the prefetches for the records ahead evenly over the work on the current ones.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    from: *const u8,
    lines: usize,
}

impl Ahead {
    /// The share of tile of rows `part` of `parts` of what lies [`AHEAD`] of `records`.
    #[inline(always)]
    pub(super) fn of<T>(records: &[T], part: usize, parts: usize) -> Ahead {
        let lines = size_of_val(records).div_ceil(64);
        let (first, end) = (lines * part / parts, lines * (part + 1) / parts);
        Ahead { from: records.as_ptr().cast::<u8>().wrapping_add(AHEAD + first * 64), lines: end - first }
    }

    /// Prefetches part `step` of `steps`.
    #[inline(always)]
    pub(super) fn fetch(self, cpu: Avx2, step: usize, steps: usize) {
        for line in self.lines * step / steps..self.lines * (step + 1) / steps {
            cpu.prefetch(self.from.wrapping_add(line * 64));
        }
    }
}

/// Calls `add(records, first block, row tiles, sums)` for runs of `run` records of every column tile of `y`.
/// It must add the products of these records with the rows of these tiles to `sums`, one entry a row.
#[inline(always)]
pub(super) fn walk<T: Record>(
    weight: &Matrix,
    x: &Activations,
    y: &mut ColumnBlock<'_>,
    run: usize,
    mut add: impl FnMut(&[T], usize, &[RowTile], &mut [Sums]),
) {
    let n_blocks = weight.k / weight.block_type.block_len();
    let all = records::<T>(weight.packed());
    let columns = y.columns();
    let tiles = RowTile::count(x.rows);
    let chunks = tiles.div_ceil(ROW_TILES);
    let mut sums = [[[0f32; 8]; OCTETS]; ROW_TILES * RowTile::MOST];
    for column in columns.clone().step_by(TILE) {
        let records = &all[column / TILE * n_blocks..][..n_blocks];
        let width = TILE.min(columns.end - column);
        for chunk in 0..chunks {
            let range = tiles * chunk / chunks..tiles * (chunk + 1) / chunks;
            let mut row_tiles = [RowTile { first: 0, rows: 0 }; ROW_TILES];
            let row_tiles = &mut row_tiles[..range.len()];
            for (tile, index) in row_tiles.iter_mut().zip(range) {
                *tile = RowTile::of(x.rows, index);
            }
            let first = row_tiles[0].first;
            let count = row_tiles.iter().map(|tile| tile.rows).sum::<usize>();
            let sums = &mut sums[..count];
            sums.fill([[0.0; 8]; OCTETS]);
            for (index, records) in records.chunks(run).enumerate() {
                add(records, index * run, row_tiles, sums);
            }
            for (r, sums) in sums.iter().enumerate() {
                let at = column - columns.start;
                y.row_mut(first + r)[at..at + width].copy_from_slice(&sums.as_flattened()[..width]);
            }
        }
    }
}

/// The part of `[block][tile of rows][each][row]` data that belongs to one tile of rows, `[each][row]`.
#[inline(always)]
pub(super) fn of_tile<'a, T, const ROWS: usize>(
    data: &'a [T],
    x: &Activations,
    block: usize,
    first: usize,
    each: usize,
) -> &'a [[T; ROWS]] {
    let start = (block * x.rows + first) * each;
    data[start..start + ROWS * each].as_chunks::<ROWS>().0
}
