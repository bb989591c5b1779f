//! The record of one bench: the schema of `bench --json` and `--out FILE`, checked and written whole.
//!
//! Field names are stable once released; a reader may meet more fields than it knows. Figures that were not measured
//! are null. A record is written to a temporary neighbour, flushed to the disk and renamed into place.
//!
//! Invariant: at any instant the target path holds either its old content or a complete record.
//! Not here: computing the figures (`stats`, `percentile`), printing tables.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The value of `schema` in records this version writes and reads.
pub const SCHEMA: &str = "pilotfish-bench/1";

/// One bench run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command that was run, arguments joined by spaces; empty in records of the first version.
    #[serde(default)]
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Commit the binary was built from, when known.
    pub commit: Option<String>,
    /// Whether the source tree had uncommitted changes at that build, when known.
    pub dirty: Option<bool>,
    /// Name and version of the lane's arithmetic.
    pub numerics_id: String,
    /// The target model.
    pub model: Model,
    /// The drafter of the speculative runs; null when there were none.
    pub drafter: Option<Drafter>,
    /// The lane the target ran on.
    pub lane: String,
    /// Context size in tokens.
    pub context: usize,
    /// One entry for each prompt, in the order run.
    pub prompts: Vec<Prompt>,
    /// Geometric means over the prompts; null when no prompt was run.
    pub mean: Option<Mean>,
    /// What the machine could do at best in this run; null when that was not measured.
    #[serde(default)]
    pub roofline: Option<Roofline>,
    /// The lane's cost curve, ascending in width within a context.
    pub curve: Vec<CurvePoint>,
    /// Energy, or why there is no figure.
    pub energy: Energy,
}

/// The machine part of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Marketing name of the CPU.
    pub cpu: String,
    /// Architecture and instruction sets.
    pub isa: String,
    /// Threads the lane used.
    pub threads: usize,
    /// Installed memory.
    pub memory_bytes: Option<u64>,
    /// Operating system with version.
    pub os: String,
    /// GPU used, if any.
    pub gpu: Option<String>,
    /// Apple chip, if it is one.
    pub apple_chip: Option<String>,
    /// `mains` or `battery`, when known.
    pub power_source: Option<String>,
}

impl Machine {
    /// The record's view of a host, for a lane that ran on `threads` threads and on `gpu`, if any.
    pub fn new(host: &crate::machine::Host, threads: usize, gpu: Option<String>) -> Self {
        Self {
            cpu: host.cpu.clone(),
            isa: host.isa.clone(),
            threads,
            memory_bytes: host.memory_bytes,
            os: host.os.clone(),
            gpu,
            apple_chip: host.apple_chip.clone(),
            power_source: host.power_source.clone(),
        }
    }
}

/// The target model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Catalog or file name.
    pub name: String,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
}

/// The drafter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drafter {
    /// `ngram`, a model's name, …
    pub name: String,
    /// SHA-256 of its file, for drafters that have one.
    pub sha256: Option<String>,
}

/// One prompt, plain and speculative.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Name of the prompt file without extension.
    pub name: String,
    /// Tokens generated in each run.
    pub tokens: usize,
    /// Decoding speed without speculation, prefill excluded.
    pub plain_tok_s: f64,
    /// Decoding speed with speculation.
    pub spec_tok_s: Option<f64>,
    /// 95 % interval of speculative over plain, low then high; null with a single pair.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Tokens committed per round, bonus included.
    pub tau: Option<f64>,
    /// `[k]`: share of rounds that drafted at least k + 1 tokens in which the first k + 1 were all accepted.
    pub accepted_by_position: Vec<f64>,
    /// What became of the guesses of each source, over all speculative runs; empty in records made before there was
    /// the field.
    #[serde(default)]
    pub by_source: Vec<SourceCount>,
    /// Whether all runs, plain and speculative, gave equal token ids; null when nothing was drafted.
    pub lossless: Option<bool>,
    /// Whether speculation was parked at the end of any run.
    pub parked: bool,
    /// Why it was parked.
    pub reason: Option<String>,
}

