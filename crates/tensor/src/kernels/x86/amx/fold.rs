//! Multiplies the weights of a record with their scales, in two bytes each.
//!
//! So a tile product runs over all 256 numbers of a block: scaling its sums sub-block by sub-block would take longer than
//! the products.
//!
//! Q4_K, Q5_K: weights of at most 31, scales of 6 bits. The two halves of a scale are below 8, so a weight times either
//! fits an unsigned byte, and one product of words makes two of them without a carry.
//! `weight * scale = low + 8 * high`.
//!
//! Q6_K: weights of at most 63, signed scales. The product fits a signed word, cut into its bytes.
//! `weight * scale = low + 256 * high`, `high` signed.
//!
//! Invariant: sums over a block stay below 2^23 (low) and are exact in words.
//! Not here: minimums and offsets (`super_loop`).

use std::arch::x86_64::*;

use super::super::zmm::Zmm;
use crate::kernels::tiles::records::Quads;
use crate::kernels::tiles::super_records::{Expanded, SuperRecord};
use crate::kernels::tiles::walk::Ahead;
use crate::kernels::tiles::{Wide, for_groups};

/// Both bytes of 64 weights times their scales, for each column: groups of 4 numbers, as a tile register takes them.
/// Side by side, because what lies 4096 bytes apart looks the same to the store buffer.
#[repr(C, align(64))]
pub(super) struct Quarter {
    pub(super) low: [Quads; 16],
    pub(super) high: [Quads; 16],
}

/// The folded weights of a record.
pub(super) type Folded = [Quarter; 4];

impl Quarter {
    pub(super) const ZERO: Quarter = Quarter { low: [[[0; 4]; 16]; 16], high: [[[0; 4]; 16]; 16] };
}

/// What the high bytes count.
pub(super) const fn high_shift<T: SuperRecord>() -> u32 {
    if T::MINS { 3 } else { 8 }
}

/// Folds scales, expanded before, into a quarter of the weights of `record`.
#[inline(always)]
pub(super) fn fold<T: SuperRecord>(
    cpu: Zmm,
    record: &T,
    quarter: usize,
    expanded: &Expanded<__m512i, __m512i>,
    ahead: Ahead,
    out: &mut Quarter,
) {
    for half in 0..2 {
        ahead.fetch(cpu, quarter * 2 + half, size_of::<T>() / 8);
    }
    for index in 0..16 / T::GROUPS {
        let sub = quarter * (16 / T::GROUPS) + index;
        let scales = if T::MINS { halves(expanded.scales[sub]) } else { places(expanded.scales[sub]) };
        for_groups!(group, {
            if group < T::GROUPS {
                let weights = record.weights(cpu, sub, group);
                let [low, high] =
                    if T::MINS { by_halves(weights, scales) } else { by_bytes(weights, scales) };
                cpu.keep(&mut out.low[index * T::GROUPS + group], low);
                cpu.keep(&mut out.high[index * T::GROUPS + group], high);
            }
        });
    }
}

/// The low and the high three bits of scales, in both shorts of a lane.
#[inline(always)]
fn halves(scales: __m512i) -> [__m512i; 2] {
    // SAFETY: called with the proof of the features (see `fold`).
    unsafe {
        let (both, mask) = (_mm512_or_si512(scales, _mm512_slli_epi32::<16>(scales)), _mm512_set1_epi16(7));
        [_mm512_and_si512(both, mask), _mm512_and_si512(_mm512_srli_epi16::<3>(both), mask)]
    }
}

/// Weights times halves of their scales.
#[inline(always)]
fn by_halves(weights: __m512i, [low, high]: [__m512i; 2]) -> [__m512i; 2] {
    // SAFETY: called with the proof of the features (see `fold`).
    unsafe { [_mm512_mullo_epi16(weights, low), _mm512_mullo_epi16(weights, high)] }
}

/// Signed scales in the even bytes, and in the odd bytes.
#[inline(always)]
fn places(scales: __m512i) -> [__m512i; 2] {
    // SAFETY: called with the proof of the features (see `fold`).
    unsafe {
        let byte = _mm512_and_si512(scales, _mm512_set1_epi32(0xff));
        let even = _mm512_or_si512(byte, _mm512_slli_epi32::<16>(byte));
        [even, _mm512_slli_epi16::<8>(even)]
    }
}

/// The low and the high bytes of weights times scales.
#[inline(always)]
fn by_bytes(weights: __m512i, [even, odd]: [__m512i; 2]) -> [__m512i; 2] {
    // SAFETY: called with the proof of the features (see `fold`).
    unsafe {
        let (even, odd) = (_mm512_maddubs_epi16(weights, even), _mm512_maddubs_epi16(weights, odd));
        // In each byte: of the first where the mask is set, else of the second.
        const PICK: i32 = 0xca;
        let mask = _mm512_set1_epi16(0xff);
        let low = _mm512_ternarylogic_epi32::<PICK>(mask, even, _mm512_slli_epi16::<8>(odd));
        let high = _mm512_ternarylogic_epi32::<PICK>(mask, _mm512_srli_epi16::<8>(even), odd);
        [low, high]
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn folded_weights_fit_their_bytes_and_their_sums() {
        for (weight, scale) in (0..32_u16).flat_map(|weight| (0..64).map(move |scale| (weight, scale))) {
            let (low, high) = (weight * (scale & 7), weight * (scale >> 3));
            assert!(low <= 255 && high <= 255 && low + 8 * high == weight * scale);
        }
        for (weight, scale) in (0..64).flat_map(|weight| (-128..128).map(move |scale| (weight, scale))) {
            let product: i16 = weight * scale;
            let [low, high] = product.to_le_bytes();
            assert_eq!(i16::from(low) + 256 * i16::from(high as i8), product);
        }
        const { assert!(255 * 127 * 256 < 1 << 23) };
    }
}
