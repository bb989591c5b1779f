//! Chooses a token from a logits row.
//!
//! By default sampling is coupled: the token of absolute position t is argmax over the kept candidates of
//! logit / temperature + noise, where the noise is Gumbel, one number per token id, named by (seed, choice, t).
//! That argmax is a draw from the softmax, yet it is a pure function of row and history. A draft is right exactly when it
//! equals that token, so sampled text does not depend on speculation; and a drafter that adds the same
//! noise to similar logits mostly finds the same token.
//!
//! The other way to sample, rejection, needs the softmax itself: [`Sampler::law`].
//!
//! Invariant: [`Sampler::sample`] and [`Sampler::law`] have no memory; equal arguments give equal results.
//! Not here: walking a drafted tree (`speculate::accept`), the rule of rejection (`speculate::reject`).

mod choice;
mod elementary;
mod filters;
mod law;
mod noise;
mod params;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use choice::Likeliest;
pub use choice::{Choice, Dice, SeededDice};
pub use filters::Candidate;
pub use law::Law;
pub use noise::{Noise, Purpose, philox4x32};
pub use params::SamplingParams;

use filters::{Penalties, better_first};
use pilotfish_lane::Want;

/// Why a token could not be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// A parameter outside its range.
    #[error("{name} is {value}; it must be {range}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: f32,
        /// What is allowed, in words.
        range: &'static str,
    },
    /// A biased token that the model does not have.
    #[error("logit_bias names token {token}, outside the vocabulary of {vocab}")]
    BiasOutsideVocabulary {
        /// The id.
        token: u32,
        /// Number of logits.
        vocab: usize,
    },
    /// NaN or infinity among the logits.
    #[error("the model gave the non-finite logit {value} for token {token} at position {position}")]
    NonFinite {
        /// Position whose token was to be chosen.
        position: usize,
        /// First id with such a logit.
        token: u32,
        /// The logit.
        value: f32,
    },
}

/// Chooses tokens under fixed parameters.
#[derive(Debug)]
pub struct Sampler {
    params: SamplingParams,
    choice: u32,
    candidates: Vec<Candidate>, // scratch
    counts: Vec<u32>,           // scratch: zero between calls
}

impl Clone for Sampler {
    fn clone(&self) -> Self {
        // The scratch of a large vocabulary is megabytes; the copy grows its own.
        Self { params: self.params.clone(), choice: self.choice, candidates: vec![], counts: vec![] }
    }
}

impl Sampler {
    /// A sampler for a target with `vocab` logits; `choice` tells the several replies to one prompt
    /// apart, which share a seed.
    ///
    /// # Errors
    /// What [`SamplingParams::validate`] finds.
    pub fn new(params: SamplingParams, vocab: usize, choice: u32) -> Result<Self, SamplingError> {
        params.validate(vocab)?;
        Ok(Self { params, choice, candidates: Vec::new(), counts: Vec::new() })
    }

    /// The parameters.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Whether `other` chooses the same tokens.
    pub fn same_settings(&self, other: &Self) -> bool {
        self.params == other.params && self.choice == other.choice
    }

    /// What a row must return for this sampler.
    pub fn want(&self) -> Want {
        if self.params.is_plain_argmax() { Want::Argmax } else { Want::Logits }
    }

