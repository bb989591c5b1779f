//! Exact percentiles: order statistics by the nearest-rank rule, never interpolated.
//!
//! All samples are kept and sorted, so a percentile is one of the measured values. A percentile says how much of the
//! data lies beyond it; with fewer than [`ENOUGH_BEYOND`] samples there, its value hangs on a handful of events and it
//! is marked indicative.
//!
//! Invariant: rank(level) = ceil(n · level), at least 1, computed in integers.
//! Not here: histograms with bins (they round), confidence intervals of ratios (`stats`).

use std::time::Duration;

/// Samples that must lie beyond a percentile before it may be quoted without a mark.
///
/// With 50 exceedances the exact binomial 95 % interval of the rank is about ±14 samples; with 10 it spans most of them.
pub const ENOUGH_BEYOND: usize = 50;

/// A percentile's level as an exact fraction, because 0.07 × 100 is not 7 in binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    numerator: u32,
    denominator: u32,
}

impl Level {
    /// The median.
    pub const P50: Self = Self { numerator: 50, denominator: 100 };
    /// Nine of ten samples are at or below it.
    pub const P90: Self = Self { numerator: 90, denominator: 100 };
    /// 99 of 100.
    pub const P99: Self = Self { numerator: 99, denominator: 100 };
    /// 999 of 1,000.
    pub const P99_9: Self = Self { numerator: 999, denominator: 1000 };

    /// `numerator / denominator` when that lies in (0, 1], else `None`.
    pub const fn new(numerator: u32, denominator: u32) -> Option<Self> {
        if numerator == 0 || numerator > denominator { None } else { Some(Self { numerator, denominator }) }
    }
}

/// One percentile of a set of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentile {
    /// The measured value at this rank, in nanoseconds.
    pub nanos: u64,
    /// One-based rank of that value in ascending order.
    pub rank: usize,
    /// Samples ranked beyond it: above for the median and higher levels, below for lower ones.
    pub beyond: usize,
}

impl Percentile {
    /// True when too few samples lie beyond this percentile to quote it as a finding.
    pub const fn is_indicative(&self) -> bool {
        self.beyond < ENOUGH_BEYOND
    }

    /// The value in milliseconds.
    pub fn ms(&self) -> f64 {
        to_ms(self.nanos)
    }
}

/// A non-empty set of durations, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    sorted: Vec<u64>, // nanoseconds
}

impl Samples {
    /// Takes durations in nanoseconds in any order; `None` when there are none.
    pub fn from_nanos(mut nanos: Vec<u64>) -> Option<Self> {
        if nanos.is_empty() {
            return None;
        }
        nanos.sort_unstable();
        Some(Self { sorted: nanos })
    }

    /// Takes durations in any order; `None` when there are none. Durations over 584 years count as that long.
    pub fn from_durations(durations: impl IntoIterator<Item = Duration>) -> Option<Self> {
        Self::from_nanos(
            durations.into_iter().map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)).collect(),
        )
    }

    /// The sample at the level's nearest rank.
    pub fn percentile(&self, level: Level) -> Percentile {
        let n = self.sorted.len();
        let rank = (n as u128 * u128::from(level.numerator)).div_ceil(u128::from(level.denominator));
        let rank = usize::try_from(rank).unwrap_or(n).clamp(1, n);
        let upper_half = level.numerator >= level.denominator.div_ceil(2);
        let beyond = if upper_half { n - rank } else { rank - 1 };
        Percentile { nanos: self.sorted[rank - 1], rank, beyond }
    }

    /// How many samples there are; at least one.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The median in milliseconds, by nearest rank.
    pub fn p50_ms(&self) -> f64 {
        self.percentile(Level::P50).ms()
    }

    /// The smallest sample in milliseconds.
    pub fn min_ms(&self) -> f64 {
        to_ms(self.sorted[0])
    }

    /// The largest sample in milliseconds.
    pub fn max_ms(&self) -> f64 {
        to_ms(self.sorted[self.sorted.len() - 1])
    }
}

fn to_ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_to(n: u64) -> Samples {
        Samples::from_nanos((1..=n).rev().collect()).expect("n is not zero")
    }

    #[test]
    fn ranks_are_exact_at_every_size() {
        // The definition by counting: the smallest value with at least this share of samples at or below it.
        for n in 1..=400_u64 {
            let samples = one_to(n);
            for percent in 1..=100_u32 {
                let level = Level::new(percent, 100).expect("in range");
                let wanted = (1..=n).find(|v| v * 100 >= n * u64::from(percent)).expect("v = n always does");
                assert_eq!(samples.percentile(level).nanos, wanted, "p{percent} of 1..={n}");
            }
        }
    }

    #[test]
    fn a_tail_with_few_exceedances_is_indicative() {
        let p = one_to(10_000).percentile(Level::P99);
        assert_eq!((p.nanos, p.rank, p.beyond), (9_900, 9_900, 100));
        assert!(!p.is_indicative());
        let p = one_to(10_000).percentile(Level::P99_9);
        assert_eq!((p.rank, p.beyond), (9_990, 10));
        assert!(p.is_indicative());
        assert!(!one_to(100).percentile(Level::P50).is_indicative());
        assert!(one_to(98).percentile(Level::P50).is_indicative());
    }

    #[test]
    fn a_low_level_counts_the_samples_below() {
        let p = one_to(1_000).percentile(Level::new(1, 100).expect("in range"));
        assert_eq!((p.rank, p.beyond), (10, 9));
        assert!(p.is_indicative());
    }

    #[test]
    fn levels_outside_zero_to_one_are_refused() {
        assert_eq!(Level::new(0, 100), None);
        assert_eq!(Level::new(101, 100), None);
        assert_eq!(Level::new(0, 0), None);
        assert_eq!(one_to(3).percentile(Level::new(1, 1).expect("the maximum")).nanos, 3);
    }

    #[test]
    fn no_samples_give_no_percentile() {
        assert_eq!(Samples::from_nanos(Vec::new()), None);
        assert_eq!(Samples::from_durations([]), None);
    }

    #[test]
    fn milliseconds_come_from_the_same_samples() {
        let samples = Samples::from_durations([3, 1, 2].map(Duration::from_millis)).expect("three samples");
        assert_eq!((samples.min_ms(), samples.p50_ms(), samples.max_ms()), (1.0, 2.0, 3.0));
        assert_eq!(samples.count(), 3);
    }
}
