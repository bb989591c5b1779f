//! The table for CPUs with byte dot products: matmul with them, the rest as in the NEON table.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loops.

use super::neon;
use super::products::Dots;
use super::registers::Registers;
use crate::kernels::matrix::{Layout, Matrix};
use crate::kernels::tiles;
use crate::kernels::{Activations, ColumnBlock, Kernels};

pub(super) static TABLE: Kernels = Kernels { name: "aarch64-dotprod", matmul, probe_multiply, ..neon::TABLE };

#[target_feature(enable = "neon,dotprod")]
fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match weight.layout {
        Layout::Rows => neon::matmul(weight, x, y),
        Layout::Tiles => tiles::matmul(Registers::<Dots, 0, 4>::here(), weight, x, y),
    }
}

#[target_feature(enable = "neon,dotprod")]
fn probe_multiply(rounds: usize) -> usize {
    tiles::probe_multiply(Registers::<Dots, 0, 4>::here(), rounds)
}
