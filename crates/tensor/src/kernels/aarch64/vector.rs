//! Eight floats at a time in two NEON registers, as safe functions.
//!
//! Whoever holds a [`Neon`] knows the CPU has NEON, so the shared loops need no unsafe code. Every function here is a few
//! instructions, and must be inlined into a function compiled for the feature. Rust has no stable type for halves in
//! registers, so the two conversions from and to them are written in assembly.
//!
//! Invariant: a `Neon` is made only inside functions that are reached after detection.
//! Not here: anything that loops.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::kernels::lanes::Lanes;

/// Eight floats: lanes 0 to 3, then 4 to 7.
type Float = [float32x4_t; 2];

/// Proof that this CPU has NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

impl Neon {
    /// The proof, for code that was itself compiled for this feature.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn here() -> Neon {
        Neon(())
    }

    /// Four halves as floats, exactly.
    #[inline(always)]
    pub(super) fn widen_four(self, halves: &[u16; 4]) -> float32x4_t {
        // SAFETY: 4 readable halves, unaligned load; `self` proves the feature.
        unsafe { widen_four(vld1_u16(halves.as_ptr())) }
    }

    /// Eight floats as halves: nearest, ties to even.
    #[inline(always)]
    pub(super) fn narrow(self, floats: &[f32; 8]) -> [u16; 8] {
        let mut halves = [0; 8];
        let [low, high] = self.load(floats);
        // SAFETY: 8 writable halves, unaligned store; `self` proves the feature.
        unsafe { vst1q_u16(halves.as_mut_ptr(), vcombine_u16(narrow_four(low), narrow_four(high))) }
        halves
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn widen_four(halves: uint16x4_t) -> float32x4_t {
    let floats;
    // SAFETY: one instruction on registers; it is part of NEON.
    unsafe {
        asm!(
            "fcvtl {0:v}.4s, {1:v}.4h",
            lateout(vreg) floats,
            in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    floats
}

/// Rounds as the mode says, which is to nearest, ties to even, as Rust requires it to be.
#[inline]
#[target_feature(enable = "neon")]
fn narrow_four(floats: float32x4_t) -> uint16x4_t {
    let halves;
    // SAFETY: one instruction on registers; it is part of NEON.
    unsafe {
        asm!(
            "fcvtn {0:v}.4h, {1:v}.4s",
            lateout(vreg) halves,
            in(vreg) floats,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    halves
}

/// Asks for the cache line at an address that will be read soon, if there is memory.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    // SAFETY: a prefetch has no effect on the program, whatever the address.
    unsafe {
        asm!("prfm pldl1keep, [{0}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
}

impl crate::kernels::attention::Inner for Neon {}

impl Lanes for Neon {
    type Eight = Float;

    #[inline(always)]
    fn load(self, floats: &[f32; 8]) -> Float {
        // SAFETY: twice 4 readable floats, unaligned loads; `self` proves the feature.
        unsafe { [vld1q_f32(floats.as_ptr()), vld1q_f32(floats[4..].as_ptr())] }
    }

    #[inline(always)]
    fn store(self, floats: &mut [f32; 8], [low, high]: Float) {
        // SAFETY: twice 4 writable floats, unaligned stores; `self` proves the feature.
        unsafe {
            vst1q_f32(floats.as_mut_ptr(), low);
            vst1q_f32(floats[4..].as_mut_ptr(), high);
        }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { [vdupq_n_f32(value); 2] }
    }

    #[inline(always)]
    fn fma(self, a: Float, b: Float, c: Float) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
    }

    #[inline(always)]
    fn add(self, a: Float, b: Float) -> Float {
        // SAFETY: `self` proves the feature.
        unsafe { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
    }

    #[inline(always)]
    fn sums(self, eights: [Float; 8]) -> [f32; 8] {
        let mut sums = [0.0; 8];
        // SAFETY: `self` proves the feature; the stores are to twice 4 floats, unaligned.
        unsafe {
            // Each instruction adds neighbours: within an eight, then pairs of pairs, then its two halves.
            let [a, b, c, d, e, f, g, h] = eights;
            let ab = vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(b[0], b[1]));
            let cd = vpaddq_f32(vpaddq_f32(c[0], c[1]), vpaddq_f32(d[0], d[1]));
            let ef = vpaddq_f32(vpaddq_f32(e[0], e[1]), vpaddq_f32(f[0], f[1]));
            let gh = vpaddq_f32(vpaddq_f32(g[0], g[1]), vpaddq_f32(h[0], h[1]));
            vst1q_f32(sums.as_mut_ptr(), vpaddq_f32(ab, cd));
            vst1q_f32(sums[4..].as_mut_ptr(), vpaddq_f32(ef, gh));
        }
        sums
    }

    #[inline(always)]
    fn widen(self, halves: &[u16; 8]) -> Float {
        let [low, high] = *halves.as_chunks::<4>().0 else { unreachable!("twice 4 are 8") };
        [self.widen_four(&low), self.widen_four(&high)]
    }

    #[inline(always)]
    fn widen_quants(self, quants: &[i8; 8]) -> Float {
        // SAFETY: 8 readable bytes, unaligned load; `self` proves the feature.
        unsafe {
            let shorts = vmovl_s8(vld1_s8(quants.as_ptr()));
            [vcvtq_f32_s32(vmovl_s16(vget_low_s16(shorts))), vcvtq_f32_s32(vmovl_high_s16(shorts))]
        }
    }

    #[inline(always)]
    fn prefetch<T>(self, number: &T) {
        prefetch(std::ptr::from_ref(number).cast());
    }

    #[inline(always)]
    fn to_i8(self, x: &[[f32; 8]; 4], factor: f32) -> [i8; 32] {
        let mut bytes = [0; 32];
        // SAFETY: `self` proves the feature; the stores are to twice 16 bytes, unaligned.
        unsafe {
            let mut shorts = [vdupq_n_s16(0); 4];
            for i in 0..4 {
                let [low, high] = self.load(&x[i]);
                // Rounds to nearest, ties to even, whatever the mode.
                let low = vcvtnq_s32_f32(vmulq_n_f32(low, factor));
                let high = vcvtnq_s32_f32(vmulq_n_f32(high, factor));
                shorts[i] = vcombine_s16(vmovn_s32(low), vmovn_s32(high));
            }
            let [a, b, c, d] = shorts;
            vst1q_s8(bytes.as_mut_ptr(), vcombine_s8(vmovn_s16(a), vmovn_s16(b)));
            vst1q_s8(bytes[16..].as_mut_ptr(), vcombine_s8(vmovn_s16(c), vmovn_s16(d)));
        }
        bytes
    }

    #[inline(always)]
    fn sums_of_16(self, quants: &[i8; 32]) -> [i16; 2] {
        // SAFETY: twice 16 readable bytes, unaligned loads; `self` proves the feature.
        unsafe { [vaddlvq_s8(vld1q_s8(quants.as_ptr())), vaddlvq_s8(vld1q_s8(quants[16..].as_ptr()))] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float16::{f16_to_f32, f32_to_f16};
    use crate::kernels::lanes::Plain;

    fn neon() -> Neon {
        assert!(std::arch::is_aarch64_feature_detected!("neon"));
        // SAFETY: the feature was just detected.
        unsafe { Neon::here() }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    #[test]
    fn every_half_is_widened_as_in_plain_code() {
        for start in (0..=u16::MAX).step_by(8) {
            let halves: [u16; 8] = std::array::from_fn(|i| start + i as u16);
            let mut floats = [0.0; 8];
            neon().store(&mut floats, neon().widen(&halves));
            for (float, half) in floats.into_iter().zip(halves) {
                assert!(same(float, f16_to_f32(half)), "{half:#06x}");
            }
        }
    }

    #[test]
    fn halves_are_narrowed_as_in_plain_code_around_every_tie() {
        for half in 0..0x7c00 {
            let (low, high) = (f64::from(f16_to_f32(half)), f64::from(f16_to_f32(half + 1)));
            let tie = if high.is_finite() { (low + high) / 2.0 } else { 65520.0 } as f32;
            let low = low as f32;
            let floats = [low, low.next_up(), tie.next_down(), tie, tie.next_up(), -tie, -low, f32::MAX];
            assert_eq!(neon().narrow(&floats), floats.map(f32_to_f16), "{half:#06x}");
        }
        let odd = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, -1e-40, 0.0, -0.0];
        for (ours, plain) in neon().narrow(&odd).into_iter().zip(odd.map(f32_to_f16)) {
            assert!(same(f16_to_f32(ours), f16_to_f32(plain)));
        }
    }

    #[test]
    fn quants_are_widened_as_in_plain_code() {
        for start in (i8::MIN..=i8::MAX).step_by(8) {
            let quants: [i8; 8] = std::array::from_fn(|i| start + i as i8);
            let mut floats = [0.0; 8];
            neon().store(&mut floats, neon().widen_quants(&quants));
            assert_eq!(floats, Plain.widen_quants(&quants));
        }
    }

    #[test]
    fn numbers_become_bytes_as_in_plain_code() {
        for step in 0..64 {
            let x: [[f32; 8]; 4] = std::array::from_fn(|i| {
                std::array::from_fn(|l| ((i * 8 + l) as f32 - 16.0) * 4.0 + step as f32 * 0.0625)
            });
            for factor in [1.0, 0.5, 1.9375] {
                let bytes = neon().to_i8(&x, factor);
                assert_eq!(bytes, Plain.to_i8(&x, factor));
                assert_eq!(neon().sums_of_16(&bytes), Plain.sums_of_16(&bytes));
            }
        }
        for byte in [i8::MIN, i8::MAX] {
            assert_eq!(neon().sums_of_16(&[byte; 32]), [16 * i16::from(byte); 2]);
        }
    }
}
