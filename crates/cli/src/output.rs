//! Results on stdout and messages on stderr.
//!
//! Every write of a result is checked, because a pipe may close and a disk may fill. A message may be lost.
//!
//! Invariant: no result is lost silently; a failed write ends the command with one clear line, never with a panic.
//! Not here: what is written (`cmd`).

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Prints one line on stderr, like `eprintln!`; but where stderr is closed or full it is lost and nothing panics.
macro_rules! note {
    ($($arg:tt)*) => { $crate::output::lost_if_unwritable(format_args!($($arg)*)) };
}
pub(crate) use note;

/// What [`note!`] does.
pub(crate) fn lost_if_unwritable(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Why a result could not be written.
#[derive(Debug)]
enum OutputError {
    Closed,
    Failed(io::Error),
}

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("stdout was closed before everything was written"),
            Self::Failed(error) => write!(f, "cannot write to stdout: {error}"),
        }
    }
}

impl std::error::Error for OutputError {}

/// Writes text and hands it on at once.
///
/// # Errors
/// When stdout is closed or full.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        let closed = error.kind() == ErrorKind::BrokenPipe;
        if closed { OutputError::Closed } else { OutputError::Failed(error) }.into()
    })
}

/// Writes one line.
///
/// # Errors
/// As [`text`].
pub(crate) fn line(line: &str) -> anyhow::Result<()> {
    text(&format!("{line}\n"))
}

/// Writes one JSON object as one line.
///
/// # Errors
/// As [`text`], or when the value has no JSON form.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?)
}
