//! F32, F16, BF16: little-endian floats, one a block.
//!
//! Invariant: decoding is exact; encoding rounds to nearest, ties to even.
//! Not here: quantized blocks.

use super::half_at;
use crate::block::BlockType;
use crate::float16::{bf16_to_f32, f32_to_bf16, f32_to_f16};

/// Number `at` of a row of plain floats.
#[inline(always)]
pub(crate) fn number(block_type: BlockType, bytes: &[u8], at: usize) -> f32 {
    match block_type {
        BlockType::F32 => {
            f32::from_le_bytes([bytes[at * 4], bytes[at * 4 + 1], bytes[at * 4 + 2], bytes[at * 4 + 3]])
        }
        BlockType::F16 => half_at(bytes, at * 2),
        _ => bf16_to_f32(u16::from_le_bytes([bytes[at * 2], bytes[at * 2 + 1]])),
    }
}

#[inline(always)]
pub(crate) fn decode(block_type: BlockType, bytes: &[u8], out: &mut [f32]) {
    for (at, value) in out.iter_mut().enumerate() {
        *value = number(block_type, bytes, at);
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
