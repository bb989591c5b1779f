//! Chat templates: the Jinja program in a model file that turns messages into a prompt.
//!
//! A template is foreign code. It runs without file system, includes or host objects, on its own stack, within a
//! counted budget, and both when it is loaded (on a probe conversation) and every time it is used.
//!
//! ```text
//! messages → shapes a template may want → marks on control tokens in the text → template → marks out → Rendered
//! ```
//!
//! Invariant: no template can hang, crash, read anything or take more memory than the budget; bad ones fail at load.
//! Not here: encoding the result (`tokenizer`); files without a template, whose prompts the caller sends raw.

mod budget;
mod clock;
mod filters;
mod guard;
mod message;
mod methods;
mod operators;
mod print;
mod protect;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use minijinja::machinery::{Vm, make_string_output};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use serde_json::{Map, Value, json};

use self::budget::{Budget, MAX_SOURCE, MAX_STEPS, MAX_VALUE};
pub use self::message::Message;
pub use self::protect::Rendered;
use super::Tokenizer;
use crate::{Metadata, ModelError, Section};

const KEY: &str = "tokenizer.chat_template";

/// Stack of the thread a template runs on. Only what is used is ever touched; a value nested once per step of
/// the whole budget can still be dropped on it.
const STACK: usize = 64 << 20;

/// What a rendering needs besides the messages.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Whether the prompt ends with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// Tools the model may call, as a list in the chat-completions shape.
    pub tools: Option<Value>,
    /// More variables for the template, such as `enable_thinking`; they override everything but the messages.
    pub extra: Map<String, Value>,
    /// The time `strftime_now` tells; the present when `None`.
    pub now: Option<SystemTime>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, tools: None, extra: Map::new(), now: None }
    }
}

/// Why a template gave no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template refused the conversation, in its own words.
    #[error("the chat template refuses: {message}")]
    Raised {
        /// Argument of its `raise_exception`.
        message: String,
    },
    /// The template did more than any template may.
    #[error("chat template: {message}")]
    Budget {
        /// Which limit, and where in the template.
        message: String,
    },
    /// The template has an error, or one showed with this conversation.
    #[error("chat template: {message}")]
    Failed {
        /// Line of the template, from 1.
        line: Option<usize>,
        /// What went wrong, with the line.
        message: String,
    },
    /// A message has a shape no template could render.
    #[error("{message}")]
    Input {
        /// Which message and why.
        message: String,
    },
}

/// A checked chat template of one model. Cloning is cheap.
#[derive(Clone)]
pub struct ChatTemplate(Arc<Parts>);

