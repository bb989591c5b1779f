//! The AVX2, FMA and F16C table: the shared loops compiled for these features.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loops over tiles (`tiles`).

use std::arch::x86_64::*;

use super::vector::{Avx2, observed};
use super::{records, small_records, small_tiles, super_records, super_tiles};
use crate::block::BlockType;
use crate::float16::f32_to_f16;
use crate::kernels::act_tiles;
use crate::kernels::activations::{self, ActScheme, Activations};
use crate::kernels::attention::{self, Attend, AttendScratch};
use crate::kernels::cached::{self, KvRows};
use crate::kernels::matmul;
use crate::kernels::matrix::{Layout, Matrix};
use crate::kernels::{ColumnBlock, Kernels, RopeStyle, probe, rows};

pub(super) static TABLE: Kernels = Kernels {
    name: "x86-avx2",
    layout,
    pack_tiles,
    quantize,
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

/// Tiles for every type whose files are common; the rest stay in rows, for the shared loops.
fn layout(block_type: BlockType) -> Layout {
    match block_type {
        BlockType::F32 | BlockType::F16 | BlockType::BF16 | BlockType::Q2K | BlockType::Q3K => Layout::Rows,
        BlockType::Q4_0
        | BlockType::Q4_1
        | BlockType::Q5_0
        | BlockType::Q5_1
        | BlockType::Q8_0
        | BlockType::Iq4Nl
        | BlockType::Q4K
        | BlockType::Q5K
        | BlockType::Q6K => Layout::Tiles,
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn pack_tiles(block_type: BlockType, k: usize, source: &[u8], target: &mut [u8]) {
    let n_blocks = k / block_type.block_len();
    match block_type {
        BlockType::Q4_0 => records::pack::<small_records::Q4_0>(n_blocks, source, target),
        BlockType::Q4_1 => records::pack::<small_records::Q4_1>(n_blocks, source, target),
        BlockType::Q5_0 => records::pack::<small_records::Q5_0>(n_blocks, source, target),
        BlockType::Q5_1 => records::pack::<small_records::Q5_1>(n_blocks, source, target),
        BlockType::Q8_0 => records::pack::<small_records::Q8_0>(n_blocks, source, target),
        BlockType::Iq4Nl => records::pack::<small_records::Iq4Nl>(n_blocks, source, target),
        BlockType::Q4K => records::pack::<super_records::Q4K>(n_blocks, source, target),
        BlockType::Q5K => records::pack::<super_records::Q5K>(n_blocks, source, target),
        BlockType::Q6K => records::pack::<super_records::Q6K>(n_blocks, source, target),
        _ => unreachable!("{} stays in rows", block_type.name()),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantize(x: &[f32], n_rows: usize, k: usize, scheme: ActScheme, out: &mut Activations) {
    activations::quantize(Avx2::here(), x, n_rows, k, scheme, out);
    act_tiles::fill(out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    match weight.block_type {
        BlockType::Q4_0 => small_tiles::matmul::<small_records::Q4_0>(weight, x, y),
        BlockType::Q4_1 => small_tiles::matmul::<small_records::Q4_1>(weight, x, y),
        BlockType::Q5_0 => small_tiles::matmul::<small_records::Q5_0>(weight, x, y),
        BlockType::Q5_1 => small_tiles::matmul::<small_records::Q5_1>(weight, x, y),
        BlockType::Q8_0 => small_tiles::matmul::<small_records::Q8_0>(weight, x, y),
        BlockType::Iq4Nl => small_tiles::matmul::<small_records::Iq4Nl>(weight, x, y),
        BlockType::Q4K => super_tiles::matmul::<super_records::Q4K>(weight, x, y),
        BlockType::Q5K => super_tiles::matmul::<super_records::Q5K>(weight, x, y),
        BlockType::Q6K => super_tiles::matmul::<super_records::Q6K>(weight, x, y),
        _ => matmul::matmul(Avx2::here(), weight, x, y, false),
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
    let cpu = Avx2::here();
    let (weights, acts) = (cpu.splat_u8(3), cpu.splat_u8(5));
    let mut sums = [cpu.zero(); 8];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = observed(cpu.add_i16(*sum, cpu.mul_bytes(observed(weights), acts)));
        }
    }
    32 * 8 * rounds
}
