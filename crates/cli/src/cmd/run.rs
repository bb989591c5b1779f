//! `run`: one prompt in, one answer out, streamed.
//!
//! Invariant: the answer is on stdout and nothing else; with `--json` stdout is one object.
//! Not here: the loop (`pilotfish-engine`), conversations (`chat`).

use std::io::IsTerminal;

use clap::Args;
use pilotfish::{Engine, Event, FinishReason, GenerateOptions, Message, Prompt, Summary};
use serde::Serialize;

use crate::args::{DraftArgs, DrafterName, ModelArgs, PromptArgs, ReplyArgs, SamplingArgs, sampling_error};
use crate::drafts::Drafts;
use crate::exit::{Outcome, escape, interrupted, usage};
use crate::numbers::whole;
use crate::output::note;
use crate::progress::Downloads;
use crate::timings::{self, Speculation, Timings};
use crate::trace::{About, Trace};
use crate::units::count;
use crate::{interrupt, output};

/// Flags of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    prompt: PromptArgs,
    /// Text that comes before the prompt, from the system; also written -sys.
    #[arg(long, value_name = "TEXT", conflicts_with = "raw", allow_hyphen_values = true)]
    system_prompt: Option<String>,
    /// Send the prompt as it is, without the chat template; control tokens in it are recognised.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    reply: ReplyArgs,
    /// Print one JSON object instead of streaming.
    #[arg(long)]
    json: bool,
    /// Report every token's log-probability and the N likeliest tokens (with --json, else on stderr).
    #[arg(long, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    logprobs: Option<usize>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    draft: DraftArgs,
    /// Colour each token by who guessed it, and tell the counts on stderr; colours need a terminal.
    #[arg(long, help_heading = "Speculation (never changes the text)", conflicts_with_all = ["json", "logprobs"])]
    show_drafts: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// Most alternatives `--logprobs` reports, as in the OpenAI interface.
const MAX_LOGPROBS: usize = 20;

/// The object of `run --json`.
#[derive(Serialize)]
struct RunJson {
    text: String,
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    finish_reason: &'static str,
    timings: Timings,
    speculation: Speculation,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<LogprobJson>>,
}

/// One token of the answer with its likeliest rivals.
#[derive(Serialize)]
struct LogprobJson {
    #[serde(flatten)]
    chosen: ScoredJson,
    top_logprobs: Vec<ScoredJson>,
}

#[derive(Serialize)]
struct ScoredJson {
    id: u32,
    token: String,
    logprob: f64,
    /// The token's own bytes: a token may be a piece of a character, which `token` cannot show.
    bytes: Vec<u8>,
}

/// Runs the command.
///
/// # Errors
/// A usage error for a wrong flag; otherwise what failed.
pub(crate) fn run(args: &RunArgs, verbose: bool) -> anyhow::Result<Outcome> {
    let mut load = args.model.load_options()?;
    args.draft.apply_to_load(&mut load)?;
    let mut options = GenerateOptions {
        sampling: args.sampling.params()?,
        spec_sampling: args.draft.spec_sampling(),
        logprobs: args.logprobs,
        ..GenerateOptions::default()
    };
    args.reply.apply_to(&mut options)?;
    if args.logprobs.is_some_and(|n| n > MAX_LOGPROBS) {
        return Err(usage(format!("--logprobs takes at most {MAX_LOGPROBS}")));
    }
    if args.show_drafts && args.draft.drafter == Some(DrafterName::None) {
        return Err(usage("--show-drafts has no meaning with --drafter none, which guesses nothing"));
    }
    let prompt = args.prompt.read()?;
    let mut trace = args.draft.open_trace(None)?;
    options.rounds = trace.is_on() || args.show_drafts;

    let mut engine = load_engine(&load, verbose)?;
    options.sampling.validate(engine.lane_info().vocab).map_err(sampling_error)?;
    let listening = interrupt::listen();
    options.cancel = listening.flag();
    let messages = conversation(args, &engine, &prompt)?;
    let prompt = messages.as_deref().map_or(Prompt::Raw(&prompt), Prompt::Chat);
    let mut drafts = args.show_drafts.then(Drafts::new);
    trace.begin(&engine);
    trace.reply(About::default());
    let shown = match &mut drafts {
        Some(drafts) => Shown::Drafts(drafts),
        None if args.json => Shown::Nothing,
        None => Shown::Text,
    };
    let (text, summary) = answer(&mut engine, prompt, &options, shown, &mut trace)?;
    if args.json {
        output::json(&object(&engine, text, &summary, args.logprobs.is_some()))?;
    } else {
        if args.logprobs.is_some() {
            print_logprobs(&engine, &summary);
        }
        timings::print(&summary);
    }
    if let Some(drafts) = &drafts {
        drafts.print_legend(&summary.stats);
    }
    note_history(summary.history_error.as_deref());
    args.reply.note_default_end(summary.finish);
    if summary.finish == FinishReason::ContextFull {
        note_full(&engine);
    }
    Ok(trace.end(if listening.stopped() { Outcome::Interrupted } else { Outcome::Done }))
}

/// Tells that the context ended the answer, which the finish reason does not tell from `-n`.
fn note_full(engine: &Engine) {
    let (context, trained) = (engine.lane_info().context, engine.model().config().context);
    let more = if context < trained { "-c makes it larger" } else { "the model was trained for no more" };
    note!("note: the context of {} is full; {more}", count(context, "token"));
}