struct Parts {
    /// As the file has it.
    source: String,
    /// As it is compiled.
    program: String,
    tokenizer: Tokenizer,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("bytes", &self.0.program.len()).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// The template of a GGUF file, or `None` where it has none, as base models often do.
    ///
    /// # Errors
    /// A template of another type than string, and everything [`new`](Self::new) refuses, naming the key.
    pub fn from_gguf(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>, ModelError> {
        match metadata.str(KEY)? {
            Some(source) if !source.trim().is_empty() => {
                Self::checked(metadata.file(), KEY, source, tokenizer).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A template from elsewhere, for the model of `tokenizer`.
    ///
    /// # Errors
    /// A source over 1 MiB, syntax errors with their line, forbidden statements, and a template that fails, refuses
    /// or goes beyond its budget on every probe: a plain question, one with instructions, one in parts.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, ModelError> {
        Self::checked("chat template", KEY, source, tokenizer)
    }

    fn checked(file: &str, key: &str, source: &str, tokenizer: &Tokenizer) -> Result<Self, ModelError> {
        let refused =
            |problem: String| ModelError::malformed(file, Section::Template, Some(key), None, problem);
        if source.len() > MAX_SOURCE {
            return Err(refused(format!("{} bytes, more than the {MAX_SOURCE} allowed", source.len())));
        }
        let template = Self(Arc::new(Parts {
            source: source.to_string(),
            program: without_generation_tags(source),
            tokenizer: tokenizer.clone(),
        }));
        template.probe().map_err(|error| {
            // The error already names the template, so the words are enough.
            refused(match error {
                TemplateError::Raised { message } => format!("it refuses every conversation: {message}"),
                TemplateError::Failed { message, .. } => message,
                TemplateError::Budget { message } | TemplateError::Input { message } => message,
            })
        })?;
        Ok(template)
    }

    /// Renders conversations any template should take; one success is enough, since some refuse instructions.
    fn probe(&self) -> Result<(), TemplateError> {
        let question = json!({"role": "user", "content": "Hello"});
        let probes = [
            vec![question.clone()],
            vec![json!({"role": "system", "content": "Be brief."}), question],
            vec![json!({"role": "user", "content": [{"type": "text", "text": "Hello"}]})],
        ];
        let mut first = None;
        for probe in probes {
            match self.rendered(probe, &RenderOptions::default()) {
                Ok(_) => return Ok(()),
                Err(error @ TemplateError::Budget { .. }) => return Err(error),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The prompt of a conversation.
    ///
    /// Control tokens spelled in messages stay text when the result is encoded. Arguments of tool calls may be an
    /// object or JSON text, empty or not; content may be null.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered, TemplateError> {
        let mut first = None;
        for shape in message::shapes(messages)? {
            match self.rendered(shape, options) {
                Err(error @ (TemplateError::Failed { .. } | TemplateError::Raised { .. })) => {
                    first.get_or_insert(error);
                }
                done => return done,
            }
        }
        Err(first.unwrap_or(TemplateError::Input { message: "there are no messages".into() }))
    }

    /// The template's source, as the file has it.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Renders messages of one shape on a thread with a stack of known size.
    fn rendered(&self, messages: Vec<Value>, options: &RenderOptions) -> Result<Rendered, TemplateError> {
        let tokenizer = &self.0.tokenizer;
        let mut messages = Value::Array(messages);
        let mut tools = options.tools.clone().unwrap_or(Value::Null);
        let (texts, extra) = (format!("{messages}{tools}"), Value::Object(options.extra.clone()).to_string());
        let mark = protect::unused_mark(&[&texts, &extra, &self.0.program])
            .ok_or_else(|| TemplateError::Input { message: "the messages use every character".into() })?;
        protect::protect(&mut messages, tokenizer, mark);
        protect::protect(&mut tools, tokenizer, mark);
        let special = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id)).unwrap_or_default();
        let mut context = json!({
            "tools": tools,
            "documents": null,
            "bos_token": special(tokenizer.bos()),
            "eos_token": special(tokenizer.eos()),
            "unk_token": special(tokenizer.unk()),
            "pad_token": special(tokenizer.pad()),
            "add_generation_prompt": options.add_generation_prompt,
        });
        if let Value::Object(entries) = &mut context {
            entries.extend(options.extra.clone());
            entries.insert("messages".into(), messages);
        }
        let now = options.now.unwrap_or_else(SystemTime::now);
        let budget = Arc::new(Budget::new(texts.len() + extra.len()));
        let marked = std::thread::scope(|scope| {
            let run = || run(&self.0.program, &context, &budget, now);
            let thread = std::thread::Builder::new().name("chat template".into()).stack_size(STACK);
            let failed = |message: String| TemplateError::Failed { line: None, message };
            let thread = thread.spawn_scoped(scope, run).map_err(|error| failed(error.to_string()))?;
            thread.join().map_err(|_| failed("the template engine failed".into()))?
        })?;
        Ok(Rendered::unmarked(&marked, mark))
    }
}

/// Compiles and runs a template, which only takes fractions of a millisecond to compile.
fn run(
    source: &str,
    context: &Value,
    budget: &Arc<Budget>,
    now: SystemTime,
) -> Result<String, TemplateError> {
    let instructions = guard::compile("chat_template", source)?;
    let mut env = Environment::empty();
    env.set_debug(false);
    env.set_fuel(Some(MAX_STEPS));
    operators::install(&mut env, budget);
    filters::install(&mut env, budget, now);
    let paying = budget.clone();
    env.set_formatter(move |out, _, value| {
        let written = match value.as_str() {
            Some(text) => {
                paying.charge(text.len())?;
                out.write_str(text)
            }
            None => out.write_str(&print::text(value, &paying)?),
        };
        written.map_err(Error::from)
    });
    let root = minijinja::Value::from_serialize(context);
    let mut text = String::new();
    Vm::new(&env)
        .eval(&instructions, root, &BTreeMap::new(), &mut make_string_output(&mut text), AutoEscape::None)
        .map_err(|error| described(&error, budget.is_spent()))?;
    if text.len() > MAX_VALUE {
        return Err(described(&budget.exceeded("the prompt is longer than 4 MiB"), true));
    }
    Ok(text)
}

/// Marks an error as the template's own refusal.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// The error of `raise_exception`.
fn raised(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_string()).with_source(Raised(message.to_string()))
}

/// Sorts an error of the engine and says where it happened.
fn described(error: &Error, spent: bool) -> TemplateError {
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return TemplateError::Raised { message: cut(message) };
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => break,
        }
    }
    // Errors inside macros are wrapped; the innermost one of the engine says what happened.
    let inner = cause.downcast_ref::<Error>().unwrap_or(error);
    let line = inner.line().or(error.line());
    let at = line.map_or(String::new(), |line| format!("line {line}: "));
    let what = inner.detail().map_or_else(|| inner.kind().to_string(), cut);
    let recursion = what.contains("recursion limit");
    if spent || inner.kind() == ErrorKind::OutOfFuel || recursion {
        let what = if inner.kind() == ErrorKind::OutOfFuel && inner.detail().is_none() {
            format!("the template goes beyond its limits: more than {MAX_STEPS} steps")
        } else {
            what
        };
        return TemplateError::Budget { message: format!("{at}{what}") };
    }
    let kind = match inner.kind() {
        ErrorKind::SyntaxError => "syntax error: ",
        ErrorKind::UndefinedError => "undefined value: ",
        _ => "",
    };
    TemplateError::Failed { line, message: format!("{at}{kind}{what}") }
}

/// At most 300 bytes of a message, since a template may put anything into it.
fn cut(message: &str) -> String {
    let end = message.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|&end| end <= 300).last();
    let short = &message[..end.unwrap_or(0)];
    short.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Hugging Face marks the model's own words with `{% generation %}`, which changes nothing in the text.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let sign = tag.len() - tag.trim_start_matches(['-', '+']).len();
        let word = tag[sign..].trim_start();
        let known = [("generation", "if true"), ("endgeneration", "endif")].into_iter().find(|(name, _)| {
            word.strip_prefix(name)
                .is_some_and(|end| end.trim_start().trim_start_matches('-').starts_with("%}"))
        });
        rest = match known {
            Some((name, replacement)) => {
                out.push_str(&tag[..sign]);
                out.push(' ');
                out.push_str(replacement);
                out.push(' ');
                &word[name.len()..]
            }
            None => tag,
        };
    }
    out.push_str(rest);
    out
}
