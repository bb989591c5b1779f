//! The cost curve: milliseconds of one pass by its width.
//!
//! Widths take turns, so that a slow moment of the machine is shared by all of them. Every row wants its argmax, as
//! when a draft is verified.
//!
//! Invariant: nothing is kept; every pass starts from the same cache.
//! Not here: choosing draft lengths by it (`pilotfish-engine`).

use std::time::{Duration, Instant};

use pilotfish::{Engine, Roofline};
use pilotfish_engine::speculate::TokenTree;
use pilotfish_engine::{CachedLane, MonotonicClock};
use pilotfish_lane::{Batch, Want};
use pilotfish_measure::percentile::Samples;
use pilotfish_measure::record::CurvePoint;

/// Which points are measured, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    widths: &'static [usize],
    contexts: &'static [usize],
    /// Passes of each width: at least the first, at most the second, as far as the time goes.
    passes: (usize, usize),
    /// Time for one context.
    time: Duration,
}

/// Beside the prompts: every width a short draft can have, then the doublings.
pub(crate) const BESIDE: Grid = Grid {
    widths: &[1, 2, 3, 4, 6, 8, 12, 16, 32],
    contexts: &[128],
    passes: (5, 20),
    time: Duration::from_secs(10),
};

/// `--curve`: wider, and behind more tokens.
pub(crate) const ALONE: Grid = Grid {
    widths: &[1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64],
    contexts: &[128, 1024, 4096],
    passes: (7, 30),
    time: Duration::from_secs(45),
};

/// Measures a grid on the tokens of `text`, repeated as needed, with the machine's limits taken before and after;
/// `None` once `stopped`. Contexts that do not fit with their widest pass are left out.
///
/// # Errors
/// What the lane says.
pub(crate) fn measure(
    engine: &mut Engine,
    text: &[u32],
    grid: Grid,
    stopped: &dyn Fn() -> bool,
) -> anyhow::Result<Option<(Vec<CurvePoint>, Roofline)>> {
    let before = engine.roofline()?;
    let (context, widest) = (engine.lane_info().context, engine.lane_info().max_width);
    let widths: Vec<usize> = grid.widths.iter().copied().filter(|&w| w <= widest).collect();
    let longest = widths.last().copied().unwrap_or(0);
    let mut measured = Vec::new();
    for &held in grid.contexts.iter().filter(|&&held| held + longest <= context) {
        let tokens: Vec<u32> = text.iter().copied().cycle().take(held + longest).collect();
        if tokens.len() < held + longest {
            break;
        }
        let Some(nanos) = passes(engine.target(), &tokens, held, &widths, grid, stopped)? else {
            return Ok(None);
        };
        measured.push((held, nanos));
    }
    let roofline = before.max(engine.roofline()?);
    let weights = engine.model().bytes_per_pass();
    let (kv, macs) = (engine.kv_bytes_per_position(), engine.model().macs_per_row());
    let mut points = Vec::new();
    for (context, nanos) in measured {
        for (&width, nanos) in widths.iter().zip(nanos) {
            let Some(samples) = Samples::from_nanos(nanos) else { continue };
            let bytes = weights + kv * context as u64;
            points.push(CurvePoint {
                width,
                context,
                ms_p50: samples.p50_ms(),
                ms_min: samples.min_ms(),
                ms_max: samples.max_ms(),
                bytes,
                floor_ms: Some(roofline.floor_ms(bytes, macs * width as u64)),
            });
        }
    }
    Ok(Some((points, roofline)))
}

/// A chain as a round verifies it: every row says which token follows it.
fn verifying(tokens: &[u32]) -> Batch {
    TokenTree::chain(tokens[0], &tokens[1..]).to_batch(Want::Argmax)
}

/// Nanoseconds of the passes of each width behind the first `held` of `tokens`.
fn passes(
    lane: &mut CachedLane,
    tokens: &[u32],
    held: usize,
    widths: &[usize],
    grid: Grid,
    stopped: &dyn Fn() -> bool,
) -> anyhow::Result<Option<Vec<Vec<u64>>>> {
    lane.truncate(0);
    if lane.read(&tokens[..held], None, &MonotonicClock::default(), &mut |_| !stopped())? < held {
        return Ok(None);
    }
    let mut nanos: Vec<Vec<u64>> = vec![Vec::new(); widths.len()];
    let start = Instant::now();
    for pass in 0..grid.passes.1 {
        if pass >= grid.passes.0 && start.elapsed() > grid.time {
            break;
        }
        for (&width, nanos) in widths.iter().zip(&mut nanos) {
            if stopped() {
                return Ok(None);
            }
            let batch = verifying(&tokens[held..held + width]);
            let before = Instant::now();
            lane.forward(&batch)?;
            nanos.push(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    lane.truncate(0);
    Ok(Some(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_a_measured_pass_gives_a_token() {
        let batch = verifying(&[7, 8, 9]);
        assert!(batch.rows().iter().all(|row| row.want == Want::Argmax));
        assert_eq!(batch.path(2), [0, 1, 2]);
    }
}
