//! Q5_1: 32 numbers of 5 bits above a minimum.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..8 | `h`, u32: bit `i` is the fifth bit of number `i` |
//! | 8..24 | low four bits: low half of byte `i` is number `i`, high half is number `i + 16` |
//!
//! `x = q * d + m`
//!
//! Invariant: quants are in 0..=31.
//! Not here: joining the bits (`q5_0`).

use super::q5_0::{five_bits, push_five_bits};
use super::{SmallBlock, half_at, round};

pub(crate) const BYTES: usize = 24;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SmallBlock {
    let quants = five_bits(&block[8..24], [block[4], block[5], block[6], block[7]]);
    SmallBlock { quants, scale: half_at(block, 0), min: Some(half_at(block, 2)) }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    let low = numbers.iter().copied().fold(f32::INFINITY, f32::min);
    let high = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = round::push_half(high / 31.0 - low / 31.0, out);
    let m = round::push_half(low, out);
    push_five_bits(std::array::from_fn(|i| round::steps(numbers[i] - m, d, 0, 31) as u8), out);
}
