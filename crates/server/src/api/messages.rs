//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's interface.
//!
//! Invariant: the joined deltas of a stream are the blocks of the whole reply.
//! Not here: reading its messages (`anthropic`).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use pilotfish::{FinishReason, Summary};
use pilotfish_model::text::RenderOptions;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Sources, UNSUPPORTED, anthropic, new_id, speculation, timings, tools};
use crate::app::{App, json_response};
use crate::ask::{Ask, Wishes};
use crate::body::Parameters;
use crate::error::{ApiError, Dialect};
use crate::facts::Facts;
use crate::parts::{Part, Rules, Splitter, ToolCall};
use crate::sse;
use crate::stream::{Replies, Reply, Voice, prepare};
use crate::worker::Update;

#[derive(Deserialize)]
struct MessagesRequest {
    model: Option<String>,
    messages: Vec<Value>,
    system: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    thinking: Option<Value>,
}

const OF_THIS: &[(&str, &str)] = &[
    ("n", "a message has one reply"),
    ("mcp_servers", "this server asks no other one"),
    ("container", "this server runs nothing"),
    ("output_format", super::CONSTRAINED),
    ("output_config", super::CONSTRAINED),
];

/// A conversation, ready to be tokenized.
struct Conversation {
    messages: Vec<pilotfish::Message>,
    options: RenderOptions,
    calls: Option<Arc<[String]>>,
}

fn conversation(app: &App, parameters: &Parameters) -> Result<Conversation, ApiError> {
    parameters.refuse(UNSUPPORTED)?;
    parameters.refuse(OF_THIS)?;
    let asked: MessagesRequest = parameters.parse()?;
    app.facts.check_model(asked.model.as_deref())?;
    let choice = anthropic::tool_choice(asked.tool_choice.as_ref())?;
    let tools = asked.tools.map(anthropic::tools).transpose()?;
    let tools = tools::checked(&app.facts, tools, choice.as_ref())?;
    let messages = anthropic::conversation(asked.system.as_ref(), &asked.messages)?;
    let mut extra = Map::new();
    if let Some(kind) = asked.thinking.as_ref().and_then(|thinking| thinking["type"].as_str()) {
        extra.insert("enable_thinking".to_owned(), (kind != "disabled").into());
    }
    let calls = tools::names(tools.as_deref());
    let options = RenderOptions { tools: tools.map(Value::Array), extra, ..RenderOptions::default() };
    Ok(Conversation { messages, options, calls })
}

/// Answers a request.
///
/// # Errors
/// Why it is not answered.
pub(crate) async fn answer(app: &Arc<App>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let parameters = Parameters::read(request, &app.config.limits).await?;
    let Conversation { messages, options, calls } = conversation(app, &parameters)?;
    if !parameters.map.contains_key("max_tokens") {
        return Err(ApiError::param("max_tokens", "it is missing"));
    }
    let wishes: Wishes = parameters.parse()?;
    let mut ask = wishes.ask(&app.config.defaults, app.facts.vocab, None)?;
    let prepared = prepare(app, move |facts| facts.chat("messages", &messages, &options)).await?;
    ask.prompt = prepared.tokens;
    let rules = Rules { thoughts: app.facts.thinks, inside_thought: prepared.thinking, calls };
    let stops = ask.options.stop.clone();
    let head = Head { id: new_id("msg_"), facts: Arc::clone(&app.facts), stops };
    if wishes.stream.unwrap_or(false) {
        let voice = MessageVoice::new(head, &ask, rules, wishes.rounds());
        return Ok(Replies::of(app, ask)?.stream(voice));
    }
    let replies = Replies::of(app, ask)?.whole(rules).await?;
    let reply = replies.first().ok_or_else(|| ApiError::server("there was no reply"))?;
    Ok(json_response(&whole(&head, reply)))
}

/// Counts the tokens a conversation becomes.
///
/// # Errors
/// Why they cannot be counted.
pub(crate) async fn count(app: &Arc<App>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let parameters = Parameters::read(request, &app.config.limits).await?;
    let Conversation { messages, options, .. } = conversation(app, &parameters)?;
    let prepared = prepare(app, move |facts| facts.chat("messages", &messages, &options)).await?;
    Ok(json_response(&json!({"input_tokens": prepared.tokens.len()})))
}

/// What the reply's JSON has in all its places.
struct Head {
    id: String,
    facts: Arc<Facts>,
    stops: Vec<String>,
}

impl Head {
    fn message(&self, content: Value, stop: &Stop, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.facts.id,
            "content": content,
            "stop_reason": stop.reason,
            "stop_sequence": stop.sequence,
            "usage": usage,
        })
    }

    /// Why the reply ended; `written` is how many bytes it has.
    fn stop(&self, summary: &Summary, written: usize, called: bool) -> Stop {
        let reason = match summary.finish {
            FinishReason::MaxTokens | FinishReason::ContextFull => "max_tokens",
            _ if called => "tool_use",
            FinishReason::StopString => "stop_sequence",
            _ => "end_turn",
        };
        // The tokens reach into the text that ended the reply, the reply does not.
        let all = self.facts.tokenizer.decode(&summary.tokens);
        let rest = all.get(written..).unwrap_or_default();
        let sequence = self.stops.iter().find(|stop| rest.starts_with(stop.as_str()));
        let sequence = sequence.filter(|_| summary.finish == FinishReason::StopString).cloned();
        Stop { reason: Some(reason), sequence }
    }
}

