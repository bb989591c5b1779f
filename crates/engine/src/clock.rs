//! Where the engine gets the time from.
//!
//! Time is injected so that parking can be tested with a clock that only moves when a scripted lane
//! says so.
//!
//! Invariant: no clock reading ever changes a token.
//! Not here: percentiles and records (`pilotfish_measure`).

use std::time::Instant;

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// Milliseconds since some fixed moment.
    fn now_ms(&self) -> f64;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub struct MonotonicClock {
    start: Instant,
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now_ms(&self) -> f64 {
        self.start.elapsed().as_secs_f64() * 1e3
    }
}