/// Guesses of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCount {
    /// Who guessed: `ngram`, `suffix`, `history`, `model`, …
    pub source: String,
    /// Rounds in which a guess of it was verified.
    pub rounds: usize,
    /// Its guesses that were verified.
    pub drafted: usize,
    /// Of those, how many became part of the reply.
    pub accepted: usize,
}

/// Geometric means over the prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Plain decoding speed.
    pub plain_tok_s: f64,
    /// Speculative decoding speed.
    pub spec_tok_s: Option<f64>,
    /// Speculative over plain.
    pub ratio: Option<f64>,
    /// Tokens committed per round.
    pub tau: Option<f64>,
}

/// Limits of the machine for the lane's threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// Bytes read from memory in a second.
    pub bytes_per_second: f64,
    /// Products of bytes added in a second.
    pub macs_per_second: f64,
}

/// One point of the cost curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Rows in the pass.
    pub width: usize,
    /// Tokens already in the KV cache.
    pub context: usize,
    /// Median duration.
    pub ms_p50: f64,
    /// Shortest duration.
    pub ms_min: f64,
    /// Longest duration.
    pub ms_max: f64,
    /// Bytes the pass must read.
    pub bytes: u64,
    /// The longer of what those bytes take at the measured bandwidth and the pass's products at the measured rate.
    pub floor_ms: Option<f64>,
}

/// Energy per generated token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Null when it could not be measured.
    pub joules_per_token: Option<f64>,
    /// What was read, or why nothing was.
    pub source: String,
}

/// What is wrong with a record or its file.
#[derive(Debug)]
pub enum RecordError {
    /// The file could not be read or written.
    Io {
        /// The record's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a record.
    Json {
        /// The record's path.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The record follows another schema.
    Schema {
        /// What it says.
        found: String,
    },
    /// A figure is not a finite number of the right sign; JSON could not carry it or a reader would be misled.
    Figure {
        /// Path of the field, for example `prompts[3].tau`.
        field: String,
        /// Its value.
        value: f64,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "record {}: {source}", path.display()),
            Self::Json { path, source } => {
                write!(f, "record {}: not a bench record: {source}", path.display())
            }
            Self::Schema { found } => write!(f, "record schema is {found:?}, this version knows {SCHEMA:?}"),
            Self::Figure { field, value } => {
                write!(f, "record field {field} is {value}, not a finite figure ≥ 0")
            }
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Json { source, .. } => Some(source),
            Self::Schema { .. } | Self::Figure { .. } => None,
        }
    }
}

