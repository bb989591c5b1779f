//! What a request wants of the engine, checked.
//!
//! The parameters that every interface shares are read here, by the names of OpenAI and of llama.cpp.
//!
//! Invariant: an [`Ask`] holds no value that the engine would refuse.
//! Not here: messages and the shape of replies (`api`).

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use pilotfish::{GenerateOptions, SamplingParams};
use pilotfish_engine::sampling::SamplingError;
use serde::Deserialize;
use serde_json::Number;

use crate::config::Defaults;
use crate::error::ApiError;

/// A request for the engine.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Token ids to continue.
    pub(crate) prompt: Vec<u32>,
    pub(crate) options: GenerateOptions,
    /// How many replies to write.
    pub(crate) choices: u32,
}

/// Most choices of a request.
const MAX_CHOICES: u32 = 8;
/// Most texts that may end a reply, and the bytes of one.
const MAX_STOPS: (usize, usize) = (16, 256);
/// Most biased tokens.
const MAX_BIASES: usize = 1024;
/// Most alternatives listed with each token.
pub(crate) const MAX_LOGPROBS: u64 = 20;

/// One text or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a text or a list of texts")]
pub(crate) enum Texts {
    One(String),
    Several(Vec<String>),
}

/// Parameters of sampling and of a reply's end.
#[derive(Deserialize)]
pub(crate) struct Wishes {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    repeat_penalty: Option<f64>,
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    logit_bias: Option<BTreeMap<String, f64>>,
    seed: Option<Number>,
    n: Option<u32>,
    #[serde(alias = "stop_sequences")]
    stop: Option<Texts>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    pub(crate) stream: Option<bool>,
    pub(crate) pilotfish: Option<Extras>,
}

/// Parameters of this server alone.
#[derive(Default, Deserialize)]
pub(crate) struct Extras {
    /// Tells of every round in the stream.
    #[serde(default)]
    pub(crate) rounds: bool,
}

impl Wishes {
    /// Whether rounds are to be told.
    pub(crate) fn rounds(&self) -> bool {
        self.pilotfish.as_ref().is_some_and(|extras| extras.rounds)
    }

    /// The request, but for its prompt; `logprobs` is how many alternatives to list, if any.
    ///
    /// # Errors
    /// The parameter that is out of range.
    pub(crate) fn ask(
        &self,
        defaults: &Defaults,
        vocab: usize,
        logprobs: Option<u64>,
    ) -> Result<Ask, ApiError> {
        let choices = self.n.unwrap_or(1);
        if !(1..=MAX_CHOICES).contains(&choices) {
            return Err(ApiError::param("n", format!("it is {choices}; it must be 1 to {MAX_CHOICES}")));
        }
        if let Some(n) = logprobs.filter(|n| *n > MAX_LOGPROBS) {
            let why = format!("{n} alternatives are more than the {MAX_LOGPROBS} that can be listed");
            return Err(ApiError::param("top_logprobs", why));
        }
        let options = GenerateOptions {
            max_tokens: self.most_tokens()?.or(defaults.max_tokens),
            sampling: self.sampling(defaults, vocab)?,
            stop: self.stops()?,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            spec_sampling: defaults.spec_sampling,
            logprobs: logprobs.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            rounds: true,
            ..GenerateOptions::default()
        };
        Ok(Ask { prompt: Vec::new(), options, choices })
    }

    fn most_tokens(&self) -> Result<Option<usize>, ApiError> {
        let given = [
            ("max_completion_tokens", self.max_completion_tokens),
            ("max_output_tokens", self.max_output_tokens),
            ("max_tokens", self.max_tokens),
        ];
        match given.into_iter().find_map(|(name, n)| Some((name, n?))) {
            Some((name, 0)) => Err(ApiError::param(name, "it is 0; it must be 1 or more")),
            Some((_, n)) => Ok(Some(usize::try_from(n).unwrap_or(usize::MAX))),
            None => Ok(None),
        }
    }

