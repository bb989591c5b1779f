//! The AMX table: several rows times blocks of 256 in tile registers, the rest as in the AVX-512 VNNI table.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loop, the instructions.

mod fold;
mod instructions;
mod super_loop;

use super::avx512vnni;
use crate::block::BlockType;
use crate::kernels::matrix::{Layout, Matrix};
use crate::kernels::tiles::super_records;
use crate::kernels::{Activations, ColumnBlock, Kernels};
pub(super) use instructions::allowed;

pub(super) static TABLE: Kernels = Kernels { name: "x86-amx", matmul, ..avx512vnni::TABLE };

/// Rows from which folding weights for tile registers is paid back: measured, see decision 0006.
const LEAST_ROWS: usize = 24;

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match (weight.layout, weight.block_type) {
        (Layout::Tiles, BlockType::Q4K) if x.rows >= LEAST_ROWS => {
            super_loop::matmul::<super_records::Q4K>(weight, x, y);
        }
        (Layout::Tiles, BlockType::Q5K) if x.rows >= LEAST_ROWS => {
            super_loop::matmul::<super_records::Q5K>(weight, x, y);
        }
        (Layout::Tiles, BlockType::Q6K) if x.rows >= LEAST_ROWS => {
            super_loop::matmul::<super_records::Q6K>(weight, x, y);
        }
        _ => avx512vnni::matmul(weight, x, y),
    }
}
