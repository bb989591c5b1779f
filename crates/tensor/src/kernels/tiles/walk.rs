//! Walks a tiled matmul: tiles of 16 columns, then blocks of k, then tiles of rows.
//!
//! Weights are streamed once, in ascending order; the activations of a block and the sums of up to 64 rows stay
//! in the L1 cache. How rows are cut changes no bit: each (row, column) has its own sum, and blocks are added
//! to it ascending.
//!
//! Invariant: as `matmul`.
//! Not here: the work on one record (`super_tiles`, `small_tiles`).

use super::records::{Quads, Record, records};
use super::{Sums, Wide, tile_rows};
use crate::kernels::activations::Activations;
use crate::kernels::columns::ColumnBlock;
use crate::kernels::matrix::{Matrix, TILE};

/// Rows one record is used for before the next: their sums and activations fit the L1 cache.
pub(in crate::kernels) const ROWS: usize = 64;

/// Column tiles that take such rows in turn before the next rows, so that these stay in the L2 cache.
pub(in crate::kernels) const COLUMN_TILES: usize = 4;

/// Cache lines prefetched this far ahead: several records, so that the reads overlap the arithmetic between even where
/// memory is quick for its latency.
const AHEAD: usize = 8192;

/// Where the weights of a record come from, and whether they are kept unpacked for the next tile of rows.
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
pub(in crate::kernels) struct Kept([Quads; 64]);

impl Kept {
    pub(super) fn zero() -> Kept {
        Kept([[[0; 4]; TILE]; 64])
    }

    /// The weights of group `at`: unpacked by `unpack`, or kept.
    #[inline(always)]
    pub(super) fn weights<C: Wide, const SOURCE: u8>(
        &mut self,
        cpu: C,
        at: usize,
        unpack: impl Fn() -> C::Bytes,
    ) -> C::Bytes {
        if SOURCE == source::KEPT {
            return cpu.load(&self.0[at]);
        }
        let weights = unpack();
        if SOURCE == source::KEEP {
            cpu.keep(&mut self.0[at], weights);
        }
        weights
    }
}

/// Neighbouring rows that are multiplied together: as many as leave their sums in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernels) struct RowTile {
    pub(in crate::kernels) first: usize,
    pub(in crate::kernels) rows: usize,
}

impl RowTile {
    /// Tile `index` of `tiles` for so many rows; sizes differ by at most one.
    #[inline(always)]
    pub(in crate::kernels) fn of(rows: usize, tiles: usize, index: usize) -> RowTile {
        let first = rows * index / tiles;
        RowTile { first, rows: rows * (index + 1) / tiles - first }
    }
}

/// Asks for the records ahead, spread evenly over the work on the current ones.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Ahead {
    from: *const u8,
    wanted: bool,
}

impl Ahead {
    /// What lies [`AHEAD`] of `records`, if this is the first tile of rows they are used for.
    #[inline(always)]
    pub(in crate::kernels) fn of<T>(records: &[T], tile: usize) -> Ahead {
        Ahead { from: records.as_ptr().cast::<u8>().wrapping_add(AHEAD), wanted: tile == 0 }
    }

    /// Prefetches part `step` of parts of `bytes`. Each is whole cache lines, so that it takes the same few instructions;
    /// the last ones may reach a little further.
    #[inline(always)]
    pub(in crate::kernels) fn fetch<C: Wide>(self, cpu: C, step: usize, bytes: usize) {
        if self.wanted {
            let part = bytes.next_multiple_of(64);
            for line in (0..part).step_by(64) {
                cpu.prefetch(self.from.wrapping_add(step * part + line));
            }
        }
    }
}

/// Calls `add(records, first block, row tiles, sums)` for runs of `run` records of every column tile of `y`.
/// It must add the products of these records with the rows of these tiles to `sums`, one entry a row.
#[inline(always)]
pub(super) fn walk<C: Wide, T: Record>(
    weight: &Matrix,
    x: &Activations,
    y: &mut ColumnBlock<'_>,
    run: usize,
    mut add: impl FnMut(&[T], usize, &[RowTile], &mut [Sums]),
) {
    let n_blocks = weight.k / weight.block_type.block_len();
    let all = records::<T>(weight.packed());
    let columns = y.columns();
    let most = tile_rows::<C>();
    let tiles = x.rows.div_ceil(most);
    let chunks = tiles.div_ceil(ROWS / most);
    let mut sums = [[0f32; TILE]; ROWS];
    for group in columns.clone().step_by(COLUMN_TILES * TILE) {
        let group = group..(group + COLUMN_TILES * TILE).min(columns.end);
        for chunk in 0..chunks {
            let range = tiles * chunk / chunks..tiles * (chunk + 1) / chunks;
            let mut row_tiles = [RowTile { first: 0, rows: 0 }; ROWS / 4];
            let row_tiles = &mut row_tiles[..range.len()];
            let mut count = 0;
            for (tile, index) in row_tiles.iter_mut().zip(range) {
                *tile = RowTile::of(x.rows, tiles, index);
                count += tile.rows;
            }
            let (first, sums) = (row_tiles[0].first, &mut sums[..count]);
            for column in group.clone().step_by(TILE) {
                let records = &all[column / TILE * n_blocks..][..n_blocks];
                sums.fill([0.0; TILE]);
                for (index, records) in records.chunks(run).enumerate() {
                    add(records, index * run, row_tiles, sums);
                }
                let (at, width) = (column - columns.start, TILE.min(columns.end - column));
                for (r, sums) in sums.iter().enumerate() {
                    y.row_mut(first + r)[at..at + width].copy_from_slice(&sums[..width]);
                }
            }
        }
    }
}
