//! Messages and tools of Anthropic's interface, turned into those chat templates take.
//!
//! Invariant: nothing but text gets through; an error names the place.
//! Not here: replies (`messages`).

use pilotfish::Message;
use serde_json::{Map, Value, json};

use super::conversation::TEXT_ONLY;
use super::tools::function;
use crate::error::ApiError;

/// Reads the instructions and the messages.
///
/// # Errors
/// The first block that is malformed or no text.
pub(super) fn conversation(system: Option<&Value>, messages: &[Value]) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::param("messages", "there are none"));
    }
    let mut out = Vec::new();
    if let Some(system) = system.filter(|system| !system.is_null()) {
        let text = joined("system", system)?;
        if !text.is_empty() {
            out.push(Message::system(text));
        }
    }
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages[{at}]");
        let content = format!("{place}.content");
        match message["role"].as_str() {
            Some("user") => user(&content, &message["content"], &mut out)?,
            Some("assistant") => out.push(assistant(&content, &message["content"])?),
            _ => return Err(ApiError::param(format!("{place}.role"), "it must be user or assistant")),
        }
    }
    Ok(out)
}

/// The blocks of a content; a text is one block.
fn blocks(place: &str, content: &Value) -> Result<Vec<Value>, ApiError> {
    match content {
        Value::String(text) => Ok(vec![json!({"type": "text", "text": text})]),
        Value::Array(blocks) if !blocks.is_empty() => Ok(blocks.clone()),
        Value::Array(_) => Err(ApiError::param(place, "it is empty")),
        Value::Null => Err(ApiError::param(place, "it is missing")),
        _ => Err(ApiError::param(place, "it must be a text or a list of blocks")),
    }
}

fn text_of(place: &str, at: usize, block: &Value) -> Result<String, ApiError> {
    let place = format!("{place}[{at}]");
    match (block["type"].as_str(), block["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (Some("text"), None) => Err(ApiError::param(place, "it has no text")),
        (Some(_), _) => Err(ApiError::unsupported(place, TEXT_ONLY)),
        (None, _) => Err(ApiError::param(place, "a block is an object with a type")),
    }
}

fn joined(place: &str, content: &Value) -> Result<String, ApiError> {
    let blocks = blocks(place, content)?;
    let texts = blocks.iter().enumerate().map(|(at, block)| text_of(place, at, block));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// A user's message: results of tools come as messages of their own, before what the user says.
fn user(place: &str, content: &Value, out: &mut Vec<Message>) -> Result<(), ApiError> {
    let mut texts = Vec::new();
    for (at, block) in blocks(place, content)?.iter().enumerate() {
        if block["type"] == "tool_result" {
            let place = format!("{place}[{at}].content");
            let text = match &block["content"] {
                Value::Null => String::new(),
                content => joined(&place, content)?,
            };
            let mut message = Message::new("tool", text);
            message.extra.insert("tool_call_id".to_owned(), block["tool_use_id"].clone());
            out.push(message);
        } else {
            texts.push(text_of(place, at, block)?);
        }
    }
    if !texts.is_empty() {
        out.push(Message::user(texts.join("\n")));
    }
    Ok(())
}

fn assistant(place: &str, content: &Value) -> Result<Message, ApiError> {
    let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (at, block) in blocks(place, content)?.iter().enumerate() {
        match block["type"].as_str() {
            Some("tool_use") => {
                let (Some(name), Value::Object(input)) = (block["name"].as_str(), &block["input"]) else {
                    let why = "a tool_use has a name and an input";
                    return Err(ApiError::param(format!("{place}[{at}]"), why));
                };
                let function = json!({"name": name, "arguments": input});
                calls.push(json!({"id": block["id"], "type": "function", "function": function}));
            }
            Some("thinking") => thoughts.extend(block["thinking"].as_str().map(str::to_owned)),
            Some("redacted_thinking") => {}
            _ => texts.push(text_of(place, at, block)?),
        }
    }
    let content = if texts.is_empty() { Value::Null } else { texts.join("\n").into() };
    let mut extra = Map::new();
    if !thoughts.is_empty() {
        extra.insert("reasoning_content".to_owned(), thoughts.join("\n").into());
    }
    if !calls.is_empty() {
        extra.insert("tool_calls".to_owned(), calls.into());
    }
    Ok(Message { role: "assistant".to_owned(), content, extra })
}

/// Tools in the form of OpenAI's interface.
///
/// # Errors
/// A tool that the server would have to run itself.
pub(super) fn tools(tools: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let tool = |(at, tool): (usize, Value)| match tool["type"].as_str() {
        None | Some("custom") => Ok(function(&tool["name"], &tool["description"], &tool["input_schema"])),
        Some(_) => Err(ApiError::unsupported(format!("tools[{at}]"), "this server runs no tools")),
    };
    tools.into_iter().enumerate().map(tool).collect()
}

/// A choice in the form of OpenAI's interface.
///
/// # Errors
/// A malformed one.
pub(super) fn tool_choice(choice: Option<&Value>) -> Result<Option<Value>, ApiError> {
    let Some(choice) = choice.filter(|choice| !choice.is_null()) else { return Ok(None) };
    match choice["type"].as_str() {
        Some(kind @ ("auto" | "none")) => Ok(Some(kind.into())),
        Some("any" | "tool") => Ok(Some("required".into())),
        _ => Err(ApiError::param("tool_choice", "its type must be auto or none")),
    }
}
