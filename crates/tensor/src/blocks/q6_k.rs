//! Q6_K: 256 numbers of 6 bits around zero; a signed 8-bit scale per 16.
//!
//! | bytes | content |
//! |---|---|
//! | 0..128 | low four bits: number `128n + i` is the low half of byte `64n + i`, number `128n + 64 + i` the high half (`i < 64`) |
//! | 128..192 | high two bits: number `128n + 32s + i` is bits `2s..2s+2` of byte `128 + 32n + i` |
//! | 192..208 | scales, i8 |
//! | 208..210 | `d`, f16 |
//!
//! `x = (q - 32) * (d * scale)`
//!
//! Invariant: quants are in -32..=31.
//! Not here: the tile layout (`kernels::x86`).

use super::{SUPER, SuperBlock, half_at, round};

pub(crate) const BYTES: usize = 210;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SuperBlock {
    let mut quants = [0; SUPER];
    for half in 0..2 {
        for slice in 0..4 {
            for i in 0..32 {
                let nibbles = block[half * 64 + slice % 2 * 32 + i];
                let low = if slice < 2 { nibbles & 15 } else { nibbles >> 4 };
                let high = block[128 + half * 32 + i] >> (2 * slice) & 3;
                quants[half * 128 + slice * 32 + i] = (low | high << 4) as i8 - 32;
            }
        }
    }
    SuperBlock {
        quants,
        scales: std::array::from_fn(|j| block[192 + j] as i8),
        mins: [0; 16],
        scale: half_at(block, 208),
        min_scale: None,
    }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    // A sub-block's extreme lands on -32, the largest scale on -128: the longer ends of both ranges.
    let wanted: [f32; 16] = std::array::from_fn(|j| round::extreme(&numbers[j * 16..j * 16 + 16]) / -32.0);
    let mut tail = Vec::with_capacity(2);
    let d = round::push_half(round::extreme(&wanted) / -128.0, &mut tail);
    let scales: [i32; 16] = std::array::from_fn(|j| round::steps(wanted[j], d, -128, 127));
    let quants: [u8; SUPER] =
        std::array::from_fn(|i| (round::steps(numbers[i], d * scales[i / 16] as f32, -32, 31) + 32) as u8);
    for half in quants.chunks_exact(128) {
        out.extend((0..64).map(|i| half[i] & 15 | (half[i + 64] & 15) << 4));
    }
    for half in quants.chunks_exact(128) {
        out.extend((0..32).map(|i| (0..4).fold(0, |byte, s| byte | (half[s * 32 + i] >> 4) << (2 * s))));
    }
    out.extend(scales.map(|scale| scale as i8 as u8));
    out.extend_from_slice(&tail);
}