impl Record {
    /// Checks the schema name and that every figure is finite and not negative.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn check(&self) -> Result<(), RecordError> {
        if self.schema != SCHEMA {
            return Err(RecordError::Schema { found: self.schema.clone() });
        }
        for (field, value) in self.figures() {
            if !value.is_finite() || value < 0.0 {
                return Err(RecordError::Figure { field, value });
            }
        }
        Ok(())
    }

    /// The record as indented JSON with a final newline.
    ///
    /// # Errors
    /// When [`Record::check`] refuses it.
    pub fn to_json(&self) -> Result<String, RecordError> {
        self.check()?;
        let json = serde_json::to_string_pretty(self)
            .expect("a checked record has only string keys and finite numbers");
        Ok(json + "\n")
    }

    /// Writes the record so that `path` never holds half of it.
    ///
    /// # Errors
    /// When the record is not valid or the file cannot be written; the old file then stays as it was.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let json = self.to_json()?;
        write_atomic(path, json.as_bytes())
            .map_err(|source| RecordError::Io { path: path.to_owned(), source })
    }

    /// Tries whether [`Record::write`] could write beside `path`, before anything is measured.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn check_writable(path: &Path) -> Result<(), RecordError> {
        let io = |source| RecordError::Io { path: path.to_owned(), source };
        match destination(path).map_err(io)? {
            Destination::Special(_) => Ok(()),
            Destination::File(path) => {
                let temporary = beside(&path).map_err(io)?;
                let made = OpenOptions::new().write(true).create_new(true).open(&temporary);
                made.and_then(|_| fs::remove_file(&temporary)).map_err(io)
            }
        }
    }

    /// Reads and checks a record.
    ///
    /// # Errors
    /// When the file cannot be read, is not a record, or [`Record::check`] refuses it.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let text =
            fs::read_to_string(path).map_err(|source| RecordError::Io { path: path.to_owned(), source })?;
        let record: Self = serde_json::from_str(&text)
            .map_err(|source| RecordError::Json { path: path.to_owned(), source })?;
        record.check()?;
        Ok(record)
    }

    /// Every floating-point figure with the path of its field.
    fn figures(&self) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        for (i, p) in self.prompts.iter().enumerate() {
            let mut put = |name: &str, value: Option<f64>| {
                all.extend(value.map(|value| (format!("prompts[{i}].{name}"), value)));
            };
            put("plain_tok_s", Some(p.plain_tok_s));
            put("spec_tok_s", p.spec_tok_s);
            put("ratio_ci95[0]", p.ratio_ci95.map(|ci| ci[0]));
            put("ratio_ci95[1]", p.ratio_ci95.map(|ci| ci[1]));
            put("tau", p.tau);
            for (k, share) in p.accepted_by_position.iter().enumerate() {
                put(&format!("accepted_by_position[{k}]"), Some(*share));
            }
        }
        for (i, c) in self.curve.iter().enumerate() {
            let figures = [
                ("ms_p50", Some(c.ms_p50)),
                ("ms_min", Some(c.ms_min)),
                ("ms_max", Some(c.ms_max)),
                ("floor_ms", c.floor_ms),
            ];
            all.extend(
                figures.iter().filter_map(|(name, value)| Some((format!("curve[{i}].{name}"), (*value)?))),
            );
        }
        let (mean, roofline) = (self.mean.as_ref(), self.roofline.as_ref());
        let rest = [
            ("mean.plain_tok_s", mean.map(|mean| mean.plain_tok_s)),
            ("mean.spec_tok_s", mean.and_then(|mean| mean.spec_tok_s)),
            ("mean.ratio", mean.and_then(|mean| mean.ratio)),
            ("mean.tau", mean.and_then(|mean| mean.tau)),
            ("roofline.bytes_per_second", roofline.map(|roofline| roofline.bytes_per_second)),
            ("roofline.macs_per_second", roofline.map(|roofline| roofline.macs_per_second)),
            ("energy.joules_per_token", self.energy.joules_per_token),
        ];
        all.extend(rest.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?))));
        all
    }
}

/// What a path leads to, links followed.
enum Destination {
    /// A regular file, or none yet.
    File(PathBuf),
    /// A device or a pipe.
    Special(PathBuf),
}

fn destination(path: &Path) -> io::Result<Destination> {
    Ok(match fs::canonicalize(path) {
        Ok(target) if fs::metadata(&target)?.is_file() => Destination::File(target),
        Ok(target) => Destination::Special(target),
        Err(_) => Destination::File(path.to_owned()),
    })
}

/// A temporary name in the folder of `path`.
fn beside(path: &Path) -> io::Result<PathBuf> {
    // Process id and counter keep concurrent writers, in this process or another, off each other's temporary file.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file name"))?;
    let count = WRITES.fetch_add(1, Ordering::Relaxed);
    Ok(folder(path).join(format!(".{}.{}-{count}.partial", name.to_string_lossy(), std::process::id())))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Replaces the file at `path` with `bytes`: written beside it, flushed to the disk, renamed over it, and the
/// directory flushed where the system allows. A failure leaves the old file and no temporary one. A link is followed;
/// what is no regular file (a device, a pipe) is written to, never replaced.
///
/// # Errors
/// What the system says.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match destination(path)? {
        Destination::File(path) => path,
        Destination::Special(path) => return OpenOptions::new().write(true).open(path)?.write_all(bytes),
    };
    let temporary = beside(&path)?;
    let result = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    })();
    if let Err(error) = result {
        // The temporary file may not exist; the first error is the one to tell.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // Not every system can open a directory as a file; the record itself is complete either way.
    if let Ok(directory) = File::open(folder(&path)) {
        let _ = directory.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
