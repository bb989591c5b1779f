//! The NEON table, for every 64-bit Arm CPU: the shared loops compiled for this feature.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loops.

use super::products::Multiplies;
use super::registers::Registers;
use super::vector::Neon;
use crate::block::BlockType;
use crate::float16::f32_to_f16;
use crate::kernels::attention::{self, Attend, AttendScratch};
use crate::kernels::cached::{self, KvRows};
use crate::kernels::matrix::{Layout, Matrix};
use crate::kernels::{ActPart, Activations, ColumnBlock, Kernels, matmul, portable, tiles};

pub(super) static TABLE: Kernels = Kernels {
    name: "aarch64-neon",
    layout,
    pack_tiles,
    quantize_row,
    matmul,
    to_halves,
    to_quants,
    attend,
    probe_multiply,
    // Every 64-bit Arm compiler's plain code may use NEON, so the loops over one row are compiled for it already.
    ..portable::TABLE
};

fn layout(block_type: BlockType) -> Layout {
    if tiles::tiled(block_type) { Layout::Tiles } else { Layout::Rows }
}

#[target_feature(enable = "neon")]
fn pack_tiles(block_type: BlockType, k: usize, source: &[u8], target: &mut [u8]) {
    tiles::pack(block_type, k, source, target);
}

#[target_feature(enable = "neon")]
fn quantize_row(part: &mut ActPart<'_>, row: usize, x: &[f32]) {
    part.put(Neon::here(), row, x);
}

#[target_feature(enable = "neon")]
pub(super) fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match weight.layout {
        Layout::Rows => matmul::matmul(Neon::here(), weight, x, y, false),
        Layout::Tiles => tiles::matmul(Registers::<Multiplies, 0, 4>::here(), weight, x, y),
    }
}

#[target_feature(enable = "neon")]
fn to_halves(x: &[f32], out: &mut [u16]) {
    let neon = Neon::here();
    let (floats, tail) = x.as_chunks::<8>();
    let (halves, half_tail) = out.as_chunks_mut::<8>();
    for (floats, halves) in floats.iter().zip(halves) {
        *halves = neon.narrow(floats);
    }
    for (half, &float) in half_tail.iter_mut().zip(tail) {
        *half = f32_to_f16(float);
    }
}

#[target_feature(enable = "neon")]
fn to_quants(x: &[f32], head_dim: usize, quants: &mut [i8], scales: &mut [f32]) {
    cached::to_quants(Neon::here(), x, head_dim, quants, scales);
}

#[target_feature(enable = "neon")]
fn attend(
    q: &[f32],
    rows: &[Attend<'_>],
    kv: &KvRows<'_>,
    scratch: &mut AttendScratch,
    out: &mut ColumnBlock<'_>,
) {
    attention::attend(Neon::here(), q, rows, kv, scratch, out);
}

#[target_feature(enable = "neon")]
fn probe_multiply(rounds: usize) -> usize {
    tiles::probe_multiply(Registers::<Multiplies, 0, 4>::here(), rounds)
}