    fn stops(&self) -> Result<Vec<String>, ApiError> {
        let stops = match &self.stop {
            None => Vec::new(),
            Some(Texts::One(text)) => vec![text.clone()],
            Some(Texts::Several(texts)) => texts.clone(),
        };
        let (most, longest) = MAX_STOPS;
        if stops.len() > most {
            return Err(ApiError::param("stop", format!("{} texts are more than {most}", stops.len())));
        }
        if stops.iter().any(|text| text.len() > longest) {
            return Err(ApiError::param("stop", format!("a text is longer than {longest} bytes")));
        }
        if stops.iter().any(String::is_empty) {
            return Err(ApiError::param("stop", "it cannot be empty: every text holds the empty text"));
        }
        Ok(stops)
    }

    fn sampling(&self, defaults: &Defaults, vocab: usize) -> Result<SamplingParams, ApiError> {
        let default = &defaults.sampling;
        // A value too large for f32 becomes infinite, which no range holds.
        let or = |value: Option<f64>, default: f32| value.map_or(default, |value| value as f32);
        let whole = |name, value: Option<i64>, default: i32| match value {
            None => Ok(default),
            Some(value) => i32::try_from(value)
                .map_err(|_| ApiError::param(name, format!("it is {value}, which is out of range"))),
        };
        let params = SamplingParams {
            temperature: or(self.temperature, default.temperature),
            top_k: whole("top_k", self.top_k, default.top_k)?,
            top_p: or(self.top_p, default.top_p),
            min_p: or(self.min_p, default.min_p),
            repeat_penalty: or(self.repeat_penalty, default.repeat_penalty),
            repeat_last_n: whole("repeat_last_n", self.repeat_last_n, default.repeat_last_n)?,
            presence_penalty: or(self.presence_penalty, default.presence_penalty),
            frequency_penalty: or(self.frequency_penalty, default.frequency_penalty),
            logit_bias: self.biases()?.unwrap_or_else(|| default.logit_bias.clone()),
            seed: self.seed(defaults)?,
        };
        params.validate(vocab).map_err(|error| match &error {
            SamplingError::OutOfRange { name, value, range } => {
                ApiError::param(*name, format!("it is {value}; it must be {range}"))
            }
            _ => ApiError::param("logit_bias", error),
        })?;
        Ok(params)
    }

    fn biases(&self) -> Result<Option<Vec<(u32, f32)>>, ApiError> {
        let Some(biases) = &self.logit_bias else { return Ok(None) };
        if biases.len() > MAX_BIASES {
            let why = format!("{} tokens are more than {MAX_BIASES}", biases.len());
            return Err(ApiError::param("logit_bias", why));
        }
        let bias = |(id, bias): (&String, &f64)| match id.parse() {
            Ok(id) => Ok((id, *bias as f32)),
            Err(_) => Err(ApiError::param("logit_bias", format!("{id:?} is no token id"))),
        };
        biases.iter().map(bias).collect::<Result<_, _>>().map(Some)
    }

    fn seed(&self, defaults: &Defaults) -> Result<u64, ApiError> {
        match &self.seed {
            None if defaults.fresh_seed => Ok(fresh_seed()),
            None => Ok(defaults.sampling.seed),
            Some(seed) if seed.as_i64() == Some(-1) => Ok(fresh_seed()),
            Some(seed) => seed.as_u64().or(seed.as_i64().map(i64::cast_unsigned)).ok_or_else(|| {
                ApiError::param("seed", format!("it is {seed}; it must be a whole number of 64 bits"))
            }),
        }
    }
}

/// A seed nobody can foresee, of 53 bits so that it survives a trip through JSON.
fn fresh_seed() -> u64 {
    random() & ((1 << 53) - 1)
}

/// 64 bits that differ from call to call.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
#[path = "tests/ask.rs"]
mod tests;
