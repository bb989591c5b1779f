//! Drafting while the target verifies: the next proposal is begun beside the pass over this one.
//!
//! ```text
//! target    verify block n ───────────────▶ accept ─▶ verify block n + 1 …
//! drafter   expect all right, and a bonus ─▶ block n + 1   taken up, or dropped
//! ```
//!
//! The block begun ahead is for one outcome: every guess right, and the bonus token that the drafter would guess. If the
//! text turns out so, [`Drafter::propose`] has its answer already; if not, the drafter's lane goes back to the longest
//! common prefix, and the target's never went ahead. The drafter stops at its next guess once the pass has ended.
//!
//! This cannot change what is proposed, only when it is worked out: `propose` answers as it would have. So where the
//! text is sampled by rejection, nothing new decides what is verified. A guess made ahead is drawn by the numbers of
//! the round that would begin there; they are drawn from again after a miss, but nobody has seen what they gave: the
//! expected bonus token is the drafter's likeliest, not a draw, and neither the length nor the time of the work ahead
//! depends on a drawn token.
//!
//! [`Pipelining::Auto`] needs both lanes on devices of their own, and then measures: in the first few rounds with work
//! ahead, how much of the time that could be hidden (the shorter one's, each lane alone) was hidden? On one engine
//! that both share it is nothing, since every guess made ahead holds up the pass or waits for it. From then on a round
//! is pipelined where the chance of a hit is above the share that is not hidden.
//!
//! Invariant: neither tokens nor what is proposed depend on it.
//! Not here: what is kept of the work ahead (`draft::model`), how much is drafted (`budget`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use pilotfish_lane::{Batch, LaneError, LaneInfo, Rows};

use crate::cached::CachedLane;
use crate::clock::Clock;
use crate::draft::{Ahead, Drafter};

/// Rounds with work ahead after which [`Pipelining::Auto`] decides. The best of them counts: a stall of the machine
/// says nothing about the lanes.
const TRIALS: usize = 3;
/// Share of what could be hidden that must be: below it the lanes slow each other.
const HIDDEN: f64 = 0.8;

/// Whether the drafter works ahead while the target verifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipelining {
    /// Never.
    Off,
    /// Where the two lanes were measured not to slow each other.
    #[default]
    Auto,
    /// Wherever the drafter has a lane, even where that loses.
    On,
}

/// Whether the drafter works ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineReport {
    /// Whether it does where a hit is likely enough.
    pub on: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// What each lane takes by itself, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Alone {
    pub(super) pass_ms: f64,
    pub(super) guess_ms: f64,
}

/// Both lanes at once, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trial {
    /// The pass, and the guesses made meanwhile, each alone.
    pass_ms: f64,
    drafted_ms: f64,
    /// Of the shorter one, how much was hidden: 1 where they do not slow each other.
    hidden: f64,
}

impl Trial {
    fn new(alone: Alone, guesses: usize, took_ms: f64) -> Self {
        let (pass_ms, drafted_ms) = (alone.pass_ms, alone.guess_ms * guesses as f64);
        let shorter = pass_ms.min(drafted_ms);
        let saved = pass_ms + drafted_ms - took_ms;
        let hidden = if shorter > 0.0 { (saved / shorter).clamp(0.0, 1.0) } else { 0.0 };
        Self { pass_ms, drafted_ms, hidden }
    }
}

/// Decides whether rounds are pipelined.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    mode: Pipelining,
    /// Why these two lanes cannot work at once, or are not to.
    obstacle: Option<String>,
    /// The lanes by themselves, as far as known before they first worked at once.
    guess_ms: Option<f64>,
    running: Option<Alone>,
    trials: Vec<Trial>,
}

impl Pipeline {
    pub(super) fn new(mode: Pipelining) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Looks at the lanes that a reply will use.
    pub(super) fn meet(&mut self, target: &LaneInfo, drafter: &dyn Drafter) {
        self.running = None;
        self.obstacle = match (self.mode, drafter.device()) {
            (Pipelining::Off, _) => Some("it is switched off".to_owned()),
            (_, None) => Some("no drafter here has a lane of its own that could work ahead".to_owned()),
            (Pipelining::Auto, Some(device)) if device == target.name => {
                Some(format!("target and drafter share one device, {device}"))
            }
            _ => None,
        };
    }

