//! Sixteen lanes in four 128-bit registers, or some of these registers.
//!
//! The sums of four rows of activations, in words and again as parts, fill all 32 registers, and nothing is left for
//! weights. So several rows are multiplied with one half of the lanes and then with the other: the loops run twice, on
//! `Registers<_, 0, 2>` and `Registers<_, 2, 2>`. One row takes all lanes at once.
//!
//! Invariant: a value is made only in code compiled for its features; scales and pairs are those of all sixteen lanes,
//! so that they are widened once for both halves.
//! Not here: multiplying bytes (`products`), anything that loops.

use std::arch::aarch64::*;

use super::products::Products;
use super::vector::{Neon, prefetch};
use crate::kernels::lanes::Lanes;
use crate::kernels::tiles::records::{Halves, Quads};
use crate::kernels::tiles::{Sums, Wide};

/// Four bytes a lane.
pub(super) type Bytes<const COUNT: usize> = [uint8x16_t; COUNT];
/// A word a lane.
pub(super) type Words<const COUNT: usize> = [int32x4_t; COUNT];
/// A float a lane.
type Floats<const COUNT: usize> = [float32x4_t; COUNT];
/// Two shorts a lane, of all lanes: in each register the firsts of its four lanes, then the seconds.
type Pairs = [int16x8_t; 4];

/// Registers `FIRST..FIRST + COUNT` of the four, whose bytes are multiplied by `P`.
#[derive(Clone, Copy)]
pub(super) struct Registers<P, const FIRST: usize, const COUNT: usize> {
    pub(super) neon: Neon,
    pub(super) products: P,
}

/// Part `index` of the four equal parts of something.
#[inline(always)]
pub(super) fn quarter<T, const N: usize>(all: &[T], index: usize) -> &[T; N] {
    &all.as_chunks::<N>().0[index]
}

impl<P: Products, const FIRST: usize, const COUNT: usize> Registers<P, FIRST, COUNT> {
    /// The first and the second byte of each lane.
    #[inline(always)]
    fn firsts_and_seconds(self, bytes: &[u8; 32]) -> [uint8x16_t; 2] {
        // SAFETY: 32 readable bytes, unaligned load; `self` proves the feature.
        let uint8x16x2_t(firsts, seconds) = unsafe { vld2q_u8(bytes.as_ptr()) };
        [firsts, seconds]
    }
}

/// Eight lanes of firsts and of seconds, as two registers of pairs.
#[inline(always)]
fn pairs_of(_: Neon, firsts: int16x8_t, seconds: int16x8_t) -> [int16x8_t; 2] {
    // SAFETY: a `Neon` proves the feature.
    unsafe {
        [
            vcombine_s16(vget_low_s16(firsts), vget_low_s16(seconds)),
            vcombine_s16(vget_high_s16(firsts), vget_high_s16(seconds)),
        ]
    }
}

impl<P: Products, const FIRST: usize, const COUNT: usize> Wide for Registers<P, FIRST, COUNT> {
    type Bytes = Bytes<COUNT>;
    type Part = Words<COUNT>;
    type Words = Words<COUNT>;
    type Scales = Words<4>;
    type Pairs = Pairs;
    type Floats = Floats<COUNT>;

    const SHORT: bool = false;
    const MANY: bool = false;
    const LIFT: i32 = 0;

    #[inline(always)]
    fn load(self, bytes: &Quads) -> Bytes<COUNT> {
        let mut out = self.splat_byte(0);
        for i in 0..COUNT {
            let bytes = quarter::<_, 4>(bytes, FIRST + i).as_flattened();
            // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
            out[i] = unsafe { vld1q_u8(bytes.as_ptr()) };
        }
        out
    }

