//! Q4_K: 256 numbers of 4 bits; a 6-bit scale and a 6-bit minimum per 32.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | `s`: for `j < 4`, scale `j` is `s[j] & 63` and min `j` is `s[j + 4] & 63`; for `j >= 4`, scale `j` is `s[j + 4] & 15` with `s[j - 4] >> 6` above, min `j` is `s[j + 4] >> 4` with `s[j] >> 6` above |
//! | 16..144 | `q`: number `64c + i` is the low half of byte `32c + i`, number `64c + 32 + i` the high half |
//!
//! `x = q * (d * scale) - dmin * min`
//!
//! Invariant: quants are in 0..=15, scales and minimums in 0..=63.
//! Not here: the tile layout (`kernels::x86`).

use super::{SUPER, SuperBlock, half_at, round};

pub(crate) const BYTES: usize = 144;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES]) -> SuperBlock {
    let mut quants = [0; SUPER];
    for chunk in 0..4 {
        for i in 0..32 {
            let byte = block[16 + chunk * 32 + i];
            quants[chunk * 64 + i] = (byte & 15) as i8;
            quants[chunk * 64 + 32 + i] = (byte >> 4) as i8;
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
    let quants = encode_scales(numbers, 15, out);
    for chunk in quants.chunks_exact(64) {
        out.extend((0..32).map(|i| chunk[i] | chunk[i + 32] << 4));
    }
}

/// The eight scales and eight minimums of bytes 4..16 of a Q4_K or Q5_K block.
#[inline(always)]
pub(crate) fn six_bits(block: &[u8]) -> ([u8; 8], [u8; 8]) {
    let s = &block[4..16];
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = s[j] & 63;
        mins[j] = s[j + 4] & 63;
        scales[j + 4] = s[j + 8] & 15 | s[j] >> 6 << 4;
        mins[j + 4] = s[j + 8] >> 4 | s[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// Appends `d`, `dmin` and the packed scales of a Q4_K or Q5_K block; returns the quants in `0..=levels`.
pub(super) fn encode_scales(numbers: &[f32], levels: i32, out: &mut Vec<u8>) -> [u8; SUPER] {
    let spans: [(f32, f32); 8] =
        std::array::from_fn(|j| round::span_with_zero(&numbers[j * 32..j * 32 + 32]));
    let step = |(low, high): (f32, f32)| high / levels as f32 - low / levels as f32;
    let d = round::push_half(spans.iter().fold(0f32, |widest, &span| widest.max(step(span))) / 63.0, out);
    let dmin = round::push_half(spans.iter().fold(0f32, |deepest, (low, _)| deepest.max(-low)) / 63.0, out);
    let scales: [u8; 8] = std::array::from_fn(|j| round::steps(step(spans[j]), d, 0, 63) as u8);
    let mins: [u8; 8] = std::array::from_fn(|j| round::steps(-spans[j].0, dmin, 0, 63) as u8);
    out.extend((0..4).map(|j| scales[j] | scales[j + 4] >> 4 << 6));
    out.extend((0..4).map(|j| mins[j] | mins[j + 4] >> 4 << 6));
    out.extend((0..4).map(|j| scales[j + 4] & 15 | mins[j + 4] << 4));
    std::array::from_fn(|i| {
        let (scale, min) = (d * f32::from(scales[i / 32]), dmin * f32::from(mins[i / 32]));
        round::steps(numbers[i] + min, scale, 0, levels) as u8
    })
}
