//! Hands disjoint parts of one buffer of activations to several threads, to be quantized.
//!
//! Tables with tiled weights read quants in the order in which their loops walk: for every block all rows; inside it one
//! tile of neighbouring rows after another; inside that, four numbers of each row in turn. So a row of a part is
//! scattered over the buffer, and is written through raw pointers.
//!
//! Invariant: the parts of one split never overlap, and together cover every number; how rows are cut changes no bit.
//! Not here: threads, or how a block is quantized (`activations`).

use std::marker::PhantomData;
use std::ops::Range;

use super::activations::{ActForm, ActScheme, Activations, pad, quantize_block};
use super::lanes::Lanes;
use crate::blocks::{SMALL, SUPER};

/// The quantized rows of tiled tables.
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

/// Neighbouring rows that are multiplied together: as many as leave their sums in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowTile {
    pub(crate) first: usize,
    pub(crate) rows: usize,
}

impl RowTile {
    /// Tiles of at most `most` rows for so many rows.
    #[inline(always)]
    pub(crate) fn count(rows: usize, most: usize) -> usize {
        rows.div_ceil(most)
    }

    /// Tile `index` of them; sizes differ by at most one.
    #[inline(always)]
    pub(crate) fn of(rows: usize, most: usize, index: usize) -> RowTile {
        let tiles = RowTile::count(rows, most);
        let first = rows * index / tiles;
        RowTile { first, rows: rows * (index + 1) / tiles - first }
    }

    /// The tile of row `row`.
    #[inline(always)]
    fn at(rows: usize, most: usize, row: usize) -> RowTile {
        let guess = RowTile::count(rows, most) * row / rows;
        let tile = RowTile::of(rows, most, guess);
        if row < tile.first + tile.rows { tile } else { RowTile::of(rows, most, guess + 1) }
    }
}

/// Some rows and columns of a buffer of activations: exclusive access that may be sent to a thread.
#[derive(Debug)]
pub struct ActPart<'a> {
    to: Buffers,
    rows: Range<usize>,
    columns: Range<usize>,
    borrow: PhantomData<&'a mut Activations>,
}

/// The shape and the buffers of activations.
#[derive(Clone, Copy, Debug)]
struct Buffers {
    form: ActForm,
    rows: usize,
    k: usize,
    floats: *mut [f32; 8],
    quants: *mut i8,
    scales: *mut f32,
    sums: *mut i16,
    tile_quants: *mut [i8; 4],
    tile_scales: *mut f32,
    pairs_of_16: *mut [i16; 2],
    pairs_of_32: *mut [i16; 2],
    totals: *mut i32,
    scaled_totals: *mut f32,
}

// SAFETY: a part is an exclusive borrow of plain numbers no other part reaches, like a `&mut [f32]`.
unsafe impl Send for ActPart<'_> {}

impl Activations {
    /// Cuts the buffer into at most `parts` pieces of nearly equal size, to be filled by
    /// [`Kernels::quantize_row`](super::Kernels::quantize_row).
    ///
    /// # Panics
    /// When `parts` is 0.
    pub fn split(&mut self, parts: usize) -> Vec<ActPart<'_>> {
        assert!(parts > 0, "a split needs a part");
        let to = self.buffers();
        let Buffers { form, rows, k, .. } = to;
        let unit = form.block_len().max(8);
        let most = form.tile_rows.max(1);
        let (tiles, blocks) = (RowTile::count(rows, most), k.div_ceil(unit));
        // Threads that write the same tile would share cache lines; blocks of a tile lie apart.
        let by_rows = tiles >= parts || tiles >= blocks;
        let n = parts.min(if by_rows { tiles } else { blocks });
        let part = |at: usize| {
            let (rows, columns) = if by_rows {
                let cut = |at: usize| {
                    let tile = tiles * at / n;
                    if tile == tiles { rows } else { RowTile::of(rows, most, tile).first }
                };
                (cut(at)..cut(at + 1), 0..k)
            } else {
                let cut = |at: usize| (blocks * at / n * unit).min(k);
                (0..rows, cut(at)..cut(at + 1))
            };
            ActPart { to, rows, columns, borrow: PhantomData }
        };
        (0..n).map(part).collect()
    }

    fn buffers(&mut self) -> Buffers {
        let Activations { form, rows, k, floats, quants, scales, sums, tiles } = self;
        Buffers {
            form: *form,
            rows: *rows,
            k: *k,
            floats: floats.as_mut_ptr(),
            quants: quants.as_mut_ptr(),
            scales: scales.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
            tile_quants: tiles.quants.as_mut_ptr(),
            tile_scales: tiles.scales.as_mut_ptr(),
            pairs_of_16: tiles.pairs_of_16.as_mut_ptr(),
            pairs_of_32: tiles.pairs_of_32.as_mut_ptr(),
            totals: tiles.totals.as_mut_ptr(),
            scaled_totals: tiles.scaled_totals.as_mut_ptr(),
        }
    }
}

