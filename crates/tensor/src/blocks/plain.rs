//! F32, F16, BF16: little-endian floats, one a block.
//!
//! Invariant: decoding is exact; encoding rounds to nearest, ties to even.
//! Not here: quantized blocks.

use crate::block::BlockType;
use crate::float16::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

#[inline(always)]
pub(crate) fn decode(block_type: BlockType, bytes: &[u8], out: &mut [f32]) {
    match block_type {
        BlockType::F32 => each(bytes, out, f32::from_le_bytes),
        BlockType::F16 => each(bytes, out, |half| f16_to_f32(u16::from_le_bytes(half))),
        _ => each(bytes, out, |half| bf16_to_f32(u16::from_le_bytes(half))),
    }
}

#[inline(always)]
fn each<const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    for (number, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *number = decode(*bytes);
    }
}

pub(crate) fn encode(block_type: BlockType, numbers: &[f32], out: &mut Vec<u8>) {
    for &value in numbers {
        match block_type {
            BlockType::F32 => out.extend_from_slice(&value.to_le_bytes()),
            BlockType::F16 => out.extend_from_slice(&f32_to_f16(value).to_le_bytes()),
            _ => out.extend_from_slice(&f32_to_bf16(value).to_le_bytes()),
        }
    }
}
