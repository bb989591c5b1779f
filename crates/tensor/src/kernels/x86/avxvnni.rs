//! The AVX-VNNI table: matmul with byte dot products in 256-bit registers, the rest as in the AVX2 table.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loops.

use super::avx2;
use super::ymm::{Dots, Ymm};
use crate::kernels::matrix::{Layout, Matrix};
use crate::kernels::tiles;
use crate::kernels::{Activations, ColumnBlock, Kernels};

pub(super) static TABLE: Kernels = Kernels { name: "x86-avxvnni", matmul, probe_multiply, ..avx2::TABLE };

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match weight.layout {
        Layout::Rows => avx2::matmul(weight, x, y),
        Layout::Tiles => tiles::matmul(Ymm::<Dots>::here(), weight, x, y),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn probe_multiply(rounds: usize) -> usize {
    tiles::probe_multiply(Ymm::<Dots>::here(), rounds)
}
