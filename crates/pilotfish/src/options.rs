//! What to load and how to answer, with defaults that need no thought.
//!
//! Invariant: defaults are repeatable: greedy, and a fixed seed once a temperature is asked for.
//! Not here: the ranges of sampling parameters (`pilotfish_engine::sampling::SamplingParams`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pilotfish_engine::sampling::SamplingParams;
use pilotfish_engine::speculate::{Pipelining, SpecSampling};

use crate::lanes::{CpuOptions, Device};
use crate::load::ModelRef;

/// Context used when none is asked for and the model was trained for more. Its cache still grows only as it fills;
/// the limit keeps a forgotten `-n` from filling the memory.
pub const DEFAULT_CONTEXT: usize = 8192;

/// Who guesses the next tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrafterChoice {
    /// All lookups, and where one is given a head or a model for when they have little to say.
    #[default]
    Auto,
    /// Nobody: plain decoding.
    None,
    /// Lookup of what followed the same tokens last.
    Ngram,
    /// Lookup of what followed the same tokens how often, here and in earlier replies.
    Suffix,
    /// Only the model of [`LoadOptions::draft_model`].
    Model,
    /// Only the head of [`LoadOptions::head`].
    Head,
}

/// What to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The target: the model whose text it is.
    pub model: ModelRef,
    /// Who guesses.
    pub drafter: DrafterChoice,
    /// The drafting model; it must share the target's vocabulary.
    pub draft_model: Option<ModelRef>,
    /// A trained head for the target: a folder with `config.json` and safetensors, or the safetensors file in it.
    pub head: Option<PathBuf>,
    /// The drafting model stops guessing below this probability, 0 to 1.
    pub draft_p_min: f32,
    /// Most guesses a round; `None` is the drafter's own default.
    pub draft_max: Option<usize>,
    /// Whether earlier replies of this engine are looked up too; off where prompts are repeated to be measured.
    pub past_replies: bool,
    /// A file in which replies outlive this engine: read at load, replaced after each reply.
    pub history: Option<PathBuf>,
    /// Whether speculation may be suspended while it loses time; off only for tests and measurements.
    pub parking: bool,
    /// Whether the drafting model works ahead while the target verifies; [`Pipelining::On`] needs a drafting model.
    pub pipeline: Pipelining,
    /// Where the target runs.
    pub device: Device,
    /// Settings of the CPU lane. A context of `None` is the trained one, at most [`DEFAULT_CONTEXT`]. A drafting model
    /// keeps its keys and values as f16 whatever the target does.
    pub cpu: CpuOptions,
    /// Never use the network.
    pub offline: bool,
}

impl LoadOptions {
    /// A catalog name or a path, with drafting by lookup on the CPU.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: ModelRef::Named(model.into()),
            drafter: DrafterChoice::Auto,
            draft_model: None,
            head: None,
            draft_p_min: 0.0,
            draft_max: None,
            past_replies: true,
            history: None,
            parking: true,
            pipeline: Pipelining::Auto,
            device: Device::Cpu,
            cpu: CpuOptions::default(),
            offline: false,
        }
    }
}

/// How to answer one prompt.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Most tokens to write; `None` goes on until an end token or a full context.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen; the default is greedy.
    pub sampling: SamplingParams,
    /// Tells several answers to one prompt apart, which share a seed; 0 for the first.
    pub choice: u32,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Write on past end tokens.
    pub ignore_eos: bool,
    /// Whether to use the engine's drafter; without it decoding is plain.
    pub speculate: bool,
    /// How guesses are judged where the text is sampled. Another mode gives another text of the same law, with
    /// and without guesses.
    pub spec_sampling: SpecSampling,
    /// Report each token's log-probability under the model itself, and this many best tokens.
    pub logprobs: Option<usize>,
    /// Tell of every round too, by [`Event::Round`](crate::Event::Round).
    pub rounds: bool,
    /// Set it from another thread, or from a signal handler, to stop.
    pub cancel: Arc<AtomicBool>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: None,
            sampling: SamplingParams::greedy(),
            choice: 0,
            stop: Vec::new(),
            ignore_eos: false,
            speculate: true,
            spec_sampling: SpecSampling::default(),
            logprobs: None,
            rounds: false,
            cancel: Arc::new(AtomicBool::new(false)),
        }
    }
}
