//! The matmul over a file's own blocks, row after row: the definition of the arithmetic.
//!
//! Every output is one `f32` sum over the blocks of a row, ascending:
//!
//! ```text
//! 256s:   isum = sum_j scale_j * sum(q * a)     msum = sum_j min_j * sum(a)     exact integers, j over 16s
//!         f    = isum * d, then fma(-msum, dmin, f) if the type has minimums
//!         out  = fma(f, d_a, out)
//! 32s:    out  = fma(sum(q * a) * d_a, d, out), then fma(m, d_a * sum(a), out) if the type has a minimum
//! floats: eight lanes of fma over k, lane l taking k = l (mod 8), folded by
//!         `lanes::sum8`; k is padded with zeros to whole eights
//! ```
//!
//! Invariant: an output's bits depend on its weight row and its activation row alone.
//! Not here: tiled layouts, which must give these bits (`tiles`).

use super::activations::{ActScheme, Activations};
use super::columns::ColumnBlock;
use super::lanes::{self, Lanes, Rows8};
use super::matrix::Matrix;
use crate::block::BlockType;
use crate::blocks::{self, SMALL, SUPER, SmallBlock, SuperBlock};

/// Activation rows one unpacked block is used for before the next is unpacked.
const ROWS: usize = 64;

/// Where the broken order starts: a number with no zeros at its end, so that even one block rounds otherwise.
const BROKEN_START: f32 = 1.0 / 3.0;

/// `y = x W^T` for the columns of `y`. Compiled once for each table. `reversed` is another order, wrong in the last
/// bits, for `Kernels::broken_numerics`: blocks descending from [`BROKEN_START`], floats descending in turned lanes.
#[inline(always)]
pub(super) fn matmul<L: Lanes>(
    lanes: L,
    weight: &Matrix,
    x: &Activations,
    y: &mut ColumnBlock<'_>,
    reversed: bool,
) {
    match weight.scheme() {
        ActScheme::F32 => floats(lanes, weight, x, y, reversed),
        ActScheme::Q8Block32 => blocked::<SmallBlock>(weight, x, y, reversed),
        ActScheme::Q8Block256 => blocked::<SuperBlock>(weight, x, y, reversed),
    }
}

/// A block of weights in integers, ready to be multiplied.
trait Unpacked {
    fn unpack(block_type: BlockType, block: &[u8]) -> Self;
    /// Adds the products with block `at` of activation row `row` to `sum`.
    fn add(&self, x: &Activations, row: usize, at: usize, sum: f32) -> f32;
}

impl Unpacked for SmallBlock {
    #[inline(always)]
    fn unpack(block_type: BlockType, block: &[u8]) -> SmallBlock {
        blocks::small(block_type, block)
    }

    #[inline(always)]
    fn add(&self, x: &Activations, row: usize, at: usize, sum: f32) -> f32 {
        let act_scale = x.scales[at * x.rows + row];
        let quants = &x.of_block::<_, SMALL>(&x.quants, at, row)[0];
        let products = integer_dot(&self.quants, quants) as f32;
        let sum = (products * act_scale).mul_add(self.scale, sum);
        let Some(min) = self.min else { return sum };
        min.mul_add(act_scale * x.totals[at * x.rows + row] as f32, sum)
    }
}

impl Unpacked for SuperBlock {
    #[inline(always)]
    fn unpack(block_type: BlockType, block: &[u8]) -> SuperBlock {
        blocks::super_block(block_type, block)
    }

    #[inline(always)]
    fn add(&self, x: &Activations, row: usize, at: usize, sum: f32) -> f32 {
        let quants = &x.of_block::<_, SUPER>(&x.quants, at, row)[0];
        let (weights, acts) = (self.quants.as_chunks::<16>().0, quants.as_chunks::<16>().0);
        let mut products = 0;
        for sub in 0..16 {
            products += i32::from(self.scales[sub]) * integer_dot(&weights[sub], &acts[sub]);
        }
        let mut step = products as f32 * self.scale;
        if let Some(min_scale) = self.min_scale {
            let sums = &x.of_block::<_, 16>(&x.sums, at, row)[0];
            let mins: i32 = self.mins.iter().zip(sums).map(|(&m, &s)| i32::from(m) * i32::from(s)).sum();
            step = (-(mins as f32)).mul_add(min_scale, step);
        }
        step.mul_add(x.scales[at * x.rows + row], sum)
    }
}

