//! How sixteen bytes of weights meet four activations: with dot products, or with what every NEON has.
//!
//! Activations of up to four rows share a register; a lane of it is the four bytes that meet the four bytes of each lane
//! of the weights. Both are signed: weights of less than 128 may be called unsigned.
//!
//! Invariant: sums are exact, for all signed bytes against activations in -127..=127.
//! Not here: registers of more than one (`registers`).

use std::arch::aarch64::*;
use std::arch::asm;

use crate::kernels::tiles::tile_entries;

use super::registers::Registers;
use super::vector::Neon;

/// A way to multiply bytes. A value proves that the CPU has what it uses.
pub(super) trait Products: Copy {
    /// Adds to each lane of `sums` the products of its four weights and the four activations in lane `LANE` of `acts`.
    fn add<const LANE: i32>(self, sums: int32x4_t, weights: int8x16_t, acts: int8x16_t) -> int32x4_t;
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
    fn add<const LANE: i32>(self, sums: int32x4_t, weights: int8x16_t, acts: int8x16_t) -> int32x4_t {
        // SAFETY: `self` proves the feature.
        unsafe { dot::<LANE>(sums, weights, acts) }
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot<const LANE: i32>(mut sums: int32x4_t, weights: int8x16_t, acts: int8x16_t) -> int32x4_t {
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
    fn add<const LANE: i32>(self, sums: int32x4_t, weights: int8x16_t, acts: int8x16_t) -> int32x4_t {
        // SAFETY: `self` proves the feature.
        unsafe {
            let acts = vreinterpretq_s8_s32(vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(acts)));
            let low = vmull_s8(vget_low_s8(weights), vget_low_s8(acts));
            let high = vmull_high_s8(weights, acts);
            // At most 2 * 128 * 127 = 32512.
            in_order(vpadalq_s16(sums, vpaddq_s16(low, high)))
        }
    }
}

/// `sums`, hidden from the optimizer, which would otherwise regroup long sums, keep every weight of a sub-block live at
/// once, and spill most of them.
#[inline]
#[target_feature(enable = "neon")]
fn in_order(mut sums: int32x4_t) -> int32x4_t {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(vreg) sums, options(pure, nomem, nostack, preserves_flags)) };
    sums
}