    #[inline(always)]
    fn keep(self, bytes: &mut Quads, value: Bytes<COUNT>) {
        let quarters = bytes.as_chunks_mut::<4>().0;
        for i in 0..COUNT {
            let bytes = quarters[FIRST + i].as_flattened_mut();
            // SAFETY: 16 writable bytes, unaligned store; `self` proves the feature.
            unsafe { vst1q_u8(bytes.as_mut_ptr(), value[i]) }
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        // Half of the lanes is enough to ask for the lines of all.
        if FIRST == 0 {
            prefetch(address);
        }
    }

    #[inline(always)]
    fn splat_byte(self, value: u8) -> Bytes<COUNT> {
        // SAFETY: `self` proves the feature.
        unsafe { [vdupq_n_u8(value); COUNT] }
    }

    #[inline(always)]
    fn and(self, mut a: Bytes<COUNT>, b: Bytes<COUNT>) -> Bytes<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            a[i] = unsafe { vandq_u8(a[i], b[i]) };
        }
        a
    }

    #[inline(always)]
    fn or(self, mut a: Bytes<COUNT>, b: Bytes<COUNT>) -> Bytes<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            a[i] = unsafe { vorrq_u8(a[i], b[i]) };
        }
        a
    }

    #[inline(always)]
    fn left<const N: i32>(self, mut a: Bytes<COUNT>) -> Bytes<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            a[i] = unsafe { vshlq_n_u8::<N>(a[i]) };
        }
        a
    }

    #[inline(always)]
    fn right<const N: i32>(self, mut a: Bytes<COUNT>) -> Bytes<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            a[i] = unsafe { vshrq_n_u8::<N>(a[i]) };
        }
        a
    }

    #[inline(always)]
    fn look_up(self, table: &[i8; 16], mut indices: Bytes<COUNT>) -> Bytes<COUNT> {
        for i in 0..COUNT {
            // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
            indices[i] = unsafe { vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(table.as_ptr())), indices[i]) };
        }
        indices
    }

    #[inline(always)]
    fn lifted(self, signed: Bytes<COUNT>) -> Bytes<COUNT> {
        signed
    }

    #[inline(always)]
    fn no_part(self) -> Words<COUNT> {
        self.splat_word(0)
    }

    #[inline(always)]
    fn add_unsigned(
        self,
        part: Words<COUNT>,
        weights: Bytes<COUNT>,
        acts: &[[i8; 4]],
        at: usize,
    ) -> Words<COUNT> {
        self.products.add(part, weights, acts, at)
    }

    #[inline(always)]
    fn add_signed(
        self,
        part: Words<COUNT>,
        lifted: Bytes<COUNT>,
        acts: &[[i8; 4]],
        at: usize,
    ) -> Words<COUNT> {
        self.products.add(part, lifted, acts, at)
    }

    #[inline(always)]
    fn in_order(self, part: Words<COUNT>) -> Words<COUNT> {
        // Products are hidden from the optimizer already.
        part
    }

    #[inline(always)]
    fn splat_word(self, value: i32) -> Words<COUNT> {
        // SAFETY: `self` proves the feature.
        unsafe { [vdupq_n_s32(value); COUNT] }
    }

    #[inline(always)]
    fn sub(self, mut a: Words<COUNT>, b: Words<COUNT>) -> Words<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            a[i] = unsafe { vsubq_s32(a[i], b[i]) };
        }
        a
    }

    #[inline(always)]
    fn left_words<const N: u32>(self, mut a: Words<COUNT>) -> Words<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            a[i] = unsafe { vshlq_s32(a[i], vdupq_n_s32(N as i32)) };
        }
        a
    }

    #[inline(always)]
    fn add_part(self, mut words: Words<COUNT>, part: Words<COUNT>) -> Words<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            words[i] = unsafe { vaddq_s32(words[i], part[i]) };
        }
        words
    }

    #[inline(always)]
    fn add_scaled(self, mut words: Words<COUNT>, part: Words<COUNT>, scales: Words<4>) -> Words<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            words[i] = unsafe { vmlaq_s32(words[i], part[i], scales[FIRST + i]) };
        }
        words
    }

    #[inline(always)]
    fn add_pairs(self, mut words: Words<COUNT>, pairs: Pairs, [first, second]: [i16; 2]) -> Words<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            unsafe {
                words[i] = vmlal_n_s16(words[i], vget_low_s16(pairs[FIRST + i]), first);
                words[i] = vmlal_high_n_s16(words[i], pairs[FIRST + i], second);
            }
        }
        words
    }

    #[inline(always)]
    fn scales(self, bytes: &[u8; 16]) -> Words<4> {
        // SAFETY: 16 readable bytes, unaligned load; `self` proves the feature.
        unsafe {
            let bytes = vld1q_u8(bytes.as_ptr());
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
            [
                vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
                vreinterpretq_s32_u32(vmovl_high_u16(low)),
                vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
                vreinterpretq_s32_u32(vmovl_high_u16(high)),
            ]
        }
    }

    #[inline(always)]
    fn pairs_unsigned(self, bytes: &[u8; 32]) -> Pairs {
        let [firsts, seconds] = self.firsts_and_seconds(bytes);
        // SAFETY: `self` proves the feature.
        let (low, high) = unsafe {
            let firsts = [vmovl_u8(vget_low_u8(firsts)), vmovl_high_u8(firsts)];
            let seconds = [vmovl_u8(vget_low_u8(seconds)), vmovl_high_u8(seconds)];
            (
                [vreinterpretq_s16_u16(firsts[0]), vreinterpretq_s16_u16(seconds[0])],
                [vreinterpretq_s16_u16(firsts[1]), vreinterpretq_s16_u16(seconds[1])],
            )
        };
        let [a, b] = pairs_of(self.neon, low[0], low[1]);
        let [c, d] = pairs_of(self.neon, high[0], high[1]);
        [a, b, c, d]
    }

    #[inline(always)]
    fn pairs_signed(self, bytes: &[u8; 32]) -> Pairs {
        let [firsts, seconds] = self.firsts_and_seconds(bytes);
        // SAFETY: `self` proves the feature.
        let (low, high) = unsafe {
            let (firsts, seconds) = (vreinterpretq_s8_u8(firsts), vreinterpretq_s8_u8(seconds));
            (
                [vmovl_s8(vget_low_s8(firsts)), vmovl_s8(vget_low_s8(seconds))],
                [vmovl_high_s8(firsts), vmovl_high_s8(seconds)],
            )
        };
        let [a, b] = pairs_of(self.neon, low[0], low[1]);
        let [c, d] = pairs_of(self.neon, high[0], high[1]);
        [a, b, c, d]
    }

    #[inline(always)]
    fn split(self, pairs: Pairs) -> [Words<4>; 2] {
        // SAFETY: `self` proves the feature.
        let mut out = unsafe { [[vdupq_n_s32(0); 4]; 2] };
        for i in 0..4 {
            // SAFETY: `self` proves the feature.
            unsafe {
                out[0][i] = vmovl_s16(vget_low_s16(pairs[i]));
                out[1][i] = vmovl_high_s16(pairs[i]);
            }
        }
        out
    }

    #[inline(always)]
    fn load_sums(self, sums: &Sums) -> Floats<COUNT> {
        let mut out = self.splat(0.0);
        for i in 0..COUNT {
            // SAFETY: 4 readable floats, unaligned load; `self` proves the feature.
            out[i] = unsafe { vld1q_f32(quarter::<_, 4>(sums, FIRST + i).as_ptr()) };
        }
        out
    }

    #[inline(always)]
    fn store_sums(self, sums: &mut Sums, value: Floats<COUNT>) {
        let quarters = sums.as_chunks_mut::<4>().0;
        for i in 0..COUNT {
            // SAFETY: 4 writable floats, unaligned store; `self` proves the feature.
            unsafe { vst1q_f32(quarters[FIRST + i].as_mut_ptr(), value[i]) }
        }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Floats<COUNT> {
        [self.neon.splat(value)[0]; COUNT]
    }

    #[inline(always)]
    fn widen(self, halves: &Halves) -> Floats<COUNT> {
        let mut out = self.splat(0.0);
        for i in 0..COUNT {
            out[i] = self.neon.widen_four(quarter(halves, FIRST + i));
        }
        out
    }

    #[inline(always)]
    fn floats(self, words: Words<COUNT>) -> Floats<COUNT> {
        let mut out = self.splat(0.0);
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            out[i] = unsafe { vcvtq_f32_s32(words[i]) };
        }
        out
    }

    #[inline(always)]
    fn mul(self, mut a: Floats<COUNT>, b: Floats<COUNT>) -> Floats<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            a[i] = unsafe { vmulq_f32(a[i], b[i]) };
        }
        a
    }

    #[inline(always)]
    fn fma(self, a: Floats<COUNT>, b: Floats<COUNT>, mut c: Floats<COUNT>) -> Floats<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            c[i] = unsafe { vfmaq_f32(c[i], a[i], b[i]) };
        }
        c
    }

    #[inline(always)]
    fn negated_fma(self, a: Floats<COUNT>, b: Floats<COUNT>, mut c: Floats<COUNT>) -> Floats<COUNT> {
        for i in 0..COUNT {
            // SAFETY: `self` proves the feature.
            c[i] = unsafe { vfmsq_f32(c[i], a[i], b[i]) };
        }
        c
    }
}
