//! One answer as an iterator of events.
//!
//! Each step runs rounds of the engine's loop until one yields an event; the last event is [`Event::Finished`]. An
//! error ends the iteration.
//!
//! Invariant: the joined [`Event::Text`]s are the answer, whole characters only, without the stop string.
//! Not here: the loop itself (`pilotfish_engine::speculate::Generation`).

use std::collections::VecDeque;
use std::sync::Arc;

use pilotfish_engine::CachedLane;
use pilotfish_engine::sampling::{Logprobs, Sampler};
use pilotfish_engine::session::{FinishReason, Limits, Session, StreamedText};
use pilotfish_engine::speculate::{self, Options, SpeculationReport, Speculator, Stats};
use pilotfish_model::Model;
use pilotfish_model::text::{StopStrings, Tokenizer};

use crate::history::HistoryFile;
use crate::{Error, GenerateOptions, RoundRecord};

/// Something that happened while answering.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A piece of the answer.
    Text(String),
    /// A round is over; its text follows, if it has any. Only with [`GenerateOptions::rounds`].
    Round(Box<RoundRecord>),
    /// The answer is complete.
    Finished(Box<Summary>),
}

/// A finished answer in numbers.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub finish: FinishReason,
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Token ids of the answer, an end token included.
    pub tokens: Vec<u32>,
    /// Log-probabilities of the answer's tokens, when they were asked for.
    pub logprobs: Vec<Logprobs>,
    /// Counts and times.
    pub stats: Stats,
    /// How speculation went.
    pub speculation: SpeculationReport,
    /// Why the answer could not be added to [`LoadOptions::history`](crate::LoadOptions::history), if it could not.
    pub history_error: Option<String>,
}

/// An answer in the making. Dropping it stops it; what was read of prompt and answer stays in the cache.
pub struct Generation<'a> {
    // Gone once the answer has ended or failed.
    running: Option<speculate::Generation<'a>>,
    // What the last round brought and was not read yet.
    pending: VecDeque<Event>,
    rounds: bool,
    logprobs: Vec<Logprobs>,
    model: Arc<Model>,
    history: Option<&'a mut HistoryFile>,
}

impl<'a> Generation<'a> {
    pub(crate) fn start(
        target: &'a mut CachedLane,
        (speculator, history): (&'a mut Speculator, Option<&'a mut HistoryFile>),
        (model, tokenizer): (&Arc<Model>, &Tokenizer),
        prompt: Vec<u32>,
        options: &GenerateOptions,
    ) -> Result<Self, Error> {
        model.check_unchanged()?;
        let info = target.info();
        let sampler = Sampler::new(options.sampling.clone(), info.vocab, options.choice)?;
        let limits = Limits {
            max_tokens: options.max_tokens,
            context: info.context,
            end_tokens: tokenizer.eog().to_vec(),
            ignore_eos: options.ignore_eos,
        };
        let stops = StopStrings::new(options.stop.clone()).map_err(|_| Error::Option {
            option: "stop",
            value: String::new(),
            why: "every text holds the empty text".to_owned(),
        })?;
        let text = Box::new(StreamedText::new(tokenizer, stops));
        let session = Session::new(prompt, limits, sampler, text)?;
        let engine_options = Options {
            logprobs: options.logprobs,
            spec_sampling: options.spec_sampling,
            cancel: Arc::clone(&options.cancel),
            ..Options::default()
        };
        let running = speculate::Generation::new(target, speculator, session, engine_options)?;
        Ok(Self {
            running: Some(running),
            pending: VecDeque::new(),
            rounds: options.rounds,
            logprobs: Vec::new(),
            model: Arc::clone(model),
            history,
        })
    }

    /// Runs rounds up to the next event; `None` once the answer has ended.
    fn step(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            let running = self.running.as_mut()?;
            match running.next_round() {
                Ok(Some(mut round)) => {
                    self.logprobs.extend_from_slice(&round.logprobs);
                    let text = std::mem::take(&mut round.text);
                    if self.rounds {
                        let record = RoundRecord::new(round, running.stats().rounds, running.report());
                        self.pending.push_back(Event::Round(Box::new(record)));
                    }
                    if !text.is_empty() {
                        self.pending.push_back(Event::Text(text));
                    }
                }
                Ok(None) => {
                    let ended = self.running.take()?;
                    // Tokens were looked up in the file all along; an answer from another file is none.
                    if let Err(error) = self.model.check_unchanged() {
                        return Some(Err(error.into()));
                    }
                    return Some(Ok(Event::Finished(Box::new(self.summary(&ended)))));
                }
                Err(error) => {
                    self.running = None;
                    return Some(Err(error.into()));
                }
            }
        }
    }

    fn summary(&mut self, ended: &speculate::Generation<'_>) -> Summary {
        let session = ended.session();
        Summary {
            finish: session.finish().unwrap_or(FinishReason::Cancelled),
            prompt: session.prompt().to_vec(),
            tokens: session.reply().to_vec(),
            logprobs: std::mem::take(&mut self.logprobs),
            stats: ended.stats().clone(),
            speculation: ended.report(),
            history_error: self.history.as_mut().and_then(|file| file.keep(session.reply()).err()),
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step()
    }
}
