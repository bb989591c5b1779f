//! Exponential, hyperbolic tangent and logarithm of our own, because the C library's differ between systems.
//!
//! The `f32` functions use only additions, multiplications, fused multiply-adds and selections, so they give
//! the same bits one by one and eight at a time. The `f64` functions serve log-probabilities.
//!
//! Invariant: a result depends on the argument alone; NaN in gives NaN out.
//! Not here: loops over rows (`kernels`).

/// `e^x`, within 2 units in the last place; overflows to infinity, underflows through subnormals to 0.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Adding and subtracting 1.5 * 2^23 rounds to an integer, ties to even.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with so few bits that its multiples are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;

    // Outside these limits the result is infinity or 0 already; comparisons written so that NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let whole = shifted - ROUND;
    let r = whole.mul_add(-LN2_LOW, whole.mul_add(-LN2_HIGH, x));

    // Minimax polynomial of (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, from the Cephes library.
    let p = 1.987_569_1e-4f32;
    let p = p.mul_add(r, 1.398_2e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 1.666_666_5e-1);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r * r, r) + 1.0;

    // Two factors, so that each is a normal number and only the last product can round.
    let half = power >> 1;
    p * power_of_two(half) * power_of_two(power.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent.wrapping_add(127) as u32) << 23)
}

/// Hyperbolic tangent, within 2 units in the last place.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let far = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0);
    // Near zero that difference would cancel; odd polynomial from the Cephes library.
    let z = x * x;
    let p = -5.704_988_7e-3f32;
    let p = p.mul_add(z, 2.063_908_8e-2);
    let p = p.mul_add(z, -5.373_971_5e-2);
    let p = p.mul_add(z, 1.333_144_2e-1);
    let p = p.mul_add(z, -0.333_332_8);
    let near = (x * z).mul_add(p, x);
    // The sign is copied for -0.0 too, which the polynomial would lose.
    (if magnitude < 0.625 { near } else { far }).copysign(x)
}

/// `e^x` in double precision, within a few units in the last place; 0 below -708, infinity above 709.78.
pub fn exp_f64(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    if x > 709.78 {
        return f64::INFINITY;
    }
    if x < -708.0 {
        return 0.0;
    }
    let whole = (x * std::f64::consts::LOG2_E).round_ties_even();
    let r = x - whole * LN2_HIGH - whole * LN2_LOW;
    // Taylor series; |r| <= 0.35, so the term after the last is below 1e-17.
    let sum = (1..=14).rev().fold(1.0, |sum, i| 1.0 + sum * r / f64::from(i));
    // NaN casts to 0, and stays NaN in `sum`.
    let power = whole as i64;
    let half = power >> 1;
    let factor = |exponent: i64| f64::from_bits(((exponent + 1023) as u64) << 52);
    sum * factor(half) * factor(power - half)
}

/// Natural logarithm in double precision, within a few units in the last place; NaN below 0.
pub fn ln_f64(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    let (x, offset) = if x < f64::MIN_POSITIVE { (x * 2f64.powi(54), -54) } else { (x, 0) };
    let bits = x.to_bits();
    let mut power = (bits >> 52) as i64 - 1023 + offset;
    let mut m = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000);
    if m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        power += 1;
    }
    // ln m = 2 artanh(s), with |s| <= 0.1716: eleven odd terms reach the last place.
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let series = (0..11).rev().fold(0.0, |sum, i| sum * square + 1.0 / f64::from(2 * i + 1));
    let power = power as f64;
    power * LN2_HIGH + (2.0 * s * series + power * LN2_LOW)
}

/// `ln(sum(e^x))` of a row, summed in ascending order; NaN if any is NaN, -infinity for an empty row.
///
/// The log-probability of entry `i` is `x[i] - log_sum_exp(x)`.
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let top = row.iter().fold(f32::NEG_INFINITY, |top, &x| if x > top { x } else { top });
    if top.is_infinite() {
        return if row.iter().any(|x| x.is_nan()) { f64::NAN } else { f64::from(top) };
    }
    let sum: f64 = row.iter().map(|&x| exp_f64(f64::from(x) - f64::from(top))).sum();
    f64::from(top) + ln_f64(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance to the exact value in units of its last place (of the least normal number, below that).
    fn ulps(ours: f32, exact: f64) -> f64 {
        let unit = f64::from(f32::EPSILON) * 2f64.powi(exact.abs().max(1.2e-38).log2().floor() as i32);
        (f64::from(ours) - exact).abs() / unit
    }

    fn spread(low: f32, high: f32) -> impl Iterator<Item = f32> {
        (0..=200_000).map(move |i| low + (high - low) * (i as f32 / 200_000.0))
    }

    #[test]
    fn exp_is_accurate() {
        let all = spread(-103.0, 88.72).chain(spread(-1.0, 1.0)).chain(spread(-1e-6, 1e-6));
        let worst = all.map(|x| ulps(exp(x), f64::from(x).exp())).fold(0.0, f64::max);
        assert!(worst <= 1.5, "{worst} units");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(88.73), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-104.5), 0.0);
        assert!(exp(-100.0) > 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_accurate() {
        let all = spread(-12.0, 12.0).chain(spread(-1.0, 1.0)).chain(spread(-1e-4, 1e-4));
        let worst = all.map(|x| ulps(tanh(x), f64::from(x).tanh())).fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst} units");
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(f32::NEG_INFINITY), -1.0);
        assert_eq!(tanh(-0.0).to_bits(), (-0.0f32).to_bits());
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn doubles_agree_with_the_system_to_the_last_places() {
        for i in -7000..7000 {
            let x = f64::from(i) * 0.1 + 0.037;
            assert!((exp_f64(x) / x.exp() - 1.0).abs() < 1e-15 * x.abs().max(2.0), "{x}");
            let y = x.exp();
            assert!((ln_f64(y) - y.ln()).abs() <= 4e-16 * y.ln().abs().max(1.0), "{y}");
        }
        assert!((ln_f64(5e-324) - 5e-324f64.ln()).abs() < 1e-12);
        assert_eq!(ln_f64(1.0), 0.0);
        assert_eq!(ln_f64(0.0), f64::NEG_INFINITY);
        assert!(ln_f64(-1.0).is_nan());
        assert!(exp_f64(f64::NAN).is_nan());
    }

    #[test]
    fn log_sum_exp_handles_extremes() {
        let row = [1000.0f32, 1000.0];
        assert!((log_sum_exp(&row) - (1000.0 + 2f64.ln())).abs() < 1e-12);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY]), f64::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
        assert!(log_sum_exp(&[0.0, f32::NAN]).is_nan());
        assert!(log_sum_exp(&[f32::NAN]).is_nan());
        assert_eq!(log_sum_exp(&[f32::INFINITY, 0.0]), f64::INFINITY);
    }

    /// The bits of these functions are part of the numerics id: a change here must change the id.
    #[test]
    fn values_match_the_recorded_hash() {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |bits: u64| hash = (hash ^ bits).wrapping_mul(0x0000_0100_0000_01b3);
        for i in 0..1_000_000 {
            let x = (i - 500_000) as f32 * 0.000_21;
            add(u64::from(exp(x).to_bits()));
            add(u64::from(tanh(x * 0.1).to_bits()));
        }
        for i in 1..10_000 {
            let x = f64::from(i - 5_000) * 0.07;
            add(exp_f64(x).to_bits());
            add(ln_f64(f64::from(i) * 0.013).to_bits());
        }
        assert_eq!(hash, GOLDEN, "{hash:#018x}");
    }

    const GOLDEN: u64 = 0x84f4_2532_6f01_b1f7;
}
