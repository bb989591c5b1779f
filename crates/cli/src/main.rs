//! The `pilotfish` command: reads the arguments, runs one command, ends with its exit code.
//!
//! Invariant: stdout carries results only; the process ends with 0, 1, 2 or 130.
//! Not here: the commands themselves (`cmd`), what their exit codes mean (`exit`).

mod args;
mod argv;
mod cmd;
mod env;
mod exit;
mod interrupt;
mod output;
mod progress;
mod prompt;
mod timings;
mod units;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::exit::{Outcome, clap_line, report, usage};

fn main() -> ExitCode {
    report(parse().and_then(|cli| match cli {
        Some(cli) => run(&cli),
        None => Ok(Outcome::Done),
    }))
}

fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    interrupt::install()?;
    match &cli.command {
        Command::Run(args) => cmd::run::run(args, cli.verbose),
        Command::Chat(args) => cmd::chat::run(args, cli.verbose),
        Command::Pull(args) => cmd::pull::run(args),
        Command::Models(args) => cmd::models::run(args),
        Command::Inspect(args) => cmd::inspect::run(args),
        Command::Bench(args) => cmd::bench::run(args, cli.verbose),
        Command::Eval(args) => cmd::eval::run(args),
    }
}

/// The command line, or `None` after help or the version was printed.
fn parse() -> anyhow::Result<Option<Cli>> {
    let words = argv::translate(std::env::args_os()).map_err(usage)?;
    match Cli::try_parse_from(words) {
        Ok(cli) => Ok(Some(cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                output::text(&error.to_string())?;
                Ok(None)
            }
            _ => Err(usage(clap_line(&error))),
        },
    }
}
