//! The AVX2, FMA and F16C table: the shared loops compiled for these features.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loops.

use std::arch::x86_64::*;

use super::vector::Avx2;
use super::ymm::{Shorts, Ymm};
use crate::block::BlockType;
use crate::float16::f32_to_f16;
use crate::kernels::attention::{self, Attend, AttendScratch};
use crate::kernels::cached::{self, KvRows};
use crate::kernels::matrix::{Layout, Matrix};
use crate::kernels::tiles;
use crate::kernels::{ActPart, Activations, ColumnBlock, Kernels, RopeStyle, matmul, probe, rows};

pub(super) static TABLE: Kernels = Kernels {
    name: "x86-avx2",
    layout,
    pack_tiles,
    quantize_row,
    matmul,
    rms_norm,
    rms_norm_in_place,
    silu_mul,
    gelu_tanh_mul,
    add,
    add_to,
    scale,
    softcap,
    argmax,
    all_finite,
    rope,
    to_halves,
    to_quants,
    attend,
    probe_read,
    probe_multiply,
};

fn layout(block_type: BlockType) -> Layout {
    if tiles::tiled(block_type) { Layout::Tiles } else { Layout::Rows }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn pack_tiles(block_type: BlockType, k: usize, source: &[u8], target: &mut [u8]) {
    tiles::pack(block_type, k, source, target);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantize_row(part: &mut ActPart<'_>, row: usize, x: &[f32]) {
    part.put(Avx2::here(), row, x);
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match weight.layout {
        Layout::Rows => matmul::matmul(Avx2::here(), weight, x, y, false),
        Layout::Tiles => tiles::matmul(Ymm::<Shorts>::here(), weight, x, y),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    rows::rms_norm(x, weight, eps, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    rows::rms_norm_in_place(x, weight, eps);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    rows::silu_mul(gate, up, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn gelu_tanh_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    rows::gelu_tanh_mul(gate, up, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
    rows::add(a, b, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn add_to(x: &mut [f32], b: &[f32]) {
    rows::add_to(x, b);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn scale(x: &mut [f32], factor: f32) {
    rows::scale(x, factor);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn softcap(x: &mut [f32], cap: f32) {
    rows::softcap(x, cap);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn argmax(x: &[f32]) -> usize {
    rows::argmax(x)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn all_finite(x: &[f32]) -> bool {
    rows::all_finite(x)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn rope(x: &mut [f32], head_dim: usize, rot_dim: usize, cos_sin: &[f32], style: RopeStyle) {
    rows::rope(x, head_dim, rot_dim, cos_sin, style);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn to_halves(x: &[f32], out: &mut [u16]) {
    let (floats, tail) = x.as_chunks::<8>();
    let (halves, half_tail) = out.as_chunks_mut::<8>();
    for (floats, halves) in floats.iter().zip(halves) {
        // SAFETY: both are 8 numbers; load and store are unaligned.
        unsafe {
            let packed = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(floats.as_ptr()));
            _mm_storeu_si128(halves.as_mut_ptr().cast(), packed);
        }
    }
    for (half, &float) in half_tail.iter_mut().zip(tail) {
        *half = f32_to_f16(float);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn to_quants(x: &[f32], head_dim: usize, quants: &mut [i8], scales: &mut [f32]) {
    cached::to_quants(Avx2::here(), x, head_dim, quants, scales);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn attend(
    q: &[f32],
    rows: &[Attend<'_>],
    kv: &KvRows<'_>,
    scratch: &mut AttendScratch,
    out: &mut ColumnBlock<'_>,
) {
    attention::attend(Avx2::here(), q, rows, kv, scratch, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn probe_read(bytes: &[u8]) -> u64 {
    probe::read(bytes)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn probe_multiply(rounds: usize) -> usize {
    tiles::probe_multiply(Ymm::<Shorts>::here(), rounds)
}
