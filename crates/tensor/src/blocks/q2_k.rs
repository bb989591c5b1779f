//! Q2_K: 256 numbers of 2 bits; a 4-bit scale and a 4-bit minimum per 16.
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | byte `j`: low half is the scale, high half the minimum of numbers `16j..16j+16` |
//! | 16..80 | `q`: number `128n + 32s + i` is bits `2s..2s+2` of byte `32n + i` |
//! | 80..82 | `d`, f16 |
//! | 82..84 | `dmin`, f16 |
//!
//! `x = q * (d * scale) - dmin * min`
//!
//! Invariant: quants are in 0..=3.
//! Not here: the arithmetic of a matmul.

use super::{SUPER, SuperBlock, half_at, round};

pub(crate) const BYTES: usize = 84;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SuperBlock {
    let mut quants = [0; SUPER];
    for half in 0..2 {
        for slice in 0..4 {
            for i in 0..32 {
                quants[half * 128 + slice * 32 + i] = (block[16 + half * 32 + i] >> (2 * slice) & 3) as i8;
            }
        }
    }
    SuperBlock {
        quants,
        scales: std::array::from_fn(|j| (block[j] & 15) as i8),
        mins: std::array::from_fn(|j| block[j] >> 4),
        scale: half_at(block, 80),
        min_scale: Some(half_at(block, 82)),
    }
}

pub(crate) fn encode(numbers: &[f32], out: &mut Vec<u8>) {
    let spans: [(f32, f32); 16] =
        std::array::from_fn(|j| round::span_with_zero(&numbers[j * 16..j * 16 + 16]));
    let mut tail = Vec::with_capacity(4);
    let widest = spans.iter().fold(0f32, |widest, (low, high)| widest.max(high / 3.0 - low / 3.0));
    let d = round::push_half(widest / 15.0, &mut tail);
    let dmin =
        round::push_half(spans.iter().fold(0f32, |deepest, (low, _)| deepest.max(-low)) / 15.0, &mut tail);
    let mut quants = [0u8; SUPER];
    for (j, &(low, high)) in spans.iter().enumerate() {
        let scale = round::steps(high / 3.0 - low / 3.0, d, 0, 15);
        let min = round::steps(-low, dmin, 0, 15);
        out.push((scale | min << 4) as u8);
        for i in j * 16..j * 16 + 16 {
            quants[i] = round::steps(numbers[i] + dmin * min as f32, d * scale as f32, 0, 3) as u8;
        }
    }
    for half in 0..2 {
        out.extend(
            (0..32).map(|i| (0..4).fold(0, |byte, s| byte | quants[half * 128 + s * 32 + i] << (2 * s))),
        );
    }
    out.extend_from_slice(&tail);
}
