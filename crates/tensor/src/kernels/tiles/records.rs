//! What tiles are made of: one record holds one block of each of 16 output rows.
//!
//! In registers of quants, 32-bit lane `r` holds four consecutive numbers of output row `r`, so that a dot product with
//! four broadcast activations leaves one sum in each lane and nothing is ever added across lanes. A record starts with its scales and is read in ascending order: one stream for each thread.
//!
//! Invariant: every byte pattern is a valid record; a record takes 16 times the bytes of its block.
//! Not here: the records themselves (`super_records`, `small_records`).

use crate::kernels::matrix::TILE;

/// Four quants of each row.
pub(in crate::kernels) type Quads = [[u8; 4]; TILE];
/// Half-precision scales of the rows.
pub(in crate::kernels) type Halves = [u16; TILE];

/// A record that can be cut out of packed bytes.
///
/// # Safety
/// The type must be plain bytes: any pattern valid, no padding, alignment at most 32.
pub(in crate::kernels) unsafe trait Record: Sized {
    /// Bytes of the block it is packed from.
    const BLOCK_BYTES: usize;

    /// Writes the block of output row `row` of the tile. The record starts out as zeros.
    fn put(&mut self, row: usize, block: &[u8]);
}

/// The packed bytes of a matrix as records.
pub(in crate::kernels) fn records<T: Record>(bytes: &[u8]) -> &[T] {
    // SAFETY: `Record` types are valid for every byte pattern.
    let (before, records, after) = unsafe { bytes.align_to::<T>() };
    assert!(before.is_empty() && after.is_empty(), "packed bytes are whole, aligned records");
    records
}

fn records_mut<T: Record>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: `Record` types are valid for every byte pattern, and have no padding to leave uninitialised.
    let (before, records, after) = unsafe { bytes.align_to_mut::<T>() };
    assert!(before.is_empty() && after.is_empty(), "packed bytes are whole, aligned records");
    records
}

/// Packs whole tiles of rows of `n_blocks` blocks; rows missing in the last tile stay zero.
#[inline(always)]
pub(super) fn pack<T: Record>(n_blocks: usize, source: &[u8], target: &mut [u8]) {
    if n_blocks == 0 {
        return;
    }
    let tiles = records_mut::<T>(target);
    let row_bytes = n_blocks * T::BLOCK_BYTES;
    for (tile, rows) in tiles.chunks_exact_mut(n_blocks).zip(source.chunks(TILE * row_bytes)) {
        // Records outside, rows inside: a record is written while it is in the L1 cache.
        for (index, record) in tile.iter_mut().enumerate() {
            for (row, blocks) in rows.chunks_exact(row_bytes).enumerate() {
                record.put(row, &blocks[index * T::BLOCK_BYTES..][..T::BLOCK_BYTES]);
            }
        }
    }
}

/// Four quants of one row, moved to `0..=255` by `offset`.
#[inline(always)]
pub(super) fn quad(quants: &[i8], group: usize, offset: i8) -> u32 {
    let quad = &quants[group * 4..group * 4 + 4];
    u32::from_le_bytes([quad[0], quad[1], quad[2], quad[3]].map(|q| q.wrapping_add(offset) as u8))
}

/// The half-precision number at `at`, as bits.
#[inline(always)]
pub(super) fn half_bits(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}
