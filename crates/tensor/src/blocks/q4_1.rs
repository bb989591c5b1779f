//! Q4_1: 32 numbers of 4 bits above a minimum.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..20 | `q`: low half of byte `i` is number `i`, high half is number `i + 16` |
//!
//! `x = q * d + m`
//!
//! Invariant: quants are in 0..=15.
//! Not here: the tile layout (`kernels::x86`).

use super::{SMALL, SmallBlock, half_at, round};

pub(crate) const BYTES: usize = 20;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SmallBlock {
    let mut quants = [0; SMALL];
    for i in 0..16 {
        quants[i] = (block[4 + i] & 15) as i8;
        quants[i + 16] = (block[4 + i] >> 4) as i8;
    }
    SmallBlock { quants, scale: half_at(block, 0), min: Some(half_at(block, 2)) }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    let low = numbers.iter().copied().fold(f32::INFINITY, f32::min);
    let high = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = round::push_half(high / 15.0 - low / 15.0, out);
    let m = round::push_half(low, out);
    out.extend_from_slice(&round::nibbles(|i| round::steps(numbers[i] - m, d, 0, 15) as u8));
}
