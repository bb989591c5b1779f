//! The repository's own commands: `cargo xtask tidy | corpus | counts | aarch64 | fuzz | full`.
//!
//! What a compiler or clippy cannot check (which crate may use which, module headers, the malformed-file corpus,
//! instruction counts) is checked here, in Rust, so that it runs wherever the project builds.
//!
//! Invariant: a command that finds a fault exits 1, a misused one exits 2; nothing is skipped quietly.
//! Not here: the order of the gate (`.ci/run`).

#![allow(clippy::print_stdout, reason = "a command line tool reports on stdout")]

mod aarch64;
mod corpus;
mod counts;
mod full;
mod fuzz;
mod limited;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                    dependency table, module headers, file length, unsafe list, words, prompt hashes, invariants
  corpus [--binary FILE]  malformed model files through the built `pilotfish` binary (default: the release build)
  counts [--write]        instructions of the main kernels against bench/counts (to 2 %), or record them anew
  aarch64                 lints and tests of the kernels for 64-bit Arm, under emulation
  fuzz --seconds N        the model crate's mutation fuzzer for N seconds
  full                    the heavy matrices: hours, not for every change";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match words.as_slice() {
        ["tidy"] => tidy::run(&root),
        ["corpus"] => corpus::run(&root, None),
        ["corpus", "--binary", binary] => corpus::run(&root, Some(PathBuf::from(binary))),
        ["counts"] => counts::run(&root, false),
        ["counts", "--write"] => counts::run(&root, true),
        ["aarch64"] => aarch64::run(&root),
        ["fuzz", "--seconds", seconds] => match seconds.parse() {
            Ok(seconds) => fuzz::run(&root, seconds),
            Err(_) => return usage(&format!("--seconds wants a whole number, not {seconds:?}")),
        },
        ["full"] => full::run(&root),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [] => return usage("no command"),
        other => return usage(&format!("unknown command or option: {}", other.join(" "))),
    };
    report(outcome)
}

fn report(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("error: {problem}\n\n{USAGE}");
    ExitCode::from(2)
}

/// The workspace root, which is where this crate's folder was when it was built.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace root").to_owned()
}
