//! Messages of OpenAI's chat interface, checked so that an error names the place.
//!
//! Invariant: nothing but text gets through; no address in a message is ever opened.
//! Not here: rendering (`pilotfish_model::text`), the other interfaces' messages (`messages`, `responses`).

use pilotfish::Message;
use serde_json::Value;

use crate::error::ApiError;

/// Why other parts are refused.
pub(crate) const TEXT_ONLY: &str = "this server works with text only, and opens no addresses or files";

/// Reads the messages.
///
/// # Errors
/// The first message that is malformed.
pub(crate) fn messages(values: Vec<Value>) -> Result<Vec<Message>, ApiError> {
    if values.is_empty() {
        return Err(ApiError::param("messages", "there are none"));
    }
    values.into_iter().enumerate().map(|(at, value)| message(&format!("messages[{at}]"), value)).collect()
}

fn message(place: &str, value: Value) -> Result<Message, ApiError> {
    let error = |field: &str, why: &str| Err(ApiError::param(format!("{place}{field}"), why));
    let Value::Object(mut fields) = value else { return error("", "a message is an object") };
    let Some(Value::String(role)) = fields.remove("role") else {
        return error(".role", "it must be a text");
    };
    let role = match role.as_str() {
        "developer" => "system".to_owned(),
        "system" | "user" | "assistant" | "tool" => role,
        _ => return error(".role", "it must be system, developer, user, assistant or tool"),
    };
    let calls = fields.get("tool_calls").filter(|calls| !calls.is_null());
    calls.map_or(Ok(()), |calls| check_calls(place, calls))?;
    let calls = calls.is_some();
    let content = fields.remove("content").unwrap_or(Value::Null);
    if content.is_null() && !(role == "assistant" && calls) {
        return error(".content", "it is missing");
    }
    check_content(&format!("{place}.content"), &content)?;
    Ok(Message { role, content, extra: fields })
}

/// Checks that a content is text, in one piece or several, or absent.
///
/// # Errors
/// The part that is not.
pub(crate) fn check_content(place: &str, content: &Value) -> Result<(), ApiError> {
    match content {
        Value::Null | Value::String(_) => Ok(()),
        Value::Array(parts) => {
            for (at, part) in parts.iter().enumerate() {
                let is_text = part["type"] == "text" && part["text"].is_string();
                if !is_text {
                    let place = format!("{place}[{at}]");
                    return Err(match part["type"].as_str() {
                        Some("text") => ApiError::param(place, "it has no text"),
                        Some(_) => ApiError::unsupported(place, TEXT_ONLY),
                        None => ApiError::param(place, "a part is an object with a type"),
                    });
                }
            }
            Ok(())
        }
        _ => Err(ApiError::param(place, "it must be a text or a list of parts")),
    }
}

fn check_calls(place: &str, calls: &Value) -> Result<(), ApiError> {
    let place = format!("{place}.tool_calls");
    let Value::Array(calls) = calls else { return Err(ApiError::param(place, "it must be a list")) };
    for (at, call) in calls.iter().enumerate() {
        let function = &call["function"];
        let named = function["name"].is_string();
        if !named || !matches!(function["arguments"], Value::String(_) | Value::Object(_) | Value::Null) {
            let why = "a call has a function with a name and arguments";
            return Err(ApiError::param(format!("{place}[{at}].function"), why));
        }
    }
    Ok(())
}
