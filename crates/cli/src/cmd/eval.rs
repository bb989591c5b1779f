//! `eval ppl`: perplexity of a text, by llama.cpp's protocol, so that figures can be compared.
//!
//! ```text
//! the text's tokens are cut into chunks of -c; the first token of each becomes bos where the vocabulary adds one
//! each chunk is read into an empty cache; the second half of its positions is scored
//! perplexity = exp(mean of -ln p(next token)), cumulative over chunks
//! ```
//!
//! Invariant: the figure depends on the model, the text and -c only, not on how chunks are cut into passes.
//! Not here: log-probabilities of an answer (`run --logprobs`).

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use pilotfish::{DrafterChoice, Engine, LoadOptions};
use pilotfish_engine::MonotonicClock;
use pilotfish_engine::sampling::logprobs;
use pilotfish_lane::{Batch, Row, Want};
use pilotfish_model::text::Specials;
use serde::Serialize;

use crate::args::ModelArgs;
use crate::cmd::run::load_engine;
use crate::exit::{Outcome, interrupted, usage};
use crate::numbers::whole;
use crate::units::count;
use crate::{interrupt, output};

/// Flags of `eval`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = false)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Debug, Subcommand)]
enum Measure {
    /// Perplexity of a text; the context is the chunk length, 512 unless -c says otherwise.
    Ppl(PplArgs),
}

#[derive(Args, Debug)]
struct PplArgs {
    /// The text, or - to read it from stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Score at most this many chunks.
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    chunks: Option<usize>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
}

/// llama.cpp's chunk length.
const DEFAULT_CHUNK: usize = 512;

/// Rows of logits held at a time: 16 rows of the largest vocabulary here are 17 MB.
const ROWS: usize = 16;

/// The object of `eval ppl --json`.
#[derive(Serialize)]
struct Report {
    model: String,
    numerics_id: String,
    context: usize,
    n_tokens: usize,
    chunks: usize,
    scored: usize,
    cumulative_ppl: Vec<f64>,
    ppl: Option<f64>,
    stderr: Option<f64>,
}

/// Runs the command.
///
/// # Errors
/// A text that cannot be read or is shorter than a chunk; what the model or lane says.
pub(crate) fn run(args: &EvalArgs) -> anyhow::Result<Outcome> {
    let Measure::Ppl(args) = &args.measure;
    if args.chunks == Some(0) {
        return Err(usage("--chunks must be 1 or more"));
    }
    let chunk_len = args.model.ctx_size.unwrap_or(DEFAULT_CHUNK);
    if chunk_len < 4 {
        return Err(usage(format!("-c cannot be {chunk_len}: a chunk needs 4 tokens or more")));
    }
    let text = read(&args.file)?;
    let mut load = LoadOptions { drafter: DrafterChoice::None, ..args.model.load_options()? };
    load.cpu.context = Some(chunk_len);
    let mut engine = load_engine(&load, false)?;
    let tokens = engine.tokenizer().encode_prompt(&text, Specials::Plain);
    let chunks: Vec<&[u32]> =
        tokens.chunks_exact(chunk_len).take(args.chunks.unwrap_or(usize::MAX)).collect();
    if chunks.is_empty() {
        anyhow::bail!("the text has {}, fewer than one chunk of {chunk_len}", count(tokens.len(), "token"));
    }
    let listening = interrupt::listen();
    let mut score = Score::default();
    let mut cumulative = Vec::new();
    for chunk in chunks {
        if listening.stopped() || !score.read(&mut engine, chunk, &|| listening.stopped())? {
            // A perplexity of a part would be taken for that of the text.
            return Err(interrupted());
        }
        cumulative.extend(score.perplexity());
        if !args.json {
            let ppl = score.perplexity().unwrap_or(f64::NAN);
            output::line(&format!("chunk {}: cumulative perplexity {ppl:.5}", cumulative.len()))?;
        }
    }
    let report = Report {
        model: engine.file().name.clone(),
        numerics_id: engine.lane_info().numerics_id.clone(),
        context: chunk_len,
        n_tokens: tokens.len(),
        chunks: cumulative.len(),
        scored: score.count,
        ppl: cumulative.last().copied(),
        stderr: score.standard_error(),
        cumulative_ppl: cumulative,
    };
    if args.json {
        output::json(&report)?;
    } else if let Some(ppl) = report.ppl {
        let error = report.stderr.map_or(String::new(), |error| format!(" ± {error:.5}"));
        let (chunks, scored) = (count(report.chunks, "chunk"), count(report.scored, "token"));
        output::line(&format!("perplexity {ppl:.5}{error}, {chunks} of {chunk_len}, {scored} scored"))?;
    }
    Ok(Outcome::Done)
}