impl ActPart<'_> {
    /// The rows it holds.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The numbers of these rows it holds.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Quantizes `x`, this part's numbers of row `row`. Shared by every table.
    #[inline(always)]
    pub(super) fn put<L: Lanes>(&mut self, lanes: L, row: usize, x: &[f32]) {
        assert!(self.rows.contains(&row), "row {row} of {:?}", self.rows);
        assert_eq!(x.len(), self.columns.len(), "a row of another length");
        match self.to.form.scheme {
            ActScheme::F32 => self.put_floats(row, x),
            ActScheme::Q8Block32 => self.put_blocks::<L, SMALL, 2>(lanes, row, x),
            ActScheme::Q8Block256 => self.put_blocks::<L, SUPER, 16>(lanes, row, x),
        }
    }

    fn put_floats(&mut self, row: usize, x: &[f32]) {
        let Buffers { k, floats, .. } = self.to;
        let at = row * k.div_ceil(8) + self.columns.start / 8;
        // SAFETY: `split` borrowed the buffer, sized for all eights of all rows, for the life of this part, and no other
        // part has these eights.
        let eights = unsafe { std::slice::from_raw_parts_mut(floats.add(at), x.len().div_ceil(8)) };
        pad(x, eights);
    }

    #[inline(always)]
    fn put_blocks<L: Lanes, const LEN: usize, const SUMS: usize>(&mut self, lanes: L, row: usize, x: &[f32]) {
        let first = self.columns.start / LEN;
        for (index, x) in x.as_chunks::<LEN>().0.iter().enumerate() {
            let mut quants = [0; LEN];
            let scale = quantize_block(lanes, x, &mut quants);
            let mut sums = [0; SUMS];
            for (sums, quants) in sums.as_chunks_mut::<2>().0.iter_mut().zip(quants.as_chunks::<SMALL>().0) {
                *sums = lanes.sums_of_16(quants);
            }
            let at = At { block: first + index, row, scale };
            // SAFETY: `split` borrowed the buffers for the life of this part, and the row and the block are this part's:
            // nobody else reads or writes what belongs to them.
            unsafe {
                if self.to.form.tile_rows == 0 {
                    self.to.put_row(at, &quants, &sums);
                } else {
                    self.to.put_tile(at, &quants, &sums);
                }
            }
        }
    }
}

/// Where a block goes, and its scale.
#[derive(Clone, Copy)]
struct At {
    block: usize,
    row: usize,
    scale: f32,
}

