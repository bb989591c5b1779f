//! Fields of a head's `config.json`, read with their types and bounds.
//!
//! Invariant: every error names the field; no value of the file is used unchecked.
//! Not here: what the fields mean (`config`).

use serde_json::Value;

use crate::{ModelError, Section};

/// Largest width or count believed.
const MAX_SIZE: usize = 1 << 20;

/// An object of the configuration.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) file: &'a str,
    pub(super) object: &'a Value,
}

impl<'a> Keys<'a> {
    /// A field that is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// The object in a field; one without fields where there is none.
    pub(super) fn inside(&self, key: &str) -> Keys<'a> {
        Keys { file: self.file, object: self.get(key).unwrap_or(&Value::Null) }
    }

    /// Text in a field.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    /// A count from 1 on.
    pub(super) fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.maybe_size(key)?.ok_or_else(|| ModelError::missing(self.file, Section::Config, key))
    }

    /// A count from 1 on, where the field is there.
    pub(super) fn maybe_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
        match size.filter(|n| (1..=MAX_SIZE).contains(n)) {
            Some(n) => Ok(Some(n)),
            None => Err(self.wrong(key, format!("must be a whole number from 1 to {MAX_SIZE}"))),
        }
    }

    /// A number above 0, where the field is there.
    pub(super) fn maybe_positive(&self, key: &str) -> Result<Option<f32>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64().map(|x| x as f32).filter(|x| x.is_finite() && *x > 0.0) {
            Some(x) => Ok(Some(x)),
            None => Err(self.wrong(key, "must be a number above 0")),
        }
    }

    /// A yes or no, where the field is there.
    pub(super) fn maybe_flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(key, "must be true or false"))
    }

    /// A list of whole numbers, 0 or more.
    pub(super) fn list(&self, key: &str) -> Result<Vec<usize>, ModelError> {
        let missing = || ModelError::missing(self.file, Section::Config, key);
        let wrong = || self.wrong(key, "must be a list of whole numbers, 0 or more");
        let list = self.get(key).ok_or_else(missing)?.as_array().ok_or_else(wrong)?;
        let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(wrong);
        list.iter().map(number).collect()
    }

    /// A broken rule.
    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::malformed(self.file, Section::Config, Some(key), None, problem)
    }

    /// Something this engine does not handle.
    pub(super) fn unsupported(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::unsupported(self.file, Section::Config, Some(key), problem)
    }
}
