//! The cost curve: milliseconds of one pass by its width.
//!
//! Widths take turns, so that a slow moment of the machine is shared by all of them. Every row wants its argmax, as
//! when a draft is verified.
//!
//! Invariant: nothing is kept; every pass starts from the same cache.
//! Not here: choosing draft lengths by it (`pilotfish-engine`).

use std::time::{Duration, Instant};

use pilotfish::Engine;
use pilotfish_lane::{Batch, Row, Want};
use pilotfish_measure::percentile::Samples;
use pilotfish_measure::record::CurvePoint;

/// Widths measured: every one a short draft can have, then the doublings.
const WIDTHS: [usize; 9] = [1, 2, 3, 4, 6, 8, 12, 16, 32];
/// Tokens in the cache.
const CONTEXT: usize = 128;
/// Passes of each width: at least the first, at most the second, as far as the time goes.
const PASSES: (usize, usize) = (5, 20);
const TIME: Duration = Duration::from_secs(10);

/// Measures the curve on the tokens of `text`, repeated as needed; `None` once `stopped`.
///
/// # Errors
/// What the lane says.
pub(crate) fn measure(
    engine: &mut Engine,
    text: &[u32],
    stopped: &dyn Fn() -> bool,
) -> anyhow::Result<Option<Vec<CurvePoint>>> {
    let context = engine.lane_info().context;
    let widest = engine.lane_info().max_width;
    let widths: Vec<usize> = WIDTHS.into_iter().filter(|&w| w <= widest && CONTEXT + w <= context).collect();
    let longest = widths.last().copied().unwrap_or(0);
    let tokens: Vec<u32> = text.iter().copied().cycle().take(CONTEXT + longest).collect();
    if widths.is_empty() || tokens.len() < CONTEXT + longest {
        return Ok(Some(Vec::new()));
    }
    let bytes =
        engine.model().bytes_per_pass() + engine.model().config().kv_bytes_per_position() * CONTEXT as u64;
    let lane = engine.target();
    lane.truncate(0);
    lane.append(&tokens[..CONTEXT], Want::Nothing)?;
    let mut nanos: Vec<Vec<u64>> = vec![Vec::new(); widths.len()];
    let start = Instant::now();
    for pass in 0..PASSES.1 {
        if pass >= PASSES.0 && start.elapsed() > TIME {
            break;
        }
        for (&width, nanos) in widths.iter().zip(&mut nanos) {
            if stopped() {
                return Ok(None);
            }
            let mut batch = Batch::new();
            for (i, &token) in tokens[CONTEXT..CONTEXT + width].iter().enumerate() {
                batch.push(Row { token, parent: i.checked_sub(1), want: Want::Argmax });
            }
            let before = Instant::now();
            lane.forward(&batch)?;
            nanos.push(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    lane.truncate(0);
    let point = |(width, nanos): (usize, Vec<u64>)| {
        let samples = Samples::from_nanos(nanos)?;
        Some(CurvePoint {
            width,
            context: CONTEXT,
            ms_p50: samples.p50_ms(),
            ms_min: samples.min_ms(),
            ms_max: samples.max_ms(),
            bytes,
            floor_ms: None,
        })
    };
    Ok(Some(widths.into_iter().zip(nanos).filter_map(point).collect()))
}
