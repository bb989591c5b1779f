//! Medians, geometric means, paired ratios with their confidence interval, and acceptance by position.
//!
//! Two things measured in alternation share the machine's mood, so their ratio is taken pair by pair: with
//! d_i = ln(a_i / b_i), the ratio is exp(mean d) and its 95 % interval exp(mean d ± t · s / √n), where s is the sample
//! standard deviation of d and t is Student's 97.5 % point for n − 1 degrees of freedom. The interval assumes that the
//! d_i are independent and near normal; with two or three pairs it is wide, which is the truth about two or three pairs.
//!
//! Invariant: a figure that the data cannot support is `None`, never zero, NaN or infinity.
//! Not here: percentiles of one series (`percentile`).

/// The ratio of two series measured in pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedRatio {
    /// Geometric mean of the pairs' ratios, first over second.
    pub ratio: f64,
    /// 95 % confidence interval, low then high; `None` with a single pair.
    pub ci95: Option<[f64; 2]>,
    /// How many pairs went in.
    pub pairs: usize,
}

/// The middle value, or the mean of the two middle ones; `None` without values or with a NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        Some(sorted[middle])
    } else {
        Some(f64::midpoint(sorted[middle - 1], sorted[middle]))
    }
}

/// The n-th root of the product; `None` without values or when one is not a positive finite number.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| !is_positive(*v)) {
        return None;
    }
    Some((values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// The ratio `first / second` over pairs measured in alternation; `None` without pairs or when a value is not a
/// positive finite number.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<PairedRatio> {
    if pairs.is_empty() || pairs.iter().any(|(a, b)| !is_positive(*a) || !is_positive(*b)) {
        return None;
    }
    let n = pairs.len();
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| a.ln() - b.ln()).collect();
    let mean = logs.iter().sum::<f64>() / n as f64;
    let ci95 = (n > 1).then(|| {
        let variance = logs.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / (n - 1) as f64;
        let half = student_97_5(n - 1) * (variance / n as f64).sqrt();
        [(mean - half).exp(), (mean + half).exp()]
    });
    Some(PairedRatio { ratio: mean.exp(), ci95, pairs: n })
}

/// Share of rounds, for each draft position k, in which the first k + 1 guesses were all accepted, among the rounds
/// that drafted at least k + 1. Each round is `(drafted, accepted)`.
///
/// The result ends at the longest draft; it is empty when nothing was drafted. Acceptance is a prefix, so `accepted`
/// counts above `drafted` are a bug of the caller.
pub fn accepted_by_position(rounds: &[(usize, usize)]) -> Vec<f64> {
    let longest = rounds.iter().map(|(drafted, _)| *drafted).max().unwrap_or(0);
    let mut reached = vec![0_u64; longest];
    let mut accepted_all = vec![0_u64; longest];
    for &(drafted, accepted) in rounds {
        assert!(accepted <= drafted, "a round cannot accept {accepted} of {drafted} guesses");
        reached[..drafted].iter_mut().for_each(|n| *n += 1);
        accepted_all[..accepted].iter_mut().for_each(|n| *n += 1);
    }
    // Every position up to the longest draft was reached by that draft, so no division by zero.
    accepted_all.iter().zip(&reached).map(|(a, r)| *a as f64 / *r as f64).collect()
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// Student's t, 97.5 % point. A table up to 30 degrees of freedom, then the expansion in 1/df around the normal point
/// (Abramowitz and Stegun 26.7.5), whose error there is below 1e-5.
fn student_97_5(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
        2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963,
        2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272,
    ];
    if let Some(t) = degrees.checked_sub(1).and_then(|i| TABLE.get(i)) {
        return *t;
    }
    let z = 1.959_963_985_f64;
    let n = degrees as f64;
    z + (z.powi(3) + z) / (4.0 * n)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn median_takes_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn geometric_mean_refuses_what_has_no_logarithm() {
        assert!(close(geometric_mean(&[1.0, 4.0]).expect("positive"), 2.0));
        for bad in [&[][..], &[0.0, 1.0], &[-1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert_eq!(geometric_mean(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_paired_ratio_is_computed_on_logarithms() {
        // ln ratios 0 and ln 4: mean ln 2, s = ln 4 / √2, s / √2 = ln 2, t(1) = 12.706205.
        let r = paired_ratio(&[(10.0, 10.0), (40.0, 10.0)]).expect("two pairs");
        assert!(close(r.ratio, 2.0));
        let [low, high] = r.ci95.expect("two pairs have an interval");
        assert!(
            close(low, 2.0_f64.powf(1.0 - 12.706205)) && close(high / 2.0_f64.powf(1.0 + 12.706205), 1.0)
        );
        assert_eq!(r.pairs, 2);
    }

    #[test]
    fn equal_pairs_have_an_interval_of_no_width_and_one_pair_has_none() {
        let r = paired_ratio(&[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]).expect("three pairs");
        let [low, high] = r.ci95.expect("three pairs have an interval");
        assert!(close(low, 2.0) && close(high, 2.0) && close(r.ratio, 2.0));
        assert_eq!(paired_ratio(&[(3.0, 2.0)]).expect("one pair").ci95, None);
        assert_eq!(paired_ratio(&[]), None);
        assert_eq!(paired_ratio(&[(1.0, 0.0)]), None);
    }

    #[test]
    fn the_interval_covers_the_truth_about_95_times_in_100() {
        // Near-normal noise from twelve uniforms of a fixed generator; 4,000 series of 5 pairs with true ratio 1.5.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut covered = 0;
        for _ in 0..4_000 {
            let pairs: Vec<(f64, f64)> = (0..5)
                .map(|_| {
                    let noise = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
                    (1.5 * (0.1 * noise).exp(), 1.0)
                })
                .collect();
            let [low, high] = paired_ratio(&pairs).and_then(|r| r.ci95).expect("five pairs");
            covered += usize::from(low <= 1.5 && 1.5 <= high);
        }
        // Standard error of the share is 0.34 %: a normal interval instead of Student's would cover 88 %.
        assert!((3_750..=3_850).contains(&covered), "covered {covered} of 4000");
    }

    #[test]
    fn student_points_join_at_the_end_of_the_table() {
        // Published values: t(31) 2.039513, t(40) 2.021075, t(100) 1.983972, t(1000) 1.962339.
        for (df, t) in [
            (1, 12.706205),
            (30, 2.042272),
            (31, 2.039513),
            (40, 2.021075),
            (100, 1.983972),
            (1000, 1.962339),
        ] {
            assert!((student_97_5(df) - t).abs() < 1e-5, "df {df}: {}", student_97_5(df));
        }
    }

    #[test]
    fn acceptance_counts_only_rounds_that_reached_the_position() {
        // Position 0 was drafted in three rounds and kept in two; position 2 was drafted in one.
        assert_eq!(accepted_by_position(&[(0, 0), (1, 1), (2, 0), (3, 2)]), [2.0 / 3.0, 1.0 / 2.0, 0.0]);
        assert_eq!(accepted_by_position(&[(0, 0)]), [0.0; 0]);
        assert_eq!(accepted_by_position(&[]), [0.0; 0]);
    }

    #[test]
    #[should_panic(expected = "cannot accept 2 of 1")]
    fn accepting_more_than_was_drafted_is_a_bug() {
        accepted_by_position(&[(1, 2)]);
    }
}