    /// Whether the drafter works ahead in this round, given what the lanes take alone, if that is known, and how likely
    /// the text becomes what it expects.
    pub(super) fn begins(&mut self, alone: Option<Alone>, hit: f64) -> bool {
        self.running = None;
        if self.obstacle.is_some() || self.mode == Pipelining::On {
            return self.obstacle.is_none();
        }
        if self.trials.len() == TRIALS {
            return self.hidden() >= HIDDEN && hit > 1.0 - self.hidden();
        }
        let Some(alone) = alone else { return false };
        // What was prepared ahead makes the guesses of later rounds seem cheap.
        let guess_ms = *self.guess_ms.get_or_insert(alone.guess_ms);
        self.running = Some(Alone { guess_ms, ..alone });
        true
    }

    /// Learns that a pass with `guesses` made ahead beside it took `took_ms`; returns whether that was a trial.
    pub(super) fn observe(&mut self, guesses: Option<usize>, took_ms: f64) -> bool {
        let (Some(alone), Some(guesses)) = (self.running.take(), guesses) else { return false };
        self.trials.push(Trial::new(alone, guesses, took_ms));
        true
    }

    fn best(&self) -> Option<&Trial> {
        self.trials.iter().max_by(|a, b| a.hidden.total_cmp(&b.hidden))
    }

    fn hidden(&self) -> f64 {
        self.best().map_or(0.0, |trial| trial.hidden)
    }

    pub(super) fn report(&self) -> PipelineReport {
        let slow = |trial: &Trial| {
            format!(
                "the lanes slow each other: {:.0} % hidden of {:.1} ms of drafting beside a pass of {:.1} ms",
                100.0 * trial.hidden,
                trial.drafted_ms,
                trial.pass_ms
            )
        };
        let reason = match (&self.obstacle, self.mode, self.best()) {
            (Some(obstacle), _, _) => Some(obstacle.clone()),
            (None, Pipelining::On, _) => None,
            (None, _, Some(trial)) if self.trials.len() == TRIALS => {
                (trial.hidden < HIDDEN).then(|| slow(trial))
            }
            (None, ..) => Some("not yet measured whether the lanes slow each other".to_owned()),
        };
        PipelineReport { on: reason.is_none(), reason }
    }
}

/// What came of a pass.
pub(super) struct Verified {
    pub(super) rows: Rows,
    /// What the drafter did meanwhile, if it was to, and milliseconds that it took longer.
    pub(super) ahead: Option<Ahead>,
    pub(super) waited_ms: f64,
    /// What the drafter died of.
    pub(super) panic: Option<String>,
}

impl Verified {
    /// A pass by itself.
    pub(super) fn alone(rows: Rows) -> Self {
        Self { rows, ahead: None, waited_ms: 0.0, panic: None }
    }
}

/// Runs the target's pass on a thread of its own, and `draft_ahead` meanwhile, which hears whether to go on.
///
/// # Errors
/// What the target's lane says, once the drafter has stopped.
pub(super) fn verify_while_drafting(
    clock: &dyn Clock,
    target: &mut CachedLane,
    batch: &Batch,
    draft_ahead: &mut dyn FnMut(&dyn Fn() -> bool) -> Ahead,
) -> Result<Verified, LaneError> {
    // Bits of the time at which the pass ended.
    let ended = AtomicU64::new(f64::INFINITY.to_bits());
    let ended_at = || f64::from_bits(ended.load(Ordering::Acquire));
    let (mut rows, mut drafted) = (None, Ok(Ahead::default()));
    clock.both(
        &mut || {
            rows = Some(target.forward(batch));
            ended.store(clock.now_ms().to_bits(), Ordering::Release);
        },
        &mut || {
            let go_on = || clock.now_ms() < ended_at();
            // It is retired and not asked again, so a half-made state of its own harms nobody.
            drafted = catch_unwind(AssertUnwindSafe(|| draft_ahead(&go_on)));
        },
    );
    let rows = rows.expect("the clock has run the pass")?;
    let waited_ms = clock.now_ms() - ended_at();
    let (ahead, panic) = match drafted {
        Ok(ahead) => (ahead, None),
        Err(panic) => (Ahead::default(), Some(in_words(panic.as_ref()))),
    };
    Ok(Verified { rows, ahead: Some(ahead), waited_ms, panic })
}

fn in_words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("the drafter panicked: {}", text.unwrap_or("without a word"))
}

#[cfg(test)]
#[path = "tests/pipeline.rs"]
mod tests;
