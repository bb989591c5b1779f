//! `chat`: a conversation in the terminal, or line by line through a pipe.
//!
//! The conversation is a list of messages; every turn renders all of it again, and the engine finds in its cache what
//! has not changed. A turn that fails is taken back, so the conversation goes on from before it.
//!
//! At a terminal Ctrl-C ends a reply and not the conversation, and a failure is told and forgotten. Where lines come
//! from a pipe nobody is there to go on: Ctrl-C ends the program, and any failure makes it end with code 1.
//!
//! Invariant: what was said of a stopped reply stays in the history; with `--json` every line that asks for a reply
//! gives one object.
//! Not here: templates (`pilotfish_model::text`), one-shot answers (`run`).

use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;

use clap::Args;
use pilotfish::{Engine, Event, GenerateOptions, Message};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::args::{DraftArgs, ModelArgs, ReplyArgs, SamplingArgs, sampling_error};
use crate::cmd::run::{load_engine, note_history};
use crate::exit::{Outcome, escape};
use crate::output::note;
use crate::trace::{About, Trace};
use crate::{interrupt, output, timings};

/// Flags of `chat`.
#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    /// Text that comes before the conversation, from the system; also written -sys.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system_prompt: Option<String>,
    #[command(flatten)]
    reply: ReplyArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Print each turn as one JSON object instead of streaming it: its text and finish_reason, or its error.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
/reset        forget the conversation
/system TEXT  set the system prompt and start again; without TEXT remove it
/regen        answer the last message again, when sampling with the next seed
/help         show this
/exit         leave (Ctrl-D does too)
Ctrl-C stops a reply; at the prompt it leaves.";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Say(&'a str),
    Reset,
    System(&'a str),
    Regenerate,
    Help,
    Exit,
    Unknown(&'a str),
}

/// Runs the command.
///
/// # Errors
/// When the model cannot be loaded or has no chat template, or stdout is gone. A turn that fails is reported and the
/// conversation goes on.
pub(crate) fn run(args: &ChatArgs, verbose: bool) -> anyhow::Result<Outcome> {
    let mut load = args.model.load_options()?;
    args.draft.apply_to_load(&mut load)?;
    let mut options = GenerateOptions {
        sampling: args.sampling.params()?,
        spec_sampling: args.draft.spec_sampling(),
        ..GenerateOptions::default()
    };
    args.reply.apply_to(&mut options)?;
    let mut trace = args.draft.open_trace(None)?;
    options.rounds = trace.is_on();
    let engine = load_engine(&load, verbose)?;
    if !engine.has_template() {
        let name = &engine.file().name;
        anyhow::bail!(
            "`{name}` has no chat template, so it cannot chat; use `pilotfish run --raw` to complete text"
        );
    }
    // A wrong sampling value should end the command, not every turn.
    options.sampling.validate(engine.lane_info().vocab).map_err(sampling_error)?;
    trace.begin(&engine);
    let system = args.system_prompt.clone();
    let unattended = !io::stdin().is_terminal();
    let mut chat = Chat {
        engine,
        options,
        messages: Vec::new(),
        system,
        regenerations: 0,
        unattended,
        failed: false,
        verbose,
        trace,
        args,
    };
    let mut input = Input::new();
    if input.is_terminal() {
        note!("{} is listening; /help lists the commands", chat.engine.file().name);
    }
    loop {
        let next = match input.next_line()? {
            Typed::Line(line) => chat.take(&line)?,
            Typed::NotText => chat.fail("this line is not UTF-8")?,
            Typed::End => ControlFlow::Break(Outcome::Done),
            Typed::Interrupt => ControlFlow::Break(Outcome::Interrupted),
        };
        match next {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(outcome) => {
                let failed = chat.failed && outcome == Outcome::Done;
                return Ok(chat.trace.end(if failed { Outcome::Failed } else { outcome }));
            }
        }
    }
}

/// What came from the input.
enum Typed {
    Line(String),
    /// A line that is not UTF-8.
    NotText,
    End,
    /// Ctrl-C at the prompt, where there is no reply to stop.
    Interrupt,
}

/// Where lines come from.
enum Input {
    /// The lines typed so far, for the arrow keys; nothing is written to disk.
    Terminal(Vec<String>),
    Pipe(io::StdinLock<'static>),
}

impl Input {
    fn new() -> Self {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Self::Terminal(Vec::new())
        } else {
            Self::Pipe(io::stdin().lock())
        }
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    fn next_line(&mut self) -> anyhow::Result<Typed> {
        match self {
            Self::Terminal(typed) => {
                // While an editor lives, Ctrl-C is its own and could not stop a reply: so one for each line.
                let mut editor = DefaultEditor::new()?;
                for line in typed.iter() {
                    editor.add_history_entry(line)?;
                }
                match editor.readline("> ") {
                    Ok(line) => {
                        typed.push(line.clone());
                        Ok(Typed::Line(line))
                    }
                    Err(ReadlineError::Eof) => Ok(Typed::End),
                    Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
                    Err(error) => Err(error.into()),
                }
            }
            Self::Pipe(stdin) => {
                let mut bytes = Vec::new();
                if stdin.read_until(b'\n', &mut bytes)? == 0 {
                    return Ok(Typed::End);
                }
                while bytes.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
                    bytes.pop();
                }
                Ok(String::from_utf8(bytes).map_or(Typed::NotText, Typed::Line))
            }
        }
    }
}

/// A conversation.
struct Chat<'a> {
    engine: Engine,
    options: GenerateOptions,
    messages: Vec<Message>,
    system: Option<String>,
    /// Replies to the last message that were thrown away.
    regenerations: u64,
    /// Whether nobody sits at stdin.
    unattended: bool,
    /// Whether anything failed, where nobody has seen it.
    failed: bool,
    verbose: bool,
    trace: Trace,
    args: &'a ChatArgs,
}

