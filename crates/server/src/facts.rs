//! What requests need to know of the model without the engine, which may be busy.
//!
//! Invariant: nothing here changes while the server runs.
//! Not here: the engine itself (`worker`).

use std::time::{SystemTime, UNIX_EPOCH};

use pilotfish::{Engine, Message};
use pilotfish_model::text::{ChatTemplate, RenderOptions, Specials, Tokenizer};

use crate::config::Config;
use crate::error::ApiError;

/// The model as requests see it.
pub(crate) struct Facts {
    /// Its name for clients.
    pub(crate) id: String,
    /// Its own name, by which it can be asked for too.
    pub(crate) name: String,
    pub(crate) created: u64,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) family: &'static str,
    pub(crate) context: usize,
    pub(crate) vocab: usize,
    pub(crate) lane: String,
    pub(crate) threads: usize,
    pub(crate) numerics_id: String,
    pub(crate) drafter: String,
    /// Whether the template shows tools to the model.
    pub(crate) takes_tools: bool,
    /// Whether the model is known to think aloud between `<think>` and `</think>`.
    pub(crate) thinks: bool,
}

/// A conversation or a text as token ids.
pub(crate) struct Prepared {
    pub(crate) tokens: Vec<u32>,
    /// Whether the template opened the model's thoughts already.
    pub(crate) thinking: bool,
}

impl Facts {
    /// Reads them off the engine.
    pub(crate) fn new(engine: &Engine, config: &Config) -> Self {
        let info = engine.lane_info();
        let template = engine.template().cloned();
        let mentions = |word| template.as_ref().is_some_and(|template| template.source().contains(word));
        let name = engine.file().name.clone();
        Self {
            id: config.alias.clone().unwrap_or_else(|| name.clone()),
            name,
            created: now(),
            tokenizer: engine.tokenizer().clone(),
            family: engine.model().config().family.name(),
            context: info.context,
            vocab: info.vocab,
            lane: info.name.to_string(),
            threads: info.threads,
            numerics_id: info.numerics_id.to_string(),
            drafter: engine.drafter().to_owned(),
            takes_tools: mentions("tools"),
            thinks: mentions("<think>"),
            template,
        }
    }

    /// Refuses another model's name. No name is this model's too.
    ///
    /// # Errors
    /// 404 that says which model is served.
    pub(crate) fn check_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        match asked {
            Some(asked) if asked != self.id && asked != self.name => {
                Err(ApiError::unknown_model(asked, &self.id))
            }
            _ => Ok(()),
        }
    }

    /// Renders and tokenizes a conversation; `param` is where it came from.
    ///
    /// # Errors
    /// Where the template refuses it, or it leaves no room for a reply.
    pub(crate) fn chat(
        &self,
        param: &str,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Prepared, ApiError> {
        let no_template = "this model has no chat template; use /v1/completions";
        let template = self.template.as_ref().ok_or_else(|| ApiError::unsupported(param, no_template))?;
        let rendered = template.render(messages, options).map_err(|error| ApiError::param(param, error))?;
        let thinking = rendered.text().trim_end().ends_with("<think>");
        let tokens = self.tokenizer.encode_rendered(&rendered);
        Ok(Prepared { tokens: self.fitting(param, tokens)?, thinking })
    }

    /// Tokenizes a text as it is, control tokens included.
    ///
    /// # Errors
    /// Where it is empty or leaves no room for a reply.
    pub(crate) fn text(&self, param: &str, text: &str) -> Result<Vec<u32>, ApiError> {
        self.fitting(param, self.tokenizer.encode_prompt(text, Specials::Parse))
    }

    /// Checks token ids.
    ///
    /// # Errors
    /// Where there are none, one is unknown, or they leave no room for a reply.
    pub(crate) fn fitting(&self, param: &str, tokens: Vec<u32>) -> Result<Vec<u32>, ApiError> {
        if tokens.is_empty() {
            return Err(ApiError::param(param, "the prompt is empty: there is no token to continue from"));
        }
        if let Some(at) = tokens.iter().position(|&token| token as usize >= self.vocab) {
            let why = format!("token {at} has id {}, outside the vocabulary of {}", tokens[at], self.vocab);
            return Err(ApiError::param(param, why));
        }
        if tokens.len() >= self.context {
            return Err(ApiError::context(param, tokens.len(), self.context));
        }
        Ok(tokens)
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
