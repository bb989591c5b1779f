//! Text in and out of token ids: tokenizers, streamed decoding, stop strings and chat templates.
//!
//! A prompt goes `ChatTemplate::render` → `Tokenizer::encode_rendered` → ids; an answer comes back
//! id by id through `TextStream` and, if the caller asked for stop strings, `StopStrings`.
//!
//! Invariant: text of a message never becomes a control token, whatever the template does around it.
//! Not here: reading the metadata (`files`), choosing the next token (`pilotfish-engine`).

mod stops;
mod stream;
mod template;
mod tokenizer;

pub use stops::{EmptyStop, StopStep, StopStrings};
pub use stream::TextStream;
pub use template::{ChatTemplate, Message, RenderOptions, Rendered, TemplateError};
pub use tokenizer::{Specials, TokenKind, Tokenizer};
