//! The `pilotfish` command: reads the arguments, runs one command, ends with its exit code.
//!
//! Invariant: stdout carries results only; the process ends with 0, 1, 2 or 130.
//! Not here: the commands themselves (`cmd`), what their exit codes mean (`exit`).

mod args;
mod argv;
mod cmd;
mod drafts;
mod env;
mod exit;
mod interrupt;
mod numbers;
mod output;
mod progress;
mod prompt;
mod refusal;
mod timings;
mod trace;
mod units;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::exit::{Outcome, report, usage};
use crate::output::note;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let result = parse(&words).and_then(|parsed| match parsed {
        Parsed::Command(cli) => run(&cli),
        Parsed::Ended(outcome) => Ok(outcome),
    });
    report(result, || refusal::help_of(&words, &args::command()))
}

fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    interrupt::install()?;
    match &cli.command {
        Command::Run(args) => cmd::run::run(args, cli.verbose),
        Command::Chat(args) => cmd::chat::run(args, cli.verbose),
        Command::Pull(args) => cmd::pull::run(args),
        Command::Models(args) => cmd::models::run(args),
        Command::Inspect(args) => cmd::inspect::run(args),
        Command::Serve(args) => cmd::serve::run(args),
        Command::Bench(args) => cmd::bench::run(args, cli.verbose),
        Command::Eval(args) => cmd::eval::run(args),
    }
}

/// What the command line asks for.
enum Parsed {
    Command(Box<Cli>),
    /// Nothing more: help or the version was printed.
    Ended(Outcome),
}

fn parse(words: &[OsString]) -> anyhow::Result<Parsed> {
    let translated = argv::translate(words.iter().cloned()).map_err(usage)?;
    let matches = args::command().try_get_matches_from(&translated);
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => Ok(Parsed::Command(Box::new(cli))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                output::text(&error.to_string())?;
                Ok(Parsed::Ended(Outcome::Done))
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                note!("{}", error.to_string().trim_end());
                Ok(Parsed::Ended(Outcome::Helped))
            }
            _ => Err(usage(refusal::line(&error, &translated, &args::command()))),
        },
    }
}
