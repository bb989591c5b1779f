//! How a session turns its tokens into text.
//!
//! The session sees text through [`ReplyText`] only, so its rules can be tested without a tokenizer.
//!
//! Invariant: the joined texts of one reply are the reply's text, cut before a stop string.
//! Not here: decoding and stop-string search themselves (`pilotfish_model::text`).

use pilotfish_model::text::{StopStrings, TextStream, Tokenizer};

/// What one token added to the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextStep {
    /// Text that can no longer change.
    pub text: String,
    /// Bytes of text the token brought itself, held back or not.
    pub brought: usize,
    /// Whether a stop string is complete; `text` ends before it and nothing may follow.
    pub stopped: bool,
}

/// The text of one reply, token by token.
pub trait ReplyText: Send {
    /// Takes the next token.
    fn push(&mut self, token: u32) -> TextStep;

    /// Ends the reply: returns what was held back because a stop string might have begun there.
    fn finish(&mut self) -> String;
}

/// No text at all: for callers that want token ids only.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoText;

impl ReplyText for NoText {
    fn push(&mut self, _: u32) -> TextStep {
        TextStep::default()
    }

    fn finish(&mut self) -> String {
        String::new()
    }
}

/// Text decoded by a tokenizer and searched for stop strings.
pub struct StreamedText {
    stream: TextStream,
    stops: StopStrings,
}

impl StreamedText {
    /// Text of `tokenizer`'s tokens, ended by any of `stops`.
    pub fn new(tokenizer: &Tokenizer, stops: StopStrings) -> Self {
        Self { stream: tokenizer.stream(), stops }
    }
}

impl ReplyText for StreamedText {
    fn push(&mut self, token: u32) -> TextStep {
        let decoded = self.stream.push(token);
        let step = self.stops.push(&decoded);
        TextStep { text: step.text, brought: decoded.len(), stopped: step.stop.is_some() }
    }

    fn finish(&mut self) -> String {
        // Bytes of an unfinished character stay in the stream: they are not text.
        self.stops.finish()
    }
}
