//! Results on stdout: every write is checked, because a pipe may close and a disk may fill.
//!
//! Invariant: no result is lost silently; a failed write ends the command with one clear line.
//! Not here: messages for people, which go to stderr where they may be lost.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

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
