//! Exit codes and the one line that goes with each.
//!
//! ```text
//! 0 done    1 something failed    2 a wrong flag or value    130 stopped by Ctrl-C
//! ```
//!
//! Invariant: a failure prints exactly one line, `error: …`, on stderr, whatever went wrong; a usage error a second
//! one that says where help is.
//! Not here: deciding that something failed.

use std::fmt;
use std::process::ExitCode;

use crate::output::note;
use pilotfish::ErrorKind;

/// Exit code after Ctrl-C, as shells count it: 128 and the signal's number.
pub(crate) const INTERRUPTED: u8 = 130;

/// Exit code after a wrong flag or value.
const USAGE: u8 = 2;

/// How a command ended, when there is nothing more to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done.
    Done,
    /// Stopped by Ctrl-C after showing what there was.
    Interrupted,
    /// Something failed, and was told when it did.
    Failed,
    /// There is no command; the help was shown.
    Helped,
}

/// A wrong flag or value.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Ctrl-C before there was anything to show.
#[derive(Debug)]
struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// An error that ends with exit code 130.
pub(crate) fn interrupted() -> anyhow::Error {
    anyhow::Error::new(Interrupted)
}

/// An error that ends with exit code 2.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(message.into()))
}

/// Prints the line, if there is one, and returns the code; `help_of` names the command whose help a usage error
/// should point to.
pub(crate) fn report(result: anyhow::Result<Outcome>, help_of: impl FnOnce() -> String) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Ok(Outcome::Helped) => ExitCode::from(USAGE),
        Err(error) => {
            note!("error: {}", one_line(&error));
            let code = code(&error);
            if code == USAGE {
                note!("try '{} --help'", help_of());
            }
            ExitCode::from(code)
        }
    }
}

fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return USAGE;
        }
        if cause.is::<Interrupted>() {
            return INTERRUPTED;
        }
        let kind = cause.downcast_ref::<pilotfish::Error>().map(pilotfish::Error::kind);
        match kind {
            Some(ErrorKind::Usage) => return USAGE,
            Some(ErrorKind::Cancelled) => return INTERRUPTED,
            Some(ErrorKind::Failure) | None => {}
        }
    }
    1
}

/// The error and its causes joined, line breaks and other control characters escaped.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    let mut last = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // Many errors already say their cause.
        if last.contains(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
        last = text;
    }
    escape(&line)
}

/// The text with control characters made visible, so that it is one line and cannot command a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn causes_are_joined_once_on_one_line() {
        let inner = std::io::Error::other("disk\nbroke");
        let error =
            anyhow::Error::new(inner).context("cannot write `x`: disk\nbroke").context("while saving");
        assert_eq!(one_line(&error), "while saving: cannot write `x`: disk\\nbroke");
    }

    #[test]
    fn codes_follow_the_kind() {
        assert_eq!(code(&anyhow::anyhow!("x")), 1);
        assert_eq!(code(&usage("x")), 2);
        assert_eq!(code(&Err::<(), _>(usage("x")).context("y").unwrap_err()), 2);
        let cancelled = pilotfish::Error::Catalog(pilotfish::CatalogError::Cancelled);
        assert_eq!(code(&cancelled.into()), INTERRUPTED);
        assert_eq!(code(&interrupted()), INTERRUPTED);
    }
}
