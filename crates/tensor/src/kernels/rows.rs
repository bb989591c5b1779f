//! The loops over one row: norms, activations, sums, rotary embedding, argmax.
//!
//! Written once, in eight lanes and with explicit fused multiply-adds, and compiled once for each table, so the
//! tables cannot differ. None of these knows of any other row.
//!
//! Invariant: a row's bits depend on that row and its parameters alone.
//! Not here: matmul and attention.

use super::lanes::sum8_f64;
use crate::math::{exp, tanh};

/// Which numbers of a head a rotation pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Number `i` with number `i + rot_dim / 2`.
    Neox,
    /// Number `2i` with number `2i + 1`.
    Interleaved,
}

/// `1 / sqrt(mean(x^2) + eps)`. In double precision, so that no finite row overflows.
#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mut lanes = [0f64; 8];
    let (chunks, tail) = x.as_chunks::<8>();
    for chunk in chunks {
        for l in 0..8 {
            lanes[l] += f64::from(chunk[l]) * f64::from(chunk[l]);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(tail) {
        *lane += f64::from(x) * f64::from(x);
    }
    let mean = sum8_f64(lanes) / x.len() as f64;
    (1.0 / (mean + f64::from(eps)).sqrt()) as f32
}

#[inline(always)]
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let inverse = inverse_rms(x, eps);
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = x * inverse * w;
    }
}

#[inline(always)]
pub(super) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let inverse = inverse_rms(x, eps);
    for (x, &w) in x.iter_mut().zip(weight) {
        *x = *x * inverse * w;
    }
}

#[inline(always)]
pub(super) fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &g), &u) in out.iter_mut().zip(gate).zip(up) {
        *out = g / (1.0 + exp(-g)) * u;
    }
}

#[inline(always)]
pub(super) fn gelu_tanh_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    for ((out, &g), &u) in out.iter_mut().zip(gate).zip(up) {
        let inner = SQRT_2_OVER_PI * (0.044_715 * g * g).mul_add(g, g);
        *out = 0.5 * g * (1.0 + tanh(inner)) * u;
    }
}

#[inline(always)]
pub(super) fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

#[inline(always)]
pub(super) fn add_to(x: &mut [f32], b: &[f32]) {
    for (x, &b) in x.iter_mut().zip(b) {
        *x += b;
    }
}

#[inline(always)]
pub(super) fn scale(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

#[inline(always)]
pub(super) fn softcap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * tanh(*x / cap);
    }
}

#[inline(always)]
pub(super) fn argmax(x: &[f32]) -> usize {
    let mut tops = [f32::NEG_INFINITY; 8];
    let (chunks, tail) = x.as_chunks::<8>();
    for chunk in chunks {
        for l in 0..8 {
            tops[l] = if chunk[l] > tops[l] { chunk[l] } else { tops[l] };
        }
    }
    let top = tops.iter().chain(tail).fold(f32::NEG_INFINITY, |top, &x| if x > top { x } else { top });
    x.iter().position(|&x| x == top).unwrap_or(0)
}

#[inline(always)]
pub(super) fn all_finite(x: &[f32]) -> bool {
    x.iter().fold(0, |top: u32, x| top.max(x.to_bits() & 0x7fff_ffff)) < 0x7f80_0000
}

#[inline(always)]
pub(super) fn rope(x: &mut [f32], head_dim: usize, rot_dim: usize, cos_sin: &[f32], style: RopeStyle) {
    let (cos, sin) = cos_sin.split_at(rot_dim / 2);
    for head in x.chunks_exact_mut(head_dim) {
        match style {
            RopeStyle::Neox => {
                let (first, second) = head[..rot_dim].split_at_mut(rot_dim / 2);
                for (((a, b), &c), &s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = rotate(*a, *b, c, s);
                }
            }
            RopeStyle::Interleaved => {
                for (([a, b], &c), &s) in head[..rot_dim].as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin)
                {
                    (*a, *b) = rotate(*a, *b, c, s);
                }
            }
        }
    }
}

#[inline(always)]
fn rotate(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a.mul_add(cos, -(b * sin)), a.mul_add(sin, b * cos))
}
