//! `POST /v1/completions`: continues a text as it is.
//!
//! Invariant: the joined texts of a stream are the text of the whole reply.
//! Not here: conversations (`chat`).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use pilotfish::{Logprobs, Summary};
use pilotfish_model::text::Tokenizer;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::StreamOptions;
use super::{Sources, UNSUPPORTED, new_id, speculation, timings, usage};
use crate::app::{App, json_response};
use crate::ask::Wishes;
use crate::body::Parameters;
use crate::error::{ApiError, Dialect};
use crate::facts::{Facts, now};
use crate::parts::Rules;
use crate::sse;
use crate::stream::{Replies, Reply, Voice, prepare};
use crate::worker::Update;

#[derive(Deserialize)]
struct CompletionRequest {
    model: Option<String>,
    prompt: Prompt,
    stream_options: Option<StreamOptions>,
    logprobs: Option<u64>,
    best_of: Option<u32>,
    response_format: Option<Value>,
}

/// A text or token ids, alone or as the only item of a list.
#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a text, or a list of token ids")]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    ManyIds(Vec<Vec<u32>>),
}

const OF_THIS: &[(&str, &str)] =
    &[("suffix", "filling in between texts is not built yet"), ("echo", "the prompt is not given back")];

/// Answers a request.
///
/// # Errors
/// Why it is not answered.
pub(crate) async fn answer(app: &Arc<App>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let parameters = Parameters::read(request, &app.config.limits).await?;
    parameters.refuse(UNSUPPORTED)?;
    parameters.refuse(OF_THIS)?;
    let asked: CompletionRequest = parameters.parse()?;
    let wishes: Wishes = parameters.parse()?;
    app.facts.check_model(asked.model.as_deref())?;
    if asked.best_of.is_some_and(|n| n > 1) {
        return Err(ApiError::unsupported("best_of", "replies are not ranked; use n"));
    }
    if asked.response_format.as_ref().is_some_and(|format| !format.is_null() && format["type"] != "text") {
        return Err(ApiError::unsupported("response_format", super::CONSTRAINED));
    }
    let mut ask = wishes.ask(&app.config.defaults, app.facts.vocab, asked.logprobs)?;
    let one = "several prompts need several requests";
    let prompt = match asked.prompt {
        Prompt::Texts(mut texts) if texts.len() == 1 => Prompt::Text(texts.remove(0)),
        Prompt::ManyIds(mut ids) if ids.len() == 1 => Prompt::Ids(ids.remove(0)),
        Prompt::Texts(_) | Prompt::ManyIds(_) => return Err(ApiError::unsupported("prompt", one)),
        prompt => prompt,
    };
    ask.prompt = prepare(app, move |facts| match prompt {
        Prompt::Text(text) => facts.text("prompt", &text),
        Prompt::Ids(ids) => facts.fitting("prompt", ids),
        Prompt::Texts(_) | Prompt::ManyIds(_) => Err(ApiError::param("prompt", one)),
    })
    .await?;
    let logprobs = ask.options.logprobs.is_some();
    let voice = CompletionVoice {
        id: new_id("cmpl-"),
        created: now(),
        facts: Arc::clone(&app.facts),
        with_usage: asked.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        with_rounds: wishes.rounds(),
        with_logprobs: logprobs,
        choices: (0..ask.choices).map(|_| Choice::default()).collect(),
        summaries: Vec::new(),
    };
    let replies = Replies::of(app, ask)?;
    if wishes.stream.unwrap_or(false) {
        return Ok(replies.stream(voice));
    }
    let replies = replies.whole(Rules::default()).await?;
    Ok(json_response(&voice.whole(&replies)))
}

/// One choice of a stream.
#[derive(Default)]
struct Choice {
    logprobs: Vec<Logprobs>,
    /// Bytes of the tokens whose log-probabilities were told.
    told: usize,
    sources: Sources,
}

