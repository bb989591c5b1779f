//! Q5_0: 32 numbers of 5 bits around zero.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..6 | `h`, u32: bit `i` is the fifth bit of number `i` |
//! | 6..22 | low four bits: low half of byte `i` is number `i`, high half is number `i + 16` |
//!
//! `x = (q - 16) * d`
//!
//! Invariant: quants are in -16..=15.
//! Not here: the tile layout (`kernels::x86`).

use super::{SMALL, SmallBlock, half_at, round};

pub(crate) const BYTES: usize = 22;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SmallBlock {
    let mut quants = five_bits(&block[6..22], [block[2], block[3], block[4], block[5]]);
    for quant in &mut quants {
        *quant -= 16;
    }
    SmallBlock { quants, scale: half_at(block, 0), min: None }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    let d = round::push_half(round::extreme(numbers) / -16.0, out);
    push_five_bits(std::array::from_fn(|i| (round::steps(numbers[i], d, -16, 15) + 16) as u8), out);
}

/// Joins nibbles and fifth bits to quants in 0..=31.
#[inline(always)]
pub(super) fn five_bits(nibbles: &[u8], high: [u8; 4]) -> [i8; SMALL] {
    let high = u32::from_le_bytes(high);
    let mut quants = [0; SMALL];
    for i in 0..16 {
        quants[i] = ((nibbles[i] & 15) | ((high >> i & 1) << 4) as u8) as i8;
        quants[i + 16] = ((nibbles[i] >> 4) | ((high >> (i + 16) & 1) << 4) as u8) as i8;
    }
    quants
}

/// Appends fifth bits, then nibbles.
pub(super) fn push_five_bits(quants: [u8; SMALL], out: &mut Vec<u8>) {
    let high = (0..SMALL).fold(0u32, |high, i| high | u32::from(quants[i] >> 4) << i);
    out.extend_from_slice(&high.to_le_bytes());
    out.extend_from_slice(&round::nibbles(|i| quants[i]));
}
