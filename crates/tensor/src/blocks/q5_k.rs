//! Q5_K: 256 numbers of 5 bits; a 6-bit scale and a 6-bit minimum per 32.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | `d`, `dmin`, scales and minimums as in Q4_K |
//! | 16..48 | fifth bits: number `32b + i` is bit `b` of byte `i` |
//! | 48..176 | low four bits: number `64c + i` is the low half of byte `32c + i`, number `64c + 32 + i` the high half |
//!
//! `x = q * (d * scale) - dmin * min`
//!
//! Invariant: quants are in 0..=31, scales and minimums in 0..=63.
//! Not here: unpacking the scales (`q4_k`).

use super::q4_k::{encode_scales, six_bits};
use super::{SUPER, SuperBlock, half_at};

pub(crate) const BYTES: usize = 176;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SuperBlock {
    let mut quants = [0; SUPER];
    for chunk in 0..4 {
        for i in 0..32 {
            let (low, high) = (block[48 + chunk * 32 + i], block[16 + i]);
            quants[chunk * 64 + i] = (low & 15 | (high >> (2 * chunk) & 1) << 4) as i8;
            quants[chunk * 64 + 32 + i] = (low >> 4 | (high >> (2 * chunk + 1) & 1) << 4) as i8;
        }
    }
    let (scales, mins) = six_bits(block);
    SuperBlock {
        quants,
        scales: std::array::from_fn(|j| scales[j / 2] as i8),
        mins: std::array::from_fn(|j| mins[j / 2]),
        scale: half_at(block, 0),
        min_scale: Some(half_at(block, 2)),
    }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    let quants = encode_scales(numbers, 31, out);
    out.extend((0..32).map(|i| (0..8).fold(0, |byte, b| byte | (quants[b * 32 + i] >> 4) << b)));
    for chunk in quants.chunks_exact(64) {
        out.extend((0..32).map(|i| chunk[i] & 15 | (chunk[i + 32] & 15) << 4));
    }
}
