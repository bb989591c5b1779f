//! The law of coupled sampling, integrated.
//!
//! Token i wins when its logit and noise exceed all others'. Given its own noise g, the others stay below with
//! probability exp(-exp(-x)) each, the distribution of Gumbel noise. The mean of that product over g, taken at
//! evenly spaced bits of the real noise, is the probability of i, and must be the softmax.
//!
//! Invariant: no number here is random.
//! Not here: whether the sampler takes the largest sum (`sampling::tests`), sampled laws (`sampled`).

use super::settings::dyadic;
use crate::sampling::{Noise, Sampler, SamplingParams};

/// Points of the integral; the midpoint rule is off by about 1 / STEPS².
const STEPS: u64 = 1 << 12;

/// Bits of the noise.
const BITS: u32 = 52;

#[test]
fn enumeration_of_the_coupled_law() {
    let base = SamplingParams { temperature: 1.0, ..SamplingParams::greedy() };
    for params in [
        base.clone(),
        SamplingParams { temperature: 0.3, ..base.clone() },
        SamplingParams { temperature: 2.0, top_k: 3, ..base.clone() },
        SamplingParams { top_p: 0.7, presence_penalty: 0.5, ..base },
    ] {
        for vocab in 2..=6 {
            let logits = dyadic(vocab, 11)(&[1]);
            let law = Sampler::new(params.clone(), vocab, 0).unwrap().law(&logits, &[0, 1]).unwrap();
            let kept: Vec<u32> = (0..vocab as u32).filter(|&token| law.of(token) > 0.0).collect();
            for &token in &kept {
                let lead = |other: u32| (law.of(token) / law.of(other)).ln();
                let wins = |step: u64| {
                    let noise = Noise::gumbel((2 * step + 1) << (BITS - 1 - STEPS.ilog2()));
                    let below = |&other: &u32| (-(-(noise + lead(other))).exp()).exp();
                    kept.iter().filter(|&&other| other != token).map(below).product::<f64>()
                };
                let integral = (0..STEPS).map(wins).sum::<f64>() / STEPS as f64;
                let error = (integral - law.of(token)).abs();
                assert!(error < 1e-5, "{params:?}, token {token} of {vocab}: off by {error:e}");
            }
        }
    }
}
