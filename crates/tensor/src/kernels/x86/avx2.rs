//! The AVX2, FMA and F16C table: the shared loops compiled for these features.
//!
//! Invariant: same bits as the portable table.
//! Not here: the loops over tiles (`tiles`).

use std::arch::x86_64::*;

use super::super::activations::{self, ActScheme, Activations};
use super::super::attention::{self, Attend, AttendScratch, KvRows};
use super::super::matmul::{self, Order};
use super::super::matrix::{Layout, Matrix};
use super::super::{ColumnBlock, Kernels, RopeStyle, rows};
use crate::block::BlockType;
use crate::float16::{f16_to_f32, f32_to_f16};

pub(super) static TABLE: Kernels = Kernels {
    name: "x86-avx2",
    layout: |_| Layout::Rows,
    pack_tiles,
    quantize,
    matmul: matmul_rows,
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
    attend,
};

fn pack_tiles(block_type: BlockType, _: usize, _: &[u8], _: &mut [u8]) {
    unreachable!("the portable table keeps {} in rows", block_type.name());
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantize(x: &[f32], n_rows: usize, k: usize, scheme: ActScheme, out: &mut Activations) {
    activations::quantize(x, n_rows, k, scheme, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn matmul_rows(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    matmul::matmul(weight, x, y, Order::Ascending);
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
fn attend(q: &[f32], kv: &KvRows<'_>, spec: &Attend, scratch: &mut AttendScratch, out: &mut [f32]) {
    attention::attend(q, kv, spec, scratch, out, |halves, floats| widen(halves, floats));
}

/// Converts halves to floats, exactly.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen(halves: &[u16], floats: &mut [f32]) {
    let (halves, half_tail) = halves.as_chunks::<8>();
    let (floats, tail) = floats.as_chunks_mut::<8>();
    for (halves, floats) in halves.iter().zip(floats) {
        // SAFETY: both are 8 numbers; load and store are unaligned.
        unsafe {
            let wide = _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast()));
            _mm256_storeu_ps(floats.as_mut_ptr(), wide);
        }
    }
    for (float, &half) in tail.iter_mut().zip(half_tail) {
        *float = f16_to_f32(half);
    }
}
