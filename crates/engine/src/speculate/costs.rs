//! What a pass of each width costs on this machine: the cost curve, measured before or learned on the way.
//!
//! Points are milliseconds by width. Between two of them cost grows evenly; beyond the last as between the last two.
//! A round corrects the point of its own width, and the others a little: what slows one width (a longer context, a busy
//! machine) mostly slows them all.
//!
//! Invariant: costs change only what is drafted, never a token.
//! Not here: where curves are kept (`pilotfish`), what a draft brings (`chances`).

use std::sync::atomic::{AtomicBool, Ordering};

use pilotfish_lane::{LaneError, Want};

use super::TokenTree;
use crate::cached::CachedLane;
use crate::clock::Clock;

/// Widths measured beforehand: dense where drafts are cut, wide enough for copied text.
const WIDTHS: [usize; 11] = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 33];
/// Rounds over all widths: the least of each is kept, as a stall says nothing about the lane. The first warms up.
const ROUNDS: usize = 4;
/// No further round of measuring begins after so long.
const MEASURE_MS: f64 = 2_500.0;

/// Weight of the latest pass at its own width, and of its surprise at the others.
const NEWS: f64 = 0.2;
const NEWS_ELSEWHERE: f64 = 0.05;
/// A pass that takes this many times its cost is a stall, unless the next does too.
const STALL: f64 = 3.0;

/// Milliseconds of a pass by its width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    points: Vec<(usize, f64)>, // ascending widths
    stalled: bool,
}

impl Costs {
    /// Costs as measured: `(width, milliseconds)`. Points that are no positive numbers are left out.
    pub fn new(points: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let mut points: Vec<_> =
            points.into_iter().filter(|&(width, ms)| width > 0 && ms.is_finite() && ms > 0.0).collect();
        points.sort_unstable_by_key(|point| point.0);
        points.dedup_by_key(|point| point.0);
        Self { points, stalled: false }
    }

    /// Measures passes of up to `most` rows behind an empty cache, some seconds at most; what the cache held is
    /// forgotten. Returns what was measured when `cancel` is set.
    ///
    /// # Errors
    /// What the lane says.
    pub fn measure(
        target: &mut CachedLane,
        most: usize,
        clock: &dyn Clock,
        cancel: &AtomicBool,
    ) -> Result<Self, LaneError> {
        let info = target.info();
        let (most, vocab) = (most.min(info.max_width).min(info.context), info.vocab);
        let mut least: Vec<(usize, f64)> =
            WIDTHS.into_iter().filter(|&width| width <= most).map(|width| (width, f64::INFINITY)).collect();
        // Which tokens a pass holds does not change its cost.
        let tokens: Vec<u32> = (0..most).map(|i| (i % vocab) as u32).collect();
        let start = clock.now_ms();
        for round in 0..ROUNDS {
            for (width, ms) in &mut least {
                if cancel.load(Ordering::Relaxed) {
                    return Ok(Self::new(least));
                }
                target.truncate(0);
                let before = clock.now_ms();
                target.forward(&TokenTree::chain(tokens[0], &tokens[1..*width]).to_batch(Want::Argmax))?;
                *ms = ms.min(clock.now_ms() - before);
            }
            if round > 0 && clock.now_ms() - start > MEASURE_MS {
                break;
            }
        }
        target.truncate(0);
        Ok(Self::new(least))
    }

    /// The points: `(width, milliseconds)`, ascending.
    pub fn points(&self) -> &[(usize, f64)] {
        &self.points
    }

    /// Milliseconds of a pass of `width` rows; `None` as long as nothing is known.
    pub fn ms(&self, width: usize) -> Option<f64> {
        let above = self.points.partition_point(|point| point.0 < width);
        let (first, last) = (self.points.first()?, self.points.last()?);
        Some(match (above.checked_sub(1).map(|i| self.points[i]), self.points.get(above)) {
            // Nothing narrower was seen: a narrow pass costs about as much as the narrowest known.
            (None, _) => first.1,
            (Some(below), Some(&above)) => along(below, above, width),
            (Some(_), None) => match self.points.len() {
                // One point says nothing of the slope; the first wider pass will.
                1 => last.1,
                n => along(self.points[n - 2], *last, width).max(last.1),
            },
        })
    }

