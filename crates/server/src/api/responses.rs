//! `POST /v1/responses`, without memory: each request brings its whole conversation.
//!
//! Invariant: the events of a stream end with the object a whole reply would be.
//! Not here: reading its input (`input`).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use pilotfish::{FinishReason, Summary};
use pilotfish_model::text::RenderOptions;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Sources, UNSUPPORTED, input, new_id, speculation, timings, tools};
use crate::api::CONSTRAINED;
use crate::app::{App, json_response};
use crate::ask::Wishes;
use crate::body::Parameters;
use crate::error::{ApiError, Dialect};
use crate::facts::{Facts, now};
use crate::parts::{Part, Rules, Splitter};
use crate::sse;
use crate::stream::{Replies, Voice, prepare};
use crate::worker::Update;

#[derive(Deserialize)]
struct ResponsesRequest {
    model: Option<String>,
    input: Value,
    instructions: Option<String>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    text: Option<Value>,
}

const OF_THIS: &[(&str, &str)] = &[
    ("previous_response_id", "nothing is remembered between requests; send the whole conversation as input"),
    ("conversation", "nothing is remembered between requests; send the whole conversation as input"),
    ("background", "a reply is given in its request"),
    ("prompt", "there are no stored prompts"),
    ("max_tool_calls", "this server runs no tools"),
    ("top_logprobs", "log-probabilities are told by /v1/chat/completions"),
    ("n", "a response has one reply"),
];

/// Answers a request.
///
/// # Errors
/// Why it is not answered.
pub(crate) async fn answer(app: &Arc<App>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let parameters = Parameters::read(request, &app.config.limits).await?;
    parameters.refuse(UNSUPPORTED)?;
    parameters.refuse(OF_THIS)?;
    let asked: ResponsesRequest = parameters.parse()?;
    let wishes: Wishes = parameters.parse()?;
    app.facts.check_model(asked.model.as_deref())?;
    let format = asked.text.as_ref().map_or(&Value::Null, |text| &text["format"]);
    if !format.is_null() && format["type"] != "text" {
        return Err(ApiError::unsupported("text.format", CONSTRAINED));
    }
    let mut ask = wishes.ask(&app.config.defaults, app.facts.vocab, None)?;
    let functions = asked.tools.map(input::tools).transpose()?;
    let tools = tools::checked(&app.facts, functions, asked.tool_choice.as_ref())?;
    let calls = tools::names(tools.as_deref());
    if calls.is_some() && asked.parallel_tool_calls == Some(false) {
        return Err(ApiError::unsupported("parallel_tool_calls", CONSTRAINED));
    }
    let messages = input::conversation(asked.instructions.as_deref(), &asked.input)?;
    let options = RenderOptions { tools: tools.map(Value::Array), ..RenderOptions::default() };
    let prepared = prepare(app, move |facts| facts.chat("input", &messages, &options)).await?;
    ask.prompt = prepared.tokens;
    let rules = Rules { thoughts: app.facts.thinks, inside_thought: prepared.thinking, calls };
    let mut voice = ResponseVoice {
        id: new_id("resp_"),
        created: now(),
        facts: Arc::clone(&app.facts),
        instructions: asked.instructions,
        tools: parameters.map.get("tools").filter(|tools| tools.is_array()).cloned().unwrap_or(json!([])),
        tool_choice: asked.tool_choice.unwrap_or("auto".into()),
        splitter: Splitter::new(rules),
        with_rounds: wishes.rounds(),
        sources: Sources::default(),
        sequence: 0,
        output: Vec::new(),
        open: None,
        summary: None,
    };
    let replies = Replies::of(app, ask)?;
    if wishes.stream.unwrap_or(false) {
        return Ok(replies.stream(voice));
    }
    let mut replies = replies.whole(Rules::default()).await?;
    let reply = replies.pop().ok_or_else(|| ApiError::server("there was no reply"))?;
    // The events are made and dropped: what they leave behind is the object.
    voice.update(Update::Text(0, reply.text));
    reply.summary.into_iter().for_each(|summary| drop(voice.update(Update::Choice(0, summary))));
    Ok(json_response(&voice.object()))
}

