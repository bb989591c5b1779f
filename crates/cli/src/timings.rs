//! Where the time went, for people (stderr) and for `--json`.
//!
//! Invariant: a rate without time is 0, never infinite or NaN.
//! Not here: measuring (the engine's clock).

use crate::output::note;
use crate::units::count;
use pilotfish::{PipelineReport, SpeculationReport, Stats, Summary};
use serde::Serialize;

/// The `timings` object of `run --json`; the names are llama.cpp's.
#[derive(Debug, Serialize)]
pub(crate) struct Timings {
    prompt_n: usize,
    prompt_ms: f64,
    predicted_n: usize,
    predicted_ms: f64,
    predicted_per_second: f64,
    draft_n: usize,
    draft_n_accepted: usize,
}

/// The `speculation` object of `run --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Speculation {
    drafter: String,
    tau: f64,
    parked: bool,
    reason: Option<String>,
    pipeline: Pipeline,
}

/// Whether the drafter works ahead while the target verifies, and why not.
#[derive(Debug, Serialize)]
struct Pipeline {
    on: bool,
    reason: Option<String>,
}

impl Timings {
    /// From the engine's counts. `prompt_n` counts tokens that were run: not those found in the cache, nor those that
    /// were not reached.
    pub(crate) fn new(stats: &Stats) -> Self {
        Self {
            prompt_n: stats.read_tokens,
            prompt_ms: stats.prefill_ms,
            predicted_n: stats.tokens,
            predicted_ms: stats.decode_ms,
            predicted_per_second: per_second(stats.tokens, stats.decode_ms),
            draft_n: stats.drafted,
            draft_n_accepted: stats.accepted,
        }
    }
}

impl Speculation {
    /// From the engine's report.
    pub(crate) fn new(report: &SpeculationReport) -> Self {
        let SpeculationReport { drafter, tau, parked, reason, pipeline } = report.clone();
        let PipelineReport { on, reason: why_not } = pipeline;
        Self { drafter, tau, parked, reason, pipeline: Pipeline { on, reason: why_not } }
    }
}

/// Tokens per second, 0 when no time passed.
pub(crate) fn per_second(tokens: usize, ms: f64) -> f64 {
    if ms > 0.0 { tokens as f64 * 1e3 / ms } else { 0.0 }
}

/// Prints the three lines of timings to stderr, and a fourth where the drafter worked ahead.
pub(crate) fn print(summary: &Summary) {
    let timings = Timings::new(&summary.stats);
    let reused = match summary.stats.reused_tokens {
        0 => String::new(),
        n => format!(", {n} more from the cache"),
    };
    let stats = &summary.stats;
    let read = if stats.read_tokens + stats.reused_tokens < stats.prompt_tokens {
        format!("{} of {}", stats.read_tokens, count(stats.prompt_tokens, "token"))
    } else {
        count(stats.read_tokens, "token")
    };
    note!(
        "prompt eval: {read}, {:.1} ms, {:.1} tok/s{reused}",
        timings.prompt_ms,
        per_second(timings.prompt_n, timings.prompt_ms),
    );
    note!(
        "eval: {}, {:.1} ms, {:.1} tok/s, finish: {}",
        count(timings.predicted_n, "token"),
        timings.predicted_ms,
        timings.predicted_per_second,
        summary.finish.as_str(),
    );
    let report = &summary.speculation;
    // Without a round there is nothing to divide by.
    let tau = if stats.rounds > 0 { format!(", τ {:.2}", report.tau) } else { String::new() };
    let parked = match (&report.reason, report.parked) {
        (Some(reason), true) => format!(", parked: {reason}"),
        (Some(reason), false) => format!(", {reason}"),
        (None, true) => ", parked".to_owned(),
        (None, false) => String::new(),
    };
    note!(
        "speculation: {}, drafted {}, accepted {}{tau}{parked}",
        report.drafter,
        timings.draft_n,
        timings.draft_n_accepted
    );
    if stats.ahead_rounds > 0 {
        let off =
            report.pipeline.reason.as_ref().map_or_else(String::new, |reason| format!(", off: {reason}"));
        note!("pipeline: {} of {} drafts begun ahead were of use{off}", stats.ahead_hits, stats.ahead_rounds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_no_rate() {
        assert_eq!(per_second(5, 0.0), 0.0);
        assert_eq!(per_second(5, 500.0), 10.0);
    }
}