#[inline(always)]
fn integer_dot<const LEN: usize>(a: &[i8; LEN], b: &[i8; LEN]) -> i32 {
    let mut sum = 0;
    for i in 0..LEN {
        sum += i32::from(a[i]) * i32::from(b[i]);
    }
    sum
}

/// Walks output rows, then blocks, then activation rows, so that a block is unpacked once for many rows.
#[inline(always)]
fn blocked<B: Unpacked>(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>, reversed: bool) {
    let block_bytes = weight.block_type.block_bytes();
    let n_blocks = weight.k / weight.block_type.block_len();
    let columns = y.columns();
    for column in columns.clone() {
        let row = &weight.packed()[column * n_blocks * block_bytes..][..n_blocks * block_bytes];
        for first in (0..x.rows).step_by(ROWS) {
            let count = ROWS.min(x.rows - first);
            let start = if reversed { BROKEN_START } else { 0.0 };
            let mut sums = [start; ROWS];
            for step in 0..n_blocks {
                let at = if reversed { n_blocks - 1 - step } else { step };
                let block = B::unpack(weight.block_type, &row[at * block_bytes..][..block_bytes]);
                for (r, sum) in sums[..count].iter_mut().enumerate() {
                    *sum = block.add(x, first + r, at, *sum);
                }
            }
            for (r, &sum) in sums[..count].iter().enumerate() {
                y.row_mut(first + r)[column - columns.start] = if reversed { sum - start } else { sum };
            }
        }
    }
}

/// Float weights: eight rows are widened once, then multiplied with every activation row.
#[inline(always)]
fn floats<L: Lanes>(lanes: L, weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>, reversed: bool) {
    let row_bytes = weight.k * weight.block_type.block_bytes();
    let eights = weight.k.div_ceil(8);
    let columns = y.columns();
    let mut widened = vec![[[0f32; 8]; 8]; eights];
    let mut mirrored = Vec::new();
    for first in columns.clone().step_by(8) {
        let count = 8.min(columns.end - first);
        for row in 0..count {
            let bytes = &weight.packed()[(first + row) * row_bytes..][..row_bytes];
            widen(lanes, weight.block_type, bytes, row, &mut widened);
        }
        if reversed {
            widened.reverse();
            widened.as_flattened_mut().iter_mut().for_each(|eight| eight.rotate_left(1));
        }
        for r in 0..x.rows {
            let mut row = x.row_floats(r);
            if reversed {
                mirrored.clear();
                mirrored.extend(row.iter().rev());
                mirrored.iter_mut().for_each(|eight: &mut [f32; 8]| eight.rotate_left(1));
                row = &mirrored;
            }
            let sums = lanes::dots(lanes, row, &widened);
            y.row_mut(r)[first - columns.start..][..count].copy_from_slice(&sums[..count]);
        }
    }
}

/// Writes a row of float weights to row `row` of `out`, whose padding is left alone.
#[inline(always)]
fn widen<L: Lanes>(lanes: L, block_type: BlockType, bytes: &[u8], row: usize, out: &mut Rows8) {
    match block_type {
        BlockType::F16 => widen_eights(block_type, bytes, row, out, |bytes: &[u8; 16], out| {
            let halves = std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
            lanes.store(out, lanes.widen(&halves));
        }),
        BlockType::BF16 => widen_eights(block_type, bytes, row, out, |bytes: &[u8; 16], out| {
            blocks::plain::decode(BlockType::BF16, bytes, out);
        }),
        _ => widen_eights(block_type, bytes, row, out, |bytes: &[u8; 32], out| {
            blocks::plain::decode(BlockType::F32, bytes, out);
        }),
    }
}

#[inline(always)]
fn widen_eights<const BYTES: usize>(
    block_type: BlockType,
    bytes: &[u8],
    row: usize,
    out: &mut Rows8,
    widen: impl Fn(&[u8; BYTES], &mut [f32; 8]),
) {
    let (eights, tail) = bytes.as_chunks::<BYTES>();
    for (bytes, out) in eights.iter().zip(out.iter_mut()) {
        widen(bytes, &mut out[row]);
    }
    if let Some(out) = out.get_mut(eights.len()) {
        let numbers = tail.len() / block_type.block_bytes();
        blocks::plain::decode(block_type, tail, &mut out[row][..numbers]);
    }
}