impl Buffers {
    /// Writes a block of a row-by-row form.
    ///
    /// # Safety
    /// The buffers live, sized for this shape and block length; block and row lie inside; nobody else accesses the
    /// numbers of this block and row meanwhile.
    #[inline(always)]
    unsafe fn put_row<const LEN: usize, const SUMS: usize>(
        self,
        At { block, row, scale }: At,
        quants: &[i8; LEN],
        sums: &[i16; SUMS],
    ) {
        let at = row * (self.k / LEN) + block;
        // SAFETY: by this function's contract these lie in the buffers and are nobody else's.
        unsafe {
            self.quants.cast::<[i8; LEN]>().add(at).write(*quants);
            self.sums.cast::<[i16; SUMS]>().add(at).write(*sums);
            self.scales.add(at).write(scale);
        }
    }

    /// Writes a block of a form in tiles.
    ///
    /// # Safety
    /// As [`Buffers::put_row`].
    #[inline(always)]
    unsafe fn put_tile<const LEN: usize, const SUMS: usize>(
        self,
        At { block, row, scale }: At,
        quants: &[i8; LEN],
        sums: &[i16; SUMS],
    ) {
        let tile = RowTile::at(self.rows, self.form.tile_rows, row);
        let (start, r) = (block * self.rows + tile.first, row - tile.first);
        // SAFETY: by this function's contract these lie in the buffers and are nobody else's.
        unsafe {
            let to = self.tile_quants.add(start * (LEN / 4) + r);
            for (group, quad) in quants.as_chunks::<4>().0.iter().enumerate() {
                to.add(group * tile.rows).write(*quad);
            }
            self.tile_scales.add(start + r).write(scale);
            if LEN == SUPER {
                let pairs = self.pairs_of_16.add(start * 8 + r);
                for (at, pair) in sums.as_chunks::<2>().0.iter().enumerate() {
                    pairs.add(at * tile.rows).write(*pair);
                }
                let pairs = self.pairs_of_32.add(start * 4 + r);
                for (at, [a, b, c, d]) in sums.as_chunks::<4>().0.iter().enumerate() {
                    pairs.add(at * tile.rows).write([a + b, c + d]);
                }
            } else {
                let total = sums.iter().map(|&sum| i32::from(sum)).sum();
                self.totals.add(start + r).write(total);
                self.scaled_totals.add(start + r).write(scale * total as f32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Kernels;
    use crate::kernels::activations::ActForm;

    #[test]
    fn every_row_is_found_in_its_tile() {
        for most in [4, 8] {
            for rows in 1..70 {
                for index in 0..RowTile::count(rows, most) {
                    let tile = RowTile::of(rows, most, index);
                    assert!((1..=most).contains(&tile.rows));
                    for row in tile.first..tile.first + tile.rows {
                        assert_eq!(RowTile::at(rows, most, row), tile);
                    }
                }
            }
        }
    }

    #[test]
    fn parts_cover_every_number_once_and_fill_the_same_buffer() {
        for table in Kernels::available() {
            for scheme in [ActScheme::F32, ActScheme::Q8Block32, ActScheme::Q8Block256] {
                for tile_rows in [0, 4, 8] {
                    let form = ActForm { scheme, tile_rows };
                    for (rows, k) in [(1, 768), (3, 256), (9, 512), (40, 256)] {
                        let x: Vec<f32> = (0..rows * k).map(|i| (i as f32 * 0.37).sin()).collect();
                        let mut whole = Activations::new();
                        table.quantize(&x, rows, k, form, &mut whole);
                        for parts in [1, 2, 3, 16] {
                            let mut cut = Activations::new();
                            cut.reshape(rows, k, form);
                            let mut seen = vec![0; rows * k];
                            for mut part in cut.split(parts) {
                                for row in part.rows() {
                                    let at = row * k + part.columns().start..row * k + part.columns().end;
                                    seen[at.clone()].iter_mut().for_each(|seen| *seen += 1);
                                    table.quantize_row(&mut part, row, &x[at]);
                                }
                            }
                            assert!(seen.iter().all(|&seen| seen == 1), "{form:?} {rows} {parts}");
                            assert_eq!(format!("{cut:?}"), format!("{whole:?}"), "{form:?} {rows} {parts}");
                        }
                    }
                }
            }
        }
    }
}
