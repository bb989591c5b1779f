//! Q4_0: 32 numbers of 4 bits around zero.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | `q`: low half of byte `i` is number `i`, high half is number `i + 16` |
//!
//! `x = (q - 8) * d`
//!
//! Invariant: quants are in -8..=7.
//! Not here: the tile layout (`kernels::x86`).

use super::{SMALL, SmallBlock, half_at, round};

pub(crate) const BYTES: usize = 18;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SmallBlock {
    let mut quants = [0; SMALL];
    for i in 0..16 {
        quants[i] = (block[2 + i] & 15) as i8 - 8;
        quants[i + 16] = (block[2 + i] >> 4) as i8 - 8;
    }
    SmallBlock { quants, scale: half_at(block, 0), min: None }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    // The extreme lands on -8, the longer end of the range.
    let d = round::push_half(round::extreme(numbers) / -8.0, out);
    out.extend_from_slice(&round::nibbles(|i| (round::steps(numbers[i], d, -8, 7) + 8) as u8));
}
