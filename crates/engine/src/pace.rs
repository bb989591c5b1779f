//! How many prompt tokens to read in one pass.
//!
//! A wide pass reads a prompt fastest, but nothing can stop it half way: on a slow machine 512 rows of a large model
//! take many seconds. So the width follows the speed that was measured, and a pass takes about half a second.
//!
//! Invariant: only widths depend on time, and no logits row depends on the width of its pass.
//! Not here: looking at the wish to stop (`CachedLane::read`).

/// Milliseconds a pass should take: short for somebody who waits for Ctrl-C, long for everything a pass does once.
const TARGET_MS: f64 = 500.0;

/// Rows of the first pass, when nothing is known.
const FIRST: usize = 64;

/// Narrower passes read weights too often, wider ones gain nothing.
const ROWS: std::ops::RangeInclusive<usize> = 32..=512;

/// Chooses widths by the speed of earlier passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    rows: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { rows: FIRST }
    }
}

impl Pace {
    /// Rows for the next pass.
    pub(crate) fn rows(self) -> usize {
        self.rows
    }

    /// Learns from a pass of `rows` rows that took `ms`.
    pub(crate) fn observe(&mut self, rows: usize, ms: f64) {
        let (min, max) = (*ROWS.start(), *ROWS.end());
        // The rest of a prompt may be a few rows, and says little about many.
        if rows < min {
            return;
        }
        let fitting = if ms > 0.0 { rows as f64 * TARGET_MS / ms } else { f64::INFINITY };
        // One odd pass, a page fault or a busy moment, should not change the width out of proportion.
        let fitting = (fitting as usize).clamp(self.rows / 2, self.rows * 2).clamp(min, max);
        // Multiples of the smallest width, because kernels work in tiles.
        self.rows = fitting / min * min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widths of passes whose rows take `ms_per_row`.
    fn widths(ms_per_row: f64, n: usize) -> Vec<usize> {
        let mut pace = Pace::default();
        let mut widths = vec![];
        for _ in 0..n {
            widths.push(pace.rows());
            pace.observe(pace.rows(), pace.rows() as f64 * ms_per_row);
        }
        widths
    }

    #[test]
    fn the_width_follows_the_speed() {
        assert_eq!(widths(0.1, 5), [64, 128, 256, 512, 512]);
        assert_eq!(widths(0.0, 3), [64, 128, 256]);
        assert_eq!(widths(30.0, 3), [64, 32, 32]);
        assert_eq!(widths(5.0, 3), [64, 96, 96]);
        assert_eq!(widths(2.0, 4), [64, 128, 224, 224]);
    }

    #[test]
    fn a_short_pass_teaches_nothing() {
        let mut pace = Pace::default();
        pace.observe(3, 900.0);
        assert_eq!(pace, Pace::default());
    }
}
