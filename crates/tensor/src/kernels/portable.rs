//! The table that runs anywhere, and defines what every other table must compute.
//!
//! It is the shared loops compiled for the plain target: file blocks row after row, no tiles.
//!
//! Invariant: safe code throughout; slow where the target has no fused multiply-add instruction.
//! Not here: the loops themselves (`matmul`, `rows`, `attention`, `act_parts`).

use super::activations::Activations;
use super::attention;
use super::cached;
use super::lanes::Plain;
use super::matmul;
use super::matrix::{Layout, Matrix};
use super::{ColumnBlock, Kernels, probe, rows};
use crate::block::BlockType;
use crate::float16::f32_to_f16;

pub(super) static TABLE: Kernels = Kernels {
    name: "portable",
    layout: |_| Layout::Rows,
    pack_tiles: no_tiles,
    quantize_row: |part, row, x| part.put(Plain, row, x),
    matmul,
    rms_norm: |x, weight, eps, out| rows::rms_norm(x, weight, eps, out),
    rms_norm_in_place: |x, weight, eps| rows::rms_norm_in_place(x, weight, eps),
    silu_mul: |gate, up, out| rows::silu_mul(gate, up, out),
    gelu_tanh_mul: |gate, up, out| rows::gelu_tanh_mul(gate, up, out),
    add: |a, b, out| rows::add(a, b, out),
    add_to: |x, b| rows::add_to(x, b),
    scale: |x, factor| rows::scale(x, factor),
    softcap: |x, cap| rows::softcap(x, cap),
    argmax: |x| rows::argmax(x),
    all_finite: |x| rows::all_finite(x),
    rope: |x, head_dim, rot_dim, cos_sin, style| rows::rope(x, head_dim, rot_dim, cos_sin, style),
    to_halves,
    to_quants: |x, head_dim, quants, scales| cached::to_quants(Plain, x, head_dim, quants, scales),
    attend: |q, rows, kv, scratch, out| attention::attend(Plain, q, rows, kv, scratch, out),
    probe_read: probe::read,
    probe_multiply: probe::multiply,
};

/// See [`Kernels::broken_numerics`].
#[cfg(feature = "broken-numerics")]
pub(super) static BROKEN: Kernels =
    Kernels { name: "broken", matmul: |w, x, y| matmul::matmul(Plain, w, x, y, x.rows > 1), ..TABLE };

fn no_tiles(block_type: BlockType, _: usize, _: &[u8], _: &mut [u8]) {
    unreachable!("the portable table keeps {} in rows", block_type.name());
}

fn matmul(weight: &Matrix, x: &Activations, y: &mut ColumnBlock<'_>) {
    matmul::matmul(Plain, weight, x, y, false);
}

fn to_halves(x: &[f32], out: &mut [u16]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f32_to_f16(x);
    }
}
