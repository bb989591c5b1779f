//! Exponential and logarithm with the same bits on every machine.
//!
//! Only additions, multiplications and divisions in a fixed order: a libm may differ by version and
//! platform in the last bit, and one bit can move a top-p border or a sampled token.
//!
//! Invariant: both agree with the exact value to a few units in the last place (tests below).
//! Not here: the vectorised `f32` exponential of the kernels (`pilotfish_tensor`).

/// ln 2 in two parts; the first has trailing zeros, so its products with small integers are exact.
const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Below this an `f64` exponential is subnormal; [`exp`] returns 0 there.
const EXP_UNDERFLOW: f64 = -708.0;

/// 1 / n!, the Taylor series: |r| ≤ ln 2 / 2, so the first omitted term, r¹⁴ / 14!, is below 5e-18.
const EXP_SERIES: [f64; 14] = {
    let mut series = [1.0; 14];
    let mut n = 1;
    while n < 14 {
        series[n] = series[n - 1] / n as f64;
        n += 1;
    }
    series
};

/// 1/3, 1/5, … 1/21: |s| ≤ 0.172, so the first omitted term, s²³ / 23, is below 1e-18.
const LN_SERIES: [f64; 10] = {
    let mut series = [0.0; 10];
    let mut n = 0;
    while n < 10 {
        series[n] = 1.0 / (2 * n + 3) as f64;
        n += 1;
    }
    series
};

/// eˣ for x ≤ 700; 0 below -708.
pub(crate) fn exp(x: f64) -> f64 {
    debug_assert!(x <= 700.0, "exp is meant for differences to a maximum");
    if x < EXP_UNDERFLOW {
        return 0.0;
    }
    let k = (x * std::f64::consts::LOG2_E).round();
    let r = (x - k * LN2_HIGH) - k * LN2_LOW;
    let mut sum = 0.0;
    for coefficient in EXP_SERIES.iter().rev() {
        sum = sum * r + coefficient;
    }
    sum * power_of_two(k as i32)
}

/// ln x for normal, positive x.
pub(crate) fn ln(x: f64) -> f64 {
    debug_assert!(x >= f64::MIN_POSITIVE && x.is_finite(), "ln is meant for normal, positive numbers");
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh(s) = 2 (s + s³/3 + s⁵/5 + …) with s = (m - 1) / (m + 1).
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let z = s * s;
    let mut sum = 0.0;
    for coefficient in LN_SERIES.iter().rev() {
        sum = (sum + coefficient) * z;
    }
    let exponent = f64::from(exponent);
    exponent * LN2_HIGH + (2.0 * s + (2.0 * s * sum + exponent * LN2_LOW))
}

/// 2ᵏ for -1022 ≤ k ≤ 1023.
fn power_of_two(k: i32) -> f64 {
    f64::from_bits(((k + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_exp_agrees_with_libm() {
        for i in -70_000..=700 {
            let x = f64::from(i) * 0.01;
            let (ours, theirs) = (exp(x), x.exp());
            assert!((ours - theirs).abs() <= 8e-16 * theirs, "exp({x}) = {ours}, libm says {theirs}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e9), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
    }

    #[test]
    fn sampling_ln_agrees_with_libm() {
        for i in 0..200_000_u32 {
            // Every magnitude from 2⁻⁶⁰ to 2⁶⁰, and values close to one.
            let wide = 2f64.powf(f64::from(i) / 200_000.0 * 120.0 - 60.0);
            let near = 1.0 + (f64::from(i) - 100_000.0) * 1e-9;
            for x in [wide, near] {
                let (ours, theirs) = (ln(x), x.ln());
                assert!(
                    (ours - theirs).abs() <= 6e-16 * theirs.abs(),
                    "ln({x}) = {ours}, libm says {theirs}"
                );
            }
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn sampling_elementary_bits_are_pinned() {
        // Values of this implementation: a change here changes sampled text.
        let pinned = [exp(-0.3), exp(-20.5), ln(0.1), ln(1e-15), ln(36.7)].map(f64::to_bits);
        let expected = [
            4_604_847_916_870_499_333,
            4_473_616_198_666_092_716,
            13_835_739_416_338_191_637,
            13_853_429_754_804_961_220,
            4_615_295_150_825_812_240,
        ];
        assert_eq!(pinned, expected);
    }
}
