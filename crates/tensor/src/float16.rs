//! Half-precision floats as bit patterns: IEEE binary16 and bfloat16.
//!
//! Converting up is exact. Converting down rounds to nearest, ties to even; overflow gives infinity.
//!
//! Invariant: a NaN stays a NaN (its payload may change) and the sign is always kept.
//! Not here: conversions of whole rows, which kernels do with the CPU's own instruction where it has one.

/// The value of an IEEE binary16 bit pattern.
#[inline(always)]
pub fn f16_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7fff) << 13;
    // Shifted into place, the exponent is short by 127 - 15; the product also normalises subnormals, exactly.
    let scaled = f32::from_bits(magnitude) * f32::from_bits((254 - 15) << 23);
    let non_finite = if half & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | non_finite | (u32::from(half & 0x8000) << 16))
}

/// The nearest IEEE binary16 bit pattern, ties to even; magnitudes of 65520 and more become infinity.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude > 0x7f80_0000 {
        0x7e00 | ((magnitude >> 13) & 0x1ff) as u16
    } else if magnitude >= 0x477f_f000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Adding 0.5 leaves the subnormal, rounded by the FPU, in the low bits of the sum.
        (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits()) as u16
    } else {
        let odd = (magnitude >> 13) & 1;
        ((magnitude + 0xfff + odd - (112 << 23)) >> 13) as u16
    };
    half | sign
}

/// The value of a bfloat16 bit pattern.
#[inline(always)]
pub(crate) fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The nearest bfloat16 bit pattern, ties to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return ((bits >> 16) | 0x40) as u16;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts_up_exactly_and_back() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#06x}");
            assert!(ours.is_nan() || f32_to_f16(ours) == bits, "{bits:#06x}");
            let (ours, theirs) = (bf16_to_f32(bits), half::bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#06x}");
        }
    }

    #[test]
    fn converting_down_rounds_to_nearest_even() {
        // Every 2048th float, and the neighbours of every tie, subnormals and overflow included.
        let ties = (0..=u16::MAX)
            .map(|h| f16_to_f32(h).to_bits())
            .flat_map(|b| [0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000].map(|step: u32| b.wrapping_add(step)));
        for bits in (0..=u32::MAX).step_by(2048 - 1).chain(ties) {
            let value = f32::from_bits(bits);
            let (ours, theirs) = (f32_to_f16(value), half::f16::from_f32(value).to_bits());
            if value.is_nan() {
                assert!(f16_to_f32(ours).is_nan());
            } else {
                assert_eq!(ours, theirs, "{bits:#010x}");
                assert_eq!(f32_to_bf16(value), half::bf16::from_f32(value).to_bits(), "{bits:#010x}");
            }
        }
    }
}
