//! Q3_K: 256 numbers of 3 bits around zero; a signed 6-bit scale per 16.
//!
//! | bytes | content |
//! |---|---|
//! | 0..32 | third bits: number `32b + i` is bit `b` of byte `i` |
//! | 32..96 | low bits: number `128n + 32s + i` is bits `2s..2s+2` of byte `32n + i` |
//! | 96..108 | scales + 32, 6 bits: low four of `j < 8` in the low half of byte `j`, of `j >= 8` in the high half of byte `j - 8`; high two in byte `8 + j % 4` at bits `2 (j / 4)` |
//! | 108..110 | `d`, f16 |
//!
//! `x = (q - 4) * (d * scale)`
//!
//! Invariant: quants are in -4..=3, scales in -32..=31.
//! Not here: the arithmetic of a matmul.

use super::{SUPER, SuperBlock, half_at, round};

pub(crate) const BYTES: usize = 110;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SuperBlock {
    let mut quants = [0; SUPER];
    for slice in 0..8 {
        for i in 0..32 {
            let low = block[32 + slice / 4 * 32 + i] >> (2 * (slice % 4)) & 3;
            let high = (block[i] >> slice & 1) << 2;
            quants[slice * 32 + i] = (low | high) as i8 - 4;
        }
    }
    let packed = &block[96..108];
    let scales = std::array::from_fn(|j| {
        let low = if j < 8 { packed[j] & 15 } else { packed[j - 8] >> 4 };
        let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
        (low | high << 4) as i8 - 32
    });
    SuperBlock { quants, scales, mins: [0; 16], scale: half_at(block, 108), min_scale: None }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    // A sub-block's extreme lands on -4; the largest scale lands on -32, the longer ends of both ranges.
    let wanted: [f32; 16] = std::array::from_fn(|j| round::extreme(&numbers[j * 16..j * 16 + 16]) / -4.0);
    let mut tail = Vec::with_capacity(2);
    let d = round::push_half(round::extreme(&wanted) / -32.0, &mut tail);
    let scales: [i32; 16] = std::array::from_fn(|j| round::steps(wanted[j], d, -32, 31));
    let quants: [u8; SUPER] =
        std::array::from_fn(|i| (round::steps(numbers[i], d * scales[i / 16] as f32, -4, 3) + 4) as u8);
    out.extend((0..32).map(|i| (0..8).fold(0, |byte, s| byte | (quants[s * 32 + i] >> 2) << s)));
    for half in 0..2 {
        out.extend(
            (0..32)
                .map(|i| (0..4).fold(0, |byte, s| byte | (quants[half * 128 + s * 32 + i] & 3) << (2 * s))),
        );
    }
    let stored = scales.map(|scale| (scale + 32) as u8);
    out.extend((0..8).map(|j| (stored[j] & 15) | (stored[j + 8] & 15) << 4));
    out.extend((0..4).map(|j| (0..4).fold(0, |byte, s| byte | (stored[j + 4 * s] >> 4) << (2 * s))));
    out.extend_from_slice(&tail);
}
