//! Quantized rows once more, in the order in which tiled kernels read them.
//!
//! For every block all rows; inside it, for quants and pairs, one tile of up to 4 rows after another, so that a
//! kernel reads the activations of a block and a tile from one place, ascending.
//!
//! Invariant: it holds the numbers of the row-major form and nothing else; how rows are cut changes no bit.
//! Not here: quantizing (`activations`).
#![cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no table here has tiles"))]

use super::activations::{ActScheme, Activations};
use crate::blocks::{SMALL, SUPER};

/// The tiles of all rows.
#[derive(Debug, Default)]
pub(crate) struct ActTiles {
    /// `[block][tile][group of 4 numbers][row of the tile]`.
    pub(crate) quants: Vec<[i8; 4]>,
    /// Sums of two neighbouring 16s, `[block][tile][8][row of the tile]`; blocks of 256 only.
    pub(crate) pairs_of_16: Vec<[i16; 2]>,
    /// Sums of two neighbouring 32s, `[block][tile][4][row of the tile]`; blocks of 256 only.
    pub(crate) pairs_of_32: Vec<[i16; 2]>,
    /// Sums of whole blocks, `[block][row]`; blocks of 32 only.
    pub(crate) totals: Vec<i32>,
    /// The same sums times the scale.
    pub(crate) scaled_totals: Vec<f32>,
    /// `[block][row]`.
    pub(crate) scales: Vec<f32>,
}

/// Neighbouring rows that are multiplied together: as many as leave the sums of 16 columns in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowTile {
    pub(crate) first: usize,
    pub(crate) rows: usize,
}

impl RowTile {
    /// Most rows in a tile.
    pub(crate) const MOST: usize = 4;

    /// Tiles for so many rows.
    pub(crate) fn count(rows: usize) -> usize {
        rows.div_ceil(RowTile::MOST)
    }

    /// Tile `index` of them; sizes differ by at most one.
    pub(crate) fn of(rows: usize, index: usize) -> RowTile {
        let tiles = RowTile::count(rows);
        let first = rows * index / tiles;
        RowTile { first, rows: rows * (index + 1) / tiles - first }
    }
}

/// Fills [`Activations::tiles`] from the row-major quants.
#[inline(always)]
pub(super) fn fill(x: &mut Activations) {
    match x.scheme {
        ActScheme::F32 => {}
        ActScheme::Q8Block32 => tile_blocks::<SMALL>(x),
        ActScheme::Q8Block256 => tile_blocks::<SUPER>(x),
    }
    x.tiled = true;
}

#[inline(always)]
fn tile_blocks<const LEN: usize>(x: &mut Activations) {
    let (rows, n_blocks) = (x.rows, x.k / LEN);
    let tiles = &mut x.tiles;
    tiles.quants.resize(rows * x.k / 4, [0; 4]);
    tiles.scales.resize(rows * n_blocks, 0.0);
    if LEN == SUPER {
        tiles.pairs_of_16.resize(rows * n_blocks * 8, [0; 2]);
        tiles.pairs_of_32.resize(rows * n_blocks * 4, [0; 2]);
    } else {
        tiles.totals.resize(rows * n_blocks, 0);
        tiles.scaled_totals.resize(rows * n_blocks, 0.0);
    }
    for index in 0..RowTile::count(rows) {
        let tile = RowTile::of(rows, index);
        for r in 0..tile.rows {
            let row = tile.first + r;
            let quants = x.quants[row * x.k..][..x.k].as_chunks::<4>().0.chunks_exact(LEN / 4);
            let sums = x.sums[row * x.k / 16..][..x.k / 16].chunks_exact(LEN / 16);
            let scales = &x.scales[row * n_blocks..][..n_blocks];
            for (block, ((quants, sums), &scale)) in quants.zip(sums).zip(scales).enumerate() {
                let start = block * rows + tile.first;
                let groups = &mut tiles.quants[start * (LEN / 4)..][..tile.rows * (LEN / 4)];
                for (groups, &quad) in groups.chunks_exact_mut(tile.rows).zip(quants) {
                    groups[r] = quad;
                }
                tiles.scales[start + r] = scale;
                if LEN == SUPER {
                    let pairs = &mut tiles.pairs_of_16[start * 8..][..tile.rows * 8];
                    for (pairs, sums) in pairs.chunks_exact_mut(tile.rows).zip(sums.as_chunks::<2>().0) {
                        pairs[r] = *sums;
                    }
                    let pairs = &mut tiles.pairs_of_32[start * 4..][..tile.rows * 4];
                    for (pairs, [a, b, c, d]) in
                        pairs.chunks_exact_mut(tile.rows).zip(sums.as_chunks::<4>().0)
                    {
                        pairs[r] = [a + b, c + d];
                    }
                } else {
                    let total = sums.iter().map(|&sum| i32::from(sum)).sum();
                    tiles.totals[start + r] = total;
                    tiles.scaled_totals[start + r] = scale * total as f32;
                }
            }
        }
    }
}
