//! Tools a model may call, in the form chat templates take.
//!
//! Invariant: a request that must call a tool is refused, because only constrained output could promise that.
//! Not here: finding calls in what the model writes (`parts`).

use std::sync::Arc;

use serde_json::{Value, json};

use super::CONSTRAINED;
use crate::error::ApiError;
use crate::facts::Facts;

/// Most tools of a request.
const MAX_TOOLS: usize = 128;

/// Checks tools of the form `{"type": "function", "function": {"name", "description", "parameters"}}`; none where the
/// model may call none.
///
/// # Errors
/// The tool that is malformed, a choice that cannot be promised, or a model that is never shown tools.
pub(crate) fn checked(
    facts: &Facts,
    tools: Option<Vec<Value>>,
    choice: Option<&Value>,
) -> Result<Option<Vec<Value>>, ApiError> {
    let may = match choice {
        None | Some(Value::Null) => true,
        Some(Value::String(choice)) if choice == "auto" => true,
        Some(Value::String(choice)) if choice == "none" => false,
        Some(Value::String(choice)) if choice != "required" => {
            return Err(ApiError::param("tool_choice", "it must be auto or none"));
        }
        Some(_) => return Err(ApiError::unsupported("tool_choice", CONSTRAINED)),
    };
    let tools = tools.unwrap_or_default();
    if tools.is_empty() || !may {
        return Ok(None);
    }
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::param("tools", format!("{} are more than {MAX_TOOLS}", tools.len())));
    }
    if !facts.takes_tools {
        return Err(ApiError::unsupported("tools", "this model's chat template shows it no tools"));
    }
    for (at, tool) in tools.iter().enumerate() {
        let function = &tool["function"];
        let named = function["name"].as_str().is_some_and(|name| !name.is_empty());
        let described = matches!(function["parameters"], Value::Object(_) | Value::Null);
        if tool["type"] != "function" || !named || !described {
            let why = "a tool is a function with a name and parameters";
            return Err(ApiError::param(format!("tools[{at}]"), why));
        }
        if function["strict"] == true {
            return Err(ApiError::unsupported(format!("tools[{at}].function.strict"), CONSTRAINED));
        }
    }
    Ok(Some(tools))
}

/// A tool in that form.
pub(crate) fn function(name: &Value, description: &Value, parameters: &Value) -> Value {
    let mut function = json!({"name": name, "parameters": parameters});
    if !description.is_null() {
        function["description"] = description.clone();
    }
    json!({"type": "function", "function": function})
}

/// The names of checked tools, for finding calls of them.
pub(crate) fn names(tools: Option<&[Value]>) -> Option<Arc<[String]>> {
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
    tools.map(|tools| tools.iter().map(name).collect())
}
