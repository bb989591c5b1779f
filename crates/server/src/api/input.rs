//! Input and tools of OpenAI's responses interface, turned into those chat templates take.
//!
//! Invariant: nothing but text gets through; an error names the place.
//! Not here: replies (`responses`).

use pilotfish::Message;
use serde_json::{Map, Value, json};

use super::conversation::TEXT_ONLY;
use super::tools::function;
use crate::error::ApiError;

/// Reads the instructions and the input.
///
/// # Errors
/// The first item that is malformed or no text.
pub(super) fn conversation(instructions: Option<&str>, input: &Value) -> Result<Vec<Message>, ApiError> {
    let mut out: Vec<Message> = instructions.into_iter().map(Message::system).collect();
    match input {
        Value::String(text) => out.push(Message::user(text.as_str())),
        Value::Array(items) if items.is_empty() => {
            return Err(ApiError::param("input", "it is empty"));
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                read(&format!("input[{at}]"), item, &mut out)?;
            }
        }
        _ => return Err(ApiError::param("input", "it must be a text or a list of items")),
    }
    Ok(out)
}

fn read(place: &str, item: &Value, out: &mut Vec<Message>) -> Result<(), ApiError> {
    match item["type"].as_str() {
        None | Some("message") => {
            let role = match item["role"].as_str() {
                Some("developer" | "system") => "system",
                Some("user") => "user",
                Some("assistant") => "assistant",
                _ => {
                    let why = "it must be system, developer, user or assistant";
                    return Err(ApiError::param(format!("{place}.role"), why));
                }
            };
            out.push(Message::new(role, text(&format!("{place}.content"), &item["content"])?));
        }
        Some("function_call") => {
            let Some(name) = item["name"].as_str() else {
                return Err(ApiError::param(format!("{place}.name"), "it must be a text"));
            };
            let function = json!({"name": name, "arguments": item["arguments"]});
            let call = json!({"id": item["call_id"], "type": "function", "function": function});
            // Calls that follow one another were made in one message.
            let last = out.last_mut().filter(|message| message.role == "assistant");
            match last.and_then(|message| message.extra.get_mut("tool_calls")?.as_array_mut()) {
                Some(calls) => calls.push(call),
                None => {
                    let mut extra = Map::new();
                    extra.insert("tool_calls".to_owned(), json!([call]));
                    out.push(Message { role: "assistant".to_owned(), content: Value::Null, extra });
                }
            }
        }
        Some("function_call_output") => {
            let mut message = Message::new("tool", text(&format!("{place}.output"), &item["output"])?);
            message.extra.insert("tool_call_id".to_owned(), item["call_id"].clone());
            out.push(message);
        }
        // What the model thought in earlier turns is not shown to it again.
        Some("reasoning") => {}
        Some(_) => return Err(ApiError::unsupported(place, "there are no items of this type here")),
    }
    Ok(())
}

fn text(place: &str, content: &Value) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let mut texts = Vec::new();
            for (at, part) in parts.iter().enumerate() {
                let kind = part["type"].as_str();
                match (kind, part["text"].as_str()) {
                    (Some("input_text" | "output_text" | "text"), Some(text)) => texts.push(text),
                    (Some(_), None | Some(_)) => {
                        return Err(ApiError::unsupported(format!("{place}[{at}]"), TEXT_ONLY));
                    }
                    (None, _) => {
                        let why = "a part is an object with a type";
                        return Err(ApiError::param(format!("{place}[{at}]"), why));
                    }
                }
            }
            Ok(texts.join("\n"))
        }
        Value::Null => Err(ApiError::param(place, "it is missing")),
        _ => Err(ApiError::param(place, "it must be a text or a list of parts")),
    }
}

/// Tools in the form of the chat interface.
///
/// # Errors
/// A tool that the server would have to run itself.
pub(super) fn tools(tools: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let tool = |(at, tool): (usize, Value)| match tool["type"].as_str() {
        Some("function") => Ok(function(&tool["name"], &tool["description"], &tool["parameters"])),
        _ => Err(ApiError::unsupported(format!("tools[{at}]"), "only functions can be called")),
    };
    tools.into_iter().enumerate().map(tool).collect()
}