impl Chat<'_> {
    /// Does what a line asks; a break ends the conversation.
    fn take(&mut self, line: &str) -> anyhow::Result<ControlFlow<Outcome>> {
        match read_line(line) {
            Line::Nothing => {}
            Line::Say(text) => {
                let before = self.messages.clone();
                self.messages.push(Message::user(text));
                self.regenerations = 0;
                return self.answer(before);
            }
            Line::Reset => {
                self.messages.clear();
                note!("the conversation is forgotten");
            }
            Line::System(text) => {
                self.system = (!text.is_empty()).then(|| text.to_owned());
                self.messages.clear();
                note!("the system prompt is {}, the conversation starts again", self.shown_system());
            }
            Line::Regenerate => {
                if self.messages.last().is_none_or(|message| message.role != "assistant") {
                    return self.fail("there is no reply to make again");
                }
                let before = self.messages.clone();
                self.messages.pop();
                self.regenerations += 1;
                if self.options.sampling.temperature == 0.0 {
                    note!("note: a greedy answer does not change; --temp above 0 gives another");
                }
                return self.answer(before);
            }
            Line::Help => note!("{HELP}"),
            Line::Exit => return Ok(ControlFlow::Break(Outcome::Done)),
            Line::Unknown(command) => {
                return self.fail(&format!("there is no command {command}; /help lists them"));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Tells why a line had no effect.
    fn fail(&mut self, why: &str) -> anyhow::Result<ControlFlow<Outcome>> {
        note!("error: {}", escape(why));
        if self.args.json {
            output::json(&serde_json::json!({ "error": why }))?;
        }
        self.failed |= self.unattended;
        Ok(ControlFlow::Continue(()))
    }

    fn shown_system(&self) -> &str {
        if self.system.is_some() { "set" } else { "removed" }
    }

    /// Answers the last message. A failure is told and the messages are what they were `before`; only a lost stdout, or
    /// Ctrl-C where nobody sits at stdin, ends the chat.
    fn answer(&mut self, before: Vec<Message>) -> anyhow::Result<ControlFlow<Outcome>> {
        let system = self.system.iter().map(Message::system);
        let conversation: Vec<Message> = system.chain(self.messages.iter().cloned()).collect();
        let listening = interrupt::listen();
        let mut options = self.options.clone();
        options.cancel = listening.flag();
        // Another seed, because the same one gives the same text.
        options.sampling.seed = options.sampling.seed.wrapping_add(self.regenerations);
        let mut text = String::new();
        let events = match self.engine.chat(&conversation, &options) {
            Ok(events) => events,
            Err(error) => return self.take_back(before, &error),
        };
        self.trace.reply(About::default());
        for event in events {
            match event {
                Ok(Event::Round(round)) => self.trace.round(&round),
                Ok(Event::Text(piece)) => {
                    if !self.args.json {
                        output::text(&piece)?;
                    }
                    text += &piece;
                }
                Ok(Event::Finished(summary)) => {
                    if self.args.json {
                        let (reply, finish) = (&text, summary.finish.as_str());
                        output::json(&serde_json::json!({ "text": reply, "finish_reason": finish }))?;
                    } else {
                        output::text("\n")?;
                    }
                    if self.verbose {
                        timings::print(&summary);
                    }
                    note_history(summary.history_error.as_deref());
                    self.args.reply.note_default_end(summary.finish);
                    if summary.finish == pilotfish::FinishReason::ContextFull {
                        note!("note: the context is full; /reset starts again");
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    if !text.is_empty() && !self.args.json {
                        output::text("\n")?;
                    }
                    return self.take_back(before, &error);
                }
            }
        }
        self.messages.push(Message::assistant(&text));
        if self.unattended && listening.stopped() {
            return Ok(ControlFlow::Break(Outcome::Interrupted));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn take_back(
        &mut self,
        before: Vec<Message>,
        error: &pilotfish::Error,
    ) -> anyhow::Result<ControlFlow<Outcome>> {
        self.messages = before;
        let hint = if error.is_context_overflow() { "; /reset starts again" } else { "" };
        self.fail(&format!("{error}{hint}"))
    }
}

fn read_line(line: &str) -> Line<'_> {
    let trimmed = line.trim();
    if trimmed.is_empty() {
        return Line::Nothing;
    }
    let Some(command) = trimmed.strip_prefix('/') else { return Line::Say(line) };
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match word {
        "reset" | "clear" => Line::Reset,
        "system" => Line::System(rest.trim()),
        "regen" => Line::Regenerate,
        "help" | "?" => Line::Help,
        "exit" | "quit" | "bye" => Line::Exit,
        _ => Line::Unknown(trimmed.split_whitespace().next().unwrap_or(trimmed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        assert_eq!(read_line("  "), Line::Nothing);
        assert_eq!(read_line("  hello "), Line::Say("  hello "));
        assert_eq!(read_line("/reset"), Line::Reset);
        assert_eq!(read_line("/system  You are brief. "), Line::System("You are brief."));
        assert_eq!(read_line("/system"), Line::System(""));
        assert_eq!(read_line("/exit now"), Line::Exit);
        assert_eq!(read_line("/sytem x"), Line::Unknown("/sytem"));
        assert_eq!(read_line("1/2 of what?"), Line::Say("1/2 of what?"));
    }
}
