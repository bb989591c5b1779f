//! A weight matrix in the layout the kernels of one table want.
//!
//! Packing copies the file's blocks into a region of an arena: unchanged, one row after another, or as tiles of 16
//! output rows. Both take the same bytes. The tiles of a [`Packing`] can be filled from several threads.
//!
//! Invariant: a matrix is complete: [`Packing::finish`] refuses while tiles are missing.
//! Not here: what a tile looks like (`tiles`), or reading files.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::arena::{Arena, Region};
use super::{ActScheme, Kernels};
use crate::block::BlockType;

/// Output rows in a tile; outputs are split between threads at multiples of this.
pub(crate) const TILE: usize = 16;

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The file's blocks, row after row.
    Rows,
    /// Tiles of 16 output rows, block after block.
    Tiles,
}

impl Layout {
    /// Bytes of a packed weight.
    pub(super) fn bytes(self, block_type: BlockType, n_out: usize, k: usize) -> usize {
        let rows = if self == Layout::Tiles { n_out.next_multiple_of(TILE) } else { n_out };
        rows * block_type.row_bytes(k).unwrap_or(0)
    }
}

/// A packed weight of `n_out` rows of `k` numbers. Usable with the table that packed it.
#[derive(Debug)]
pub struct Matrix {
    pub(crate) block_type: BlockType,
    pub(crate) layout: Layout,
    pub(crate) n_out: usize,
    pub(crate) k: usize,
    region: Region,
}

impl Matrix {
    /// Output rows.
    pub fn n_out(&self) -> usize {
        self.n_out
    }

    /// Numbers in a row: the width of the input.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The block type it was packed from.
    pub fn block_type(&self) -> BlockType {
        self.block_type
    }

    /// How activations must be quantized for it.
    pub fn scheme(&self) -> ActScheme {
        ActScheme::of(self.block_type)
    }

    /// Bytes of memory the packed weight takes.
    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// Output columns must be split at multiples of this (see `Columns::split`).
    pub fn column_tile(&self) -> usize {
        TILE
    }

    /// The packed bytes, 64-byte aligned.
    pub(crate) fn packed(&self) -> &[u8] {
        self.region.bytes()
    }
}

/// A matrix being packed: fill its [`parts`](Packing::parts), on any threads, then [`finish`](Packing::finish).
#[derive(Debug)]
pub struct Packing<'a> {
    kernels: &'a Kernels,
    matrix: Matrix,
    source: &'a [u8],
    missing: AtomicUsize,
}

impl<'a> Packing<'a> {
    pub(super) fn new(
        kernels: &'a Kernels,
        block_type: BlockType,
        source: &'a [u8],
        n_out: usize,
        k: usize,
        arena: &mut Arena,
    ) -> Packing<'a> {
        let expected = block_type.row_bytes(k).and_then(|bytes| bytes.checked_mul(n_out));
        assert_eq!(Some(source.len()), expected, "weight is not {} [{n_out}, {k}]", block_type.name());
        let layout = kernels.layout(block_type);
        let region = arena.bytes(layout.bytes(block_type, n_out, k));
        let matrix = Matrix { block_type, layout, n_out, k, region };
        Packing { kernels, matrix, source, missing: AtomicUsize::new(n_out.div_ceil(TILE)) }
    }

    /// Cuts the work into at most `parts` pieces of whole tiles, to be [`run`](PackPart::run) on any threads.
    ///
    /// # Panics
    /// When `parts` is 0.
    pub fn parts(&mut self, parts: usize) -> Vec<PackPart<'_>> {
        assert!(parts > 0, "packing needs at least one part");
        let Matrix { block_type, layout, n_out, k, .. } = self.matrix;
        let tiles = n_out.div_ceil(TILE);
        self.missing.store(tiles, Ordering::Relaxed);
        let row_bytes = block_type.row_bytes(k).expect("checked by new");
        let tile_bytes = (TILE * row_bytes).max(1);
        let tiles_each = tiles.div_ceil(parts).max(1);
        let sources = self.source.chunks(tiles_each * tile_bytes);
        let targets = self.matrix.region.bytes_mut().chunks_mut(tiles_each * tile_bytes);
        let part = |(source, target)| PackPart {
            kernels: self.kernels,
            block_type,
            layout,
            k,
            source,
            target,
            missing: &self.missing,
        };
        sources.zip(targets).map(part).collect()
    }

    /// The finished matrix.
    ///
    /// # Panics
    /// When a part was not run.
    pub fn finish(self) -> Matrix {
        let missing = self.missing.into_inner();
        assert!(missing == 0 || self.source.is_empty(), "{missing} tiles were not packed");
        self.matrix
    }
}

/// Some tiles of a matrix being packed.
#[derive(Debug)]
pub struct PackPart<'a> {
    kernels: &'a Kernels,
    block_type: BlockType,
    layout: Layout,
    k: usize,
    source: &'a [u8],
    target: &'a mut [u8],
    missing: &'a AtomicUsize,
}

impl PackPart<'_> {
    /// Packs these tiles.
    pub fn run(self) {
        let row_bytes = self.block_type.row_bytes(self.k).expect("checked by Packing::new");
        match self.layout {
            Layout::Rows => self.target.copy_from_slice(self.source),
            Layout::Tiles => self.kernels.pack_tiles(self.block_type, self.k, self.source, self.target),
        }
        let tiles = (self.source.len() / row_bytes).div_ceil(TILE);
        self.missing.fetch_sub(tiles, Ordering::Relaxed);
    }
}
