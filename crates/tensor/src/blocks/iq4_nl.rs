//! IQ4_NL: 32 indices of 4 bits into sixteen fixed, uneven levels.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | index: low half of byte `i` is number `i`, high half is number `i + 16` |
//!
//! `x = LEVELS[index] * d`
//!
//! Invariant: quants are one of [`LEVELS`].
//! Not here: the super-block variant IQ4_XS, which is not supported.

use super::{SMALL, SmallBlock, half_at, round};

pub(crate) const BYTES: usize = 18;

/// GGML's levels (`kvalues_iq4nl`), denser around zero, where most weights are.
pub(crate) const LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SmallBlock {
    let mut quants = [0; SMALL];
    for i in 0..16 {
        quants[i] = LEVELS[usize::from(block[2 + i] & 15)];
        quants[i + 16] = LEVELS[usize::from(block[2 + i] >> 4)];
    }
    SmallBlock { quants, scale: half_at(block, 0), min: None }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    // The extreme lands on -127, the longer end of the levels.
    let d = round::push_half(round::extreme(numbers) / -127.0, out);
    let nearest = |x: f32| {
        let target = if d == 0.0 { 0.0 } else { x / d };
        let distance = |index: &u8| (f32::from(LEVELS[usize::from(*index)]) - target).abs();
        (0..16u8).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(8)
    };
    out.extend_from_slice(&round::nibbles(|i| nearest(numbers[i])));
}
