//! Runs the built `pilotfish` over the malformed-file corpus and compares each outcome with the manifest.
//!
//! `tests/corpus/gguf_mut.py` writes a few hundred broken or odd model files and what each must lead to. Every file is
//! opened by a process of its own, in under a second, with no more memory than the good control of the same command
//! needs + the file's size + 64 MiB. A case that is slow beside its neighbour is judged again alone.
//!
//! Invariant: an error is exit code 1 and exactly one `error:` line; a panic, a signal or silence never passes.
//! Not here: random mutation (`fuzz`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::limited::{self, Ended, Limits, Scratch};

const GENERATOR: &str = "tests/corpus/gguf_mut.py";
/// A generator that lost most of its cases must not pass for a clean bill of health.
const FEWEST_CASES: usize = 300;
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// A hung case is left this long while two run side by side, so that a busy machine is not taken for a hang.
const PATIENCE: Duration = Duration::from_secs(10);
const ALLOWANCE_KIB: u64 = 64 << 10;
const SIDE_BY_SIDE: usize = 2;

/// What the manifest wants of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Ok,
    Error,
    Either,
}

/// The command that opens a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opener {
    /// `inspect FILE`: reads the header, metadata and tensor table.
    Inspect,
    /// `run --raw`: builds the tokenizer and the graph, and generates.
    Run,
    /// `run` through the chat template.
    RunWithTemplate,
}

#[derive(Debug)]
struct Case {
    file: String,
    why: String,
    size: u64,
    expect: Expect,
    opener: Opener,
}

pub(crate) fn run(root: &Path, binary: Option<PathBuf>) -> Result<()> {
    let binary = match binary {
        Some(binary) => binary,
        None => default_binary(root),
    };
    let binary = binary.canonicalize().with_context(|| {
        format!("no binary at {}; build it with `cargo build --release -p pilotfish-cli`", binary.display())
    })?;
    let scratch = Scratch::new("corpus")?;
    let files = scratch.0.join("files");
    let cases = generate(root, &files)?;
    let corpus = Corpus { binary, files, scratch: scratch.0.clone(), baselines: [0; 3] };
    let corpus = corpus.with_baselines(&cases)?;

    let faults = corpus.judge_all(&cases)?;
    let failed = faults.iter().filter(|fault| fault.is_some()).count();
    for (case, fault) in cases.iter().zip(&faults) {
        if let Some(fault) = fault {
            println!("FAILED {:<28} {:<40} {fault}", case.file, case.why);
        }
    }
    println!("corpus: {} passed, {failed} failed", cases.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} malformed files did not end as the manifest says", cases.len());
    }
    Ok(())
}

fn default_binary(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("release").join(format!("pilotfish{}", std::env::consts::EXE_SUFFIX))
}

/// Writes the corpus into `files` and reads its manifest.
fn generate(root: &Path, files: &Path) -> Result<Vec<Case>> {
    let script = root.join(GENERATOR);
    ensure!(script.is_file(), "{GENERATOR} is missing");
    let status =
        Command::new("python3").arg(&script).arg(files).status().context("python3 could not be run")?;
    ensure!(status.success(), "{GENERATOR} failed: {status}");
    let manifest =
        fs::read_to_string(files.join("manifest.json")).context("the generator wrote no manifest")?;
    let cases = read_manifest(&manifest)?;
    ensure!(
        cases.len() >= FEWEST_CASES,
        "only {} cases; there should be at least {FEWEST_CASES}",
        cases.len()
    );
    Ok(cases)
}

fn read_manifest(json: &str) -> Result<Vec<Case>> {
    let entries: serde_json::Value = serde_json::from_str(json).context("manifest.json")?;
    let entries = entries.as_array().context("manifest.json is not a list")?;
    entries
        .iter()
        .map(|entry| {
            let text = |key: &str| {
                entry[key]
                    .as_str()
                    .map(str::to_owned)
                    .with_context(|| format!("manifest.json: no {key} in {entry}"))
            };
            let file = text("file")?;
            let expect = match text("expect")?.as_str() {
                "ok" => Expect::Ok,
                // A template is rendered once at load, so what fails on rendering fails there.
                "err" | "err_on_render" => Expect::Error,
                "err_or_ok" => Expect::Either,
                other => bail!("manifest.json: unknown expectation {other:?} of {file}"),
            };
            let opener = opener_of(&file)?;
            let size = entry["size"].as_u64().with_context(|| format!("manifest.json: no size of {file}"))?;
            Ok(Case { why: text("why")?, file, size, expect, opener })
        })
        .collect()
}

/// The command for a case, by the letter its name starts with.
fn opener_of(file: &str) -> Result<Opener> {
    match file.chars().next() {
        // Headers, strings (and safetensors, `st…`), key types, alignment, tensors.
        Some('h' | 's' | 'k' | 'a' | 't') => Ok(Opener::Inspect),
        // The control, hyper-parameters, tokenizer, data values, truncations.
        Some('0' | 'p' | 'v' | 'd' | 'z') => Ok(Opener::Run),
        Some('j') => Ok(Opener::RunWithTemplate),
        _ => bail!("manifest.json: {file} is of no known kind"),
    }
}

#[derive(Debug)]
struct Corpus {
    binary: PathBuf,
    files: PathBuf,
    scratch: PathBuf,
    baselines: [u64; 3], // KiB, by opener
}

