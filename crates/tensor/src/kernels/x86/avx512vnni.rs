//! The AVX-512 VNNI table: matmul and attention in 512-bit registers, the rest as in the AVX2 table.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loops.

use super::avx2;
use super::vector512::Avx512;
use super::zmm::Zmm;
use crate::kernels::attention::{self, Attend, AttendScratch};
use crate::kernels::cached::KvRows;
use crate::kernels::matrix::{Layout, Matrix};
use crate::kernels::tiles;
use crate::kernels::{Activations, ColumnBlock, Kernels};

pub(super) static TABLE: Kernels =
    Kernels { name: "x86-avx512vnni", matmul, attend, probe_multiply, ..avx2::TABLE };

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match weight.layout {
        Layout::Rows => avx2::matmul(weight, x, y),
        Layout::Tiles => tiles::matmul(Zmm::here(), weight, x, y),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn attend(
    q: &[f32],
    rows: &[Attend<'_>],
    kv: &KvRows<'_>,
    scratch: &mut AttendScratch,
    out: &mut ColumnBlock<'_>,
) {
    attention::attend(Avx512::here(), q, rows, kv, scratch, out);
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn probe_multiply(rounds: usize) -> usize {
    tiles::probe_multiply(Zmm::here(), rounds)
}
