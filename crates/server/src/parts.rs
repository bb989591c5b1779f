//! Splits what a model writes into thoughts, text and tool calls, as it comes.
//!
//! ```text
//! <think>thoughts</think>text<tool_call>{"name": "f", "arguments": {…}}</tool_call>
//! ```
//!
//! This is the form that Hermes began and Qwen's models write. Small ones often leave the marks out, or put a code fence
//! there: a reply that is nothing but such an object, and names a tool it was given, is a call too. Space around the
//! marks belongs to neither side. A call that is not JSON of that shape is text, marks and all: a reply never fails
//! because a model wrote it badly.
//!
//! Invariant: the parts do not depend on how the text was cut when it came.
//! Not here: how an interface names the parts (`api`).

use std::sync::Arc;

use serde_json::Value;

const THINK: (&str, &str) = ("<think>", "</think>");
const CALL: (&str, &str) = ("<tool_call>", "</tool_call>");
const FENCE: (&str, &str) = ("```json", "```");

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// What the reply says.
    Text(String),
    /// What the model thought before.
    Thought(String),
    /// A tool it calls.
    Call(ToolCall),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    /// JSON text of an object.
    pub(crate) arguments: String,
}

/// Which parts a reply may have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// It may begin with a thought.
    pub(crate) thoughts: bool,
    /// The prompt has begun the thought.
    pub(crate) inside_thought: bool,
    /// It may call tools of these names.
    pub(crate) calls: Option<Arc<[String]>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Nothing but space came.
    Start,
    Thought,
    /// Nothing but space of what is no thought came, and all of it may be a call.
    Opening,
    /// All of it is a call, or none.
    Whole,
    Text,
    Call,
}

/// Splits one reply.
#[derive(Clone, Debug)]
pub(crate) struct Splitter {
    calls: Option<Arc<[String]>>,
    state: State,
    /// Space that comes next belongs to a mark.
    skip_space: bool,
    called: bool,
    held: String,
}

impl Splitter {
    /// One for a reply under `rules`.
    pub(crate) fn new(rules: Rules) -> Self {
        let state = match (rules.thoughts, rules.inside_thought) {
            (true, true) => State::Thought,
            (true, false) => State::Start,
            (false, _) if rules.calls.is_some() => State::Opening,
            (false, _) => State::Text,
        };
        let skip_space = state == State::Thought;
        Self { calls: rules.calls, state, skip_space, called: false, held: String::new() }
    }

    /// Takes more of the reply; returns what is certain.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Part> {
        self.held += text;
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// Ends the reply; returns what was held back.
    pub(crate) fn finish(&mut self) -> Vec<Part> {
        let held = std::mem::take(&mut self.held);
        let part = match self.state {
            _ if held.is_empty() => return Vec::new(),
            State::Thought => Part::Thought(held),
            State::Call => call(&held).map_or_else(|| Part::Text(format!("{}{held}", CALL.0)), Part::Call),
            // Space that was held back because a call might have followed.
            State::Text if self.called && held.trim().is_empty() => return Vec::new(),
            State::Whole => self.whole_call(&held).map_or_else(|| Part::Text(held), Part::Call),
            State::Start | State::Opening | State::Text => Part::Text(held),
        };
        vec![part]
    }

    /// Goes on as far as one mark; false when more text is needed.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        if self.skip_space {
            let kept = self.held.trim_start().len();
            self.held.drain(..self.held.len() - kept);
            if kept == 0 {
                return false;
            }
            self.skip_space = false;
        }
        match self.state {
            State::Start => {
                let begun = self.held.trim_start();
                if let Some(rest) = begun.strip_prefix(THINK.0) {
                    self.held = rest.to_owned();
                    self.enter(State::Thought)
                } else if THINK.0.starts_with(begun) {
                    false
                } else {
                    self.state = self.behind_thoughts();
                    true
                }
            }
            State::Opening => {
                let begun = self.held.trim_start();
                if begun.starts_with('{') || begun.starts_with(FENCE.0) {
                    self.state = State::Whole;
                    false
                } else if FENCE.0.starts_with(begun) {
                    false
                } else {
                    self.state = State::Text;
                    true
                }
            }
            State::Whole => false,
            State::Thought => match self.held.find(THINK.1) {
                Some(at) => {
                    let thought = self.take(at, THINK.1);
                    parts.extend(part(thought, Part::Thought));
                    self.enter(self.behind_thoughts())
                }
                None => {
                    let certain = self.held.len() - possible_mark(&self.held, THINK.1);
                    parts.extend(part(self.take(certain, ""), Part::Thought));
                    false
                }
            },
            State::Text if self.calls.is_none() => {
                parts.extend(part(std::mem::take(&mut self.held), Part::Text));
                false
            }
            State::Text => match self.held.find(CALL.0) {
                Some(at) => {
                    let text = self.take(at, CALL.0);
                    parts.extend(part(text.trim_end().to_owned(), Part::Text));
                    self.state = State::Call;
                    true
                }
                None => {
                    let before = self.held.len() - possible_mark(&self.held, CALL.0);
                    let certain = self.held[..before].trim_end().len();
                    parts.extend(part(self.take(certain, ""), Part::Text));
                    false
                }
            },
            State::Call => match self.held.find(CALL.1) {
                Some(at) => {
                    let inside = self.take(at, CALL.1);
                    match call(&inside) {
                        Some(call) => {
                            self.called = true;
                            parts.push(Part::Call(call));
                            self.enter(State::Text)
                        }
                        None => {
                            parts.push(Part::Text(format!("{}{inside}{}", CALL.0, CALL.1)));
                            self.state = State::Text;
                            true
                        }
                    }
                }
                None => false,
            },
        }
    }

    fn behind_thoughts(&self) -> State {
        if self.calls.is_some() { State::Opening } else { State::Text }
    }

    /// The call that a text is as a whole.
    fn whole_call(&self, text: &str) -> Option<ToolCall> {
        let text = text.trim();
        let inside = match text.strip_prefix(FENCE.0) {
            Some(fenced) => fenced.strip_suffix(FENCE.1)?,
            None => text,
        };
        call(inside).filter(|call| self.calls.iter().any(|names| names.contains(&call.name)))
    }

    /// Goes over to a state in front of which space means nothing.
    fn enter(&mut self, state: State) -> bool {
        self.state = state;
        self.skip_space = true;
        true
    }

    /// Takes the text up to `at` and drops the mark behind it.
    fn take(&mut self, at: usize, mark: &str) -> String {
        let rest = self.held.split_off(at);
        let taken = std::mem::replace(&mut self.held, rest);
        self.held.drain(..mark.len());
        taken
    }
}

fn part(text: String, kind: fn(String) -> Part) -> Option<Part> {
    (!text.is_empty()).then(|| kind(text))
}

/// Bytes at the end of the text that may be the beginning of a mark.
fn possible_mark(text: &str, mark: &str) -> usize {
    (1..mark.len()).rev().find(|&n| text.ends_with(&mark[..n])).unwrap_or(0)
}

/// Reads the inside of a call.
fn call(inside: &str) -> Option<ToolCall> {
    let value: Value = serde_json::from_str(inside.trim()).ok()?;
    let name = value.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned();
    let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        // Some models write the object as a text.
        Some(Value::String(text)) => {
            serde_json::from_str::<serde_json::Map<String, Value>>(text).ok()?;
            text.clone()
        }
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}

#[cfg(test)]
#[path = "tests/parts.rs"]
mod tests;
