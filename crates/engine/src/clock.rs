//! Where the engine gets the time from.
//!
//! Time is injected so that parking can be tested with a clock that only moves when a scripted lane
//! says so. What two jobs take that run at once is a question of time too, so the clock runs them.
//!
//! Invariant: no clock reading ever changes a token.
//! Not here: percentiles and records (`pilotfish_measure`).

use std::panic::resume_unwind;
use std::thread;
use std::time::Instant;

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// Milliseconds since some fixed moment.
    fn now_ms(&self) -> f64;

    /// Runs two jobs at once, `aside` on a thread of its own; returns when both have ended, and passes on a panic of
    /// either. Where no thread is to be had, they run one after the other. A clock that is moved by hand says here
    /// how much time two jobs take together.
    fn both(&self, aside: &mut (dyn FnMut() + Send), here: &mut dyn FnMut()) {
        let started = thread::scope(|scope| {
            let aside = thread::Builder::new().spawn_scoped(scope, &mut *aside);
            let Ok(aside) = aside else { return false };
            here();
            aside.join().unwrap_or_else(|panic| resume_unwind(panic));
            true
        });
        if !started {
            aside();
            here();
        }
    }
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
