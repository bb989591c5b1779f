//! How sixteen bytes of weights meet four activations: with dot products, or with what every NEON has.
//!
//! Both are signed: weights of less than 128 may be called unsigned.
//!
//! Invariant: sums are exact, for all signed bytes against activations in -127..=127.
//! Not here: registers of more than one (`registers`).

use std::arch::aarch64::*;
use std::arch::asm;

use crate::kernels::tiles::tile_entries;

use super::registers::{Bytes, Registers, Words, quarter};
use super::vector::Neon;

/// A way to multiply bytes. A value proves that the CPU has what it uses.
pub(super) trait Products: Copy {
    /// Adds to each lane of `sums` the products of its four weights with activations `at`, as `Wide` has them.
    fn add<const COUNT: usize>(
        self,
        sums: Words<COUNT>,
        weights: Bytes<COUNT>,
        acts: &[[i8; 4]],
        at: usize,
    ) -> Words<COUNT>;
}

/// With the dotprod extension: one instruction, which also picks the lane.
#[derive(Clone, Copy)]
pub(super) struct Dots(());

impl<const FIRST: usize, const COUNT: usize> Registers<Dots, FIRST, COUNT> {
    /// The proof, for code that was itself compiled for these features.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn here() -> Self {
        Registers { neon: Neon::here(), products: Dots(()) }
    }
}

tile_entries!(
    Registers<Dots, 0, 4>,
    "neon,dotprod",
    Registers<Dots, 0, 2>,
    Registers<Dots, 2, 2>
);

impl Products for Dots {
    #[inline(always)]
    fn add<const COUNT: usize>(
        self,
        sums: Words<COUNT>,
        weights: Bytes<COUNT>,
        acts: &[[i8; 4]],
        at: usize,
    ) -> Words<COUNT> {
        // Read by fours, although one is wanted: the others come in the same register and are wanted next.
        let acts = quarter::<_, 4>(acts, at / 4).as_flattened();
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        let acts = unsafe { vld1q_s8(acts.as_ptr()) };
        match at % 4 {
            0 => self.add_lane::<0, COUNT>(sums, weights, acts),
            1 => self.add_lane::<1, COUNT>(sums, weights, acts),
            2 => self.add_lane::<2, COUNT>(sums, weights, acts),
            _ => self.add_lane::<3, COUNT>(sums, weights, acts),
        }
    }
}

impl Dots {
    #[inline(always)]
    fn add_lane<const LANE: i32, const COUNT: usize>(
        self,
        mut sums: Words<COUNT>,
        weights: Bytes<COUNT>,
        acts: int8x16_t,
    ) -> Words<COUNT> {
        // SAFETY: `self` proves the features. No loop: compilers do not unroll one around a function for other features,
        // which they inline only later.
        unsafe {
            sums[0] = dot::<LANE>(sums[0], weights[0], acts);
            sums[1] = dot::<LANE>(sums[1], weights[1], acts);
            if COUNT == 4 {
                sums[2] = dot::<LANE>(sums[2], weights[2], acts);
                sums[3] = dot::<LANE>(sums[3], weights[3], acts);
            }
        }
        sums
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot<const LANE: i32>(mut sums: int32x4_t, weights: uint8x16_t, acts: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction on registers, of an extension this function is compiled for.
    unsafe {
        asm!(
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{lane}]",
            inlateout(vreg) sums,
            in(vreg) weights,
            in(vreg) acts,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// With NEON alone: products as shorts, neighbours added as shorts, and these in pairs to the words.
#[derive(Clone, Copy)]
pub(super) struct Multiplies(());

impl<const FIRST: usize, const COUNT: usize> Registers<Multiplies, FIRST, COUNT> {
    /// The proof, for code that was itself compiled for this feature.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn here() -> Self {
        Registers { neon: Neon::here(), products: Multiplies(()) }
    }
}

tile_entries!(
    Registers<Multiplies, 0, 4>,
    "neon",
    Registers<Multiplies, 0, 2>,
    Registers<Multiplies, 2, 2>
);

impl Products for Multiplies {
    #[inline(always)]
    fn add<const COUNT: usize>(
        self,
        mut sums: Words<COUNT>,
        weights: Bytes<COUNT>,
        acts: &[[i8; 4]],
        at: usize,
    ) -> Words<COUNT> {
        // SAFETY: `self` proves the feature.
        unsafe {
            let word = i32::from_le_bytes(acts[at].map(|act| act as u8));
            let acts = vreinterpretq_s8_s32(vdupq_n_s32(word));
            for i in 0..COUNT {
                let weights = vreinterpretq_s8_u8(weights[i]);
                let low = vmull_s8(vget_low_s8(weights), vget_low_s8(acts));
                let high = vmull_high_s8(weights, acts);
                // At most 2 * 128 * 127 = 32512.
                sums[i] = in_order(vpadalq_s16(sums[i], vpaddq_s16(low, high)));
            }
        }
        sums
    }
}

/// `sums`, hidden from the optimizer, which would otherwise regroup long sums, keep every weight of a sub-block live at
/// once, and spill most of them.
#[inline]
#[target_feature(enable = "neon")]
fn in_order(mut sums: int32x4_t) -> int32x4_t {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0:v} */", inout(vreg) sums, options(pure, nomem, nostack, preserves_flags)) };
    sums
}