/// An item of the output that is not complete.
struct Open {
    id: String,
    thought: bool,
    text: String,
}

/// Tells a response in events.
struct ResponseVoice {
    id: String,
    created: u64,
    facts: Arc<Facts>,
    instructions: Option<String>,
    tools: Value,
    tool_choice: Value,
    splitter: Splitter,
    with_rounds: bool,
    sources: Sources,
    sequence: usize,
    output: Vec<Value>,
    open: Option<Open>,
    summary: Option<Box<Summary>>,
}

impl ResponseVoice {
    /// The response as far as it is known.
    fn object(&self) -> Value {
        let (status, why) = match self.summary.as_ref().map(|summary| summary.finish) {
            None => ("in_progress", Value::Null),
            Some(FinishReason::MaxTokens | FinishReason::ContextFull) => {
                ("incomplete", json!({"reason": "max_output_tokens"}))
            }
            Some(_) => ("completed", Value::Null),
        };
        let mut object = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": why,
            "instructions": self.instructions,
            "metadata": {},
            "model": self.facts.id,
            "output": self.output,
            "parallel_tool_calls": true,
            "tool_choice": self.tool_choice,
            "tools": self.tools,
            "store": false,
            "usage": null,
        });
        if let Some(summary) = &self.summary {
            let (stats, written) = (&summary.stats, summary.tokens.len());
            object["usage"] = json!({
                "input_tokens": stats.prompt_tokens,
                "input_tokens_details": {"cached_tokens": stats.reused_tokens, "cache_write_tokens": 0},
                "output_tokens": written,
                "total_tokens": stats.prompt_tokens + written,
            });
            // How many tokens thoughts took is not counted.
            if self.output.iter().all(|item| item["type"] != "reasoning") {
                object["usage"]["output_tokens_details"] = json!({"reasoning_tokens": 0});
            }
            object["timings"] = timings(&[summary]);
            object["speculation"] = speculation(&summary.speculation);
        }
        object
    }

    fn event(&mut self, mut event: Value) -> String {
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        sse::event(&event)
    }

    fn parts(&mut self, parts: Vec<Part>) -> String {
        let mut frames = String::new();
        for part in parts {
            match part {
                Part::Text(text) => frames += &self.write(false, &text),
                Part::Thought(text) => frames += &self.write(true, &text),
                Part::Call(call) => {
                    frames += &self.close();
                    let (id, index) = (new_id("fc_"), self.output.len());
                    let mut item = json!({
                        "type": "function_call",
                        "id": id,
                        "call_id": new_id("call_"),
                        "name": call.name,
                        "arguments": "",
                        "status": "in_progress",
                    });
                    let at = |kind: &str, key: &str, value: Value| json!({"type": kind, "item_id": id, "output_index": index, key: value});
                    let added = "response.output_item.added";
                    frames += &self.event(json!({"type": added, "output_index": index, "item": item}));
                    let (kind, arguments) = ("response.function_call_arguments", call.arguments);
                    frames += &self.event(at(&format!("{kind}.delta"), "delta", arguments.clone().into()));
                    frames += &self.event(at(&format!("{kind}.done"), "arguments", arguments.clone().into()));
                    item["arguments"] = arguments.into();
                    item["status"] = "completed".into();
                    frames += &self.item_done(item);
                }
            }
        }
        frames
    }

    /// Adds text to the open item of its kind, opening one where there is none.
    fn write(&mut self, thought: bool, text: &str) -> String {
        let mut frames = String::new();
        if self.open.as_ref().is_none_or(|open| open.thought != thought) {
            frames += &self.close();
            let id = new_id(if thought { "rs_" } else { "msg_" });
            let open = Open { id, thought, text: String::new() };
            let item = open.item("in_progress", Vec::new());
            let index = self.output.len();
            let added = "response.output_item.added";
            frames += &self.event(json!({"type": added, "output_index": index, "item": item}));
            frames += &self.part_event("response.content_part.added", &open);
            self.open = Some(open);
        }
        let index = self.output.len();
        let open = self.open.as_mut().expect("it was opened");
        open.text += text;
        let event = json!({
            "type": format!("response.{}.delta", open.kind()),
            "item_id": open.id,
            "output_index": index,
            "content_index": 0,
            "delta": text,
            "logprobs": [],
        });
        frames + &self.event(event)
    }

    fn part_event(&mut self, kind: &str, open: &Open) -> String {
        let index = self.output.len();
        self.event(json!({
            "type": kind,
            "item_id": open.id,
            "output_index": index,
            "content_index": 0,
            "part": open.part(),
        }))
    }

    /// Completes the open item.
    fn close(&mut self) -> String {
        let Some(open) = self.open.take() else { return String::new() };
        let index = self.output.len();
        let event = json!({
            "type": format!("response.{}.done", open.kind()),
            "item_id": open.id,
            "output_index": index,
            "content_index": 0,
            "text": open.text,
            "logprobs": [],
        });
        let done = self.event(event);
        let part = self.part_event("response.content_part.done", &open);
        let item = open.item("completed", vec![open.part()]);
        done + &part + &self.item_done(item)
    }

    fn item_done(&mut self, item: Value) -> String {
        let index = self.output.len();
        let event = json!({"type": "response.output_item.done", "output_index": index, "item": item});
        self.output.push(item);
        self.event(event)
    }
}