/// Tells why the file of `--spec-history` was not read or written.
pub(super) fn note_history(why: Option<&str>) {
    if let Some(why) = why {
        note!("note: the history {}", escape(why));
    }
}

/// Loads the engine, showing downloads, and with `-v` what was loaded.
pub(super) fn load_engine(load: &pilotfish::LoadOptions, verbose: bool) -> anyhow::Result<Engine> {
    let listening = interrupt::listen();
    // Loading itself is short and cannot be stopped half way; only a download listens.
    let engine = Engine::load_with(load, &Downloads::new(&listening))?;
    if listening.stopped() {
        return Err(interrupted());
    }
    note_history(engine.history_note());
    // Off a terminal nobody waits and watches.
    if engine.wants_curve() && (verbose || std::io::stderr().is_terminal()) {
        note!("note: measuring what passes of this model cost on this machine, once");
    }
    if verbose {
        let info = engine.lane_info();
        note!(
            "model: {}, {} on {}, {}, context {}, numerics {}, drafter {}",
            engine.file().name,
            engine.model().config().family.name(),
            info.name,
            count(info.threads, "thread"),
            info.context,
            info.numerics_id,
            engine.drafter(),
        );
    }
    Ok(engine)
}

/// The prompt as a conversation, or `None` to send it raw.
fn conversation(args: &RunArgs, engine: &Engine, prompt: &str) -> anyhow::Result<Option<Vec<Message>>> {
    if args.raw {
        return Ok(None);
    }
    if !engine.has_template() {
        if args.system_prompt.is_some() {
            return Err(pilotfish::Error::NoTemplate { model: engine.file().name.clone() }.into());
        }
        note!("note: {} has no chat template, so the prompt is sent raw", engine.file().name);
        return Ok(None);
    }
    let system = args.system_prompt.iter().map(Message::system);
    Ok(Some(system.chain([Message::user(prompt)]).collect()))
}

/// How an answer is streamed to stdout.
enum Shown<'a> {
    Nothing,
    Text,
    Drafts(&'a mut Drafts),
}

/// Runs one answer; streams it, and returns its text either way.
fn answer(
    engine: &mut Engine,
    prompt: Prompt<'_>,
    options: &GenerateOptions,
    mut shown: Shown<'_>,
    trace: &mut Trace,
) -> anyhow::Result<(String, Summary)> {
    let mut text = String::new();
    let stream = !matches!(shown, Shown::Nothing);
    for event in engine.generate(prompt, options)? {
        match event {
            Ok(Event::Round(round)) => {
                trace.round(&round);
                if let Shown::Drafts(drafts) = &mut shown {
                    output::text(&drafts.paint(&round))?;
                }
            }
            Ok(Event::Text(piece)) => {
                if let Shown::Text = shown {
                    output::text(&piece)?;
                }
                text += &piece;
            }
            Ok(Event::Finished(summary)) => {
                end_line(&text, stream)?;
                return Ok((text, *summary));
            }
            Ok(_) => {}
            Err(error) => {
                end_line(&text, stream)?;
                return Err(error.into());
            }
        }
    }
    anyhow::bail!("the engine ended without a result")
}

/// Ends the last line of a streamed answer, so that what follows starts on its own.
fn end_line(text: &str, stream: bool) -> anyhow::Result<()> {
    if stream && !text.is_empty() && !text.ends_with('\n') { output::text("\n") } else { Ok(()) }
}

fn object(engine: &Engine, text: String, summary: &Summary, logprobs: bool) -> RunJson {
    RunJson {
        text,
        prompt_tokens: summary.prompt.clone(),
        tokens: summary.tokens.clone(),
        finish_reason: summary.finish.as_str(),
        timings: Timings::new(&summary.stats),
        speculation: Speculation::new(&summary.speculation),
        logprobs: logprobs.then(|| {
            let scored = |id: u32, logprob: f64| {
                let bytes = engine.tokenizer().token_bytes(id).to_vec();
                ScoredJson { id, token: shown(engine, id), logprob, bytes }
            };
            let entry = |entry: &pilotfish::Logprobs| LogprobJson {
                chosen: scored(entry.token, entry.logprob),
                top_logprobs: entry.top.iter().map(|&(id, logprob)| scored(id, logprob)).collect(),
            };
            summary.logprobs.iter().map(entry).collect()
        }),
    }
}

/// A token's own bytes as text; pieces of characters show as U+FFFD here, where no text is being joined.
fn shown(engine: &Engine, id: u32) -> String {
    String::from_utf8_lossy(engine.tokenizer().token_bytes(id)).into_owned()
}

fn print_logprobs(engine: &Engine, summary: &Summary) {
    for entry in &summary.logprobs {
        let rivals: Vec<_> =
            entry.top.iter().map(|&(id, logprob)| format!("{:?} {logprob:.4}", shown(engine, id))).collect();
        let rivals = if rivals.is_empty() { String::new() } else { format!("  [{}]", rivals.join(", ")) };
        note!("{} {:?} {:.4}{rivals}", entry.token, shown(engine, entry.token), entry.logprob);
    }
}
