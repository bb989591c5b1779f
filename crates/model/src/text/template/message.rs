//! The messages of a conversation, in the shapes clients really send.
//!
//! A template gets them in the shape published templates expect: text parts joined by line ends, an empty
//! `tool_calls` left out, `arguments` as an object. Some templates want it otherwise, so there are variants to try
//! in order: missing text as `""`, arguments as the JSON text.
//!
//! Invariant: what reaches a template has a plain role, and content that is text or none.
//! Not here: rendering, protecting the text from becoming control tokens (`protect`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::TemplateError;

/// One message of a conversation, in the chat-completions shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool` or another name the template knows.
    pub role: String,
    /// Text, null, or a list of `{"type": "text", "text": …}` parts.
    #[serde(default)]
    pub content: Value,
    /// Everything else: `name`, `tool_calls`, `tool_call_id`, `reasoning_content` …
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: Value::String(text.into()), extra: Map::new() }
    }

    /// Instructions for the whole conversation.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new("system", text)
    }

    /// What the person wrote.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new("user", text)
    }

    /// What the model answered.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new("assistant", text)
    }

    /// The text of the message; empty where it has none.
    pub fn text(&self) -> String {
        joined(&self.content).unwrap_or_default()
    }
}

/// Text of a content value, or `None` if it is of no known shape; null has none too.
fn joined(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts.iter().map(part).collect();
            texts.map(|texts| texts.join("\n"))
        }
        _ => None,
    }
}

fn part(part: &Value) -> Option<&str> {
    let is_text = part.get("type").is_none_or(|kind| kind == "text");
    part.as_str().or_else(|| part.get("text").filter(|_| is_text)?.as_str())
}

/// The conversation in each shape a template may want, most usual first.
pub(super) fn shapes(messages: &[Message]) -> Result<Vec<Vec<Value>>, TemplateError> {
    let mut shapes: Vec<Vec<Value>> = Vec::new();
    for (as_text, filled) in [(false, false), (false, true), (true, false), (true, true)] {
        let shape = messages
            .iter()
            .enumerate()
            .map(|(index, message)| shaped(index, message, as_text, filled))
            .collect::<Result<Vec<_>, _>>()?;
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    Ok(shapes)
}

fn shaped(index: usize, message: &Message, as_text: bool, filled: bool) -> Result<Value, TemplateError> {
    let input = |problem: &str| TemplateError::Input { message: format!("message {index}: {problem}") };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if message.role.is_empty() || message.role.len() > 64 || !message.role.chars().all(plain) {
        return Err(input("the role must be a plain name"));
    }
    let content = match &message.content {
        Value::Null if filled => Value::String(String::new()),
        Value::Null => Value::Null,
        content => Value::String(
            joined(content).ok_or_else(|| input("the content must be text, null or a list of text parts"))?,
        ),
    };
    let mut object = Map::new();
    object.insert("role".into(), Value::String(message.role.clone()));
    object.insert("content".into(), content);
    for (key, value) in &message.extra {
        let value = match (key.as_str(), value) {
            ("tool_calls", Value::Null) => continue,
            ("tool_calls", Value::Array(calls)) if calls.is_empty() => continue,
            ("tool_calls", Value::Array(calls)) => {
                Value::Array(calls.iter().map(|call| call_of(call, as_text)).collect())
            }
            ("tool_calls", _) => return Err(input("`tool_calls` must be a list")),
            (_, value) => value.clone(),
        };
        object.insert(key.clone(), value);
    }
    Ok(Value::Object(object))
}

/// A tool call with its arguments as an object, or as JSON text.
fn call_of(call: &Value, as_text: bool) -> Value {
    let mut call = call.clone();
    let holder = match call.get("function") {
        Some(Value::Object(_)) => call.get_mut("function"),
        _ => Some(&mut call),
    };
    if let Some(arguments) = holder.and_then(|holder| holder.get_mut("arguments")) {
        let object = match &*arguments {
            Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
            Value::String(text) => match serde_json::from_str(text) {
                Ok(value @ Value::Object(_)) => value,
                _ => arguments.clone(),
            },
            other => other.clone(),
        };
        *arguments = match (as_text, &*arguments) {
            (false, _) => object,
            (true, Value::String(text)) if !text.trim().is_empty() => Value::String(text.clone()),
            (true, _) => Value::String(object.to_string()),
        };
    }
    call
}