    /// Whether [`Costs::ms`] of `width` is measured, or lies between what is.
    pub(super) fn knows(&self, width: usize) -> bool {
        let narrower = self.points.iter().any(|point| point.0 <= width);
        narrower && self.points.iter().any(|point| point.0 >= width)
    }

    /// Learns that a pass of `width` rows took `ms`.
    pub(super) fn observe(&mut self, width: usize, ms: f64) {
        // A clock too coarse for a pass says nothing.
        if !ms.is_finite() || ms <= 0.0 {
            return;
        }
        let Some(expected) = self.ms(width) else {
            self.points.push((width, ms));
            return;
        };
        let known = self.points.iter().any(|point| point.0 == width);
        if known && ms > STALL * expected && !self.stalled {
            self.stalled = true;
            return;
        }
        self.stalled = false;
        if !known {
            let at = self.points.partition_point(|point| point.0 < width);
            self.points.insert(at, (width, ms));
            return;
        }
        let surprise = (ms / expected).clamp(1.0 / STALL, STALL);
        for (other, cost) in &mut self.points {
            let news = if *other == width { NEWS } else { NEWS_ELSEWHERE };
            *cost *= 1.0 + news * (surprise - 1.0);
        }
    }
}

/// The value at `x` of the line through two points.
fn along((x0, y0): (usize, f64), (x1, y1): (usize, f64), x: usize) -> f64 {
    y0 + (y1 - y0) * (x as f64 - x0 as f64) / (x1 as f64 - x0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speculation_costs_lie_between_their_points_and_go_on_behind_them() {
        assert_eq!(Costs::default().ms(1), None);
        let one = Costs::new([(1, 10.0)]);
        assert_eq!((one.ms(1), one.ms(9)), (Some(10.0), Some(10.0)));
        let costs = Costs::new([(4, 16.0), (1, 10.0), (8, 32.0), (9, f64::NAN), (0, 1.0)]);
        assert_eq!(costs.points(), [(1, 10.0), (4, 16.0), (8, 32.0)]);
        let at = |width| costs.ms(width).unwrap();
        assert_eq!(
            [at(1), at(2), at(3), at(4), at(6), at(8), at(10)],
            [10.0, 12.0, 14.0, 16.0, 24.0, 32.0, 40.0]
        );
        assert_eq!([1, 2, 8, 9].map(|width| costs.knows(width)), [true, true, true, false]);
        assert!(!Costs::new([(2, 8.0)]).knows(1) && !Costs::default().knows(1));
        assert_eq!(Costs::new([(1, 10.0), (2, 8.0)]).ms(5), Some(8.0), "no pass is free");
    }

    #[test]
    fn speculation_costs_follow_what_passes_take() {
        let mut costs = Costs::new([(1, 10.0), (4, 20.0)]);
        for _ in 0..60 {
            costs.observe(1, 15.0);
        }
        assert!((costs.ms(1).unwrap() - 15.0).abs() < 0.1);
        assert!(costs.ms(4).unwrap() > 20.0, "other widths follow");
        let mut unknown = Costs::default();
        unknown.observe(1, 10.0);
        unknown.observe(5, 18.0);
        unknown.observe(3, 16.0);
        assert_eq!(unknown.points(), [(1, 10.0), (3, 16.0), (5, 18.0)]);
    }

    #[test]
    fn speculation_costs_pass_over_one_stall_but_not_two() {
        let mut costs = Costs::new([(1, 10.0)]);
        costs.observe(1, 500.0);
        assert_eq!(costs.ms(1), Some(10.0));
        costs.observe(1, 500.0);
        assert!(costs.ms(1).unwrap() > 10.0);
    }
}