impl Corpus {
    /// Finds, for each command, the least memory under which it opens its good control, to a mebibyte.
    fn with_baselines(mut self, cases: &[Case]) -> Result<Self> {
        let control = cases.iter().find(|case| case.expect == Expect::Ok && case.file.ends_with(".gguf"));
        let control = control.context("manifest.json has no good GGUF file")?;
        for opener in [Opener::Inspect, Opener::Run, Opener::RunWithTemplate] {
            let works = |memory_kib: u64| -> Result<Option<Ended>> {
                let limits = Limits { time: PATIENCE, memory_kib };
                let ended = self.open(control, opener, limits)?;
                Ok(fault_of(Expect::Ok, &ended).map(|_| ended))
            };
            let mut enough = 1 << 21; // KiB: 2 GiB, to tell a fault of the program from want of memory
            if let Some(ended) = works(enough)? {
                bail!("the good control {} does not pass {opener:?}: {}", control.file, describe(&ended));
            }
            let mut too_little = 0;
            while enough - too_little > 1 << 10 {
                let middle = u64::midpoint(enough, too_little);
                if works(middle)?.is_none() {
                    enough = middle;
                } else {
                    too_little = middle;
                }
            }
            println!("{opener:?} opens the good control in {} MiB", enough >> 10);
            self.baselines[opener as usize] = enough;
        }
        Ok(self)
    }

    /// One verdict for each case: `None`, or what was wrong.
    fn judge_all(&self, cases: &[Case]) -> Result<Vec<Option<String>>> {
        let next = AtomicUsize::new(0);
        let mut verdicts: Vec<Result<Verdict>> = Vec::new();
        std::thread::scope(|scope| {
            let worker = || {
                let mut done = Vec::new();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    done.push((case.file.clone(), self.judge(case, PATIENCE)));
                }
                done
            };
            let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(worker)).collect();
            let mut done: Vec<_> = workers
                .into_iter()
                .flat_map(|worker| worker.join().expect("a worker does not panic"))
                .collect();
            // Cases were handed out in order, so their place in `cases` sorts them back.
            done.sort_by_key(|(file, _)| cases.iter().position(|case| case.file == *file));
            verdicts = done.into_iter().map(|(_, verdict)| verdict).collect();
        });
        let mut faults = Vec::new();
        for (case, verdict) in cases.iter().zip(verdicts) {
            let mut verdict = verdict?;
            if verdict.fault.is_none() && verdict.elapsed > TIME_LIMIT {
                verdict = self.judge(case, TIME_LIMIT)?;
            }
            faults.push(verdict.fault);
        }
        Ok(faults)
    }

    fn judge(&self, case: &Case, time: Duration) -> Result<Verdict> {
        let memory_kib = self.baselines[case.opener as usize] + case.size.div_ceil(1024) + ALLOWANCE_KIB;
        let ended = self.open(case, case.opener, Limits { time, memory_kib })?;
        let fault = fault_of(case.expect, &ended).map(|fault| format!("{fault}: {}", describe(&ended)));
        Ok(Verdict { fault, elapsed: ended.elapsed })
    }

    fn open(&self, case: &Case, opener: Opener, limits: Limits) -> Result<Ended> {
        let file = self.files.join(&case.file).display().to_string();
        let args: Vec<&str> = match opener {
            Opener::Inspect => vec!["inspect", &file],
            Opener::Run => vec!["run", "-m", &file, "-n", "2", "--raw", "abc"],
            Opener::RunWithTemplate => vec!["run", "-m", &file, "-n", "2", "abc"],
        };
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let scratch = self.scratch.join(format!("{}-{opener:?}", case.file));
        let ended = limited::run(&self.binary, &args, limits, &scratch);
        fs::remove_dir_all(&scratch)?;
        ended
    }
}

#[derive(Debug)]
struct Verdict {
    fault: Option<String>,
    elapsed: Duration,
}

/// What is wrong with how a case ended, if anything. Time is judged by the caller's limit.
fn fault_of(expect: Expect, ended: &Ended) -> Option<String> {
    if ended.timed_out {
        return Some(format!("still running after {:.1} s", ended.elapsed.as_secs_f64()));
    }
    if let Some(signal) = ended.signal {
        return Some(format!("ended by signal {signal}"));
    }
    if ended.stderr.contains("panicked at") || ended.stdout.contains("panicked at") {
        return Some("panicked".to_owned());
    }
    let error_lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("error:")).collect();
    match (ended.code, expect) {
        (Some(0), Expect::Error) => Some("was accepted".to_owned()),
        (Some(0), _) if !error_lines.is_empty() => Some("exit code 0 with an error line".to_owned()),
        (Some(0), _) => None,
        (Some(1), Expect::Ok) => Some("was refused".to_owned()),
        (Some(1), _) => fault_of_error(&error_lines),
        (code, _) => Some(format!("exit code {}", code.unwrap_or(-1))),
    }
}

fn fault_of_error(error_lines: &[&str]) -> Option<String> {
    let [line] = error_lines else {
        return Some(format!("{} error lines instead of one", error_lines.len()));
    };
    let message = line.trim_start_matches("error:").trim();
    if message.split_whitespace().count() < 3 {
        Some("the error line says too little".to_owned())
    } else if message.chars().count() > 1000 {
        Some("the error line quotes too much".to_owned())
    } else if message.chars().any(char::is_control) {
        Some("the error line has raw control characters".to_owned())
    } else {
        None
    }
}

/// The end of a case in one line.
fn describe(ended: &Ended) -> String {
    let last = ended.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    let last: String = last.chars().take(160).flat_map(char::escape_debug).collect();
    format!("{last} ({:.2} s)", ended.elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests;