/// The text of a file, or of stdin for `-`.
fn read(path: &Path) -> anyhow::Result<String> {
    let (bytes, name) = if path == Path::new("-") {
        let mut bytes = Vec::new();
        (io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes), "stdin".to_owned())
    } else {
        (std::fs::read(path), format!("`{}`", path.display()))
    };
    let bytes = bytes.with_context(|| format!("cannot read {name}"))?;
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{name} is not UTF-8"))
}

/// Sums over all scored tokens.
#[derive(Default)]
struct Score {
    sum: f64,     // of -ln p
    squares: f64, // of (ln p)²
    count: usize,
}

impl Score {
    /// Scores a chunk; `false`, with nothing added, when stopped half way.
    fn read(
        &mut self,
        engine: &mut Engine,
        chunk: &[u32],
        stopped: &dyn Fn() -> bool,
    ) -> anyhow::Result<bool> {
        let mut chunk = chunk.to_vec();
        if engine.tokenizer().add_bos()
            && let Some(bos) = engine.tokenizer().bos()
        {
            chunk[0] = bos;
        }
        // The first half only gives context; the last position predicts a token of the next chunk.
        let first = chunk.len() / 2;
        let lane = engine.target();
        lane.truncate(0);
        let clock = MonotonicClock::default();
        if lane.read(&chunk[..first], None, &clock, &mut |_| !stopped())? < first {
            return Ok(false);
        }
        let mut added = Self::default();
        for start in (first..chunk.len() - 1).step_by(ROWS) {
            if stopped() {
                return Ok(false);
            }
            let end = (start + ROWS).min(chunk.len() - 1);
            let mut batch = Batch::new();
            for (i, &token) in chunk[start..end].iter().enumerate() {
                batch.push(Row { token, parent: i.checked_sub(1), want: Want::Logits });
            }
            let rows = lane.forward(&batch)?;
            for i in 0..batch.width() {
                let position = start + i;
                let logits = rows.logits(i).with_context(|| {
                    format!("the model produced non-finite logits at position {position}; its weights may be damaged")
                })?;
                added.add(logprobs(logits, chunk[position + 1], 0).logprob);
            }
            lane.keep(&(0..batch.width()).collect::<Vec<_>>())?;
        }
        self.sum += added.sum;
        self.squares += added.squares;
        self.count += added.count;
        Ok(true)
    }

    fn add(&mut self, logprob: f64) {
        self.sum -= logprob;
        self.squares += logprob * logprob;
        self.count += 1;
    }

    fn perplexity(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.sum / self.count as f64).exp())
    }

    /// Standard error of the perplexity, from that of the mean.
    fn standard_error(&self) -> Option<f64> {
        let n = self.count as f64;
        let mean = self.sum / n;
        let variance = self.squares / n - mean * mean;
        (self.count > 1 && variance > 0.0).then(|| (variance / (n - 1.0)).sqrt() * mean.exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_is_the_inverse_geometric_mean() {
        let mut score = Score::default();
        assert_eq!((score.perplexity(), score.standard_error()), (None, None));
        score.add(0.5_f64.ln());
        score.add(0.125_f64.ln());
        assert!((score.perplexity().unwrap() - 4.0).abs() < 1e-12);
        // Mean ln 4, deviation ln 2 on both sides: error ln 2 / √1 × 4.
        assert!((score.standard_error().unwrap() - 4.0 * 2_f64.ln()).abs() < 1e-12);
    }
}
