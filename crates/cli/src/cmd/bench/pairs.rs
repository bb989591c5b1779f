//! One prompt, answered plainly and speculatively in turns.
//!
//! The order inside a pair alternates, so that a machine that warms up or slows down favours neither.
//!
//! Invariant: only decoding is timed; the comparison of token ids covers every run.
//! Not here: means over prompts (`record`), the statistics (`pilotfish_measure::stats`).

use pilotfish::{BySource, Engine, Event, FinishReason, GenerateOptions, Message, Prompt, Summary};
use pilotfish_measure::energy::{EnergyError, PackageEnergy};
use pilotfish_measure::record;
use pilotfish_measure::stats::{geometric_mean, paired_ratio};

use crate::exit::interrupted;
use crate::trace::{About, Trace};

/// Joules and tokens of the runs whose energy counts.
pub(crate) struct Meter {
    counter: Result<PackageEnergy, EnergyError>,
    joules: f64,
    tokens: u64,
}

/// What the runs of one prompt gave.
pub(crate) struct Measured {
    /// The record's entry.
    pub(crate) entry: record::Prompt,
    /// Speculative over plain.
    pub(crate) ratio: Option<f64>,
}

/// Answers one prompt `pairs` times each way.
///
/// # Errors
/// What the engine says, or that it was interrupted or too quick to time.
pub(crate) fn measure(
    engine: &mut Engine,
    (name, text): (&'static str, &str),
    options: &GenerateOptions,
    pairs: usize,
    meter: &mut Meter,
    trace: &mut Trace,
) -> anyhow::Result<Measured> {
    let speculates = engine.drafter() != "none";
    let (mut plain, mut drafted): (Vec<Summary>, Vec<Summary>) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        for turn in [pair % 2 == 0, pair % 2 != 0] {
            let speculate = !turn;
            if speculate && !speculates {
                continue;
            }
            trace.reply(About { prompt: Some(name), speculative: Some(speculate) });
            let options = GenerateOptions { speculate, ..options.clone() };
            let run =
                answer(engine, text, &options, (speculate == speculates).then_some(&mut *meter), trace)?;
            if speculate { drafted.push(run) } else { plain.push(run) }
        }
    }
    let tokens = plain[0].tokens.clone();
    let same = plain.iter().chain(&drafted).all(|run| run.tokens == tokens);
    let rates = |runs: &[Summary]| -> Vec<f64> { runs.iter().map(rate).collect() };
    let (plain_rates, drafted_rates) = (rates(&plain), rates(&drafted));
    let mean = |rates: &[f64]| geometric_mean(rates);
    let plain_tok_s = mean(&plain_rates)
        .ok_or_else(|| anyhow::anyhow!("prompt {name} was answered too quickly to be timed"))?;
    let both: Vec<(f64, f64)> = drafted_rates.iter().copied().zip(plain_rates.iter().copied()).collect();
    let ratio = paired_ratio(&both);
    let last = drafted.last().map(|run| &run.speculation);
    let parked = drafted.iter().any(|run| run.speculation.parked);
    let reason = drafted.iter().rev().find_map(|run| run.speculation.reason.clone()).filter(|_| parked);
    let entry = record::Prompt {
        name: name.to_owned(),
        tokens: tokens.len(),
        plain_tok_s,
        spec_tok_s: mean(&drafted_rates),
        ratio_ci95: ratio.and_then(|ratio| ratio.ci95),
        tau: last.and_then(|_| tau(&drafted)),
        accepted_by_position: accepted_by_position(&drafted),
        by_source: by_source(&drafted),
        lossless: speculates.then_some(same),
        parked,
        reason,
    };
    Ok(Measured { entry, ratio: ratio.map(|ratio| ratio.ratio) })
}

fn answer(
    engine: &mut Engine,
    text: &str,
    options: &GenerateOptions,
    meter: Option<&mut Meter>,
    trace: &mut Trace,
) -> anyhow::Result<Summary> {
    let messages = [Message::user(text)];
    let prompt = if engine.has_template() { Prompt::Chat(&messages) } else { Prompt::Raw(text) };
    let mut meter = meter;
    let before = meter.as_mut().and_then(|meter| meter.read());
    for event in engine.generate(prompt, options)? {
        match event? {
            Event::Round(round) => trace.round(&round),
            Event::Finished(summary) if summary.finish == FinishReason::Cancelled => {
                return Err(interrupted());
            }
            Event::Finished(summary) => {
                if let Some(meter) = meter {
                    meter.count(before, summary.tokens.len() as u64);
                }
                return Ok(*summary);
            }
            _ => {}
        }
    }
    anyhow::bail!("the engine ended without a result")
}

fn rate(run: &Summary) -> f64 {
    crate::timings::per_second(run.stats.tokens, run.stats.decode_ms)
}

/// Tokens per round over all runs.
fn tau(runs: &[Summary]) -> Option<f64> {
    let rounds: usize = runs.iter().map(|run| run.stats.rounds).sum();
    let tokens: usize = runs.iter().map(|run| run.stats.tokens).sum();
    (rounds > 0).then(|| tokens as f64 / rounds as f64)
}

/// Shares over the rounds of all runs.
fn accepted_by_position(runs: &[Summary]) -> Vec<f64> {
    let mut sums: Vec<(usize, usize)> = Vec::new();
    for run in runs {
        let counts = &run.stats.by_position;
        sums.resize(sums.len().max(counts.len()), (0, 0));
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum = (sum.0 + count.0, sum.1 + count.1);
        }
    }
    sums.into_iter()
        .filter(|(drafted, _)| *drafted > 0)
        .map(|(drafted, right)| right as f64 / drafted as f64)
        .collect()
}

/// Counts over the rounds of all runs.
fn by_source(runs: &[Summary]) -> Vec<record::SourceCount> {
    let mut sum = BySource::default();
    runs.iter().for_each(|run| sum += run.stats.by_source);
    let entry = |(source, count): (pilotfish::Source, pilotfish::SourceCount)| record::SourceCount {
        source: source.name().to_owned(),
        rounds: count.rounds,
        drafted: count.drafted,
        accepted: count.accepted,
    };
    sum.iter().map(entry).collect()
}

impl Meter {
    /// Opens the machine's counters, if it has any.
    pub(crate) fn new() -> Self {
        Self { counter: PackageEnergy::open(), joules: 0.0, tokens: 0 }
    }

    fn read(&mut self) -> Option<f64> {
        match self.counter.as_mut().ok()?.sample() {
            Ok(joules) => Some(joules),
            Err(error) => {
                self.counter = Err(error);
                None
            }
        }
    }

    fn count(&mut self, before: Option<f64>, tokens: u64) {
        if let (Some(before), Some(now)) = (before, self.read()) {
            self.joules += now - before;
            self.tokens += tokens;
        }
    }

    /// The record's entry.
    pub(crate) fn energy(&self) -> record::Energy {
        let joules = match &self.counter {
            Ok(_) => Ok(self.joules),
            Err(error) => Err(error.clone()),
        };
        pilotfish_measure::energy::energy_per_token(joules, self.tokens)
    }
}
