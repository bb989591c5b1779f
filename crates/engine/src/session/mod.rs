//! The tokens of one reply, and when it ends.
//!
//! A round may commit several tokens at once, and the reply may end at any of them. [`Session::commit`]
//! therefore takes them one by one and asks after each: an end token? a stop string? a limit? What lies
//! behind the end is dropped, so a reply ends exactly where plain decoding would have ended it.
//!
//! Invariant: nothing is committed to a session that is done.
//! Not here: the cache (`CachedLane`), choosing tokens (`sampling`).

mod pieces;
mod text;

pub use pieces::Piece;
pub use text::{NoText, ReplyText, StreamedText, TextStep};

use std::sync::Arc;

use pieces::Pieces;

use crate::error::EngineError;
use crate::sampling::{Dice, Sampler};

/// Where a reply must end at the latest, and which tokens end it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most tokens of the reply, the end token included; `None` until the context is full.
    pub max_tokens: Option<usize>,
    /// Most tokens of prompt and reply together.
    pub context: usize,
    /// Ids that end a reply.
    pub end_tokens: Vec<u32>,
    /// Goes on behind end tokens.
    pub ignore_eos: bool,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it with one of its end tokens.
    EndToken,
    /// A stop string was completed; the text ends before it.
    StopString,
    /// The reply has as many tokens as were asked for.
    MaxTokens,
    /// Prompt and reply fill the context.
    ContextFull,
    /// The caller asked to stop.
    Cancelled,
}

impl FinishReason {
    /// `stop`, `length` or `cancelled`, as replies name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EndToken | Self::StopString => "stop",
            Self::MaxTokens | Self::ContextFull => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What [`Session::commit`] took, or [`Session::cancel`] let go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// How many of the given tokens became part of the reply.
    pub count: usize,
    /// The text that became final with them.
    pub text: String,
    /// The same text by the tokens it belongs to.
    pub pieces: Vec<Piece>,
}

/// One prompt, its reply so far, and the rules under which it is made.
pub struct Session {
    pub(crate) tokens: Vec<u32>,
    pub(crate) sampler: Sampler,
    pub(crate) dice: Option<Arc<dyn Dice>>, // set where the text is sampled by rejection
    prompt_len: usize,
    limits: Limits,
    text: Box<dyn ReplyText>,
    pieces: Pieces,
    finish: Option<FinishReason>,
}

impl Session {
    /// A session that will continue `prompt`. With `max_tokens` 0 it is done at once.
    ///
    /// # Errors
    /// [`EngineError::EmptyPrompt`]; [`EngineError::ContextOverflow`] when the prompt alone fills the
    /// context: it is never cut.
    pub fn new(
        prompt: Vec<u32>,
        limits: Limits,
        sampler: Sampler,
        text: Box<dyn ReplyText>,
    ) -> Result<Self, EngineError> {
        let (prompt_len, context) = (prompt.len(), limits.context);
        if prompt_len == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt_len >= context {
            return Err(EngineError::ContextOverflow { prompt: prompt_len, context });
        }
        let finish = (limits.max_tokens == Some(0)).then_some(FinishReason::MaxTokens);
        let pieces = Pieces::default();
        Ok(Self { tokens: prompt, sampler, dice: None, prompt_len, limits, text, pieces, finish })
    }

    /// Prompt and reply.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The prompt.
    pub fn prompt(&self) -> &[u32] {
        &self.tokens[..self.prompt_len]
    }

    /// The reply so far. An end token is part of it, as in llama.cpp, but has no text.
    pub fn reply(&self) -> &[u32] {
        &self.tokens[self.prompt_len..]
    }

    /// Number of tokens of prompt and reply.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Never true: a session has a prompt.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The last token: the root of the next token tree.
    pub fn last(&self) -> u32 {
        *self.tokens.last().expect("a session has a prompt")
    }

    /// The rules of the reply's end.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How tokens are chosen.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Where the text is sampled by rejection: what decides. A drafter should then draw its guesses from a
    /// law by [`Dice::guesses`] and say so ([`TokenTree::draw_behind`]). Otherwise it guesses what the
    /// sampler will choose.
    ///
    /// [`TokenTree::draw_behind`]: crate::speculate::TokenTree::draw_behind
    pub fn dice(&self) -> Option<&dyn Dice> {
        self.dice.as_deref()
    }

    /// Whether the reply has ended.
    pub fn done(&self) -> bool {
        self.finish.is_some()
    }

    /// Why it has ended.
    pub fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    /// How many more tokens the limits allow.
    pub fn room(&self) -> usize {
        let by_context = self.limits.context - self.tokens.len();
        let by_count = self.limits.max_tokens.map_or(usize::MAX, |max| max - self.reply().len());
        by_context.min(by_count)
    }

    /// Adds tokens up to the one that ends the reply; drops the others.
    pub fn commit(&mut self, tokens: &[u32]) -> Committed {
        let mut committed = Committed::default();
        for &token in tokens {
            if self.done() {
                break;
            }
            self.tokens.push(token);
            committed.count += 1;
            self.finish = self.end_at(token, &mut committed.text);
        }
        if self.done() && self.finish != Some(FinishReason::StopString) && committed.count > 0 {
            committed.text += &self.text.finish();
        }
        committed.pieces = self.pieces.share(&committed.text);
        committed
    }

    /// Ends the reply on the caller's wish; returns the text that was held back.
    pub fn cancel(&mut self) -> Committed {
        if self.done() {
            return Committed::default();
        }
        self.finish = Some(FinishReason::Cancelled);
        let text = self.text.finish();
        Committed { count: 0, pieces: self.pieces.share(&text), text }
    }

    /// Whether the token just added ends the reply. A stop comes before a limit reached by the same
    /// token.
    fn end_at(&mut self, token: u32, text: &mut String) -> Option<FinishReason> {
        if !self.limits.ignore_eos && self.limits.end_tokens.contains(&token) {
            return Some(FinishReason::EndToken);
        }
        let step = self.text.push(token);
        self.pieces.brought(self.reply().len() - 1, step.brought);
        *text += &step.text;
        if step.stopped {
            Some(FinishReason::StopString)
        } else if self.limits.max_tokens == Some(self.reply().len()) {
            Some(FinishReason::MaxTokens)
        } else if self.tokens.len() >= self.limits.context {
            Some(FinishReason::ContextFull)
        } else {
            None
        }
    }
}
