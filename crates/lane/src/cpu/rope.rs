//! Cosines and sines of every position, computed once in f64 and rounded once.
//!
//! The f64 functions come from a pure-Rust library rather than the system's, so that every
//! machine has the same table.
//!
//! Invariant: an entry depends on the rope's parameters and the position only.
//! Not here: rotating (`pilotfish_tensor::kernels`).

use pilotfish_model::Model;
use pilotfish_model::graph::{Rope, RopeScaling};

/// The table of one rope: `[positions, 2, dims / 2]`, cosines then sines.
#[derive(Debug)]
pub(super) struct RopeTable {
    frequencies: Vec<f64>,
    amplitude: f64,
    table: Vec<f32>,
}

impl RopeTable {
    /// A table without positions.
    pub(super) fn new(rope: &Rope, model: &Model) -> Self {
        let pairs = rope.dims / 2;
        let plain = |i: usize| libm::pow(f64::from(rope.base), -2.0 * i as f64 / rope.dims as f64);
        let (frequencies, amplitude) = match &rope.scaling {
            RopeScaling::None => ((0..pairs).map(plain).collect(), 1.0),
            RopeScaling::Linear(factor) => ((0..pairs).map(|i| plain(i) / f64::from(*factor)).collect(), 1.0),
            RopeScaling::PerFrequency(weight) => {
                let factors = model.vector(*weight);
                ((0..pairs).map(|i| plain(i) / f64::from(factors[i])).collect(), 1.0)
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
                let context = *original_context as f64;
                let low = yarn_pair(rope, context, *beta_fast).floor().max(0.0);
                let high = yarn_pair(rope, context, *beta_slow).ceil().min(rope.dims as f64 - 1.0);
                let blend = |i: usize| {
                    let ramp = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    plain(i) * (1.0 - ramp) + plain(i) / f64::from(*factor) * ramp
                };
                ((0..pairs).map(blend).collect(), f64::from(*attention_factor))
            }
        };
        Self { frequencies, amplitude, table: Vec::new() }
    }

    /// Extends the table to cover positions below `n`.
    pub(super) fn extend(&mut self, n: usize) {
        let known = self.table.len() / (2 * self.frequencies.len());
        self.table.reserve(n.saturating_sub(known) * 2 * self.frequencies.len());
        for position in known..n {
            for function in [libm::cos, libm::sin] {
                let angles = self.frequencies.iter().map(|frequency| position as f64 * frequency);
                self.table.extend(angles.map(|angle| (function(angle) * self.amplitude) as f32));
            }
        }
    }

    /// The row of one position, `[2, dims / 2]`.
    pub(super) fn row(&self, position: usize) -> &[f32] {
        let width = 2 * self.frequencies.len();
        &self.table[position * width..(position + 1) * width]
    }
}

/// The pair that turns `rotations` times over the original context (arXiv 2309.00071, eq. 17–18).
fn yarn_pair(rope: &Rope, context: f64, rotations: f32) -> f64 {
    let turns = context / (f64::from(rotations) * 2.0 * std::f64::consts::PI);
    rope.dims as f64 * libm::log(turns) / (2.0 * libm::log(f64::from(rope.base)))
}
