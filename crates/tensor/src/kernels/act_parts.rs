//! Hands disjoint parts of one buffer of activations to several threads, to be quantized.
//!
//! Quants lie block by block, and in a block row by row. So a row of a part is scattered over the buffer, and is written
//! through raw pointers.
//!
//! Invariant: the parts of one split never overlap, and together cover every number.
//! Not here: threads, or how a block is quantized (`activations`).

use std::marker::PhantomData;
use std::ops::Range;

use super::activations::{ActScheme, Activations, pad, quantize_block};
use super::lanes::Lanes;
use crate::blocks::{SMALL, SUPER};

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
    scheme: ActScheme,
    rows: usize,
    k: usize,
    floats: *mut [f32; 8],
    quants: *mut i8,
    scales: *mut f32,
    sums: *mut i16,
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
        let Buffers { scheme, rows, k, .. } = to;
        let unit = scheme.block_len().max(8);
        let blocks = k.div_ceil(unit);
        // Blocks lie apart, rows of a block close together: threads should not share their cache lines.
        let by_blocks = blocks >= parts || blocks >= rows;
        let all = if by_blocks { blocks } else { rows };
        let n = parts.min(all);
        let part = |at: usize| {
            let (from, until) = (all * at / n, all * (at + 1) / n);
            let (rows, columns) = if by_blocks {
                (0..rows, (from * unit).min(k)..(until * unit).min(k))
            } else {
                (from..until, 0..k)
            };
            ActPart { to, rows, columns, borrow: PhantomData }
        };
        (0..n).map(part).collect()
    }

    fn buffers(&mut self) -> Buffers {
        let Activations { scheme, rows, k, floats, quants, scales, sums, pairs_of_32, totals, scaled_totals } =
            self;
        Buffers {
            scheme: *scheme,
            rows: *rows,
            k: *k,
            floats: floats.as_mut_ptr(),
            quants: quants.as_mut_ptr(),
            scales: scales.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
            pairs_of_32: pairs_of_32.as_mut_ptr(),
            totals: totals.as_mut_ptr(),
            scaled_totals: scaled_totals.as_mut_ptr(),
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
        match self.to.scheme {
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
            let at = (first + index) * self.to.rows + row;
            // SAFETY: `split` borrowed the buffers, sized for all blocks and rows, for the life of this part, and the row
            // and the block are this part's: nobody else reads or writes what belongs to them.
            unsafe { self.to.put(at, scale, &quants, &sums) };
        }
    }
}

impl Buffers {
    /// Writes a quantized block to place `at`, counted in blocks.
    ///
    /// # Safety
    /// The buffers live, sized for this block length and more than `at` blocks; nobody else accesses this block meanwhile.
    #[inline(always)]
    unsafe fn put<const LEN: usize, const SUMS: usize>(
        self,
        at: usize,
        scale: f32,
        quants: &[i8; LEN],
        sums: &[i16; SUMS],
    ) {
        // SAFETY: by this function's contract these lie in the buffers and are nobody else's.
        unsafe {
            self.quants.cast::<[i8; LEN]>().add(at).write(*quants);
            self.scales.add(at).write(scale);
            self.sums.cast::<[i16; SUMS]>().add(at).write(*sums);
            if LEN == SUPER {
                let pairs = self.pairs_of_32.add(at * (LEN / 64));
                for (index, [a, b, c, d]) in sums.as_chunks::<4>().0.iter().enumerate() {
                    pairs.add(index).write([a + b, c + d]);
                }
            } else {
                let total = sums.iter().map(|&sum| i32::from(sum)).sum();
                self.totals.add(at).write(total);
                self.scaled_totals.add(at).write(scale * total as f32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Kernels;

    #[test]
    fn parts_cover_every_number_once_and_fill_the_same_buffer() {
        for table in Kernels::available() {
            for scheme in [ActScheme::F32, ActScheme::Q8Block32, ActScheme::Q8Block256] {
                for (rows, k) in [(1, 768), (3, 256), (9, 512), (40, 256)] {
                    let x: Vec<f32> = (0..rows * k).map(|i| (i as f32 * 0.37).sin()).collect();
                    let mut whole = Activations::new();
                    table.quantize(&x, rows, k, scheme, &mut whole);
                    for parts in [1, 2, 3, 16] {
                        let mut cut = Activations::new();
                        cut.reshape(rows, k, scheme);
                        let mut seen = vec![0; rows * k];
                        for mut part in cut.split(parts) {
                            for row in part.rows() {
                                let at = row * k + part.columns().start..row * k + part.columns().end;
                                seen[at.clone()].iter_mut().for_each(|seen| *seen += 1);
                                table.quantize_row(&mut part, row, &x[at]);
                            }
                        }
                        assert!(seen.iter().all(|&seen| seen == 1), "{scheme:?} {rows} {parts}");
                        assert_eq!(format!("{cut:?}"), format!("{whole:?}"), "{scheme:?} {rows} {parts}");
                    }
                }
            }
        }
    }
}