impl Open {
    fn kind(&self) -> &'static str {
        if self.thought { "reasoning_text" } else { "output_text" }
    }

    fn part(&self) -> Value {
        let mut part = json!({"type": self.kind(), "text": self.text});
        if !self.thought {
            part["annotations"] = json!([]);
            part["logprobs"] = json!([]);
        }
        part
    }

    fn item(&self, status: &str, content: Vec<Value>) -> Value {
        if self.thought {
            return json!({
                "type": "reasoning", "id": self.id, "summary": [], "content": content, "status": status
            });
        }
        json!({
            "type": "message", "id": self.id, "role": "assistant", "status": status, "content": content
        })
    }
}

impl Voice for ResponseVoice {
    fn start(&mut self) -> String {
        let created = json!({"type": "response.created", "response": self.object()});
        let going = json!({"type": "response.in_progress", "response": self.object()});
        self.event(created) + &self.event(going)
    }

    fn update(&mut self, update: Update) -> String {
        match update {
            Update::Round(_, record) if self.with_rounds => {
                let round = self.sources.round(&record);
                self.event(json!({"type": "pilotfish.round", "pilotfish": round}))
            }
            Update::Round(..) => String::new(),
            Update::Text(_, text) => {
                let parts = self.splitter.push(&text);
                self.parts(parts)
            }
            Update::Choice(_, summary) => {
                let parts = self.splitter.finish();
                let frames = self.parts(parts) + &self.close();
                self.summary = Some(summary);
                frames
            }
            Update::Done | Update::Failed(_) => {
                let object = self.object();
                let status = object["status"].as_str().unwrap_or("completed").to_owned();
                self.event(json!({"type": format!("response.{status}"), "response": object}))
            }
        }
    }

    fn fail(&mut self, error: &ApiError) -> String {
        let close = self.close();
        let mut object = self.object();
        object["status"] = "failed".into();
        let text = error.json(Dialect::OpenAi);
        let reason: Value = serde_json::from_str(&text).unwrap_or_default();
        object["error"] = json!({"code": reason["error"]["type"], "message": error.message});
        close + &self.event(json!({"type": "response.failed", "response": object}))
    }
}
