//! `--trace FILE`: what every round did, one JSON object a line behind a line that says what ran.
//!
//! A line is handed to the system as soon as it is whole, between rounds, where nothing is timed: however the command
//! ends, the file holds whole lines.
//!
//! Invariant: the file is known to be writable before a model is loaded; a write that fails later is told once, and the
//! command does not end with 0.
//! Not here: counting and timing (the engine), the record of a bench (`pilotfish_measure::record`).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, LineWriter, Write};
use std::path::Path;

use anyhow::Context;
use pilotfish::{Engine, RoundRecord};
use serde::Serialize;

use crate::exit::{Outcome, escape, usage};
use crate::output::note;

/// The value of `schema` in the first line. Field names are stable once released; a reader may meet more.
const SCHEMA: &str = "pilotfish-trace/1";

/// Where rounds are written, if anywhere.
pub(crate) struct Trace(Option<Open>);

struct Open {
    name: String,
    file: LineWriter<File>,
    /// Replies begun.
    replies: usize,
    about: About,
    failed: bool,
}

/// Which of a bench's runs a reply is.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct About {
    /// Its prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<&'static str>,
    /// Whether it was drafted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) speculative: Option<bool>,
}

/// The first line.
#[derive(Serialize)]
struct Header<'a> {
    schema: &'static str,
    model: &'a str,
    drafter: &'a str,
    numerics_id: &'a str,
    lane: &'a str,
    threads: usize,
}

/// Every other line.
#[derive(Serialize)]
struct RoundLine<'a> {
    reply: usize,
    #[serde(flatten)]
    about: About,
    round: usize,
    width: usize,
    proposed: usize,
    drafted: usize,
    accepted: usize,
    committed: usize,
    sources: BTreeMap<&'static str, usize>,
    accepted_sources: BTreeMap<&'static str, usize>,
    draft_us: u64,
    verify_us: u64,
    host_us: u64,
    parked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Trace {
    /// Opens the file of `--trace`, if it was given; what is in it stays until [`Trace::begin`]. `others` are the
    /// command's other files, which it cannot be.
    ///
    /// # Errors
    /// When it cannot be written, or is one of the others.
    pub(crate) fn open(path: Option<&Path>, others: &[(&str, Option<&Path>)]) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        if let Some((flag, _)) = others.iter().find(|(_, other)| *other == Some(path)) {
            return Err(usage(format!("--trace and {flag} cannot be the same file")));
        }
        let name = path.display().to_string();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = LineWriter::new(file.with_context(|| format!("cannot write `{name}`"))?);
        Ok(Self(Some(Open { name, file, replies: 0, about: About::default(), failed: false })))
    }

    /// Whether rounds are wanted.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Empties the file and writes the first line.
    pub(crate) fn begin(&mut self, engine: &Engine) {
        let info = engine.lane_info();
        let header = Header {
            schema: SCHEMA,
            model: &engine.file().name,
            drafter: engine.drafter(),
            numerics_id: &info.numerics_id,
            lane: &info.name,
            threads: info.threads,
        };
        self.write(|open| {
            // A pipe or a device has nothing to empty.
            if open.file.get_ref().metadata()?.is_file() {
                open.file.get_ref().set_len(0)?;
            }
            open.line(&header)
        });
    }

    /// The rounds that follow are of the next reply.
    pub(crate) fn reply(&mut self, about: About) {
        if let Some(open) = &mut self.0 {
            open.replies += 1;
            open.about = about;
        }
    }

    /// Writes a round's line.
    pub(crate) fn round(&mut self, record: &RoundRecord) {
        let figures = record.figures;
        // Without a pass there was no round: the answer was stopped.
        if figures.width == 0 {
            return;
        }
        let by_source = || figures.by_source.iter();
        self.write(|open| {
            open.line(&RoundLine {
                reply: open.replies.saturating_sub(1),
                about: open.about,
                round: record.round,
                width: figures.width,
                proposed: figures.proposed,
                drafted: figures.drafted,
                accepted: figures.accepted,
                committed: figures.committed,
                sources: by_source().map(|(source, count)| (source.name(), count.drafted)).collect(),
                accepted_sources: by_source()
                    .map(|(source, count)| (source.name(), count.accepted))
                    .collect(),
                draft_us: figures.draft_us,
                verify_us: figures.verify_us,
                host_us: figures.host_us,
                parked: record.parked,
                reason: record.reason.as_deref(),
            })
        });
    }

    /// Writes what is left; how a command that would have ended with `outcome` ends.
    pub(crate) fn end(mut self, outcome: Outcome) -> Outcome {
        self.write(|open| open.file.flush());
        let failed = self.0.as_ref().is_some_and(|open| open.failed);
        if failed && outcome == Outcome::Done { Outcome::Failed } else { outcome }
    }

    /// Does `action` unless it is off or has failed before; tells a failure.
    fn write(&mut self, action: impl FnOnce(&mut Open) -> io::Result<()>) {
        let Some(open) = self.0.as_mut().filter(|open| !open.failed) else { return };
        if let Err(error) = action(open) {
            open.failed = true;
            note!("error: cannot write the trace `{}`: {error}", escape(&open.name));
        }
    }
}

impl Open {
    fn line(&mut self, object: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(object)?;
        writeln!(self.file, "{line}")
    }
}
