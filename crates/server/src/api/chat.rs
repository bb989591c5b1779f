//! `POST /v1/chat/completions`: answers a conversation, whole or in chunks.
//!
//! Invariant: the joined deltas of a stream are the message of the whole reply.
//! Not here: what the messages may hold (`conversation`), tools (`tools`).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use pilotfish::Summary;
use pilotfish_model::text::RenderOptions;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{UNSUPPORTED, chat_logprobs, conversation, finish_reason, speculation, timings, tools, usage};
use crate::api::{CONSTRAINED, Sources, new_id};
use crate::app::{App, json_response};
use crate::ask::{Ask, Wishes};
use crate::body::Parameters;
use crate::error::{ApiError, Dialect};
use crate::facts::{Facts, now};
use crate::parts::{Part, Rules, Splitter, ToolCall};
use crate::sse;
use crate::stream::{Replies, Reply, Voice, prepare};
use crate::worker::Update;

#[derive(Deserialize)]
struct ChatRequest {
    model: Option<String>,
    messages: Vec<Value>,
    stream_options: Option<StreamOptions>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<Value>,
    chat_template_kwargs: Option<Map<String, Value>>,
    reasoning_format: Option<String>,
    modalities: Option<Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: Option<bool>,
}

/// What the reply's JSON has in all its places.
#[derive(Clone)]
struct Head {
    id: String,
    created: u64,
    facts: Arc<Facts>,
}

/// Answers a request.
///
/// # Errors
/// Why it is not answered.
pub(crate) async fn answer(app: &Arc<App>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let parameters = Parameters::read(request, &app.config.limits).await?;
    parameters.refuse(UNSUPPORTED)?;
    let chat: ChatRequest = parameters.parse()?;
    let wishes: Wishes = parameters.parse()?;
    app.facts.check_model(chat.model.as_deref())?;
    check_forms(&chat)?;
    let top = chat.top_logprobs;
    let logprobs = chat.logprobs.unwrap_or(false).then(|| top.unwrap_or(0));
    if top.is_some_and(|n| n > 0) && logprobs.is_none() {
        return Err(ApiError::param("top_logprobs", "it needs logprobs to be true"));
    }
    let mut ask = wishes.ask(&app.config.defaults, app.facts.vocab, logprobs)?;
    let tools = tools::checked(&app.facts, chat.tools, chat.tool_choice.as_ref())?;
    let calls = tools::names(tools.as_deref());
    if calls.is_some() && chat.parallel_tool_calls == Some(false) {
        return Err(ApiError::unsupported("parallel_tool_calls", CONSTRAINED));
    }
    let thoughts = app.facts.thinks && chat.reasoning_format.as_deref() != Some("none");
    let messages = conversation::messages(chat.messages)?;
    let options = RenderOptions {
        tools: tools.map(Value::Array),
        extra: chat.chat_template_kwargs.unwrap_or_default(),
        ..RenderOptions::default()
    };
    let prepared = prepare(app, move |facts| facts.chat("messages", &messages, &options)).await?;
    ask.prompt = prepared.tokens;
    let rules = Rules { thoughts, inside_thought: prepared.thinking, calls };
    let head = Head { id: new_id("chatcmpl-"), created: now(), facts: Arc::clone(&app.facts) };
    let with_usage = chat.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
    if wishes.stream.unwrap_or(false) {
        let voice = ChatVoice::new(head, &ask, rules, with_usage, wishes.rounds());
        return Ok(Replies::of(app, ask)?.stream(voice));
    }
    let logprobs = ask.options.logprobs.is_some();
    let replies = Replies::of(app, ask)?.whole(rules).await?;
    Ok(json_response(&whole(&head, &replies, logprobs)))
}

fn check_forms(chat: &ChatRequest) -> Result<(), ApiError> {
    if let Some(format) = chat.response_format.as_ref().filter(|format| !format.is_null()) {
        match format["type"].as_str() {
            Some("text") => {}
            Some(_) => return Err(ApiError::unsupported("response_format", CONSTRAINED)),
            None => return Err(ApiError::param("response_format", "it has no type")),
        }
    }
    let other = |name: &String| name != "text";
    if chat.modalities.iter().flatten().any(other) {
        return Err(ApiError::unsupported("modalities", conversation::TEXT_ONLY));
    }
    match chat.reasoning_format.as_deref() {
        None | Some("none" | "auto" | "deepseek") => Ok(()),
        Some(_) => Err(ApiError::param("reasoning_format", "it must be auto, deepseek or none")),
    }
}

fn call_json(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": new_id("call_"), "type": "function", "function": function})
}