    /// The token that follows `history` (prompt and reply so far), given the row's logits `[vocab]`.
    ///
    /// # Errors
    /// [`SamplingError::NonFinite`] when a logit is NaN or infinite.
    ///
    /// # Panics
    /// When there are no logits: a bug in the caller.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SamplingError> {
        self.adjust(logits, history)?;
        if self.params.temperature == 0.0 {
            // The filters keep the best candidate, so they cannot change the answer.
            return Ok(best(&self.candidates).token);
        }
        self.filter();
        let noise = Noise::new(self.params.seed, self.choice, history.len(), Purpose::Token);
        Ok(noisy_argmax(&self.candidates, self.params.temperature.into(), &noise))
    }

    /// The law of the token that follows `history`: what [`Sampler::sample`] draws from, and at
    /// temperature 0 the one token it takes.
    ///
    /// # Errors
    /// [`SamplingError::NonFinite`] when a logit is NaN or infinite.
    ///
    /// # Panics
    /// When there are no logits: a bug in the caller.
    pub fn law(&mut self, logits: &[f32], history: &[u32]) -> Result<Law, SamplingError> {
        self.adjust(logits, history)?;
        let temperature = f64::from(self.params.temperature);
        if temperature == 0.0 {
            return Ok(Law::sure(best(&self.candidates).token));
        }
        self.filter();
        // The filters leave an order of their own; a law is by id.
        self.candidates.sort_unstable_by_key(|candidate| candidate.token);
        let largest = filters::largest_logit(&self.candidates);
        let weight = |c: &Candidate| (c.token, elementary::exp((c.logit - largest) / temperature));
        Ok(Law::new(self.candidates.iter().map(weight)).expect("the best candidate weighs 1"))
    }

    /// Random numbers for [`Dice`] under the sampler's seed.
    pub fn dice(&self) -> SeededDice {
        SeededDice::new(self.params.seed, self.choice)
    }

    /// Fills the candidates with the row's logits after bias and penalties, in id order.
    fn adjust(&mut self, logits: &[f32], history: &[u32]) -> Result<(), SamplingError> {
        assert!(!logits.is_empty(), "a row has logits");
        check_finite(logits, history.len())?;
        self.candidates.clear();
        let candidate = |(id, &x): (usize, &f32)| Candidate { token: id as u32, logit: f64::from(x) };
        self.candidates.extend(logits.iter().enumerate().map(candidate));
        filters::add_bias(&mut self.candidates, &self.params.logit_bias);
        if self.params.has_penalties() {
            let by = Penalties {
                repeat: self.params.repeat_penalty.into(),
                presence: self.params.presence_penalty.into(),
                frequency: self.params.frequency_penalty.into(),
            };
            let recent = recent(history, self.params.repeat_last_n);
            filters::penalize(&mut self.candidates, recent, by, &mut self.counts);
        }
        Ok(())
    }

    /// Drops the candidates that top-k, top-p and min-p exclude.
    fn filter(&mut self) {
        filters::top_k(&mut self.candidates, usize::try_from(self.params.top_k).unwrap_or(0));
        filters::top_p(&mut self.candidates, self.params.top_p.into());
        filters::min_p(&mut self.candidates, self.params.min_p.into());
    }
}

/// The last `n` tokens of the history; all of it for -1.
fn recent(history: &[u32], n: i32) -> &[u32] {
    let n = usize::try_from(n).unwrap_or(history.len());
    &history[history.len().saturating_sub(n)..]
}

fn check_finite(logits: &[f32], position: usize) -> Result<(), SamplingError> {
    match logits.iter().position(|logit| !logit.is_finite()) {
        None => Ok(()),
        Some(id) => Err(SamplingError::NonFinite { position, token: id as u32, value: logits[id] }),
    }
}

fn best(candidates: &[Candidate]) -> Candidate {
    let better = |a: Candidate, b: Candidate| if better_first(&b, &a).is_lt() { b } else { a };
    candidates.iter().copied().reduce(better).expect("the filters keep a candidate")
}

/// Argmax of logit / temperature + Gumbel noise, the lowest id on ties.
///
/// Most candidates of a large vocabulary cannot win: bounds on the noise rule them out before the two
/// logarithms, the cheaper bound even before the random bits.
fn noisy_argmax(candidates: &[Candidate], temperature: f64, noise: &Noise) -> u32 {
    let largest = filters::largest_logit(candidates);
    let mut winner = (f64::NEG_INFINITY, u32::MAX);
    for candidate in candidates {
        let scaled = (candidate.logit - largest) / temperature;
        if scaled + Noise::MAX_GUMBEL < winner.0 {
            continue;
        }
        let bits = noise.bits(candidate.token);
        if scaled + Noise::gumbel_at_most(bits) < winner.0 {
            continue;
        }
        let score = scaled + Noise::gumbel(bits);
        if score > winner.0 || (score == winner.0 && candidate.token < winner.1) {
            winner = (score, candidate.token);
        }
    }
    winner.1
}

/// Log-probabilities of one position under the model itself: no bias, penalty, filter or temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token that was chosen.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// The most probable tokens and their log-probabilities, best first, lower ids first on ties.
    pub top: Vec<(u32, f64)>,
}

/// Log-softmax of a row in `f64`: the entry of `token` and the `n` best.
///
/// # Panics
/// When `token` is not in the row: a bug in the caller.
pub fn logprobs(logits: &[f32], token: u32, n: usize) -> Logprobs {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total: f64 = logits.iter().map(|&x| elementary::exp(f64::from(x) - largest)).sum();
    let log_total = largest + elementary::ln(total);
    let mut best: Vec<Candidate> = logits
        .iter()
        .enumerate()
        .map(|(id, &x)| Candidate { token: id as u32, logit: f64::from(x) - log_total })
        .collect();
    let logprob = best[token as usize].logit;
    if n == 0 {
        best.clear();
    } else {
        filters::top_k(&mut best, n);
    }
    Logprobs { token, logprob, top: best.into_iter().map(|c| (c.token, c.logit)).collect() }
}
