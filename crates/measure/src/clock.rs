//! A monotonic clock that tests can replace.
//!
//! Code that decides by elapsed time takes `&dyn Clock`, so that a test can move time
//! by hand and the decision becomes a pure function of the readings.
//!
//! Invariant: readings of one clock never decrease.
//! Not here: dates and times of day, which no measurement should subtract.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Something that tells how much time has passed since a fixed origin of its own.
pub trait Clock: Send + Sync {
    /// Time since this clock's origin. Only differences between two readings of one clock mean anything.
    fn now(&self) -> Duration;

    /// Runs `work` and returns its result with the time it took.
    fn time<T>(&self, work: impl FnOnce() -> T) -> (T, Duration)
    where
        Self: Sized,
    {
        let start = self.now();
        let result = work();
        (result, self.now().saturating_sub(start))
    }
}

/// The operating system's monotonic clock, counted from the moment this value was made.
#[derive(Debug, Clone)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that reads zero now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A clock that stands still until it is told to move; for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    reading: Mutex<Duration>,
}

impl ManualClock {
    /// A clock that reads zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        *self.lock() += by;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Duration> {
        // A panic elsewhere cannot leave a `Duration` half written, so a poisoned reading is still a good one.
        self.reading.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_never_goes_back() {
        let clock = MonotonicClock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new();
        assert_eq!(clock.now(), Duration::ZERO);
        let (answer, took) = clock.time(|| {
            clock.advance(Duration::from_millis(7));
            42
        });
        assert_eq!((answer, took), (42, Duration::from_millis(7)));
        assert_eq!(clock.now(), Duration::from_millis(7));
    }

    #[test]
    fn a_clock_can_be_passed_as_an_object() {
        fn reading(clock: &dyn Clock) -> Duration {
            clock.now()
        }
        assert_eq!(reading(&ManualClock::new()), Duration::ZERO);
    }
}
