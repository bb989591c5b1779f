//! The input rows of a matmul, quantized once and used by every weight that reads them.
//!
//! Quantized weights take int8 activations with one scale per block, so that a block's products sum exactly in
//! integers: `scale = amax / 127`, `quant = round_ties_even(x * (127 / amax))`. Float weights take the floats.
//!
//! Invariant: a row's quants and scales depend on that row alone. A block with a NaN or an infinity gets quants
//! of 0 and a scale of NaN, so that every output of its row is NaN, and no other row's. A block whose largest
//! magnitude is too small to divide 127 by (below 3.8e-37) is zero.
//! Not here: the order tiled kernels read them in (`act_tiles`), or the matmul.

use super::act_tiles::ActTiles;
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
#[derive(Debug, Default)]
pub struct Activations {
    pub(crate) scheme: ActScheme,
    pub(crate) rows: usize,
    pub(crate) k: usize,
    /// Whether `tiles` is filled; only tables with tiled layouts need it.
    pub(crate) tiled: bool,
    /// `[rows, k / 8]` eights, the last padded with zeros; only for [`ActScheme::F32`].
    pub(crate) floats: Vec<[f32; 8]>,
    /// `[rows, k]`.
    pub(crate) quants: Vec<i8>,
    /// `[rows, k / block_len]`.
    pub(crate) scales: Vec<f32>,
    /// Sums of quants, `[rows, k / 16]`.
    pub(crate) sums: Vec<i16>,
    pub(crate) tiles: ActTiles,
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

    /// The quants of block `block` of row `row`.
    #[inline(always)]
    pub(crate) fn block_quants<const LEN: usize>(&self, row: usize, block: usize) -> &[i8; LEN] {
        self.quants[row * self.k + block * LEN..][..LEN].try_into().expect("cut to the length")
    }

    /// The sums of 16 of block `block` of row `row`.
    #[inline(always)]
    pub(crate) fn block_sums<const SUMS: usize>(&self, row: usize, block: usize) -> &[i16; SUMS] {
        self.sums[row * self.k / 16 + block * SUMS..][..SUMS].try_into().expect("cut to the length")
    }

    #[inline(always)]
    pub(crate) fn scale(&self, row: usize, block: usize) -> f32 {
        self.scales[row * (self.k / self.scheme.block_len()) + block]
    }

    /// Sets the shape and makes room; old contents are meaningless.
    pub(crate) fn reshape(&mut self, rows: usize, k: usize, scheme: ActScheme) {
        (self.rows, self.k, self.scheme, self.tiled) = (rows, k, scheme, false);
        if scheme == ActScheme::F32 {
            self.floats.resize(rows * k.div_ceil(8), [0.0; 8]);
        } else {
            self.quants.resize(rows * k, 0);
            self.scales.resize(rows * k / scheme.block_len(), 0.0);
            self.sums.resize(rows * k / 16, 0);
        }
    }
}

/// Fills row-major quants, scales and sums. Shared by every table.
#[inline(always)]
pub(super) fn quantize<L: Lanes>(
    lanes: L,
    x: &[f32],
    rows: usize,
    k: usize,
    scheme: ActScheme,
    out: &mut Activations,
) {
    out.reshape(rows, k, scheme);
    match scheme {
        ActScheme::F32 => {
            for row in 0..rows {
                let eights = &mut out.floats[row * k.div_ceil(8)..(row + 1) * k.div_ceil(8)];
                pad(&x[row * k..(row + 1) * k], eights);
            }
        }
        ActScheme::Q8Block32 => quantize_blocks::<L, SMALL>(lanes, x, out),
        ActScheme::Q8Block256 => quantize_blocks::<L, SUPER>(lanes, x, out),
    }
}

/// Copies a row to whole eights, padded with zeros.
#[inline(always)]
pub(super) fn pad(x: &[f32], eights: &mut [[f32; 8]]) {
    let (floats, padding) = eights.as_flattened_mut().split_at_mut(x.len());
    floats.copy_from_slice(x);
    padding.fill(0.0);
}

#[inline(always)]
fn quantize_blocks<L: Lanes, const LEN: usize>(lanes: L, x: &[f32], out: &mut Activations) {
    let (blocks, rest) = x.as_chunks::<LEN>();
    assert!(rest.is_empty(), "rows are whole blocks");
    let (quants, _) = out.quants.as_chunks_mut::<LEN>();
    let sums = out.sums.as_chunks_mut::<2>().0.chunks_exact_mut(LEN / SMALL);
    for (((x, quants), scale), sums) in blocks.iter().zip(quants).zip(&mut out.scales).zip(sums) {
        *scale = quantize_block(lanes, x, quants);
        for (sums, quants) in sums.iter_mut().zip(quants.as_chunks::<SMALL>().0) {
            *sums = lanes.sums_of_16(quants);
        }
    }
}

/// Fills the quants of one block and returns its scale.
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
