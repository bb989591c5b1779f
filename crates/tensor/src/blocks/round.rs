//! The roundings the encoders share.
//!
//! Invariant: always returns a value inside the asked range, also for numbers that are not finite.
//! Not here: searching for better scales.

use crate::float16::{f16_to_f32, f32_to_f16};

/// `value` rounded to an integer in `low..=high`; NaN becomes `low` or 0.
pub(super) fn to_range(value: f32, low: i32, high: i32) -> i32 {
    (value.round_ties_even() as i32).clamp(low, high)
}

/// `value / step` rounded into `low..=high`; 0 clamped into the range when the step is zero.
pub(super) fn steps(value: f32, step: f32, low: i32, high: i32) -> i32 {
    if step == 0.0 { 0.clamp(low, high) } else { to_range(value / step, low, high) }
}

/// Appends `value` as a half-precision number and returns what it became.
pub(super) fn push_half(value: f32, out: &mut Vec<u8>) -> f32 {
    let half = f32_to_f16(value);
    out.extend_from_slice(&half.to_le_bytes());
    f16_to_f32(half)
}

/// The number of largest magnitude, with its sign.
pub(super) fn extreme(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |extreme: f32, &x| if x.abs() > extreme.abs() { x } else { extreme })
}

/// The least and greatest of the numbers and zero.
pub(super) fn span_with_zero(numbers: &[f32]) -> (f32, f32) {
    numbers.iter().fold((0.0, 0.0), |(low, high): (f32, f32), &x| (low.min(x), high.max(x)))
}

/// Sixteen bytes of nibble pairs: number `i` in the low half of byte `i`, number `i + 16` in the high half.
pub(super) fn nibbles(quants: impl Fn(usize) -> u8) -> [u8; 16] {
    std::array::from_fn(|i| (quants(i) & 15) | (quants(i + 16) << 4))
}
