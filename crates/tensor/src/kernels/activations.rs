//! The input rows of a matmul, quantized once and used by every weight that reads them.
//!
//! Quantized weights take int8 activations with one scale per block, so that a block's products sum exactly in
//! integers: `scale = amax / 127`, `quant = round_ties_even(x * (127 / amax))`. Float weights take the floats.
//!
//! Invariant: a row's quants and scales depend on that row alone. A block with a NaN or an infinity gets quants
//! of 0 and a scale of NaN, so that every output of its row is NaN, and no other row's. A block whose largest
//! magnitude is too small to divide 127 by (below 3.8e-37) is zero.
//! Not here: where quants are written (`act_parts`), or the matmul.

use super::lanes::Lanes;
use crate::block::BlockType;
use crate::blocks::{Family, SMALL, SUPER};

/// How activations are quantized for a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ActScheme {
    /// Not at all: weights are floats.
    #[default]
    F32,
    /// 8 bits, one scale per 32 numbers.
    Q8Block32,
    /// 8 bits, one scale per 256 numbers.
    Q8Block256,
}

impl ActScheme {
    /// The scheme weights of this type need.
    pub fn of(block_type: BlockType) -> ActScheme {
        match block_type.family() {
            Family::Plain => ActScheme::F32,
            Family::Small => ActScheme::Q8Block32,
            Family::Super => ActScheme::Q8Block256,
        }
    }

    /// Numbers that share a scale (1 for floats).
    pub fn block_len(self) -> usize {
        match self {
            ActScheme::F32 => 1,
            ActScheme::Q8Block32 => SMALL,
            ActScheme::Q8Block256 => SUPER,
        }
    }
}

/// Rows of activations under one scheme. Reuse it: buffers are kept.
///
/// What belongs to a block lies together for all rows, because a matmul takes one block of a weight after another and
/// multiplies it with every row.
#[derive(Debug, Default)]
pub struct Activations {
    pub(crate) scheme: ActScheme,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    /// `[rows, k / 8]` eights, the last padded with zeros; only for [`ActScheme::F32`].
    pub(crate) floats: Vec<[f32; 8]>,
    /// `[block, row, number]`.
    pub(crate) quants: Vec<i8>,
    /// `[block, row]`.
    pub(crate) scales: Vec<f32>,
    /// Sums of 16 quants, `[block, row, 16s]`.
    pub(crate) sums: Vec<i16>,
    /// Sums of 32 quants, `[block, row, pairs of 32s]`; blocks of 256 only.
    pub(crate) pairs_of_32: Vec<[i16; 2]>,
    /// Sums of whole blocks, `[block, row]`; blocks of 32 only.
    pub(crate) totals: Vec<i32>,
    /// The same sums times the scale.
    pub(crate) scaled_totals: Vec<f32>,
}

impl Activations {
    /// An empty buffer.
    pub fn new() -> Activations {
        Activations::default()
    }

    /// The scheme of the rows it holds.
    pub fn scheme(&self) -> ActScheme {
        self.scheme
    }

    /// Rows it holds.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    pub(crate) fn row_floats(&self, row: usize) -> &[[f32; 8]] {
        let eights = self.k.div_ceil(8);
        &self.floats[row * eights..(row + 1) * eights]
    }

    /// What `data`, one of the buffers, holds of block `block`, for all rows from `first` on.
    #[inline(always)]
    pub(crate) fn of_block<'a, T, const EACH: usize>(
        &self,
        data: &'a [T],
        block: usize,
        first: usize,
    ) -> &'a [[T; EACH]] {
        &data.as_chunks::<EACH>().0[block * self.rows + first..(block + 1) * self.rows]
    }

    /// Sets the shape and makes room; old contents are meaningless until every part was filled.
    ///
    /// # Panics
    /// When `k` is no whole number of the scheme's blocks.
    pub fn reshape(&mut self, rows: usize, k: usize, scheme: ActScheme) {
        let len = scheme.block_len();
        assert!(k.is_multiple_of(len), "{k} is no whole number of blocks of {scheme:?}");
        (self.rows, self.k, self.scheme) = (rows, k, scheme);
        if scheme == ActScheme::F32 {
            return self.floats.resize(rows * k.div_ceil(8), [0.0; 8]);
        }
        let (numbers, blocks) = (rows * k, rows * k / len);
        self.quants.resize(numbers, 0);
        self.scales.resize(blocks, 0.0);
        self.sums.resize(numbers / 16, 0);
        if scheme == ActScheme::Q8Block256 {
            self.pairs_of_32.resize(numbers / 64, [0; 2]);
        } else {
            self.totals.resize(blocks, 0);
            self.scaled_totals.resize(blocks, 0.0);
        }
    }
}

/// Copies a row to whole eights, padded with zeros.
#[inline(always)]
pub(super) fn pad(x: &[f32], eights: &mut [[f32; 8]]) {
    let (floats, padding) = eights.as_flattened_mut().split_at_mut(x.len());
    floats.copy_from_slice(x);
    padding.fill(0.0);
}

/// The quants of a block; returns its scale. Shared by every table.
#[inline(always)]
pub(super) fn quantize_block<L: Lanes, const LEN: usize>(
    lanes: L,
    x: &[f32; LEN],
    quants: &mut [i8; LEN],
) -> f32 {
    // Compared as integers, magnitudes order the same way, and NaN and infinity come out on top.
    let top = x.iter().fold(0, |top: u32, x| top.max(x.to_bits() & 0x7fff_ffff));
    let amax = f32::from_bits(top);
    let inverse = 127.0 / amax;
    if !amax.is_finite() || !inverse.is_finite() {
        *quants = [0; LEN];
        return if amax.is_finite() { 0.0 } else { f32::NAN };
    }
    let quarters = x.as_chunks::<8>().0.as_chunks::<4>().0;
    for (quants, x) in quants.as_chunks_mut::<SMALL>().0.iter_mut().zip(quarters) {
        *quants = lanes.to_i8(x, inverse);
    }
    amax / 127.0
}
