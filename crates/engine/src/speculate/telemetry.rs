//! What one round did and where its time went.
//!
//! A stopwatch reads the clock when a round begins, when its draft is cut, when its pass is done and when it ends.
//!
//! Invariant: the three parts of a round's time add up to the whole, also in whole microseconds.
//! Not here: sums over rounds (`stats`), writing them anywhere (the callers).

use std::sync::Arc;

use super::{Accepted, BySource, TokenTree};
use crate::clock::Clock;

/// One round in numbers; all 0 where a reply was cancelled before its next pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundFigures {
    /// Rows of the pass: the last token and the guesses.
    pub width: usize,
    /// Guesses proposed, before the budget cut the draft.
    pub proposed: usize,
    /// Guesses verified.
    pub drafted: usize,
    /// Guesses on the longest path of the draft: the most that could be right.
    pub depth: usize,
    /// Guesses that became part of the reply.
    pub accepted: usize,
    /// Tokens added to the reply.
    pub committed: usize,
    /// The guesses by source.
    pub by_source: BySource,
    /// Microseconds of proposing, and of waiting for a drafter that works ahead.
    pub draft_us: u64,
    /// Microseconds of the target's pass.
    pub verify_us: u64,
    /// Microseconds of everything else: accepting, committing, telling the drafter.
    pub host_us: u64,
}

impl RoundFigures {
    pub(super) fn new(
        proposed: usize,
        draft: &TokenTree,
        accepted: &Accepted,
        tokens: usize,
        times: Times,
    ) -> Self {
        let [draft_us, verify_us, host_us] = times.micros();
        Self {
            width: draft.width(),
            proposed,
            drafted: draft.drafted(),
            depth: draft.depth(),
            // Guesses behind the reply's end were right, but are not part of it.
            accepted: accepted.accepted().min(tokens),
            committed: tokens,
            by_source: BySource::of_round(draft, accepted, tokens),
            draft_us,
            verify_us,
            host_us,
        }
    }

    /// Microseconds of the whole round.
    pub fn total_us(&self) -> u64 {
        self.draft_us + self.verify_us + self.host_us
    }
}

/// Times one round.
pub(super) struct Stopwatch {
    clock: Arc<dyn Clock>,
    start: f64,
    drafted_ms: f64,
    verified_ms: f64,
}

/// Milliseconds from a round's start to the end of each part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    drafted_ms: f64,
    verified_ms: f64,
    ended_ms: f64,
}

impl Stopwatch {
    /// Starts now.
    pub(super) fn start(clock: &Arc<dyn Clock>) -> Self {
        Self { clock: Arc::clone(clock), start: clock.now_ms(), drafted_ms: 0.0, verified_ms: 0.0 }
    }

    /// Milliseconds so far.
    pub(super) fn elapsed_ms(&self) -> f64 {
        self.clock.now_ms() - self.start
    }

    /// The draft is made.
    pub(super) fn drafted(&mut self) {
        self.drafted_ms = self.elapsed_ms();
    }

    /// The target's pass is done, and has been for `waited_ms`, which the drafter took to stop: its time, not the pass's.
    pub(super) fn verified(&mut self, waited_ms: f64) {
        self.drafted_ms += waited_ms;
        self.verified_ms = self.elapsed_ms();
    }

    /// The round is over.
    pub(super) fn stop(self) -> Times {
        let ended_ms = self.elapsed_ms();
        Times { drafted_ms: self.drafted_ms, verified_ms: self.verified_ms, ended_ms }
    }
}

impl Times {
    /// Proposing.
    pub(super) fn draft_ms(self) -> f64 {
        self.drafted_ms
    }

    /// The target's pass.
    pub(super) fn verify_ms(self) -> f64 {
        self.verified_ms - self.drafted_ms
    }

    /// The whole round.
    pub(super) fn total_ms(self) -> f64 {
        self.ended_ms
    }

    /// The three parts in microseconds. Ends are rounded, not parts, so that nothing is lost between them.
    fn micros(self) -> [u64; 3] {
        let [drafted, verified, ended] =
            [self.drafted_ms, self.verified_ms, self.ended_ms].map(|ms| (ms * 1e3).round() as u64);
        [drafted, verified.saturating_sub(drafted), ended.saturating_sub(verified)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speculation_parts_of_a_round_add_up_in_whole_microseconds() {
        let times = Times { drafted_ms: 0.0006, verified_ms: 10.0011, ended_ms: 10.0026 };
        assert_eq!(times.micros(), [1, 10_000, 2]);
        assert_eq!(times.micros().iter().sum::<u64>(), 10_003);
        assert_eq!(times.draft_ms() + times.verify_ms(), 10.0011);
        assert_eq!(times.total_ms(), 10.0026);
    }
}