#[derive(Default)]
struct Stop {
    reason: Option<&'static str>,
    sequence: Option<String>,
}

fn usage(summary: &Summary) -> Value {
    let stats = &summary.stats;
    json!({
        "input_tokens": stats.prompt_tokens - stats.reused_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": stats.reused_tokens,
        "output_tokens": summary.tokens.len(),
    })
}

fn call_block(call: &ToolCall, input: Value) -> Value {
    json!({"type": "tool_use", "id": new_id("toolu_"), "name": call.name, "input": input})
}

/// The object of a reply that is not streamed.
fn whole(head: &Head, reply: &Reply) -> Value {
    let mut content = Vec::new();
    if !reply.thought.is_empty() {
        content.push(json!({"type": "thinking", "thinking": reply.thought, "signature": ""}));
    }
    if !reply.text.is_empty() {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    for call in &reply.calls {
        let input = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
        content.push(call_block(call, input));
    }
    let Some(summary) = &reply.summary else { return Value::Null };
    let stop = head.stop(summary, reply.written, !reply.calls.is_empty());
    let mut object = head.message(content.into(), &stop, usage(summary));
    object["timings"] = timings(&[summary]);
    object["speculation"] = speculation(&summary.speculation);
    object
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Block {
    Text,
    Thought,
}

/// Tells a reply in events.
struct MessageVoice {
    head: Head,
    splitter: Splitter,
    prompt: usize,
    with_rounds: bool,
    sources: Sources,
    /// The block that is open, if any; its index is that of the next one.
    open: Option<Block>,
    index: usize,
    written: usize,
    called: bool,
}

impl MessageVoice {
    fn new(head: Head, ask: &Ask, rules: Rules, with_rounds: bool) -> Self {
        Self {
            head,
            splitter: Splitter::new(rules),
            prompt: ask.prompt.len(),
            with_rounds,
            sources: Sources::default(),
            open: None,
            index: 0,
            written: 0,
            called: false,
        }
    }

    fn close(&mut self) -> String {
        if self.open.take().is_none() {
            return String::new();
        }
        self.index += 1;
        sse::event(&json!({"type": "content_block_stop", "index": self.index - 1}))
    }

    fn begin(&mut self, block: &Value) -> String {
        sse::event(&json!({"type": "content_block_start", "index": self.index, "content_block": block}))
    }

    fn delta(&self, delta: &Value) -> String {
        sse::event(&json!({"type": "content_block_delta", "index": self.index, "delta": delta}))
    }

    fn parts(&mut self, parts: Vec<Part>) -> String {
        let mut frames = String::new();
        for part in parts {
            let (kind, empty, delta) = match part {
                Part::Text(text) => (
                    Block::Text,
                    json!({"type": "text", "text": ""}),
                    json!({"type": "text_delta", "text": text}),
                ),
                Part::Thought(text) => (
                    Block::Thought,
                    json!({"type": "thinking", "thinking": "", "signature": ""}),
                    json!({"type": "thinking_delta", "thinking": text}),
                ),
                Part::Call(call) => {
                    frames += &self.close();
                    frames += &self.begin(&call_block(&call, json!({})));
                    let delta = json!({"type": "input_json_delta", "partial_json": call.arguments});
                    frames += &self.delta(&delta);
                    frames += &sse::event(&json!({"type": "content_block_stop", "index": self.index}));
                    self.index += 1;
                    self.called = true;
                    continue;
                }
            };
            if self.open != Some(kind) {
                frames += &self.close();
                frames += &self.begin(&empty);
                self.open = Some(kind);
            }
            frames += &self.delta(&delta);
        }
        frames
    }
}

impl Voice for MessageVoice {
    fn start(&mut self) -> String {
        let usage = json!({"input_tokens": self.prompt, "output_tokens": 0});
        let message = self.head.message(json!([]), &Stop::default(), usage);
        sse::event(&json!({"type": "message_start", "message": message}))
            + &sse::event(&json!({"type": "ping"}))
    }

    fn update(&mut self, update: Update) -> String {
        match update {
            Update::Round(_, record) if self.with_rounds => {
                let round = self.sources.round(&record);
                sse::event(&json!({"type": "ping", "pilotfish": round}))
            }
            Update::Round(..) => String::new(),
            Update::Text(_, text) => {
                self.written += text.len();
                let parts = self.splitter.push(&text);
                self.parts(parts)
            }
            Update::Choice(_, summary) => {
                let parts = self.splitter.finish();
                let frames = self.parts(parts) + &self.close();
                let stop = self.head.stop(&summary, self.written, self.called);
                let end = json!({
                    "type": "message_delta",
                    "delta": {"stop_reason": stop.reason, "stop_sequence": stop.sequence},
                    "usage": usage(&summary),
                    "timings": timings(&[&summary]),
                    "speculation": speculation(&summary.speculation),
                });
                frames + &sse::event(&end)
            }
            Update::Done | Update::Failed(_) => sse::event(&json!({"type": "message_stop"})),
        }
    }

    fn fail(&mut self, error: &ApiError) -> String {
        format!("event: error\ndata: {}\n\n", error.json(Dialect::Anthropic))
    }
}