/// Tells a completion in chunks, or as a whole.
struct CompletionVoice {
    id: String,
    created: u64,
    facts: Arc<Facts>,
    with_usage: bool,
    with_rounds: bool,
    with_logprobs: bool,
    choices: Vec<Choice>,
    summaries: Vec<Summary>,
}

impl CompletionVoice {
    fn whole(&self, replies: &[Reply]) -> Value {
        let summaries: Vec<&Summary> = replies.iter().filter_map(|reply| reply.summary.as_deref()).collect();
        let choice = |(index, reply): (usize, &Reply)| {
            let logprobs =
                self.with_logprobs.then(|| text_logprobs(&self.facts.tokenizer, &reply.logprobs, &mut 0));
            json!({
                "index": index,
                "text": reply.text,
                "logprobs": logprobs,
                "finish_reason": reply.summary.as_ref().map(|summary| summary.finish.as_str()),
            })
        };
        let choices: Vec<Value> = replies.iter().enumerate().map(choice).collect();
        let mut object = self.object(choices.into());
        object["usage"] = usage(&summaries);
        object["timings"] = timings(&summaries);
        object["speculation"] =
            summaries.last().map_or(Value::Null, |summary| speculation(&summary.speculation));
        object
    }

    fn object(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.facts.id,
            "system_fingerprint": self.facts.numerics_id,
            "choices": choices,
        })
    }

    fn chunk(&mut self, index: u32, text: &str, finish: Option<&str>) -> Value {
        let choice = &mut self.choices[index as usize];
        let entries = std::mem::take(&mut choice.logprobs);
        let logprobs = match entries.is_empty() {
            true => Value::Null,
            false => text_logprobs(&self.facts.tokenizer, &entries, &mut choice.told),
        };
        let mut chunk = self.object(json!([
            {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        ]));
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

impl Voice for CompletionVoice {
    fn start(&mut self) -> String {
        String::new()
    }

    fn update(&mut self, update: Update) -> String {
        match update {
            Update::Round(index, record) => {
                let round = self.choices[index as usize].sources.round(&record);
                let frame = if self.with_rounds {
                    let mut chunk = self.chunk(index, "", None);
                    chunk["pilotfish"] = round;
                    sse::data(&chunk)
                } else {
                    String::new()
                };
                self.choices[index as usize].logprobs.extend(record.logprobs);
                frame
            }
            Update::Text(index, text) => sse::data(&self.chunk(index, &text, None)),
            Update::Choice(index, summary) => {
                let mut chunk = self.chunk(index, "", Some(summary.finish.as_str()));
                chunk["timings"] = timings(&[&summary]);
                chunk["speculation"] = speculation(&summary.speculation);
                self.summaries.push(*summary);
                sse::data(&chunk)
            }
            Update::Done | Update::Failed(_) => {
                let mut frames = String::new();
                if self.with_usage {
                    let mut chunk = self.object(json!([]));
                    chunk["usage"] = usage(&self.summaries.iter().collect::<Vec<_>>());
                    frames += &sse::data(&chunk);
                }
                frames + sse::DONE
            }
        }
    }

    fn fail(&mut self, error: &ApiError) -> String {
        format!("data: {}\n\n", error.json(Dialect::OpenAi))
    }
}

/// Log-probabilities in the form of text completions; `offset` is where the first token's text begins in the reply.
fn text_logprobs(tokenizer: &Tokenizer, entries: &[Logprobs], offset: &mut usize) -> Value {
    let text = |id: u32| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
    let mut offsets = Vec::new();
    for entry in entries {
        offsets.push(*offset);
        *offset += tokenizer.piece(entry.token).len();
    }
    let top = |entry: &Logprobs| -> Map<String, Value> {
        entry.top.iter().map(|&(id, logprob)| (text(id), logprob.into())).collect()
    };
    json!({
        "tokens": entries.iter().map(|entry| text(entry.token)).collect::<Vec<_>>(),
        "token_logprobs": entries.iter().map(|entry| entry.logprob).collect::<Vec<_>>(),
        "top_logprobs": entries.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