/// The object of a reply that is not streamed.
fn whole(head: &Head, replies: &[Reply], logprobs: bool) -> Value {
    let summaries: Vec<&Summary> = replies.iter().filter_map(|reply| reply.summary.as_deref()).collect();
    let choice = |(index, reply): (usize, &Reply)| {
        let mut message = json!({"role": "assistant", "content": reply.text});
        if !reply.thought.is_empty() {
            message["reasoning_content"] = reply.thought.as_str().into();
        }
        if !reply.calls.is_empty() {
            message["tool_calls"] = reply.calls.iter().map(call_json).collect();
            if reply.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        let finish = reply.summary.as_ref().map(|s| finish_reason(s.finish, !reply.calls.is_empty()));
        json!({
            "index": index,
            "message": message,
            "logprobs": if logprobs {
                chat_logprobs(&head.facts.tokenizer, &reply.logprobs)
            } else {
                Value::Null
            },
            "finish_reason": finish,
        })
    };
    let choices: Vec<Value> = replies.iter().enumerate().map(choice).collect();
    json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.facts.id,
        "system_fingerprint": head.facts.numerics_id,
        "choices": choices,
        "usage": usage(&summaries),
        "timings": timings(&summaries),
        "speculation": summaries.last().map(|summary| speculation(&summary.speculation)),
    })
}

/// One choice of a stream.
struct Choice {
    splitter: Splitter,
    calls: usize,
    /// Of tokens that have brought no text yet.
    logprobs: Vec<pilotfish::Logprobs>,
    sources: Sources,
}

/// Tells a chat reply in chunks.
struct ChatVoice {
    head: Head,
    choices: Vec<Choice>,
    with_logprobs: bool,
    with_usage: bool,
    with_rounds: bool,
    summaries: Vec<Summary>,
}

impl ChatVoice {
    fn new(head: Head, ask: &Ask, rules: Rules, with_usage: bool, with_rounds: bool) -> Self {
        let choice = |_| Choice {
            splitter: Splitter::new(rules.clone()),
            calls: 0,
            logprobs: Vec::new(),
            sources: Sources::default(),
        };
        Self {
            head,
            choices: (0..ask.choices).map(choice).collect(),
            with_logprobs: ask.options.logprobs.is_some(),
            with_usage,
            with_rounds,
            summaries: Vec::new(),
        }
    }

    /// A chunk with these choices.
    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": self.head.id,
            "object": "chat.completion.chunk",
            "created": self.head.created,
            "model": self.head.facts.id,
            "system_fingerprint": self.head.facts.numerics_id,
            "choices": choices,
        });
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// A chunk with one delta.
    fn delta(&self, index: u32, delta: &Value, logprobs: Value, finish: Option<&str>) -> Value {
        self.chunk(json!([
            {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        ]))
    }

    fn take_logprobs(&mut self, index: u32) -> Value {
        let entries = std::mem::take(&mut self.choices[index as usize].logprobs);
        match entries.is_empty() {
            true => Value::Null,
            false => chat_logprobs(&self.head.facts.tokenizer, &entries),
        }
    }

    fn parts(&mut self, index: u32, parts: Vec<Part>) -> String {
        let mut frames = String::new();
        for part in parts {
            let delta = match &part {
                Part::Text(text) => json!({ "content": text }),
                Part::Thought(text) => json!({ "reasoning_content": text }),
                Part::Call(call) => {
                    let choice = &mut self.choices[index as usize];
                    let mut object = call_json(call);
                    object["index"] = choice.calls.into();
                    choice.calls += 1;
                    json!({ "tool_calls": [object] })
                }
            };
            let logprobs = self.take_logprobs(index);
            frames += &sse::data(&self.delta(index, &delta, logprobs, None));
        }
        frames
    }

    fn end_of(&mut self, index: u32, summary: Summary) -> String {
        let parts = self.choices[index as usize].splitter.finish();
        let mut frames = self.parts(index, parts);
        let left = self.take_logprobs(index);
        if !left.is_null() {
            frames += &sse::data(&self.delta(index, &json!({"content": ""}), left, None));
        }
        let finish = finish_reason(summary.finish, self.choices[index as usize].calls > 0);
        let mut chunk = self.delta(index, &json!({}), Value::Null, Some(finish));
        chunk["timings"] = timings(&[&summary]);
        chunk["speculation"] = speculation(&summary.speculation);
        self.summaries.push(summary);
        frames + &sse::data(&chunk)
    }
}

impl Voice for ChatVoice {
    fn start(&mut self) -> String {
        let first = |index| {
            let delta = json!({"role": "assistant", "content": ""});
            sse::data(&self.delta(index, &delta, Value::Null, None))
        };
        (0..self.choices.len() as u32).map(first).collect()
    }

    fn update(&mut self, update: Update) -> String {
        match update {
            Update::Round(index, record) => {
                let choice = &mut self.choices[index as usize];
                if self.with_logprobs {
                    choice.logprobs.extend_from_slice(&record.logprobs);
                }
                if !self.with_rounds {
                    return String::new();
                }
                let round = choice.sources.round(&record);
                let mut chunk = self.delta(index, &json!({}), Value::Null, None);
                chunk["pilotfish"] = round;
                sse::data(&chunk)
            }
            Update::Text(index, text) => {
                let parts = self.choices[index as usize].splitter.push(&text);
                self.parts(index, parts)
            }
            Update::Choice(index, summary) => self.end_of(index, *summary),
            Update::Done | Update::Failed(_) => {
                let mut frames = String::new();
                if self.with_usage {
                    let mut chunk = self.chunk(json!([]));
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
